/* read_queue.h - reads that wait to be begun, in their order
 * SPDX-License-Identifier: Apache-2.0
 *
 * Entries are used again, so that reading on and on allocates nothing. The source's lock is around
 * all calls.
 */
#ifndef MH_SOURCE_READ_QUEUE_H
#define MH_SOURCE_READ_QUEUE_H

#include "source/source.h"
#include <stdbool.h>

typedef struct mh_queued_read {
    struct mh_queued_read *next;
    mh_read read;
    mh_read_done *done;
    void *context;
    uint64_t due_ns; /* the owner's */
} mh_queued_read;

typedef struct mh_read_queue {
    mh_queued_read *first, *last;
    mh_queued_read *spare;
} mh_read_queue;

/* Adds all reads or, where there is no memory, none: false. */
bool mh_read_queue_add(mh_read_queue *queue, const mh_read *reads, size_t count, mh_read_done *done,
                       void *context);

/* Takes the first one out; NULL: there is none. Given back with mh_read_queue_over. */
mh_queued_read *mh_read_queue_take(mh_read_queue *queue);
void mh_read_queue_over(mh_read_queue *queue, mh_queued_read *read);

/* Frees the entries; none is taken. */
void mh_read_queue_free(mh_read_queue *queue);

#endif
