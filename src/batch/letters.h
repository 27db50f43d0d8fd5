/* letters.h - types of elements as Python's struct module and buffer protocol write them
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure.
 */
#ifndef MH_BATCH_LETTERS_H
#define MH_BATCH_LETTERS_H

#include <millhead/dataset.h>
#include <stdbool.h>
#include <string.h>

/* NULL: the type has no letter. */
const char *mh_letter_of(mh_dtype dtype);

/* The type behind `letter` (NULL: bytes) whose elements have so many bytes. False for other byte
 * orders, strings, dates, structures and long doubles. How large an "l" is depends on the machine:
 * the number of bytes tells. Inline, because it is asked for each sample. */
static inline bool mh_letter_read(mh_dtype *out, const char *letter, uint64_t element_bytes)
{
    const char *text = letter ? letter : "B";
    bool complex_number = text[0] == 'Z';
    char kind = text[complex_number];
    if (kind == 0 || text[complex_number + 1] != 0 || element_bytes > 16)
        return false;
    out->bits = (uint8_t)(element_bytes * 8);
    if (complex_number)
        out->code = 5;
    else if (kind == '?')
        out->code = 6;
    else if (strchr("bhilq", kind))
        out->code = 0;
    else if (strchr("BHILQ", kind))
        out->code = 1;
    else
        out->code = 2;
    return strchr(complex_number ? "fd" : "?bhilqBHILQefd", kind) != NULL;
}

#endif
