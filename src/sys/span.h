/* span.h - pieces of text that need not end in NUL, and how to cut them
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_SPAN_H
#define MH_SYS_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A piece of the input; never NUL-terminated. */
typedef struct mh_span {
    const char *data;
    size_t size;
} mh_span;

/* Cuts the next piece off `rest`, up to `mark` (which is dropped); false when nothing is left. */
static inline bool mh_span_next(mh_span *rest, char mark, mh_span *out)
{
    if (rest->size == 0)
        return false;
    const char *end = memchr(rest->data, mark, rest->size);
    out->data = rest->data;
    out->size = end ? (size_t)(end - rest->data) : rest->size;
    size_t used = end ? out->size + 1 : out->size;
    rest->data += used;
    rest->size -= used;
    return true;
}

static inline bool mh_span_is(mh_span piece, const char *text)
{
    size_t size = strlen(text);
    return piece.size == size && memcmp(piece.data, text, size) == 0;
}

static inline bool mh_is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Cuts the next word off `rest`; false when there is none. */
static inline bool mh_span_word(mh_span *rest, mh_span *out)
{
    while (rest->size > 0 && mh_is_space(*rest->data)) {
        rest->data++;
        rest->size--;
    }
    out->data = rest->data;
    out->size = 0;
    while (rest->size > 0 && !mh_is_space(*rest->data)) {
        rest->data++;
        rest->size--;
        out->size++;
    }
    return out->size > 0;
}

/* Decimal digits only; what does not fit becomes UINT64_MAX. */
static inline bool mh_span_number(mh_span word, uint64_t *out)
{
    uint64_t value = 0;
    bool large = false;
    if (word.size == 0)
        return false;
    for (size_t at = 0; at < word.size; at++) {
        if (word.data[at] < '0' || word.data[at] > '9')
            return false;
        uint64_t digit = (uint64_t)(word.data[at] - '0');
        large = large || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
                __builtin_add_overflow(value, digit, &value);
    }
    *out = large ? UINT64_MAX : value;
    return true;
}

#endif
