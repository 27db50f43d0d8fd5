/* nearest.h - the known word that a misspelt one most likely stands for
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_BASE_NEAREST_H
#define MH_BASE_NEAREST_H

#include <stddef.h>

/* How many letters must be put in, left out, replaced or swapped with their neighbour to make one
 * word of the other; words over 32 letters are as far apart as the longer one is long. */
size_t mh_word_distance(const char *one, size_t one_length, const char *other, size_t other_length);

/* Remembers the best of the candidates offered so far. */
typedef struct mh_nearest {
    const char *word;
    size_t length;
    const char *best; /* NULL: nothing is near enough to be meant */
    size_t distance;
} mh_nearest;

mh_nearest mh_nearest_to(const char *word, size_t length);
void mh_nearest_offer(mh_nearest *nearest, const char *candidate);

/* "; did you mean 'resize'?" or "", into `out`, which is returned. */
const char *mh_nearest_hint(const mh_nearest *nearest, char *out, size_t room);

#endif
