/* npy_header.c - the head of an .npy file, read by a pure function over its bytes
 * SPDX-License-Identifier: Apache-2.0
 *
 * The head is a Python dict as text, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), },
 * with the three keys in any order. A type with members is a list, each ('name', type) or
 * ('name', type, shape), where the type may be such a list again.
 */
#include "format/npy_header.h"

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WORD_ROOM 32
#define DEPTH_MOST 8 /* structs inside structs */

typedef struct text {
    const char *at, *end;
    const uint8_t *file; /* for the offset in messages */
    bool latin1;         /* else UTF-8 */
} text;

typedef struct lengths {
    uint32_t dims;
    int64_t list[MH_DIMS_MOST + 1];
} lengths;

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

static bool next_is(text *t, char c)
{
    skip_blanks(t);
    return t->at < t->end && *t->at == c;
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

/* 'word' or "word" as UTF-8. Of escapes only those that NumPy needs for quotes are known. */
static mh_status take_quoted(text *t, char *out, size_t room, mh_error *err)
{
    size_t length = 0;
    if (!next_is(t, '\'') && !next_is(t, '"'))
        return corrupt(t, err, "a quote is missing");
    char quote = *t->at++;
    while (t->at < t->end && *t->at != quote && *t->at != '\0' && length + 2 < room) {
        if (*t->at == '\\' && (++t->at == t->end || !strchr("\\'\"", *t->at)))
            return mh_fail(err, MH_ERR_UNSUPPORTED, "npy header with an escape in a name");
        unsigned char c = (unsigned char)*t->at++;
        if (c >= 0x80 && t->latin1) {
            out[length++] = (char)(0xc0 | c >> 6);
            c = 0x80 | (c & 0x3f);
        }
        out[length++] = (char)c;
    }
    out[length] = '\0';
    return take(t, quote) ? MH_OK : corrupt(t, err, "a word does not end or is too long");
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

static mh_status take_shape(text *t, lengths *out, mh_error *err)
{
    out->dims = 0;
    if (!take(t, '('))
        return corrupt(t, err, "the shape is not a tuple");
    while (!take(t, ')')) {
        if (out->dims == MH_DIMS_MOST + 1)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array of more than %d dimensions",
                           MH_DIMS_MOST + 1);
        MH_TRY(take_length(t, &out->list[out->dims++], err));
        if (!take(t, ',')) {
            if (!take(t, ')'))
                return corrupt(t, err, "the shape does not end");
            break;
        }
    }
    return MH_OK;
}

/* *bytes of one become those of all. */
static mh_status multiply(uint64_t *bytes, const lengths *shape, mh_error *err)
{
    for (uint32_t i = 0; i < shape->dims; i++)
        if (__builtin_mul_overflow(*bytes, (uint64_t)shape->list[i], bytes) || *bytes > INT64_MAX)
            return mh_fail(err, MH_ERR_CORRUPT, "npy header: the array would be too large");
    return MH_OK;
}

/* --- types --- */

static mh_status new_member(mh_npy_header *header, mh_npy_member **out, mh_error *err)
{
    if (header->member_count == MH_NPY_MEMBERS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array with more than %d members",
                       MH_NPY_MEMBERS_MOST);
    *out = &header->members[header->member_count++];
    **out = (mh_npy_member){0};
    return MH_OK;
}

/* A member's dimensions go before those that it has: each of `bytes` repeats. */
static mh_status repeat(mh_npy_member *member, const lengths *shape, uint64_t bytes, mh_error *err)
{
    if (shape->dims + member->dims > MH_DIMS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy member %s of more than %d dimensions",
                       member->name, MH_DIMS_MOST);
    memmove(member->shape + shape->dims, member->shape, member->dims * sizeof *member->shape);
    memmove(member->strides + shape->dims, member->strides, member->dims * sizeof *member->strides);
    for (uint32_t i = shape->dims; i-- > 0;) {
        member->shape[i] = shape->list[i];
        member->strides[i] = bytes;
        bytes *= (uint64_t)shape->list[i]; /* too large only where another length is 0 */
    }
    member->dims += shape->dims;
    return MH_OK;
}

/* 'name' or ('title', 'name'), after the names of the structs around it. */
static mh_status take_name(text *t, const char *around, char *out, mh_error *err)
{
    char name[MH_NPY_NAME_ROOM];
    bool titled = take(t, '(');
    MH_TRY(take_quoted(t, name, sizeof name, err));
    if (titled) {
        if (!take(t, ','))
            return corrupt(t, err, "a comma is missing");
        MH_TRY(take_quoted(t, name, sizeof name, err));
        if (!take(t, ')'))
            return corrupt(t, err, "a title does not end");
    }
    const char *dot = *around && *name ? "." : "";
    if (snprintf(out, MH_NPY_NAME_ROOM, "%s%s%s", *name ? around : "", dot, name) >=
        MH_NPY_NAME_ROOM)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy member with a name of more than %d bytes",
                       MH_NPY_NAME_ROOM - 1);
    return MH_OK;
}

/* A single type. Bytes without a name fill a gap. */
static mh_status take_simple(text *t, mh_npy_header *header, const char *name, bool is_member,
                             uint64_t *out_bytes, mh_error *err)
{
    char type[WORD_ROOM];
    mh_npy_member *member = NULL;
    MH_TRY(take_quoted(t, type, sizeof type, err));
    MH_TRY(new_member(header, &member, err));
    (void)snprintf(member->name, sizeof member->name, "%s", name);
    mh_status status = mh_npy_type_read(member, out_bytes, type, err);
    if (status != MH_OK && *name)
        mh_error_prefix(err, "member %s", name);
    if (is_member && !*name && type[0] && type[1] == 'V')
        header->member_count--;
    else if (is_member && !*name && status == MH_OK)
        return corrupt(t, err, "a member has no name");
    return status;
}

