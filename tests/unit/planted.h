/* planted.h - facts of runs that never were, with known causes, for the tests of replay and verdict
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_TESTS_PLANTED_H
#define MH_TESTS_PLANTED_H

#include <math.h>
#include <millhead/diagnose.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

/* What mh_facts_init would set, for facts that are 0 where nothing is planted. */
#define PLANTED_SIZES                                                                              \
    .struct_size = sizeof(mh_facts), .batch_stride = sizeof(mh_batch_cost),                        \
    .rank_stride = sizeof(mh_rank_cost)

/* Random numbers whose seed can be printed: xorshift64*. */
static inline uint64_t planted_next(uint64_t *seed)
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * UINT64_C(2685821657736338717);
}

/* Evenly in [low, high). */
static inline double planted_between(uint64_t *seed, double low, double high)
{
    return low + (high - low) * (double)(planted_next(seed) >> 11) * 0x1p-53;
}

/* A run of `count` equal batches in one epoch; the caller frees .batches. Only what was named is
 * set: step, of it nothing on a CPU; no fetch. */
static inline mh_facts planted_run(size_t count, int workers, int cpus, uint64_t step)
{
    mh_batch_cost *batches = calloc(count, sizeof *batches);
    if (!batches)
        abort();
    for (size_t at = 0; at < count; at++) {
        batches[at].step = step;
        batches[at].step_train = MH_NOT_MEASURED;
        batches[at].worker = workers ? (int)(at % (size_t)workers) : -1;
        batches[at].samples = 8;
        batches[at].first = at == 0;
    }
    return (mh_facts){
        PLANTED_SIZES,        .vantage = MH_VANTAGE_INSIDE,
        .batches = batches,   .batch_count = count,
        .workers = workers,   .prefetch = workers ? 2 : -1,
        .batch_size = 8,      .in_order = 1,
        .cpus = cpus,         .start = "fork",
        .kind = "torch",      .epochs = 1,
        .usage.gpu_util = -1,
    };
}

static inline mh_batch_cost *planted_batches(mh_facts *facts)
{
    return (mh_batch_cost *)facts->batches; /* made by planted_run */
}

/* What the consumer of such a run waits, by recurrence and not by simulation: as many CPUs as
 * asked for, batch b made by worker b mod W after its batch b - W, ordered when batch
 * b - W * prefetch was delivered. Fills wait; returns the run's time. */
static inline double planted_waits(mh_facts *facts)
{
    mh_batch_cost *batches = planted_batches(facts);
    size_t count = facts->batch_count, workers = (size_t)facts->workers;
    size_t window = workers * (size_t)(facts->prefetch > 0 ? facts->prefetch : 1);
    double *made = calloc(count, sizeof *made), *had = calloc(count, sizeof *had);
    if (!made || !had)
        abort();
    double asked = 0;
    for (size_t at = 0; at < count; at++) {
        mh_batch_cost *batch = &batches[at];
        double cost = (double)(batch->fetch + batch->collate);
        double begin = workers ? 0 : asked;
        if (workers && at >= workers)
            begin = made[at - workers];
        if (workers && at >= window && had[at - window] > begin)
            begin = had[at - window];
        made[at] = begin + cost;
        had[at] = (made[at] > asked ? made[at] : asked) + (double)batch->transfer;
        batch->wait_cpu = batch->transfer; /* all of it in the consumer's thread */
        batch->wait = (uint64_t)(had[at] - asked);
        asked = had[at] + (double)batch->step;
    }
    free(made);
    free(had);
    return asked;
}

/* What is wrong with a verdict whatever the facts were; NULL: nothing. */
static inline const char *planted_wrong_with(const mh_verdict *verdict)
{
    const mh_stage_shares *stages = &verdict->stages;
    const double parts[] = {stages->train,         stages->main,         stages->wait_cpu,
                            stages->wait_run,      stages->wait_blocked, stages->wait_collate,
                            stages->wait_transfer, stages->wait_order,   stages->wait_other};
    double sum = 0;
    for (size_t at = 0; at < sizeof parts / sizeof *parts; at++) {
        if (!(parts[at] >= 0 && parts[at] <= 1.000001))
            return "a share is not between 0 and 1";
        sum += parts[at];
    }
    if (fabs(sum - 1) > 1e-6)
        return "shares do not add up to 1";
    if (!(verdict->predicted_gain >= 1 && verdict->predicted_gain <= 1000))
        return "the gain is absurd";
    if (!(verdict->device_wait_share >= 0 && verdict->device_wait_share <= 1))
        return "the share of waiting is absurd";
    if (!(verdict->idle_device_s >= 0 && isfinite(verdict->idle_device_s)) ||
        !isfinite(verdict->replay_off))
        return "not finite";
    if ((unsigned)verdict->cause >= MH_CAUSE_COUNT || !verdict->fix[0])
        return "no cause, or no fix";
    for (size_t at = 0; at < verdict->other_count; at++) {
        if (verdict->others[at].cause == verdict->cause)
            return "the cause is listed among the others";
        if (at && verdict->others[at].gain > verdict->others[at - 1].gain)
            return "others are not in order";
        if (verdict->others[at].gain > verdict->possible_gain &&
            verdict->cause != MH_CAUSE_OVERSUBSCRIBED)
            return "another promises more";
    }
    for (size_t at = 0; at < verdict->evidence_count; at++) {
        if (strstr(verdict->evidence[at], "nan") || strstr(verdict->evidence[at], "inf"))
            return "evidence with no number";
    }
    return NULL;
}

#endif
