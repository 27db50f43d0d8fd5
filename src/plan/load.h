/* load.h - what a run's loading does to the machine: busy CPUs, disks, and locks that workers share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PLAN_LOAD_H
#define MH_PLAN_LOAD_H

#include "plan/batch_costs.h"

#define MH_CROWDED 1.5 /* runnable threads per CPU from which on they hinder each other */

/* Workers that wait for a lock, on average, and their share of those that fetch. Of two that do
 * nothing else one holds it and one waits, the half; with a quarter it is held nearly all the time,
 * 0.9 of it where arrivals are random. */
#define MH_LOCK_QUEUE 0.5
#define MH_LOCK_SHARE 0.25

/* What the batches of a run took, in ns: all but the first of each epoch, summed. */
typedef struct mh_load {
    const mh_facts *facts;
    mh_costs costs;
    double steady_ns; /* waits and steps */
    double read_bytes;
} mh_load;

void mh_load_of(mh_load *out, const mh_facts *facts, const mh_costing *costing);

/* CPU time, and time in which a thread wanted a CPU and had none. */
double mh_cpu_of(const mh_costs *costs);
double mh_delay_of(const mh_costs *costs);

/* Threads of the run that had or wanted a CPU, on average. */
double mh_runnable(const mh_load *load);

/* More workers than CPUs, and they want them. */
int mh_crowded(const mh_load *load);

/* What handing a batch over takes with so many workers, as a share of what it took: in a crowd it
 * waits for a CPU too. */
double mh_crowd_eases(const mh_load *load, int workers);

/* Whether workers wait for each other: for a lock, or one of few places, that they share. More of
 * them then win nothing. */
int mh_lock_is_shared(const mh_load *load);

/* Blocked in the thread that was watched, while threads of its own worked for it, or wanted to: on
 * a busy machine they wait for a CPU. */
int mh_helpers_worked(const mh_load *load);

/* Whether reading from storage is what blocked time went to. */
int mh_storage_explains(const mh_load *load);

/* Threads of other processes that want a CPU: as many as make a replay of the run, under `base`,
 * wait for CPUs as long as the run did. `scale`: batches of the run for each of those replayed. */
MH_MUST_CHECK mh_status mh_others_find(double *others, const mh_load *load,
                                       const mh_facts *replayed, const mh_replay_options *base,
                                       double scale, mh_error *err);

#endif
