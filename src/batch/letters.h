/* letters.h - types of elements as Python's struct module and buffer protocol write them
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure.
 */
#ifndef MH_BATCH_LETTERS_H
#define MH_BATCH_LETTERS_H

#include <millhead/dataset.h>
#include <stdbool.h>

/* NULL: the type has no letter. */
const char *mh_letter_of(mh_dtype dtype);

/* The type behind `letter` (NULL: bytes) whose elements have so many bytes. False for other byte
 * orders, strings, dates, structures and long doubles. */
bool mh_letter_read(mh_dtype *out, const char *letter, uint64_t element_bytes);

#endif
