/* suggest.c - "did you mean": the known name that a mistyped one is closest to
 * SPDX-License-Identifier: Apache-2.0
 */
#include "suggest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 40 }; /* of names that are compared */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters to change, add, leave out or exchange with the next one to get from one word to
 * the other: the usual table, of which three rows are enough. */
static size_t distance(const char *from, const char *to)
{
    size_t rows[3][LONGEST + 1];
    size_t from_length = strlen(from), to_length = strlen(to);
    if (from_length > LONGEST || to_length > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= to_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= from_length; i++) {
        size_t *now = rows[i % 3];
        const size_t *before = rows[(i - 1) % 3], *two_before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= to_length; j++) {
            now[j] =
                least(least(before[j], now[j - 1]) + 1, before[j - 1] + (from[i - 1] != to[j - 1]));
            if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
                now[j] = least(now[j], two_before[j - 2] + 1);
        }
    }
    return rows[from_length % 3][to_length];
}

const char *mh_cli_closest(const char *given, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = 1 + strlen(given) / 3; /* a third of the letters may be wrong */
    for (size_t at = 0; at < count; at++) {
        size_t found = distance(given, names[at]);
        if (found < best_distance || (found == best_distance && !best)) {
            best = names[at];
            best_distance = found;
        }
    }
    if (best && best_distance < strlen(given)) /* else not a letter need be the same */
        return best;
    for (size_t at = 0; at < count; at++) /* "cpu" for "cpu-bound" */
        if (strlen(given) > 2 && strncmp(given, names[at], strlen(given)) == 0)
            return names[at];
    return NULL;
}

const char *mh_cli_did_you_mean(const char *given, const char *const *names, size_t count,
                                const char *otherwise)
{
    static char text[LONGEST + sizeof "did you mean ''?"];
    const char *closest = mh_cli_closest(given, names, count);
    if (!closest)
        return otherwise;
    (void)snprintf(text, sizeof text, "did you mean '%s'?", closest);
    return text;
}
