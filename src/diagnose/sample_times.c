/* sample_times.c - how long single samples took: median, quantiles, the slow ones
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/run_reader.h"

#include "base/alloc.h"
#include "base/error.h"
#include "metrics/histogram.h"

#define SLOW_MEDIANS 5 /* a sample above so many medians is slow: diagnose.h */

int mh_samples_add(mh_samples *samples, uint64_t ns, uint32_t work)
{
    void *items = samples->items;
    if (!mh_array_reserve(&items, &samples->room, samples->count, sizeof *samples->items))
        return 0;
    samples->items = items;
    samples->items[samples->count++] = (mh_sample_time){.ns = ns, .work = work};
    return 1;
}

/* The quantile over all samples, of which `short_count` are shorter than any in the histogram. */
static uint64_t quantile(const mh_histogram *histogram, uint64_t short_count, uint64_t short_ns,
                         double fraction)
{
    double all = (double)(short_count + histogram->count);
    double above = fraction * all - (double)short_count;
    if (above <= 0 || !histogram->count)
        return short_ns;
    return mh_histogram_quantile(histogram, above / (double)histogram->count);
}

mh_status mh_samples_facts(const mh_samples *samples, uint64_t all, uint64_t rest_ns,
                           mh_facts *facts, int (*excess)(void *, uint32_t work, uint64_t ns),
                           void *argument, mh_error *err)
{
    if (all < samples->count)
        all = samples->count;
    if (!all)
        return MH_OK;
    mh_histogram *histogram = mh_calloc(1, sizeof *histogram);
    if (!histogram)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the times of %zu samples", samples->count);
    uint64_t shortest = UINT64_MAX;
    for (size_t at = 0; at < samples->count; at++) {
        mh_histogram_add(histogram, samples->items[at].ns);
        shortest = samples->items[at].ns < shortest ? samples->items[at].ns : shortest;
    }
    uint64_t short_count = all - samples->count;
    uint64_t short_ns = short_count ? rest_ns / short_count : 0;
    if (short_ns > shortest)
        short_ns = shortest;
    uint64_t median = quantile(histogram, short_count, short_ns, 0.5);
    facts->samples_timed = all;
    facts->sample_median_ns = median;
    facts->sample_p99_ns = quantile(histogram, short_count, short_ns, 0.99);
    facts->sample_max_ns = histogram->count ? histogram->max : short_ns;
    mh_free(histogram);
    for (size_t at = 0; at < samples->count && median; at++) {
        const mh_sample_time *sample = &samples->items[at];
        if ((double)sample->ns <= SLOW_MEDIANS * (double)median)
            continue;
        facts->samples_slow += excess(argument, sample->work, sample->ns - median) != 0;
    }
    return MH_OK;
}
