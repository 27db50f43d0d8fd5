/* loader.h - a loader's insides: batches under way, and who works on them
 * SPDX-License-Identifier: Apache-2.0
 *
 *     next()   plans the coming batches: sample numbers, and the units they need   loader.c
 *     next()   seats the nearest ones: gives them memory                           loader.c
 *     threads  read samples that lie in files as they are straight into place      pieces.c
 *     threads  fetch and decode units, and place samples from them                 units.c
 *     next()   waits for the batch that is due and hands it out; where placing a
 *              sample is a copy it places some rather than only wait               loader.c
 *
 * Batches are numbered from the loader's opening on:
 *
 *     due <= seated <= planned        [due, seated) have memory, [seated, planned) numbers only
 *
 * Seated are at most `depth` batches (prefetch); planned as many as it takes to keep reads in
 * flight and to know which units will be used again.
 */
#ifndef MH_PIPELINE_LOADER_H
#define MH_PIPELINE_LOADER_H

#include "pipeline/dataset_batch.h"
#include "pipeline/residency.h"
#include "pipeline/stream.h"
#include "pipeline/times.h"
#include "sys/thread.h"

#include <pthread.h>

/* A batch under way. */
typedef struct mh_under_way {
    mh_batch *batch;
    uint64_t next;          /* pieces: first sample that nobody has taken; units: first not over */
    uint64_t left;          /* pieces, or samples and one for finishing, to come; 0: ready */
    uint64_t failed_sample; /* the lowest one that failed, and why; UINT64_MAX: none */
    mh_error error;
    mh_batch_times times;       /* of the sample that was placed last */
    uint64_t replaced, skipped; /* of its samples */
    mh_sample *samples;         /* units: room for batch_size; stays with the place in the ring */
    mh_sample *ready_first, *ready_last; /* to be placed */
} mh_under_way;

/* Samples of a batch that one thread took to read their pieces. */
typedef struct mh_piece_run {
    uint64_t number; /* of the batch */
    mh_under_way *batch;
    uint64_t first, count;
} mh_piece_run;

typedef enum mh_unit_work {
    MH_WORK_FETCH,
    MH_WORK_DECODE,
    MH_WORK_PLACE,
    MH_WORK_FINISH
} mh_unit_work;

/* What one thread does with units. */
typedef struct mh_unit_task {
    mh_unit_work work;
    mh_resident *unit;   /* to fetch or decode */
    mh_under_way *batch; /* to place samples of, or to finish */
    mh_sample *samples;  /* linked by next */
} mh_unit_task;

/* What one thread has in hand. */
typedef struct mh_work_room {
    mh_loader *loader;
    mh_thread thread;
    mh_piece_run run;
    mh_read *missed; /* room for run x fields */
    mh_unit_task task;
    mh_bytes *units;    /* room for units_most */
    uint8_t **into;     /* room for each field */
    void *format;       /* the format's own */
    mh_stretch stretch; /* under the loader's lock */
} mh_work_room;

struct mh_loader {
    /* set at open, then read-only */
    mh_dataset *dataset;
    mh_loader_options options;
    mh_source *source;
    mh_pool *pool;
    uint64_t slot_bytes; /* of a slot; a batch of ragged fields that is larger gets an extra one */
    uint64_t apart_most; /* bytes of the batch that is due, where the pool has no room for it */
    uint64_t run;        /* samples a thread takes at a time */
    uint32_t depth;      /* batches seated at most */
    uint32_t horizon;    /* batches planned at most: the ring's size */
    uint32_t fork_generation;
    mh_sample *samples; /* of all places in the ring, and their uses */
    mh_use *uses;
    bool helps;          /* next() does not only wait: placing a sample is a copy */
    mh_work_room *rooms; /* one for each thread, and the last for next() where it helps */
    uint32_t room_count;
    /* under the lock */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t work;  /* there is something to do, or stop */
        pthread_cond_t ready; /* a batch is ready; nothing is in work any more */
        mh_under_way *ring;   /* batch number n at n % horizon */
        uint64_t due, seated, planned;
        uint32_t idle; /* threads that wait for work */
        bool stop;
        /* of units */
        mh_residency *residency;
        mh_resident *decode_first, *decode_last;
        uint32_t fetching; /* units */
        uint32_t working;  /* tasks in hand */
        bool dropping;     /* nothing new is begun; whoever waits, waits for what is in hand */
        uint64_t flying,
            flying_since_ns; /* reads handed to the source, since their number changed */
        bool cold;           /* the last unit was not at hand: reads come before all else */
        mh_loader_stats stats;
        mh_wait_begin wait;    /* of next() */
        uint64_t storage_ns;   /* in which reads were with the source */
        uint64_t helped_ns;    /* of next(), with work of threads */
        mh_event_ring *events; /* NULL: nobody watches */
        mh_stretch stretch;    /* of reads that are with the source */
    } sync;
    /* the consumer's thread */
    void *events_memory;
    mh_stream stream;
    uint64_t due_epoch, due_index;
};

/* --- work.c: what threads, and next() without any, do --- */

void *mh_work_thread(void *room);

/* Wakes a thread that waits where there is something left to take. Locked. */
void mh_work_wake(mh_loader *loader);

/* next() itself does something of what is left; false: there is nothing it could do now. Unlocked.
 */
bool mh_work_help(mh_loader *loader);

/* Of several samples that failed the lowest is reported. Locked. */
void mh_work_failed(mh_under_way *batch, uint64_t sample, const mh_error *err);

/* So many reads more, or fewer, are with the source. Locked. Returns the time. */
uint64_t mh_work_flying(mh_loader *loader, int64_t more);

/* Some of a batch is there: it may be ready, and the consumer may wait for it. Locked. */
void mh_work_over(mh_loader *loader, mh_under_way *batch, uint64_t count);

/* --- pieces.c --- */

/* Takes a run of the oldest batch that has one. Locked. False: there is none. */
bool mh_pieces_take(mh_work_room *room);
/* Whether there is one. Locked. */
bool mh_pieces_left(const mh_loader *loader);
void mh_pieces_do(mh_work_room *room); /* unlocked */

/* --- units.c --- */

bool mh_units_take(mh_work_room *room); /* locked */
/* The same, only of samples whose units are there: nothing that takes long. Locked. */
bool mh_units_take_ready(mh_work_room *room);
/* Whether there is something to take, but for memory that a fetch may lack. Locked. */
bool mh_units_left(const mh_loader *loader);
void mh_units_do(mh_work_room *room); /* unlocked */

/* Batch number `number` is in the ring: plans its samples. Locked. */
void mh_units_plan(mh_loader *loader, uint64_t number);
/* It has memory: what is ready can be placed. Locked. */
void mh_units_seated(mh_loader *loader, uint64_t number);
/* Lets what is in work come to its end and forgets the plan. Locked. */
void mh_units_drop(mh_loader *loader);
/* A sample's units are all there. */
void mh_units_ready(void *loader, mh_sample *sample);

#endif
