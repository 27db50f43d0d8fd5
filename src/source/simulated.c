/* simulated.c - a slow link in front of any source: latency, bandwidth, errors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/simulated.h"

#include "base/alloc.h"
#include "base/error.h"
#include "source/read_queue.h"
#include "sys/clock.h"
#include "sys/thread.h"

#include <stdbool.h>
#include <time.h>

typedef struct simulated_source {
    mh_source base;
    /* set at open, then read-only */
    mh_source *inner;
    mh_link link;
    uint32_t in_flight;
    mh_thread thread;
    /* under the lock */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t work;
        mh_read_queue waiting;  /* not begun */
        mh_queued_read *flying; /* begun, soonest due first */
        uint32_t flying_count;
        bool closing;
    } sync;
} simulated_source;

/* --- what a read takes --- */

static uint64_t takes_ns(const mh_link *link, uint64_t bytes)
{
    double transfer =
        link->bytes_per_second ? (double)bytes / (double)link->bytes_per_second * 1e9 : 0.0;
    return link->latency_ns + (uint64_t)transfer;
}

static bool fails(const mh_link *link, const mh_read *read)
{
    uint64_t mixed = (read->offset + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ read->object;
    mixed = (mixed ^ (mixed >> 31)) * UINT64_C(0xD6E8FEB86659FD93);
    mixed ^= mixed >> 32;
    return (double)(mixed >> 11) * 0x1p-53 < link->error_rate;
}

static mh_status read_inner(simulated_source *self, const mh_read *read, uint64_t *got,
                            mh_error *err)
{
    if (fails(&self->link, read))
        return mh_fail(err, MH_ERR_IO, "the simulated link failed at byte %llu of object %u",
                       (unsigned long long)read->offset, read->object);
    return mh_source_read(self->inner, read, got, err);
}

/* --- the thread --- */

static void begin_waiting_locked(simulated_source *self)
{
    while (self->sync.waiting.first && self->sync.flying_count < self->in_flight) {
        mh_queued_read *read = mh_read_queue_take(&self->sync.waiting);
        read->due_ns = mh_clock_ns() + takes_ns(&self->link, read->read.size);
        mh_queued_read **place = &self->sync.flying;
        while (*place && (*place)->due_ns <= read->due_ns)
            place = &(*place)->next;
        read->next = *place;
        *place = read;
        self->sync.flying_count++;
    }
}

/* The read that is due, or NULL after waiting for one or for work. */
static mh_queued_read *take_due_locked(simulated_source *self)
{
    begin_waiting_locked(self);
    mh_queued_read *first = self->sync.flying;
    if (!first) {
        if (!self->sync.closing)
            pthread_cond_wait(&self->sync.work, &self->sync.lock);
        return NULL;
    }
    if (!self->sync.closing && first->due_ns > mh_clock_ns()) {
        const struct timespec due = {.tv_sec = (time_t)(first->due_ns / 1000000000u),
                                     .tv_nsec = (long)(first->due_ns % 1000000000u)};
        (void)pthread_cond_timedwait(&self->sync.work, &self->sync.lock, &due);
        return NULL;
    }
    self->sync.flying = first->next;
    self->sync.flying_count--;
    return first;
}

static void finish(simulated_source *self, mh_queued_read *read, bool closing)
{
    mh_error err;
    uint64_t got = 0;
    mh_status status = closing ? mh_fail(&err, MH_ERR_CLOSED, "the source was closed")
                               : read_inner(self, &read->read, &got, &err);
    read->done(read->context, read->read.tag, got, status == MH_OK ? NULL : &err);
}

static void *link_thread(void *argument)
{
    simulated_source *self = argument;
    pthread_mutex_lock(&self->sync.lock);
    while (!self->sync.closing || self->sync.waiting.first || self->sync.flying) {
        mh_queued_read *due = take_due_locked(self);
        if (!due)
            continue;
        bool closing = self->sync.closing;
        pthread_mutex_unlock(&self->sync.lock);
        finish(self, due, closing);
        pthread_mutex_lock(&self->sync.lock);
        mh_read_queue_over(&self->sync.waiting, due);
    }
    pthread_mutex_unlock(&self->sync.lock);
    return NULL;
}

/* --- the source --- */

static mh_status simulated_read(mh_source *source, const mh_read *read, uint64_t *got,
                                mh_error *err)
{
    simulated_source *self = (simulated_source *)source;
    uint64_t ns = takes_ns(&self->link, read->size);
    struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, &pause) != 0)
        continue;
    return read_inner(self, read, got, err);
}

static mh_status simulated_submit(mh_source *source, const mh_read *reads, size_t count,
                                  mh_read_done *done, void *context, mh_error *err)
{
    simulated_source *self = (simulated_source *)source;
    mh_status status = MH_OK;
    pthread_mutex_lock(&self->sync.lock);
    if (self->sync.closing)
        status = mh_fail(err, MH_ERR_CLOSED, "the source is closed");
    else if (!mh_read_queue_add(&self->sync.waiting, reads, count, done, context))
        status = mh_fail(err, MH_ERR_NOMEM, "no memory for %zu reads", count);
    else
        pthread_cond_signal(&self->sync.work);
    pthread_mutex_unlock(&self->sync.lock);
    return status;
}

static void simulated_stats(mh_source *source, mh_source_stats *out)
{
    mh_source_stats_read(((simulated_source *)source)->inner, out);
}

static void simulated_close(mh_source *source)
{
    simulated_source *self = (simulated_source *)source;
    pthread_mutex_lock(&self->sync.lock);
    self->sync.closing = true;
    pthread_cond_signal(&self->sync.work);
    pthread_mutex_unlock(&self->sync.lock);
    mh_thread_join(&self->thread);
    mh_source_close(self->inner);
    mh_read_queue_free(&self->sync.waiting);
    pthread_cond_destroy(&self->sync.work);
    pthread_mutex_destroy(&self->sync.lock);
    mh_free(self);
}

static const mh_source_type simulated_type = {
    .name = "simulated",
    .read = simulated_read,
    .submit = simulated_submit,
    .stats = simulated_stats,
    .close = simulated_close,
};

mh_status mh_source_simulate(mh_source **out, mh_source *inner, const mh_link *link,
                             uint32_t in_flight, mh_error *err)
{
    pthread_condattr_t monotonic;
    simulated_source *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a simulated link");
    self->base.type = &simulated_type;
    self->inner = inner;
    self->link = *link;
    self->in_flight = in_flight;
    pthread_mutex_init(&self->sync.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->sync.work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    mh_status status = mh_thread_start(&self->thread, "millhead-link", link_thread, self, err);
    if (status != MH_OK) {
        self->inner = NULL;
        simulated_close(&self->base);
        return status;
    }
    *out = &self->base;
    return MH_OK;
}
