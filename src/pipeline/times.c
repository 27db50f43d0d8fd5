/* times.c - what the time of threads went to, and the time that next() waited
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/times.h"

#include "base/alloc.h"
#include "base/error.h"
#include "pipeline/loader.h"
#include "sys/clock.h"

#include <time.h>

#define STRETCH_NS UINT64_C(2000000) /* what is longer is an event */
#define LEAST_NS UINT64_C(50000)
#define APART_NS UINT64_C(100000) /* a thread that did nothing for so long begins anew */
#define RING_ALIGNED 64
#define RING UINT32_C(16384) /* some seconds of 8 threads */

/* --- events --- */

/* The stages of a stretch one after the other, as if each task had waited for those of its kind.
 * What is too short to be seen goes into the next stretch. */
static void stretch_end(mh_event_ring *ring, mh_stretch *stretch, uint32_t thread)
{
    static const mh_event_kind kinds[MH_TIME_KINDS] = {
        [MH_TIME_READ] = MH_EVENT_READ,
        [MH_TIME_DECODE] = MH_EVENT_DECODE,
        [MH_TIME_PLACE] = MH_EVENT_PLACE,
        [MH_TIME_STORAGE] = MH_EVENT_STORAGE,
    };
    uint64_t at = stretch->began;
    for (int what = 0; what < MH_TIME_KINDS; what++) {
        uint64_t ns = stretch->ns[what];
        if (ns < LEAST_NS)
            continue;
        mh_event_ring_put(ring, kinds[what], stretch->tasks[what], thread, at, ns);
        at += ns;
        stretch->ns[what] = 0;
        stretch->tasks[what] = 0;
    }
    stretch->began = stretch->ended = 0;
}

static void stretch_add(mh_event_ring *ring, mh_stretch *stretch, uint32_t thread, mh_time_of what,
                        uint64_t began, uint64_t ended, uint32_t tasks)
{
    if (stretch->ended && began > stretch->ended + APART_NS)
        stretch_end(ring, stretch, thread);
    if (!stretch->ended)
        stretch->began = began;
    stretch->ended = ended;
    stretch->ns[what] += ended - began;
    stretch->tasks[what] += tasks;
    if (ended - stretch->began >= STRETCH_NS)
        stretch_end(ring, stretch, thread);
}

void mh_times_task(mh_work_room *room, mh_time_of what, uint64_t began, uint64_t ended)
{
    mh_loader *self = room->loader;
    mh_loader_stats *stats = &self->sync.stats;
    uint64_t *const sums[] = {[MH_TIME_READ] = &stats->read_ns,
                              [MH_TIME_DECODE] = &stats->decode_ns,
                              [MH_TIME_PLACE] = &stats->place_ns};
    *sums[what] += ended - began;
    if (self->options.threads && room == &self->rooms[self->options.threads])
        self->sync.helped_ns += ended - began;
    if (self->sync.events)
        stretch_add(self->sync.events, &room->stretch, (uint32_t)(room - self->rooms), what, began,
                    ended, 1);
}

void mh_times_storage(mh_loader *self, uint64_t began, uint64_t ended, uint32_t reads)
{
    self->sync.storage_ns += ended - began;
    if (self->sync.events)
        stretch_add(self->sync.events, &self->sync.stretch, 0, MH_TIME_STORAGE, began, ended,
                    reads);
}

mh_status mh_loader_watch(mh_loader *self, mh_error *err)
{
    if (self->sync.events)
        return MH_OK;
    self->events_memory = mh_calloc(1, mh_event_ring_bytes(RING) + RING_ALIGNED);
    if (!self->events_memory)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a loader's events");
    uint8_t *memory = self->events_memory;
    memory += RING_ALIGNED - (uintptr_t)memory % RING_ALIGNED;
    pthread_mutex_lock(&self->sync.lock);
    self->sync.events = mh_event_ring_init(memory, RING, 0);
    pthread_mutex_unlock(&self->sync.lock);
    return MH_OK;
}

