/* plants.h - what the tests of the verdict share: plants of one cause, and judging them
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_TESTS_PLANTS_H
#define MH_TESTS_PLANTS_H

#include "planted.h"
#include "unit.h"

#define ROUNDS 200

typedef struct plant {
    mh_facts facts;
    mh_cause cause;
    double gain; /* of what the fix should win, where a closed form gives it; 0: not known */
} plant;

static inline uint64_t noisy(uint64_t *seed, double ns)
{
    return (uint64_t)(ns * planted_between(seed, 0.93, 1.07));
}

/* The costs of every batch, in ns, CPU and blocked apart; the consumer's step is blocked. */
static inline void plant_costs(mh_facts *facts, uint64_t *seed, double cpu, double blocked,
                               double collate)
{
    mh_batch_cost *batches = planted_batches(facts);
    for (size_t at = 0; at < facts->batch_count; at++) {
        batches[at].fetch_cpu = noisy(seed, cpu);
        batches[at].fetch = batches[at].fetch_cpu + noisy(seed, blocked);
        batches[at].collate = batches[at].collate_cpu = noisy(seed, collate);
        batches[at].transfer = facts->workers ? noisy(seed, 100e3) : 0;
        batches[at].step = noisy(seed, (double)batches[at].step);
        batches[at].step_cpu = batches[at].step / 100;
    }
}

/* A healthy run to plant into: workers with time to spare. */
static inline mh_facts healthy(uint64_t *seed, double *step)
{
    *step = planted_between(seed, 5e6, 40e6);
    int cpus = 2 << planted_next(seed) % 3;
    int workers = 1 + (int)(planted_next(seed) % (uint64_t)cpus);
    return planted_run(100 + planted_next(seed) % 300, workers, cpus, (uint64_t)*step);
}

static inline mh_verdict judged(const mh_facts *facts)
{
    mh_verdict verdict;
    mh_error err = {0};
    mh_verdict_init(&verdict);
    if (mh_verdict_make(&verdict, facts, &err) != MH_OK)
        fail_msg("no verdict: %s", err.message);
    return verdict;
}

static inline void print_verdict(const mh_verdict *verdict)
{
    print_message("%s, gain %g\n", mh_cause_name(verdict->cause), verdict->predicted_gain);
    for (size_t at = 0; at < verdict->evidence_count; at++)
        print_message("  %s\n", verdict->evidence[at]);
    for (size_t at = 0; at < verdict->other_count; at++)
        print_message("  also %s %g\n", mh_cause_name(verdict->others[at].cause),
                      verdict->others[at].gain);
    for (size_t at = 0; at < verdict->warning_count; at++)
        print_message("  warning: %s\n", verdict->warnings[at]);
    print_message("  fix: %s\n", verdict->fix);
}

static inline int lists(const mh_verdict *verdict, mh_cause cause)
{
    for (size_t at = 0; at < verdict->other_count; at++) {
        if (verdict->others[at].cause == cause)
            return 1;
    }
    return 0;
}

static inline plant plant_control(uint64_t *seed)
{
    double step;
    plant planted = {.facts = healthy(seed, &step), .cause = MH_CAUSE_DEVICE, .gain = 1};
    double spare = step * planted.facts.workers * planted_between(seed, 0.05, 0.8);
    double cpu = planted_between(seed, 0, 1), collate = planted_between(seed, 0, 0.2);
    plant_costs(&planted.facts, seed, spare * cpu, spare * (1 - cpu - collate < 0 ? 0 : 1 - cpu),
                spare * collate / 2);
    planted.facts.setup_ns = (uint64_t)planted_between(seed, 0, 30e6);
    (void)planted_waits(&planted.facts);
    return planted;
}

#endif
