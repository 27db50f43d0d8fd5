/* histogram.c - durations in logarithmic buckets
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/histogram.h"

#define SUB_BITS 5
#define SUB_BUCKETS (1u << SUB_BITS) /* to each power of two */

/* Values below 32 have a bucket each; above, the exponent picks a row and the five bits after the
 * leading one the place in it. Rows follow each other without a gap. */
static uint32_t bucket_of(uint64_t value)
{
    if (value < SUB_BUCKETS)
        return (uint32_t)value;
    uint32_t exponent = 63u - (uint32_t)__builtin_clzll(value);
    uint32_t shift = exponent - SUB_BITS;
    return (shift + 1) * SUB_BUCKETS + (uint32_t)((value >> shift) & (SUB_BUCKETS - 1));
}

static uint64_t bucket_middle(uint32_t bucket)
{
    if (bucket < SUB_BUCKETS)
        return bucket;
    uint32_t shift = bucket / SUB_BUCKETS - 1;
    uint64_t low = (uint64_t)(SUB_BUCKETS + bucket % SUB_BUCKETS) << shift;
    return low + ((UINT64_C(1) << shift) >> 1);
}

void mh_histogram_add(mh_histogram *histogram, uint64_t value)
{
    histogram->count++;
    histogram->total += value;
    if (value > histogram->max)
        histogram->max = value;
    histogram->buckets[bucket_of(value)]++;
}

/* The smallest rank (1-based) with at least `fraction` of the values at or below it. */
static uint64_t rank_of(uint64_t count, double fraction)
{
    double exact = fraction * (double)count;
    if (!(exact > 1)) /* a NaN too */
        return 1;
    if (exact >= (double)count)
        return count;
    uint64_t rank = (uint64_t)exact;
    return (double)rank < exact ? rank + 1 : rank;
}

uint64_t mh_histogram_quantile(const mh_histogram *histogram, double fraction)
{
    if (histogram->count == 0)
        return 0;
    uint64_t rank = rank_of(histogram->count, fraction);
    if (rank == histogram->count)
        return histogram->max;
    uint64_t seen = 0;
    for (uint32_t bucket = 0; bucket < MH_HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen >= rank) {
            uint64_t middle = bucket_middle(bucket);
            return middle < histogram->max ? middle : histogram->max;
        }
    }
    return histogram->max;
}

void mh_histogram_since(mh_histogram *out, const mh_histogram *now, const mh_histogram *before)
{
    uint64_t largest = 0;
    for (uint32_t bucket = 0; bucket < MH_HISTOGRAM_BUCKETS; bucket++) {
        out->buckets[bucket] = now->buckets[bucket] - before->buckets[bucket];
        largest = out->buckets[bucket] ? bucket_middle(bucket) : largest;
    }
    out->count = now->count - before->count;
    out->total = now->total - before->total;
    out->max = now->max > before->max || largest > now->max ? now->max : largest;
}
