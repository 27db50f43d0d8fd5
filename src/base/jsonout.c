/* jsonout.c - writing JSON
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/jsonout.h"

#include "base/alloc.h"
#include "base/error.h"
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FLUSH_BYTES ((size_t)1 << 16)

void mh_jsonout_init(mh_jsonout *out, FILE *file)
{
    *out = (mh_jsonout){.file = file, .failed = MH_OK};
}

static void out_flush(mh_jsonout *out)
{
    if (out->failed == MH_OK && fwrite(out->text, 1, out->length, out->file) != out->length) {
        out->failed = MH_ERR_IO;
        out->sys_errno = errno;
    }
    out->length = 0;
}

static void out_put(mh_jsonout *out, const char *bytes, size_t count)
{
    if (out->file && out->length >= FLUSH_BYTES)
        out_flush(out);
    if (out->failed != MH_OK)
        return;
    if (count >= out->room - out->length) { /* one byte more, for the NUL */
        size_t room = (out->length + count + 1) * 2;
        char *grown = mh_realloc(out->text, room, 1);
        if (!grown) {
            out->failed = MH_ERR_NOMEM;
            return;
        }
        out->text = grown;
        out->room = room;
    }
    memcpy(out->text + out->length, bytes, count);
    out->length += count;
}

static void out_text(mh_jsonout *out, const char *text)
{
    out_put(out, text, strlen(text));
}

/* Before a key or value. */
static void out_begin(mh_jsonout *out)
{
    if (out->comma)
        out_put(out, ", ", 2);
    out->comma = true;
}

static void out_open(mh_jsonout *out, const char *bracket)
{
    out_begin(out);
    out_text(out, bracket);
    out->comma = false;
}

static void out_close(mh_jsonout *out, const char *bracket)
{
    out_text(out, bracket);
    out->comma = true;
}

void mh_jsonout_object(mh_jsonout *out)
{
    out_open(out, "{");
}

void mh_jsonout_object_end(mh_jsonout *out)
{
    out_close(out, "}");
}

void mh_jsonout_array(mh_jsonout *out)
{
    out_open(out, "[");
}

void mh_jsonout_array_end(mh_jsonout *out)
{
    out_close(out, "]");
}

/* Whether the byte is written as \u00XX: below a blank, and what begins or ends markup. */
static bool by_number(const mh_jsonout *out, unsigned char c)
{
    return c < 0x20 || (out->html && (c == '<' || c == '>' || c == '&'));
}

/* A character above ASCII; returns its bytes. */
static size_t out_wide(mh_jsonout *out, const char *text)
{
    size_t length = mh_json_utf8_length(text, strlen(text));
    /* U+2028 and U+2029 end a line of a script */
    if (out->html && length == 3 && (memcmp(text, "\xe2\x80\xa8", 3) == 0))
        out_put(out, "\\u2028", 6);
    else if (out->html && length == 3 && (memcmp(text, "\xe2\x80\xa9", 3) == 0))
        out_put(out, "\\u2029", 6);
    else
        out_put(out, length ? text : "?", length ? length : 1);
    return length ? length : 1;
}

