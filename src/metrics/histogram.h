/* histogram.h - durations in logarithmic buckets: percentiles within 3 % without keeping samples
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_METRICS_HISTOGRAM_H
#define MH_METRICS_HISTOGRAM_H

#include <stdint.h>

/* 32 buckets to each power of two: a bucket is at most 1/32 wide, its middle at most 1.6 % off. */
#define MH_HISTOGRAM_BUCKETS (64 * 32)

typedef struct mh_histogram {
    uint64_t count;
    uint64_t total;
    uint64_t max;
    uint64_t buckets[MH_HISTOGRAM_BUCKETS];
} mh_histogram;

/* Plain memory, one thread at a time; all zero is an empty histogram. */
void mh_histogram_add(mh_histogram *histogram, uint64_t value);

/* The value below which `fraction` (0..1) of the recorded ones lie (nearest rank, the middle of
 * its bucket, never above the maximum); 0 when empty. fraction 1 gives the exact maximum. */
uint64_t mh_histogram_quantile(const mh_histogram *histogram, double fraction);

/* What was recorded in `now` since it was as `before`. The maximum is exact where it rose, else the
 * middle of its bucket. */
void mh_histogram_since(mh_histogram *out, const mh_histogram *now, const mh_histogram *before);

#endif