uint32_t mh_loader_events(mh_loader *self, mh_event *out, uint32_t most, uint64_t *out_lost)
{
    mh_event_ring *ring = self->sync.events; /* set by this thread */
    *out_lost = 0;
    if (!ring)
        return 0;
    pthread_mutex_lock(&self->sync.lock);
    for (uint32_t i = 0; i < self->room_count; i++)
        stretch_end(ring, &self->rooms[i].stretch, i);
    stretch_end(ring, &self->sync.stretch, 0);
    pthread_mutex_unlock(&self->sync.lock);
    *out_lost = mh_event_ring_lost(ring);
    return mh_event_ring_drain(ring, out, most);
}

/* --- what next() waited for --- */

typedef struct wait_parts {
    double read, decode, place;
} wait_parts;

/* How much of the wait lies between two times. */
static double within(uint64_t wait_began, uint64_t wait_ended, uint64_t from, uint64_t to)
{
    from = from > wait_began ? from : wait_began;
    to = to < wait_ended ? to : wait_ended;
    return to > from ? (double)(to - from) : 0;
}

/* The last sample of the batch, backwards: it was placed, its last unit was decoded before, and
 * read before that. What is left of the wait it spent in queues: for its turn to be read, while
 * other reads were under way, or for a thread, while they did other things. */
static wait_parts parts_of(const mh_loader *self, const mh_batch_times *times, uint64_t ended)
{
    const mh_wait_begin *begin = &self->sync.wait;
    const mh_unit_times *unit = &times->unit;
    const mh_loader_stats *stats = &self->sync.stats;
    uint64_t began = begin->at;
    wait_parts parts = {.read = within(began, ended, unit->asked, unit->got),
                        .decode = within(began, ended, unit->decoding, unit->decoded),
                        .place = within(began, ended, times->placing, ended)};
    double queued = (double)(ended - began) - parts.read - parts.decode - parts.place;
    double before = within(began, ended, began, unit->asked);
    if (2 * (double)(self->sync.storage_ns - begin->storage) > before) {
        parts.read += before;
        queued -= before;
    }
    double read = (double)(stats->read_ns - begin->read);
    double decode = (double)(stats->decode_ns - begin->decode);
    double place = (double)(stats->place_ns - begin->place);
    double all = read + decode + place;
    if (queued > 0 && all > 0) {
        parts.read += queued * read / all;
        parts.decode += queued * decode / all;
        parts.place += queued * place / all;
    }
    return parts;
}

void mh_times_wait_begin(mh_loader *self, uint64_t now)
{
    const mh_loader_stats *stats = &self->sync.stats;
    if (!self->sync.wait.at)
        self->sync.wait = (mh_wait_begin){.at = now,
                                          .read = stats->read_ns,
                                          .decode = stats->decode_ns,
                                          .place = stats->place_ns,
                                          .storage = self->sync.storage_ns};
}

void mh_times_wait_end(mh_loader *self, const mh_batch_times *times, uint64_t now)
{
    mh_loader_stats *stats = &self->sync.stats;
    uint64_t waited = now - self->sync.wait.at;
    stats->wait_ns += waited;
    if (waited > stats->wait_most_ns)
        stats->wait_most_ns = waited;
    if (self->due_index > 0 && self->dataset->by_units) {
        const wait_parts parts = parts_of(self, times, now);
        stats->wait_read_ns += (uint64_t)parts.read;
        stats->wait_decode_ns += (uint64_t)parts.decode;
        stats->wait_place_ns += (uint64_t)parts.place;
    } else if (self->due_index > 0) {
        stats->wait_read_ns += waited;
    }
    self->sync.wait.at = 0;
}

/* --- CPU time --- */

uint64_t mh_times_cpu_ns(mh_loader *self)
{
    uint64_t sum = self->sync.helped_ns;
    for (uint32_t i = 0; i < self->room_count; i++) {
        struct timespec used;
        clockid_t clock;
        const mh_thread *thread = &self->rooms[i].thread;
        if (thread->running && pthread_getcpuclockid(thread->handle, &clock) == 0 &&
            clock_gettime(clock, &used) == 0)
            sum += (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    }
    return sum;
}
