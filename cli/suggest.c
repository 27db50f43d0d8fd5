/* suggest.c - "did you mean": the known name that a mistyped one is closest to
 * SPDX-License-Identifier: Apache-2.0
 */
#include "suggest.h"

#include <millhead/error.h>

#include <stdio.h>
#include <string.h>

enum { LONGEST = 40 }; /* of names that are shown */

const char *mh_cli_closest(const char *given, const char *const *names, size_t count)
{
    const char *best = mh_nearest_word(given, names, count);
    for (size_t at = 0; !best && at < count; at++) /* "cpu" for "cpu-bound" */
        if (strlen(given) > 2 && strncmp(given, names[at], strlen(given)) == 0)
            best = names[at];
    return best;
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
