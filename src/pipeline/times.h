/* times.h - what the time of threads went to, and the time that next() waited
 * SPDX-License-Identifier: Apache-2.0
 *
 * A thread's tasks in one stage are counted as they end. While somebody watches they are also kept
 * as events, many short ones as one: a thread gives a few hundred in a second, however small its
 * tasks are.
 */
#ifndef MH_PIPELINE_TIMES_H
#define MH_PIPELINE_TIMES_H

#include "metrics/events.h"

struct mh_loader;
struct mh_work_room;

typedef enum mh_time_of {
    MH_TIME_READ,    /* a thread read what was at hand */
    MH_TIME_DECODE,  /* it decoded a unit */
    MH_TIME_PLACE,   /* it placed samples */
    MH_TIME_STORAGE, /* reads were under way elsewhere; of no thread */
    MH_TIME_KINDS
} mh_time_of;

/* What followed closely upon one another. */
typedef struct mh_stretch {
    uint64_t began, ended; /* 0: nothing */
    uint64_t ns[MH_TIME_KINDS];
    uint32_t tasks[MH_TIME_KINDS];
} mh_stretch;

/* When a unit was asked for, was there, was begun to be decoded and was decoded; 0: never. */
typedef struct mh_unit_times {
    uint64_t asked, got, decoding, decoded;
} mh_unit_times;

/* A batch's last sample: its last unit, and when it was begun to be placed. */
typedef struct mh_batch_times {
    mh_unit_times unit;
    uint64_t placing;
} mh_batch_times;

/* What had been done when next() began to wait. */
typedef struct mh_wait_begin {
    uint64_t at; /* 0: it does not wait */
    uint64_t read, decode, place, storage;
} mh_wait_begin;

/* A task of a thread is over. Locked. */
void mh_times_task(struct mh_work_room *room, mh_time_of what, uint64_t began, uint64_t ended);

/* Reads were under way. Locked. */
void mh_times_storage(struct mh_loader *loader, uint64_t began, uint64_t ended, uint32_t reads);

/* next() begins to wait, or goes on; and it has what it waited for. Locked. */
void mh_times_wait_begin(struct mh_loader *loader, uint64_t now);
void mh_times_wait_end(struct mh_loader *loader, const mh_batch_times *times, uint64_t now);

/* CPU time of all threads, and of next() with their work. Locked. */
uint64_t mh_times_cpu_ns(struct mh_loader *loader);

/* Events are kept from now on. MH_ERR_NOMEM. The consumer's thread. */
MH_MUST_CHECK mh_status mh_loader_watch(struct mh_loader *loader, mh_error *err);

/* Moves up to `most` of those that were kept to `out`, and returns how many; those that found no
 * room are in *out_lost, since the loader was made. The consumer's thread. */
uint32_t mh_loader_events(struct mh_loader *loader, mh_event *out, uint32_t most,
                          uint64_t *out_lost);

#endif
