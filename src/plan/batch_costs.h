/* batch_costs.h - a batch's measured times, taken apart into what a replay and a verdict count with
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PLAN_BATCH_COSTS_H
#define MH_PLAN_BATCH_COSTS_H

#include <millhead/diagnose.h>

/* Nanoseconds. Time spent runnable without a CPU is kept apart and is not a cost of its own: under
 * other settings it would be another. */
typedef struct mh_costs {
    double fetch_cpu, fetch_blocked, fetch_delay;
    double pool_cpu; /* of helping threads while the one they help computed too */
    double read_cpu; /* on a CPU too, but for bytes from storage: no part of fetch_cpu */
    double collate_cpu, collate_blocked, collate_delay;
    double transfer, transfer_delay; /* in the consumer's thread: taking the batch over, drawing */
    double drawing;                  /* of transfer: the sampler's */
    double passing; /* on its way from the worker, while that goes on with its next batch */
    double unknown; /* waited, and nothing tells for what */
    double main_cpu, main_blocked;   /* the consumer's own work */
    double train_cpu, train_blocked; /* the rest of its step */
    double step_delay;
    double startup; /* of a first batch: its wait, less what making the batch took */
} mh_costs;

typedef enum mh_phase { MH_PHASE_FETCH, MH_PHASE_COLLATE, MH_PHASE_STEP, MH_PHASES } mh_phase;

/* What is the same for all batches of a run. */
typedef struct mh_costing {
    int inline_fetch;         /* the consumer makes the batches itself */
    int pins;                 /* the consumer pins the batches it makes */
    int main_known;           /* the consumer's own work can be told from training */
    int device_busy;          /* a device was sampled, and it works nearly all the time */
    double mean_wait;         /* of all but first batches */
    double waking[MH_PHASES]; /* share of a phase's delay that comes from waking up, 0..1 */
    double loop_io;           /* share of a step that the consumer waits for a network or program */
    double helpers_delay;     /* what helping threads wait for a CPU, for each ns they have one */
    double pickling;          /* of a batch, on each side, were it to come from a worker */
} mh_costing;

/* A duration as a number that sums of millions stay finite with; 0 where not measured. */
static inline double mh_ns(uint64_t ns)
{
    const double longest = 1e15; /* 11 days */
    if (ns == MH_NOT_MEASURED)
        return 0;
    return (double)ns < longest ? (double)ns : longest;
}

void mh_costing_init(mh_costing *costing, const mh_facts *facts);
void mh_costs_of(mh_costs *out, const mh_costing *costing, const mh_batch_cost *batch);

/* What slow samples took above the median, less what a busy machine may have made of it. */
double mh_excess(const mh_batch_cost *batch);

/* Whether taking batches over is for the most part the sampler's time. */
static inline int mh_drawing_is_most(const mh_costs *costs)
{
    return costs->drawing > 0.5 * (costs->transfer + costs->passing);
}

/* CPUs the run could have had: those it was allowed, less what other processes used; at least half
 * of them, because the kernel shares. 0 where the number of CPUs is not known. */
double mh_cpus_left(const mh_facts *facts);

#endif
