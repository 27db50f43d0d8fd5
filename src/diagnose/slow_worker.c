/* slow_worker.c - one worker unlike the others
 * SPDX-License-Identifier: Apache-2.0
 *
 * Of an iterable dataset each worker has its own part, and batches are taken from all in turn: the
 * slowest part sets the pace, however many workers have the rest.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "diagnose/judging.h"

#include <string.h>

/* A worker is slow where nearly all its batches take longer than so many of the others': a slow
 * sample now and then makes no slow worker. */
#define SLOW_TIMES 2
#define SLOW_BATCHES 0.8
#define SLOW_LEAST 5 /* batches of it */

typedef struct worker_sum {
    double fetch, batches, slow; /* slow: batches above SLOW_TIMES of the others' mean */
} worker_sum;

static int has_maker(const mh_facts *facts, const mh_batch_cost *batch)
{
    return batch->worker >= 0 && batch->worker < facts->workers && batch->fetch != MH_NOT_MEASURED;
}

/* The worker's sums; NULL for a batch that does not count. */
static worker_sum *sum_of(worker_sum *sums, const mh_facts *facts, const mh_batch_cost *batch)
{
    return has_maker(facts, batch) && !batch->first ? &sums[batch->worker] : NULL;
}

static double mean_of_others(const worker_sum *all, const worker_sum *one)
{
    double batches = all->batches - one->batches;
    return batches > 0 ? (all->fetch - one->fetch) / batches : 0;
}

static void find_among(mh_slow_worker *out, const mh_facts *facts, worker_sum *sums)
{
    worker_sum all = {0}, *of;
    for (size_t at = 0; at < facts->batch_count; at++) {
        if (!(of = sum_of(sums, facts, &facts->batches[at])))
            continue;
        of->fetch += mh_ns(facts->batches[at].fetch);
        of->batches++;
        all.fetch += mh_ns(facts->batches[at].fetch);
        all.batches++;
    }
    for (size_t at = 0; at < facts->batch_count; at++) {
        if ((of = sum_of(sums, facts, &facts->batches[at])))
            of->slow += mh_ns(facts->batches[at].fetch) > SLOW_TIMES * mean_of_others(&all, of);
    }
    for (int worker = 0; worker < facts->workers; worker++) {
        of = &sums[worker];
        if (of->batches < SLOW_LEAST || of->slow < SLOW_BATCHES * of->batches ||
            all.batches - of->batches < SLOW_LEAST)
            continue;
        *out = (mh_slow_worker){worker, of->fetch / of->batches, mean_of_others(&all, of),
                                all.fetch / all.batches};
        return;
    }
}

void mh_slow_worker_find(mh_slow_worker *out, const mh_facts *facts)
{
    *out = (mh_slow_worker){.worker = -1};
    if (facts->workers < 2)
        return;
    worker_sum *sums = mh_calloc((size_t)facts->workers, sizeof *sums);
    if (sums)
        find_among(out, facts, sums);
    mh_free(sums); /* without memory: none is found */
}

static uint64_t times(uint64_t ns, double factor)
{
    return ns == MH_NOT_MEASURED ? ns : (uint64_t)(mh_ns(ns) * factor);
}

mh_status mh_slow_worker_spread(const mh_inquiry *inquiry, double *ns, mh_error *err)
{
    const mh_slow_worker *slow = &inquiry->slow;
    size_t count = inquiry->window.batch_count;
    mh_batch_cost *batches = mh_calloc(count, sizeof *batches);
    if (!batches)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", count);
    memcpy(batches, inquiry->window.batches, count * sizeof *batches);
    for (size_t at = 0; at < count; at++) {
        mh_batch_cost *batch = &batches[at];
        double of = batch->worker == slow->worker ? slow->fetch_ns : slow->others_ns;
        if (!has_maker(&inquiry->window, batch) || of <= 0)
            continue;
        batch->fetch = times(batch->fetch, slow->mean_ns / of);
        batch->fetch_cpu = times(batch->fetch_cpu, slow->mean_ns / of);
        batch->fetch_delay = times(batch->fetch_delay, slow->mean_ns / of);
        batch->fetch_excess = times(batch->fetch_excess, slow->mean_ns / of);
    }
    mh_inquiry other = *inquiry;
    other.window.batches = batches;
    mh_status status = mh_inquiry_time(&other, &inquiry->base, ns, err);
    mh_free(batches);
    return status;
}
