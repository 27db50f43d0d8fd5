/* slowest.c - the slowest samples of a loader
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/slowest.h"

#include <stddef.h>

void *mh_slowest_offer(mh_slowest *slowest, uint64_t ns, void *key, int worker)
{
    mh_slow_sample *samples = slowest->samples;
    void *dropped = NULL;
    int at = slowest->count;
    if (at == MH_SLOWEST) {
        if (ns <= samples[--at].ns)
            return key;
        dropped = samples[at].key;
    } else {
        slowest->count++;
    }
    for (; at > 0 && samples[at - 1].ns < ns; at--)
        samples[at] = samples[at - 1];
    samples[at] = (mh_slow_sample){ns, key, worker};
    return dropped;
}