static void out_quoted(mh_jsonout *out, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    out_put(out, "\"", 1);
    for (size_t length; *text; text += length) {
        unsigned char c = (unsigned char)*text;
        length = 1;
        if (c == '"' || c == '\\') {
            out_put(out, (const char[]){'\\', (char)c}, 2);
        } else if (by_number(out, c)) {
            out_put(out, (const char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
        } else if (c < 0x80) {
            while (text[length] && (unsigned char)text[length] < 0x80 && text[length] != '"' &&
                   text[length] != '\\' && !by_number(out, (unsigned char)text[length]))
                length++;
            out_put(out, text, length);
        } else {
            length = out_wide(out, text);
        }
    }
    out_put(out, "\"", 1);
}

void mh_jsonout_key(mh_jsonout *out, const char *key)
{
    out_begin(out);
    out_quoted(out, key);
    out_put(out, ": ", 2);
    out->comma = false;
}

void mh_jsonout_string(mh_jsonout *out, const char *text)
{
    out_begin(out);
    out_quoted(out, text);
}

void mh_jsonout_token(mh_jsonout *out, const mh_json_token *token)
{
    out_begin(out);
    out_put(out, "\"", 1);
    out_put(out, token->text, token->length);
    out_put(out, "\"", 1);
}

void mh_jsonout_int(mh_jsonout *out, int64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    out_begin(out);
    out_text(out, text);
}

void mh_jsonout_uint(mh_jsonout *out, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    out_begin(out);
    out_text(out, text);
}

void mh_jsonout_thousandths(mh_jsonout *out, uint64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64 ".%03u", value / 1000, (unsigned)(value % 1000));
    out_begin(out);
    out_text(out, text);
}

void mh_jsonout_double(mh_jsonout *out, double value)
{
    char text[40];
    if (!isfinite(value)) {
        mh_jsonout_null(out);
        return;
    }
    /* The user's locale may write a comma. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = plain ? uselocale(plain) : (locale_t)0;
    for (int precision = 15; precision <= 17; precision++) {
        (void)snprintf(text, sizeof text, "%.*g", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (plain) {
        (void)uselocale(before);
        freelocale(plain);
    }
    if (!strpbrk(text, ".e"))
        strcat(text, ".0"); /* a reader that tells integers apart sees what this was */
    out_begin(out);
    out_text(out, text);
}

void mh_jsonout_bool(mh_jsonout *out, bool value)
{
    out_begin(out);
    out_text(out, value ? "true" : "false");
}

void mh_jsonout_null(mh_jsonout *out)
{
    out_begin(out);
    out_text(out, "null");
}

static void copy_text(mh_jsonout *out, const mh_json_token *token)
{
    char *text = mh_calloc(token->length + 1, 1);
    if (!text) {
        out->failed = MH_ERR_NOMEM;
        return;
    }
    (void)mh_json_text(token, text, token->length + 1);
    if (token->kind == MH_JSON_KEY)
        mh_jsonout_key(out, text);
    else
        mh_jsonout_string(out, text);
    mh_free(text);
}

static void copy_number(mh_jsonout *out, const mh_json_token *token)
{
    int64_t whole;
    uint64_t natural;
    double real = NAN;
    if (mh_json_int64(token, &whole)) {
        mh_jsonout_int(out, whole);
    } else if (mh_json_uint64(token, &natural)) {
        mh_jsonout_uint(out, natural);
    } else {
        (void)mh_json_double(token, &real);
        mh_jsonout_double(out, real);
    }
}

void mh_jsonout_copy(mh_jsonout *out, const mh_json_token *token)
{
    switch (token->kind) {
    case MH_JSON_OBJECT:
        mh_jsonout_object(out);
        break;
    case MH_JSON_OBJECT_END:
        mh_jsonout_object_end(out);
        break;
    case MH_JSON_ARRAY:
        mh_jsonout_array(out);
        break;
    case MH_JSON_ARRAY_END:
        mh_jsonout_array_end(out);
        break;
    case MH_JSON_KEY:
    case MH_JSON_STRING:
        copy_text(out, token);
        break;
    case MH_JSON_NUMBER_VALUE:
        copy_number(out, token);
        break;
    case MH_JSON_TRUE:
    case MH_JSON_FALSE:
        mh_jsonout_bool(out, token->kind == MH_JSON_TRUE);
        break;
    default:
        mh_jsonout_null(out);
    }
}

void mh_jsonout_newline(mh_jsonout *out)
{
    if (out->comma)
        out_put(out, ",", 1);
    out_put(out, "\n", 1);
    out->comma = false;
}

mh_status mh_jsonout_finish(mh_jsonout *out, mh_error *err)
{
    out_put(out, "", 0); /* makes a text even of nothing, with room for the NUL */
    if (out->file)
        out_flush(out);
    if (out->failed == MH_OK && out->file && fflush(out->file) != 0) {
        out->failed = MH_ERR_IO;
        out->sys_errno = errno;
    }
    if (out->failed == MH_ERR_IO)
        return mh_fail_sys(err, MH_ERR_IO, out->sys_errno, "cannot write");
    if (out->failed != MH_OK)
        return mh_fail(err, out->failed, "no memory for %zu bytes of JSON", out->length);
    out->text[out->length] = '\0';
    return MH_OK;
}

void mh_jsonout_deinit(mh_jsonout *out)
{
    mh_free(out->text);
    out->text = NULL;
}
