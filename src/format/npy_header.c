/* npy_header.c - the head of an .npy file, read by a pure function over its bytes
 * SPDX-License-Identifier: Apache-2.0
 *
 * The head is a Python dict as text, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), },
 * with the three keys in any order.
 */
#include "format/npy_header.h"

#include "base/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6u
#define TYPE_MOST 32

typedef struct text {
    const char *at, *end;
    const uint8_t *file; /* for the offset in messages */
} text;

static mh_status corrupt(const text *t, mh_error *err, const char *what)
{
    return mh_fail(err, MH_ERR_CORRUPT, "npy header at byte %zu: %s",
                   (size_t)((const uint8_t *)t->at - t->file), what);
}

static void skip_blanks(text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t'))
        t->at++;
}

static bool take(text *t, char c)
{
    skip_blanks(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool take_word(text *t, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(t);
    if ((size_t)(t->end - t->at) < length || memcmp(t->at, word, length) != 0)
        return false;
    t->at += length;
    return true;
}

/* 'word' or "word", without escapes: NumPy writes none. */
static mh_status take_quoted(text *t, char *out, size_t room, mh_error *err)
{
    size_t length = 0;
    skip_blanks(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return corrupt(t, err, "a quote is missing");
    char quote = *t->at++;
    while (t->at < t->end && *t->at != quote && length + 1 < room)
        out[length++] = *t->at++;
    out[length] = '\0';
    return take(t, quote) ? MH_OK : corrupt(t, err, "a word does not end");
}

static mh_status take_length(text *t, int64_t *out, mh_error *err)
{
    int64_t value = 0;
    skip_blanks(t);
    if (t->at == t->end || *t->at < '0' || *t->at > '9')
        return corrupt(t, err, "a number is missing in the shape");
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *t->at - '0', &value))
            return corrupt(t, err, "a length is too large");
    (void)take(t, 'L'); /* as Python 2 wrote long numbers */
    *out = value;
    return MH_OK;
}

static mh_status take_shape(text *t, mh_npy_header *header, mh_error *err)
{
    if (!take(t, '('))
        return corrupt(t, err, "the shape is not a tuple");
    while (!take(t, ')')) {
        if (header->dims == MH_DIMS_MOST)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array of more than %d dimensions",
                           MH_DIMS_MOST);
        MH_TRY(take_length(t, &header->shape[header->dims++], err));
        if (!take(t, ',')) {
            if (!take(t, ')'))
                return corrupt(t, err, "the shape does not end");
            break;
        }
    }
    return MH_OK;
}

/* --- types --- */

static mh_status type_size(const char *digits, uint32_t *out, mh_error *err, const char *type)
{
    char *end;
    unsigned long size = strtoul(digits, &end, 10);
    if (end == digits || size > UINT32_MAX / 4)
        return mh_fail(err, MH_ERR_CORRUPT, "npy header: '%s' is not a type", type);
    *out = (uint32_t)size;
    return MH_OK;
}

