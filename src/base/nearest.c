/* nearest.c - the known word that a misspelt one most likely stands for
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/nearest.h"

#include <millhead/error.h>

#include <stdio.h>
#include <string.h>

#define LETTERS_MOST 32

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t mh_word_distance(const char *one, size_t one_length, const char *other, size_t other_length)
{
    /* Three rows of the table of distances between all beginnings of both */
    size_t rows[3][LETTERS_MOST + 1];
    if (one_length > LETTERS_MOST || other_length > LETTERS_MOST)
        return one_length > other_length ? one_length : other_length;
    for (size_t j = 0; j <= other_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= one_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= other_length; j++) {
            size_t replaced = above[j - 1] + (one[i - 1] != other[j - 1]);
            row[j] = least(replaced, least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[one_length % 3][other_length];
}

mh_nearest mh_nearest_to(const char *word, size_t length)
{
    /* A third of the letters may be wrong, and one of a short word */
    return (mh_nearest){.word = word, .length = length, .distance = length / 3 + 2};
}

void mh_nearest_offer(mh_nearest *nearest, const char *candidate)
{
    size_t distance =
        mh_word_distance(nearest->word, nearest->length, candidate, strlen(candidate));
    if (distance < nearest->distance && distance < nearest->length) {
        nearest->best = candidate;
        nearest->distance = distance;
    }
}

const char *mh_nearest_word(const char *word, const char *const *known, size_t count)
{
    mh_nearest nearest = mh_nearest_to(word, strlen(word));
    for (size_t at = 0; at < count; at++)
        mh_nearest_offer(&nearest, known[at]);
    return nearest.best;
}

const char *mh_nearest_hint(const mh_nearest *nearest, char *out, size_t room)
{
    out[0] = '\0';
    if (nearest->best)
        (void)snprintf(out, room, "; did you mean '%s'?", nearest->best);
    return out;
}
