/* letters.c - types of elements as Python's struct module and buffer protocol write them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/letters.h"

const char *mh_letter_of(mh_dtype dtype)
{
    static const struct {
        mh_dtype dtype;
        const char *letter;
    } letters[] = {
        {{0, 8}, "b"},  {{0, 16}, "h"}, {{0, 32}, "i"},  {{0, 64}, "q"},   {{1, 8}, "B"},
        {{1, 16}, "H"}, {{1, 32}, "I"}, {{1, 64}, "Q"},  {{2, 16}, "e"},   {{2, 32}, "f"},
        {{2, 64}, "d"}, {{6, 8}, "?"},  {{5, 64}, "Zf"}, {{5, 128}, "Zd"},
    };
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].dtype.code == dtype.code && letters[i].dtype.bits == dtype.bits)
            return letters[i].letter;
    return NULL;
}