static bool is_number(char kind, uint32_t size, uint8_t *out_code)
{
    static const struct {
        char kind;
        uint8_t code;
        uint32_t least, most;
    } kinds[] = {{'i', 0, 1, 8}, {'u', 1, 1, 8}, {'f', 2, 2, 8}, {'c', 5, 8, 16}, {'b', 6, 1, 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind) {
            *out_code = kinds[i].code;
            return size >= kinds[i].least && size <= kinds[i].most && (size & (size - 1)) == 0;
        }
    return false;
}

static mh_status type_of(mh_npy_header *header, const char *type, uint32_t *out_row, mh_error *err)
{
    uint32_t size = 0;
    char order = type[0];
    if (!order || !type[1])
        return mh_fail(err, MH_ERR_CORRUPT, "npy header: '%s' is not a type", type);
    if (type[1] == 'O')
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array of Python objects (%s)", type);
    MH_TRY(type_size(type + 2, &size, err, type));
    if (order == '>' && size > 1)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array in the other byte order (%s)", type);
    header->dtype.bits = (uint8_t)(size * 8);
    *out_row = 1;
    switch (type[1]) {
    case 'M': /* datetime64[unit] */
    case 'm':
        header->dtype = (mh_dtype){.code = 0, .bits = 64};
        return size == 8 ? MH_OK
                         : mh_fail(err, MH_ERR_CORRUPT, "npy header: '%s' is not a type", type);
    case 'U': /* four bytes a character */
        size *= 4;
        /* fall through */
    case 'S':
    case 'V':
        header->dtype = (mh_dtype){.code = 1, .bits = 8};
        *out_row = size;
        return MH_OK;
    default:
        if (is_number(type[1], size, &header->dtype.code))
            return MH_OK;
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array of type %s", type);
    }
}

static mh_status take_type(text *t, char *type, mh_error *err)
{
    skip_blanks(t);
    if (t->at < t->end && *t->at == '[')
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array with named members");
    return take_quoted(t, type, TYPE_MOST, err);
}

/* --- the whole --- */

static mh_status take_entry(text *t, mh_npy_header *header, char *type, unsigned *seen,
                            mh_error *err)
{
    char key[TYPE_MOST];
    MH_TRY(take_quoted(t, key, sizeof key, err));
    if (!take(t, ':'))
        return corrupt(t, err, "a colon is missing");
    if (strcmp(key, "descr") == 0 && !(*seen & 1)) {
        *seen |= 1;
        return take_type(t, type, err);
    }
    if (strcmp(key, "fortran_order") == 0 && !(*seen & 2)) {
        *seen |= 2;
        if (take_word(t, "False"))
            return MH_OK;
        if (take_word(t, "True"))
            *seen |= 8;
        return *seen & 8 ? MH_OK : corrupt(t, err, "fortran_order is neither True nor False");
    }
    if (strcmp(key, "shape") == 0 && !(*seen & 4)) {
        *seen |= 4;
        return take_shape(t, header, err);
    }
    return corrupt(t, err, "an unknown or repeated key");
}

static mh_status measure(mh_npy_header *header, mh_error *err)
{
    uint64_t bytes = header->dtype.bits / 8;
    for (uint32_t i = 0; i < header->dims; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)header->shape[i], &bytes) || bytes > INT64_MAX)
            return mh_fail(err, MH_ERR_CORRUPT, "npy header: the array would be too large");
    header->data_bytes = bytes;
    return MH_OK;
}

static mh_status read_dict(text *t, mh_npy_header *header, mh_error *err)
{
    char type[TYPE_MOST];
    uint32_t row = 1;
    unsigned seen = 0;
    if (!take(t, '{'))
        return corrupt(t, err, "not a dict");
    while (!take(t, '}')) {
        MH_TRY(take_entry(t, header, type, &seen, err));
        if (!take(t, ',') && t->at < t->end && *t->at != '}')
            return corrupt(t, err, "a comma is missing");
    }
    if ((seen & 7) != 7)
        return corrupt(t, err, "descr, fortran_order or shape is missing");
    MH_TRY(type_of(header, type, &row, err));
    if ((seen & 8) && header->dims > 1)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array in Fortran order");
    if (row != 1)
        header->shape[header->dims++] = row;
    return measure(header, err);
}

mh_status mh_npy_header_read(mh_npy_header *out, const uint8_t *bytes, size_t size, mh_error *err)
{
    mh_npy_header header = {0};
    if (size < MAGIC_BYTES + 6 || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0)
        return mh_fail(err, MH_ERR_CORRUPT, "not an npy file");
    uint8_t version = bytes[MAGIC_BYTES];
    if (version < 1 || version > 3)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy version %u", version);
    size_t begin = version == 1 ? 10 : 12;
    uint64_t length = bytes[8] | (uint64_t)bytes[9] << 8;
    if (version > 1)
        length |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
    if (length > MH_NPY_HEAD_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy header of %llu bytes",
                       (unsigned long long)length);
    if (size < begin || length > size - begin)
        return mh_fail(err, MH_ERR_CORRUPT, "npy header ends after %zu bytes", size);
    text t = {(const char *)bytes + begin, (const char *)bytes + begin + length, bytes};
    MH_TRY(read_dict(&t, &header, err));
    header.data_offset = begin + length;
    *out = header;
    return MH_OK;
}
