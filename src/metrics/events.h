/* events.h - one single-writer ring of 32-byte records per thread or worker
 * SPDX-License-Identifier: Apache-2.0
 *
 * A ring lives in shared memory. Its one writer never waits: when the ring is full the newest
 * record is dropped and counted. Its one reader drains it. No lock anywhere, so a writer that is
 * killed at any instruction leaves a ring that can still be read.
 */
#ifndef MH_METRICS_EVENTS_H
#define MH_METRICS_EVENTS_H

#include <millhead/error.h>
#include <stdatomic.h>

/* Only what somebody reads is written. */
typedef enum mh_event_kind {
    MH_EVENT_NONE,
    MH_EVENT_SAMPLE, /* one slow __getitem__: value = sample offset in the batch */
    /* of a native loader: what a thread (value) did, in so many tasks (batch) */
    MH_EVENT_READ,
    MH_EVENT_DECODE,
    MH_EVENT_PLACE,
    MH_EVENT_STORAGE, /* reads were under way: so many (batch) ended */
    MH_EVENT_KINDS
} mh_event_kind;

typedef struct mh_event {
    uint64_t start_ns; /* CLOCK_MONOTONIC */
    uint64_t duration_ns;
    uint64_t batch;
    uint32_t value;
    uint16_t kind;
    uint16_t writer; /* 0 = the consumer, w + 1 = worker w */
} mh_event;

typedef struct mh_event_ring mh_event_ring; /* in shared memory; fixed size for a capacity */

/* Bytes a ring of `capacity` records (a power of two) takes, a multiple of 64. */
size_t mh_event_ring_bytes(uint32_t capacity);

/* Makes a ring in caller's zeroed, 64-byte aligned memory of mh_event_ring_bytes(capacity). */
mh_event_ring *mh_event_ring_init(void *memory, uint32_t capacity, uint16_t writer);

/* A ring somebody else made; NULL when the memory does not hold one that fits in `bytes`. */
mh_event_ring *mh_event_ring_attach(void *memory, size_t bytes);

/* Appends, or drops and counts. The one writer. */
void mh_event_ring_put(mh_event_ring *ring, mh_event_kind kind, uint64_t batch, uint32_t value,
                       uint64_t start_ns, uint64_t duration_ns);

/* Moves up to `most` records to `out`, oldest first; returns how many. The one reader. A ring
 * whose counters make no sense (a damaged writer) gives nothing. */
uint32_t mh_event_ring_drain(mh_event_ring *ring, mh_event *out, uint32_t most);

/* Records dropped since the ring was made. */
uint64_t mh_event_ring_lost(const mh_event_ring *ring);

#endif