static mh_status take_members(text *t, mh_npy_header *header, const char *around, int depth,
                              uint64_t *out_bytes, mh_error *err);

/* ('name', type) or ('name', type, shape); *end is where the one before ends in the element. */
static mh_status take_member(text *t, mh_npy_header *header, const char *around, int depth,
                             uint64_t *end, mh_error *err)
{
    char name[MH_NPY_NAME_ROOM];
    uint32_t first = header->member_count;
    uint64_t bytes = 0;
    lengths shape = {0};
    if (!take(t, '('))
        return corrupt(t, err, "a member is not a tuple");
    MH_TRY(take_name(t, around, name, err));
    if (!take(t, ','))
        return corrupt(t, err, "a comma is missing");
    if (next_is(t, '['))
        MH_TRY(take_members(t, header, name, depth + 1, &bytes, err));
    else
        MH_TRY(take_simple(t, header, name, true, &bytes, err));
    if (take(t, ',') && next_is(t, '('))
        MH_TRY(take_shape(t, &shape, err));
    if (!take(t, ')'))
        return corrupt(t, err, "a member does not end");
    for (uint32_t i = first; i < header->member_count; i++) {
        MH_TRY(repeat(&header->members[i], &shape, bytes, err));
        header->members[i].offset += *end;
    }
    MH_TRY(multiply(&bytes, &shape, err));
    if (__builtin_add_overflow(*end, bytes, end) || *end > INT64_MAX)
        return corrupt(t, err, "an element would be too large");
    return MH_OK;
}

static mh_status take_members(text *t, mh_npy_header *header, const char *around, int depth,
                              uint64_t *out_bytes, mh_error *err)
{
    *out_bytes = 0;
    if (depth > DEPTH_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy members nested more than %d deep", DEPTH_MOST);
    (void)take(t, '[');
    while (!take(t, ']')) {
        MH_TRY(take_member(t, header, around, depth, out_bytes, err));
        if (!take(t, ',') && !next_is(t, ']'))
            return corrupt(t, err, "the list of members does not end");
    }
    return MH_OK;
}

static mh_status take_type(text *t, mh_npy_header *header, mh_error *err)
{
    header->member_count = 0;
    if (!next_is(t, '['))
        return take_simple(t, header, "", false, &header->item_bytes, err);
    MH_TRY(take_members(t, header, "", 0, &header->item_bytes, err));
    return header->member_count
               ? MH_OK
               : mh_fail(err, MH_ERR_UNSUPPORTED, "npy array of structs without members");
}

/* --- the whole --- */

enum { SEEN_TYPE = 1, SEEN_ORDER = 2, SEEN_SHAPE = 4, SEEN_ALL = 7 };

static mh_status take_entry(text *t, mh_npy_header *header, lengths *shape, unsigned *seen,
                            mh_error *err)
{
    char key[WORD_ROOM];
    MH_TRY(take_quoted(t, key, sizeof key, err));
    if (!take(t, ':'))
        return corrupt(t, err, "a colon is missing");
    if (strcmp(key, "descr") == 0 && !(*seen & SEEN_TYPE)) {
        *seen |= SEEN_TYPE;
        return take_type(t, header, err);
    }
    if (strcmp(key, "fortran_order") == 0 && !(*seen & SEEN_ORDER)) {
        *seen |= SEEN_ORDER;
        header->fortran = take_word(t, "True");
        return header->fortran || take_word(t, "False")
                   ? MH_OK
                   : corrupt(t, err, "fortran_order is neither True nor False");
    }
    if (strcmp(key, "shape") == 0 && !(*seen & SEEN_SHAPE)) {
        *seen |= SEEN_SHAPE;
        return take_shape(t, shape, err);
    }
    return corrupt(t, err, "an unknown or repeated key");
}

static mh_status read_dict(text *t, mh_npy_header *header, mh_error *err)
{
    lengths shape = {0};
    unsigned seen = 0;
    if (!take(t, '{'))
        return corrupt(t, err, "not a dict");
    while (!take(t, '}')) {
        MH_TRY(take_entry(t, header, &shape, &seen, err));
        if (!take(t, ',') && t->at < t->end && *t->at != '}')
            return corrupt(t, err, "a comma is missing");
    }
    if (seen != SEEN_ALL)
        return corrupt(t, err, "descr, fortran_order or shape is missing");
    header->dims = shape.dims;
    memcpy(header->shape, shape.list, sizeof header->shape);
    header->fortran = header->fortran && shape.dims > 1; /* else there is one order only */
    header->data_bytes = header->item_bytes;
    return multiply(&header->data_bytes, &shape, err);
}

mh_status mh_npy_header_read(mh_npy_header *out, const uint8_t *bytes, size_t size, mh_error *err)
{
    if (size < MH_NPY_MAGIC_BYTES + 6 || memcmp(bytes, MH_NPY_MAGIC, MH_NPY_MAGIC_BYTES) != 0)
        return mh_fail(err, MH_ERR_CORRUPT, "not an npy file");
    uint8_t version = bytes[MH_NPY_MAGIC_BYTES];
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
    text t = {(const char *)bytes + begin, (const char *)bytes + begin + length, bytes,
              version < 3};
    MH_TRY(read_dict(&t, out, err));
    out->data_offset = begin + length;
    return MH_OK;
}
