/* events.c - one single-writer ring of 32-byte records per thread or worker
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/events.h"

#include <stdalign.h>
#include <stdbool.h>
#include <string.h>

#define LINE_BYTES 64 /* a cache line: writer and reader must not share one */
#define RING_MAGIC UINT64_C(0x31474e4952484d00) /* "\0MHRING1" */
#define MOST_RECORDS (UINT32_C(1) << 24)

_Static_assert(sizeof(mh_event) == 32, "two records to a cache line");

struct mh_event_ring {
    /* set once by init */
    alignas(LINE_BYTES) uint64_t check; /* RING_MAGIC mixed with the two below */
    uint32_t capacity;
    uint16_t writer;
    /* the writer's: records put since the beginning, and those dropped */
    alignas(LINE_BYTES) _Atomic uint64_t head;
    _Atomic uint64_t lost;
    /* the reader's: records taken since the beginning */
    alignas(LINE_BYTES) _Atomic uint64_t tail;
    alignas(LINE_BYTES) mh_event records[];
};

static bool capacity_good(uint32_t capacity)
{
    return capacity > 0 && capacity <= MOST_RECORDS && (capacity & (capacity - 1)) == 0;
}

/* The capacity decides where the reader reads, and it lies in memory that another process writes:
 * mixing it in makes a damaged one visible. */
static uint64_t ring_check(uint32_t capacity, uint16_t writer)
{
    return RING_MAGIC ^ ((uint64_t)capacity * UINT64_C(0x9e3779b97f4a7c15)) ^ writer;
}

static bool ring_good(const mh_event_ring *ring)
{
    return capacity_good(ring->capacity) && ring->check == ring_check(ring->capacity, ring->writer);
}

size_t mh_event_ring_bytes(uint32_t capacity)
{
    size_t bytes = sizeof(mh_event_ring) + (size_t)capacity * sizeof(mh_event);
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

mh_event_ring *mh_event_ring_init(void *memory, uint32_t capacity, uint16_t writer)
{
    mh_event_ring *ring = memory;
    if (!memory || (uintptr_t)memory % LINE_BYTES != 0 || !capacity_good(capacity))
        return NULL;
    ring->capacity = capacity;
    ring->writer = writer;
    ring->check = ring_check(capacity, writer);
    return ring;
}

mh_event_ring *mh_event_ring_attach(void *memory, size_t bytes)
{
    mh_event_ring *ring = memory;
    if (!memory || (uintptr_t)memory % LINE_BYTES != 0 || bytes < sizeof *ring || !ring_good(ring))
        return NULL;
    return bytes >= mh_event_ring_bytes(ring->capacity) ? ring : NULL;
}

void mh_event_ring_put(mh_event_ring *ring, mh_event_kind kind, uint64_t batch, uint32_t value,
                       uint64_t start_ns, uint64_t duration_ns)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    /* acquire: the reader has finished with a record before the writer overwrites it */
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (head - tail >= ring->capacity) {
        /* a store, not an atomic add: there is one writer */
        uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);
        atomic_store_explicit(&ring->lost, lost + 1, memory_order_relaxed);
        return;
    }
    ring->records[head & (ring->capacity - 1)] = (mh_event){
        .start_ns = start_ns,
        .duration_ns = duration_ns,
        .batch = batch,
        .value = value,
        .kind = (uint16_t)kind,
        .writer = ring->writer,
    };
    /* release: whoever sees the new head sees the record */
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

uint32_t mh_event_ring_drain(mh_event_ring *ring, mh_event *out, uint32_t most)
{
    if (!ring_good(ring))
        return 0;
    uint32_t capacity = ring->capacity;
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t waiting = head - tail;
    if (tail > head || waiting > capacity) /* 64 bits never wrap: a writer damaged the ring */
        return 0;
    uint32_t count = waiting < most ? (uint32_t)waiting : most;
    uint32_t start = (uint32_t)(tail & (capacity - 1));
    uint32_t first = count < capacity - start ? count : capacity - start;
    if (count == 0)
        return 0;
    memcpy(out, ring->records + start, first * sizeof *out);
    memcpy(out + first, ring->records, (count - first) * sizeof *out);
    atomic_store_explicit(&ring->tail, tail + count, memory_order_release);
    return count;
}

uint64_t mh_event_ring_lost(const mh_event_ring *ring)
{
    return atomic_load_explicit(&ring->lost, memory_order_relaxed);
}
