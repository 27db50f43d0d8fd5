/* slowest.h - the slowest samples of a loader
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_METRICS_SLOWEST_H
#define MH_METRICS_SLOWEST_H

#include <stdint.h>

#define MH_SLOWEST 10

typedef struct mh_slow_sample {
    uint64_t ns;
    void *key;  /* what stands for the sample: the caller's */
    int worker; /* -1: the consumer's own process */
} mh_slow_sample;

/* Slowest first; of equal ones the first that came. All zero: none. One thread at a time. */
typedef struct mh_slowest {
    mh_slow_sample samples[MH_SLOWEST];
    int count;
} mh_slowest;

/* Keeps the sample if it is among the slowest. The key that is not kept, and so the caller's to
 * end: this one or another; NULL where all are. */
void *mh_slowest_offer(mh_slowest *slowest, uint64_t ns, void *key, int worker);

#endif
