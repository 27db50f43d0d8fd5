/* waits.c - durations in logarithmic buckets
 * SPDX-License-Identifier: Apache-2.0
 */
#include "waits.h"

#include <stddef.h>

enum { STEPS = 32, STEP_BITS = 5 };

/* Below 64 ns exact; above, the upper five bits behind the highest one. */
static size_t bucket_of(uint64_t ns)
{
    if (ns < 2 * STEPS)
        return (size_t)ns;
    int shift = 63 - __builtin_clzll(ns) - STEP_BITS;
    return (size_t)shift * STEPS + (size_t)(ns >> shift);
}

static uint64_t bucket_end(size_t bucket)
{
    if (bucket < 2 * STEPS)
        return bucket;
    size_t shift = bucket / STEPS - 1;
    return ((bucket % STEPS + STEPS + 1) << shift) - 1;
}

void mh_waits_add(mh_waits *waits, uint64_t ns)
{
    waits->count++;
    waits->buckets[bucket_of(ns)]++;
    if (ns > waits->most)
        waits->most = ns;
}

double mh_waits_ms(const mh_waits *waits, double fraction)
{
    uint64_t seen = 0;
    for (size_t at = 0; at < sizeof waits->buckets / sizeof *waits->buckets; at++) {
        seen += waits->buckets[at];
        if (seen && (double)seen >= fraction * (double)waits->count) {
            uint64_t end = bucket_end(at);
            return (double)(end < waits->most ? end : waits->most) / 1e6;
        }
    }
    return 0;
}
