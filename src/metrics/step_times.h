/* step_times.h - how long a loop waited for its batches and worked on them, as events
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_METRICS_STEP_TIMES_H
#define MH_METRICS_STEP_TIMES_H

#include "metrics/event_lines.h"
#include "metrics/histogram.h"

/* One epoch of one loop. One thread at a time. */
typedef struct mh_steps {
    int64_t loader, epoch;
    int64_t batch; /* the last one that came; -1: none */
    int64_t samples;
    mh_histogram *loaders_waits; /* of all epochs of the loader; the caller's */
    bool skip_first;    /* the first wait is the loader's very first: not in loaders_waits */
    mh_histogram waits; /* all but the first */
    mh_thread_clock clock;
    mh_reading began, at; /* at: when the loop last asked or got */
    uint64_t setup_ns, first_ns, wait_ns, step_ns;
    mh_lines lines; /* events setup, wait and step, not written yet */
} mh_steps;

/* What is known of a batch; -1: not known. */
typedef struct mh_step_batch {
    int64_t samples;
    int worker;
    int64_t nth; /* of the worker's batches */
    int64_t bytes, texts;
} mh_step_batch;

/* Begins an epoch in memory that is all zero. */
void mh_steps_begin(mh_steps *steps, int64_t loader, int64_t epoch, mh_histogram *loaders_waits,
                    bool skip_first);

/* The iterator is made; order_ns of the time drew orders. */
void mh_steps_ready(mh_steps *steps, int64_t order_ns);

/* The loop asks for a batch and has worked off the one before; train_ns of the time trained, and
 * its own work beside that took own_ns of CPU time; -1: not known.
 */
void mh_steps_ask(mh_steps *steps, int64_t train_ns, int64_t own_ns);

/* The batch is there. */
void mh_steps_got(mh_steps *steps, const mh_step_batch *batch);

void mh_steps_end(mh_steps *steps);

#endif
