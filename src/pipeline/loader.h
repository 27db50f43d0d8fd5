/* loader.h - a loader's insides: batches under way, and who works on them
 * SPDX-License-Identifier: Apache-2.0
 *
 *     next()  plans: gives the coming batch a slot and its sample numbers        loader.c
 *     threads take runs of samples of the oldest batch and read them into place  fill.c
 *     next()  waits for the batch that is due and hands it out                   loader.c
 *
 * What the page cache has is read at once by the thread that took the run; the rest is handed to
 * the source, whose threads read it straight into the same place.
 */
#ifndef MH_PIPELINE_LOADER_H
#define MH_PIPELINE_LOADER_H

#include "format/format.h"
#include "order/order.h"
#include "pipeline/batch.h"
#include "sys/thread.h"

#include <pthread.h>
#include <stdbool.h>

/* A batch under way. */
typedef struct mh_under_way {
    mh_batch *batch;
    uint64_t next;          /* first sample that nobody has taken */
    uint64_t left;          /* pieces that are not there yet; 0: ready */
    uint64_t failed_sample; /* the lowest one that failed, and why; UINT64_MAX: none */
    mh_error error;
} mh_under_way;

/* What one thread needs while it reads a run. */
typedef struct mh_fill_room {
    mh_loader *loader;
    mh_read *missed; /* room for run x fields */
    mh_thread thread;
} mh_fill_room;

struct mh_loader {
    /* set at open, then read-only */
    mh_dataset *dataset;
    mh_loader_options options;
    mh_source *source;
    mh_pool *pool;
    uint64_t run;   /* samples a thread takes at a time */
    uint32_t depth; /* batches under way at most: prefetch, or more to keep reads in flight */
    uint32_t fork_generation;
    mh_fill_room *rooms; /* one for each thread; without threads one for next() */
    uint32_t room_count;
    /* under the lock */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t work;  /* a run can be taken, or stop */
        pthread_cond_t ready; /* a batch is ready */
        mh_under_way *ring;   /* batch number n at n % depth; [due, planned) are under way */
        uint64_t due, planned;
        bool stop;
        mh_loader_stats stats;
    } sync;
    /* the consumer's thread */
    mh_order *order; /* of planned_epoch */
    uint64_t planned_epoch, planned_index;
    uint64_t due_epoch, due_index;
    uint64_t start_epoch, start; /* the epoch that does not begin at its head, and where it does */
};

/* --- fill.c --- */

/* What a thread does until the loader stops. */
void *mh_fill_thread(void *room);

/* Takes one run of the oldest batch that has one, and reads it. False: there is none. */
bool mh_fill_one(mh_fill_room *room);

#endif
