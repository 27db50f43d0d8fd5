/* json.c - a strict pull parser for JSON text
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/json.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* What may come next. */
enum {
    WANT_VALUE,        /* a value */
    WANT_FIRST_VALUE,  /* a value or ] */
    WANT_FIRST_KEY,    /* a key or } */
    WANT_COLON,        /* a colon and a value */
    WANT_COMMA_OR_END, /* a comma and the next member, or the end of this level */
    WANT_NOTHING,      /* the value is over */
};

void mh_json_init(mh_json *json, const char *data, size_t size)
{
    *json = (mh_json){.data = data, .size = size, .expect = WANT_VALUE};
}

static mh_json_kind json_fail(mh_json *json, mh_json_token *token, const char *problem)
{
    if (!json->problem)
        json->problem = problem;
    json->expect = WANT_NOTHING;
    token->kind = MH_JSON_ERROR;
    return MH_JSON_ERROR;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The next character that is no blank, or NUL at the end; a NUL in the text fits nowhere either. */
static inline char json_peek(mh_json *json)
{
    while (json->at < json->size && is_blank(json->data[json->at]))
        json->at++;
    return json->at < json->size ? json->data[json->at] : '\0';
}

/* --- strings --- */

size_t mh_json_utf8_length(const char *text, size_t left)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned char first = at[0];
    size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length == 0 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] > 0x9f) ||
        (first == 0xf0 && at[1] < 0x90) || (first == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

/* Four hexadecimal digits; -1: they are not. */
static int hex4(const char *at, size_t left)
{
    int value = 0;
    if (left < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static bool is_high_surrogate(int unit)
{
    return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low_surrogate(int unit)
{
    return unit >= 0xdc00 && unit < 0xe000;
}

/* Bytes of the escape whose backslash is at `at`; 0: there is none. A surrogate needs its pair. */
static size_t escape_length(const char *at, size_t left)
{
    if (left < 2)
        return 0;
    if (at[1] != 'u')
        return at[1] != '\0' && strchr("\"\\/bfnrt", at[1]) ? 2 : 0;
    int unit = hex4(at + 2, left - 2);
    if (unit < 0 || is_low_surrogate(unit))
        return 0;
    if (!is_high_surrogate(unit))
        return 6;
    bool paired =
        left >= 12 && at[6] == '\\' && at[7] == 'u' && is_low_surrogate(hex4(at + 8, left - 8));
    return paired ? 12 : 0;
}

/* How many of the 8 bytes at `at` come before a quote, a backslash, a control character or one
 * above ASCII. A byte below what is taken from it borrows, and its high bit tells; what it borrows
 * may set high bits above it for nothing, so only the lowest one counts. */
static size_t plain_bytes(const char *at)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    uint64_t word;
    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
    uint64_t odd = (quote - ones) | (backslash - ones) | (word - ones * 0x20) | word;
    odd &= highs;
    return odd ? (size_t)__builtin_ctzll(odd) / 8 : 8;
}

/* From behind the opening quote to behind the closing one. */
static bool json_string(mh_json *json, mh_json_token *token)
{
    const char *data = json->data;
    size_t at = json->at, size = json->size;
    token->escaped = false;
    token->text = data + at;
    for (;;) {
        for (size_t plain = 8; plain == 8 && size - at >= 8; at += plain)
            plain = plain_bytes(data + at);
        if (at >= size) {
            json->problem = "a string without end";
            break;
        }
        unsigned char c = (unsigned char)data[at];
        size_t length = 1;
        if (c == '"') {
            token->length = (size_t)(data + at - token->text);
            json->at = at + 1;
            return true;
        }
        if (c == '\\') {
            token->escaped = true;
            length = escape_length(data + at, size - at);
            if (!length)
                json->problem = "not an escape";
        } else if (c < 0x20) {
            json->problem = "a control character in a string";
            length = 0;
        } else if (c >= 0x80) {
            length = mh_json_utf8_length(data + at, size - at);
            if (!length)
                json->problem = "not UTF-8";
        }
        if (!length)
            break;
        at += length;
    }
    json->at = at;
    return false;
}

static size_t put_utf8(char *out, uint32_t point)
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (char)(0xc0 | point >> 6);
        out[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (char)(0xe0 | point >> 12);
        out[1] = (char)(0x80 | (point >> 6 & 0x3f));
        out[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | point >> 18);
    out[1] = (char)(0x80 | (point >> 12 & 0x3f));
    out[2] = (char)(0x80 | (point >> 6 & 0x3f));
    out[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

/* The character an escape stands for; the escape was checked when its string was read. */
static uint32_t escape_point(const char *at, size_t length)
{
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    if (length == 2) {
        const char *letter = strchr(letters, at[1]);
        return (uint32_t)(unsigned char)(letter ? meant[letter - letters] : at[1]);
    }
    uint32_t unit = (uint32_t)hex4(at + 2, 4);
    if (length == 6)
        return unit;
    return 0x10000 + ((unit - 0xd800) << 10) + ((uint32_t)hex4(at + 8, 4) - 0xdc00);
}

size_t mh_json_text(const mh_json_token *token, char *out, size_t room)
{
    size_t used = 0;
    for (size_t at = 0; at < token->length && room > 0;) {
        const char *from = token->text + at;
        char character[4];
        size_t taken, length;
        if (*from == '\\') {
            taken = escape_length(from, token->length - at);
            if (!taken)
                break;
            length = put_utf8(character, escape_point(from, taken));
        } else {
            taken = (unsigned char)*from < 0x80 ? 1 : mh_json_utf8_length(from, token->length - at);
            if (!taken)
                break;
            length = taken;
            memcpy(character, from, length);
        }
        if (length >= room - used)
            break;
        memcpy(out + used, character, length);
        used += length;
        at += taken;
    }
    if (room > 0)
        out[used] = '\0';
    return used;
}

bool mh_json_is(const mh_json_token *token, const char *text)
{
    size_t length = strlen(text);
    return !token->escaped && token->length == length && memcmp(token->text, text, length) == 0;
}

/* --- numbers --- */

static size_t digits(const char *at, const char *end)
{
    const char *from = at;
    while (at < end && is_digit(*at))
        at++;
    return (size_t)(at - from);
}

static bool json_number(mh_json *json, mh_json_token *token)
{
    const char *begin = json->data + json->at, *end = json->data + json->size, *at = begin;
    json->problem = "not a number";
    if (at < end && *at == '-')
        at++;
    size_t whole = digits(at, end);
    if (whole == 0 || (whole > 1 && *at == '0'))
        return false;
    at += whole;
    if (at < end && *at == '.') {
        size_t fraction = digits(++at, end);
        if (!fraction)
            return false;
        at += fraction;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        size_t exponent = digits(at, end);
        if (!exponent)
            return false;
        at += exponent;
    }
    token->text = begin;
    token->length = (size_t)(at - begin);
    if (token->length > MH_JSON_NUMBER) {
        json->problem = "a number too long";
        return false;
    }
    json->problem = NULL;
    json->at += token->length;
    return true;
}

/* The digits as a number; false where there is anything else or it does not fit. */
static bool whole_number(const char *at, size_t length, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = 0;
    if (length == 0)
        return false;
    for (; i < length && i < 19 && is_digit(at[i]); i++) /* 19 digits always fit */
        value = value * 10 + (uint64_t)(at[i] - '0');
    for (; i < length; i++) {
        if (!is_digit(at[i]) || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(at[i] - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

bool mh_json_uint64(const mh_json_token *token, uint64_t *out)
{
    if (token->kind != MH_JSON_NUMBER_VALUE)
        return false;
    bool minus_zero = token->length == 2 && memcmp(token->text, "-0", 2) == 0;
    return whole_number(token->text + minus_zero, token->length - minus_zero, out);
}

bool mh_json_int64(const mh_json_token *token, int64_t *out)
{
    uint64_t value;
    if (token->kind != MH_JSON_NUMBER_VALUE)
        return false;
    bool minus = token->text[0] == '-';
    if (!whole_number(token->text + minus, token->length - minus, &value) ||
        value > (uint64_t)INT64_MAX + minus)
        return false;
    *out = (int64_t)(minus ? 0 - value : value);
    return true;
}

/* Few digits and a small power of ten: both are exact doubles, so one operation rounds once. */
static bool short_double(const mh_json_token *token, double *out)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t value = 0;
    size_t after_point = 0;
    bool minus = token->text[0] == '-', point = false;
    if (token->length > 16) /* then 15 digits at most */
        return false;
    for (size_t at = minus; at < token->length; at++) {
        char c = token->text[at];
        if (c == '.') {
            point = true;
            continue;
        }
        if (!is_digit(c))
            return false;
        value = value * 10 + (uint64_t)(c - '0');
        after_point += point;
    }
    if (value >> 53)
        return false;
    *out = (double)value / powers[after_point];
    if (minus)
        *out = -*out;
    return true;
}

bool mh_json_double(const mh_json_token *token, double *out)
{
    char copy[MH_JSON_NUMBER + 1];
    if (token->kind != MH_JSON_NUMBER_VALUE)
        return false;
    if (short_double(token, out))
        return true;
    memcpy(copy, token->text, token->length);
    copy[token->length] = '\0';
    /* The user's locale may write a comma. glibc keeps this one for good: nothing is allocated. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain)
        return false;
    *out = strtod_l(copy, NULL, plain);
    freelocale(plain);
    return true;
}

/* --- structure --- */

static bool json_word(mh_json *json, const char *word)
{
    size_t length = strlen(word);
    if (json->size - json->at < length || memcmp(json->data + json->at, word, length) != 0) {
        json->problem = "not a value";
        return false;
    }
    json->at += length;
    return true;
}

/* What Python's json module writes for numbers that JSON has no text for. */
static bool json_python_number(mh_json *json, mh_json_token *token)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]);
        if (json->size - json->at < length || memcmp(json->data + json->at, words[i], length) != 0)
            continue;
        token->text = json->data + json->at;
        token->length = length;
        json->at += length;
        return true;
    }
    return false;
}

/* Behind a value, or behind the bracket that ends one. */
static void json_value_done(mh_json *json)
{
    json->expect = json->depth ? WANT_COMMA_OR_END : WANT_NOTHING;
}

static mh_json_kind json_open(mh_json *json, mh_json_token *token, bool object)
{
    if (json->depth == MH_JSON_DEPTH)
        return json_fail(json, token, "nested too deep");
    uint64_t bit = UINT64_C(1) << json->depth++;
    json->objects = object ? json->objects | bit : json->objects & ~bit;
    json->expect = object ? WANT_FIRST_KEY : WANT_FIRST_VALUE;
    json->at++;
    return token->kind = object ? MH_JSON_OBJECT : MH_JSON_ARRAY;
}

static mh_json_kind json_close(mh_json *json, mh_json_token *token, bool object)
{
    json->at++;
    json->depth--;
    json_value_done(json);
    return token->kind = object ? MH_JSON_OBJECT_END : MH_JSON_ARRAY_END;
}

static mh_json_kind json_value(mh_json *json, mh_json_token *token, char c)
{
    bool good;
    switch (c) {
    case '{':
        return json_open(json, token, true);
    case '[':
        return json_open(json, token, false);
    case '"':
        json->at++;
        token->kind = MH_JSON_STRING;
        good = json_string(json, token);
        break;
    case 't':
        token->kind = MH_JSON_TRUE;
        good = json_word(json, "true");
        break;
    case 'f':
        token->kind = MH_JSON_FALSE;
        good = json_word(json, "false");
        break;
    case 'n':
        token->kind = MH_JSON_NULL;
        good = json_word(json, "null");
        break;
    default:
        if (json->at >= json->size)
            return json_fail(json, token, "cut short");
        token->kind = MH_JSON_NUMBER_VALUE;
        good =
            (json->python_numbers && json_python_number(json, token)) || json_number(json, token);
    }
    if (!good)
        return json_fail(json, token, NULL);
    json_value_done(json);
    return token->kind;
}

static mh_json_kind json_key(mh_json *json, mh_json_token *token, char c)
{
    if (c != '"')
        return json_fail(json, token, json->at < json->size ? "no key" : "cut short");
    json->at++;
    if (!json_string(json, token))
        return json_fail(json, token, NULL);
    json->expect = WANT_COLON;
    return token->kind = MH_JSON_KEY;
}

mh_json_kind mh_json_next(mh_json *json, mh_json_token *token)
{
    if (json->expect == WANT_NOTHING)
        return token->kind = json->problem ? MH_JSON_ERROR : MH_JSON_END;
    char c = json_peek(json);
    bool object = json->depth && (json->objects >> (json->depth - 1) & 1);
    switch (json->expect) {
    case WANT_COLON:
        if (c != ':')
            return json_fail(json, token, json->at < json->size ? "no colon" : "cut short");
        json->at++;
        return json_value(json, token, json_peek(json));
    case WANT_FIRST_KEY:
        return c == '}' ? json_close(json, token, true) : json_key(json, token, c);
    case WANT_FIRST_VALUE:
        return c == ']' ? json_close(json, token, false) : json_value(json, token, c);
    case WANT_COMMA_OR_END:
        if (c == (object ? '}' : ']'))
            return json_close(json, token, object);
        if (c != ',')
            return json_fail(json, token, json->at < json->size ? "no comma" : "cut short");
        json->at++;
        c = json_peek(json);
        return object ? json_key(json, token, c) : json_value(json, token, c);
    default:
        return json_value(json, token, c);
    }
}

bool mh_json_skip(mh_json *json, const mh_json_token *opened)
{
    mh_json_token token = *opened;
    if (opened->kind != MH_JSON_OBJECT && opened->kind != MH_JSON_ARRAY)
        return true;
    unsigned outside = json->depth - 1;
    while (json->depth > outside)
        if (mh_json_next(json, &token) == MH_JSON_ERROR)
            return false;
    return true;
}

bool mh_json_only_blanks(const char *data, size_t size)
{
    for (size_t at = 0; at < size; at++)
        if (!is_blank(data[at]))
            return false;
    return true;
}
