/* loader.c - a dataset in batches: planning, waiting and handing out, on the consumer's thread
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/loader.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/struct_size.h"
#include "base/units.h"
#include "sys/clock.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define PREFETCH 2u
#define IN_FLIGHT 16u

void mh_loader_options_init_sized(mh_loader_options *options, size_t size)
{
    const mh_loader_options defaults = {.struct_size = size,
                                        .batch_size = 1,
                                        .world = 1,
                                        .threads = -1,
                                        .in_flight = IN_FLIGHT,
                                        .prefetch = PREFETCH};
    mh_sized_write(options, size, &defaults, sizeof defaults);
}

void mh_loader_stats_init_sized(mh_loader_stats *stats, size_t size)
{
    const mh_loader_stats none = {.struct_size = size};
    mh_sized_write(stats, size, &none, sizeof none);
}

/* --- planning and seating --- */

/* The next batch's samples, and the units they need. MH_AGAIN: not now. */
static mh_status plan_one(mh_loader *self, mh_error *err)
{
    mh_stream_batch where;
    mh_batch *batch = NULL;
    MH_TRY(mh_stream_peek(&self->stream, &where, err));
    MH_TRY(mh_dataset_batch_new(&batch, self->dataset, where.samples, err));
    mh_stream_take(&self->stream, &where, batch->numbers, batch->positions);
    batch->epoch = where.epoch;
    pthread_mutex_lock(&self->sync.lock);
    mh_under_way *place = &self->sync.ring[self->sync.planned % self->horizon];
    *place = (mh_under_way){.batch = batch,
                            .left = batch->samples * self->dataset->field_count,
                            .failed_sample = UINT64_MAX,
                            .samples = place->samples};
    if (self->dataset->by_units)
        mh_units_plan(self, self->sync.planned);
    self->sync.planned++;
    pthread_mutex_unlock(&self->sync.lock);
    return MH_OK;
}

/* A slot for the batch; where it is larger an extra one, and for the batch that is due even memory
 * beside the pool's. MH_AGAIN: not now. */
static mh_status seat(mh_loader *self, mh_batch *batch, bool due, mh_error *err)
{
    uint64_t bytes = 0;
    mh_slot *slot = NULL;
    if (self->apart_most) /* a field is ragged */
        MH_TRY(mh_layout_bytes(&bytes, &batch->layout, batch->numbers, batch->planned, err));
    if (bytes <= self->slot_bytes)
        slot = mh_pool_grant(self->pool);
    else if (mh_pool_grant_extra(self->pool, &slot, bytes, err) != MH_OK)
        slot = NULL;
    if (slot) {
        mh_batch_seat(batch, slot);
        return MH_OK;
    }
    if (!due || bytes <= self->slot_bytes)
        return MH_AGAIN;
    if (bytes > self->apart_most)
        return mh_fail(err, MH_ERR_NOMEM,
                       "a batch of %llu samples takes %s, and memory allows only %s",
                       (unsigned long long)batch->planned, MH_BYTES((double)bytes),
                       MH_BYTES((double)self->apart_most));
    return mh_batch_seat_own(batch, err);
}

/* Small batches: threads that sleep are left alone while as many as `prefetch` says are ready, and
 * then find several at once. Whoever waits for a batch wakes them. Locked. */
static bool no_hurry(const mh_loader *self)
{
    const uint64_t last = self->sync.due + self->options.prefetch;
    return last < self->sync.seated && self->depth > self->options.prefetch &&
           self->sync.ring[last % self->horizon].left == 0;
}

/* Memory for the next batch that has none. MH_AGAIN: not now. */
static mh_status seat_one(mh_loader *self, mh_error *err)
{
    uint64_t number = self->sync.seated;
    if (number == self->sync.planned || number - self->sync.due == self->depth)
        return MH_AGAIN;
    MH_TRY(
        seat(self, self->sync.ring[number % self->horizon].batch, number == self->sync.due, err));
    pthread_mutex_lock(&self->sync.lock);
    self->sync.seated++;
    if (self->dataset->by_units)
        mh_units_seated(self, number);
    uint64_t under_way = self->sync.seated - self->sync.due;
    if (under_way > self->sync.stats.slots_peak)
        self->sync.stats.slots_peak = under_way;
    if (!no_hurry(self))
        mh_work_wake(self); /* who takes some of it wakes the next */
    pthread_mutex_unlock(&self->sync.lock);
    return MH_OK;
}

/* Batches to plan: as far as the ring goes, but where all units are there to stay only the next one
 * that is to be seated. */
static bool plan_more(mh_loader *self)
{
    uint64_t ahead = self->sync.planned - self->sync.due;
    if (ahead <= self->depth || !self->dataset->by_units)
        return ahead < self->horizon;
    pthread_mutex_lock(&self->sync.lock);
    bool complete = mh_residency_complete(self->sync.residency);
    pthread_mutex_unlock(&self->sync.lock);
    return !complete && ahead < self->horizon;
}

/* The nearest batches first: threads begin with them while the rest is planned. Only the consumer
 * changes due, seated and planned. */
static mh_status plan(mh_loader *self, mh_error *err)
{
    mh_status status = MH_OK;
    while (status == MH_OK && plan_more(self)) {
        do
            status = seat_one(self, err);
        while (status == MH_OK);
        if (status == MH_AGAIN)
            status = plan_one(self, err);
    }
    while (status == MH_OK || status == MH_AGAIN) {
        mh_status seated = seat_one(self, err);
        if (seated == MH_AGAIN)
            return MH_OK;
        status = seated;
    }
    return status;
}

/* --- waiting and handing out --- */

static void deadline_after(struct timespec *out, uint64_t timeout_ns)
{
    uint64_t at = mh_clock_ns();
    at = timeout_ns > UINT64_MAX - at ? UINT64_MAX : at + timeout_ns;
    out->tv_sec = (time_t)(at / 1000000000u);
    out->tv_nsec = (long)(at % 1000000000u);
}

/* MH_OK when the batch that is due is ready; MH_ERR_TIMEOUT. Meanwhile it does what it can: all of
 * the work without threads, else copies. */
static mh_status wait_for_due(mh_loader *self, uint64_t timeout_ns, mh_error *err)
{
    struct timespec deadline;
    deadline_after(&deadline, timeout_ns);
    const mh_under_way *due = &self->sync.ring[self->sync.due % self->horizon];
    mh_status status = MH_OK;
    pthread_mutex_lock(&self->sync.lock);
    mh_times_wait_begin(self, mh_clock_ns());
    if (due->left)
        mh_work_wake(self);
    while (due->left && status == MH_OK) {
        if (self->helps) {
            pthread_mutex_unlock(&self->sync.lock);
            bool worked = mh_work_help(self);
            pthread_mutex_lock(&self->sync.lock);
            if (worked)
                continue;
        }
        if (due->left &&
            pthread_cond_timedwait(&self->sync.ready, &self->sync.lock, &deadline) == ETIMEDOUT)
            status =
                mh_fail(err, MH_ERR_TIMEOUT, "no batch within %.1f s", (double)timeout_ns / 1e9);
    }
    pthread_mutex_unlock(&self->sync.lock);
    return due->left == 0 ? MH_OK : status;
}

/* Frees the place of the batch that is due; it stays in *out. */
static void take_due(mh_loader *self, mh_under_way *out)
{
    mh_loader_stats *stats = &self->sync.stats;
    pthread_mutex_lock(&self->sync.lock);
    mh_under_way *place = &self->sync.ring[self->sync.due++ % self->horizon];
    *out = *place;
    place->batch = NULL;
    mh_times_wait_end(self, &out->times, mh_clock_ns());
    stats->replaced += out->replaced;
    stats->skipped += out->skipped;
    if (out->failed_sample == UINT64_MAX) {
        stats->batches++;
        stats->samples += out->batch->samples;
    }
    pthread_mutex_unlock(&self->sync.lock);
    self->due_index++;
}

/* A batch of which nothing is left is not delivered. */
static bool all_skipped(mh_under_way *taken)
{
    if (taken->batch->samples || taken->failed_sample != UINT64_MAX)
        return false;
    mh_batch_unref(taken->batch);
    return true;
}

/* What the consumer holds must not stop what is read ahead: one slot more, while memory allows. */
static void make_room(mh_loader *self)
{
    mh_error full;
    mh_pool_stats pool;
    if (mh_pool_unheld(self->pool) > self->depth)
        return;
    mh_pool_stats_read(self->pool, &pool);
    (void)!mh_pool_reserve(self->pool, self->slot_bytes, pool.slots + 1, &full);
}

static mh_status hand_out(mh_loader *self, mh_under_way *taken, mh_batch **out, mh_error *err)
{
    mh_batch *batch = taken->batch;
    if (taken->failed_sample != UINT64_MAX) {
        *err = taken->error;
        mh_error_at_sample(err, batch->numbers[taken->failed_sample]);
        mh_batch_unref(batch);
        return taken->error.code;
    }
    make_room(self);
    /* one slot is kept moving where the consumer holds all others */
    if (mh_batch_hand_over(batch, self->pool, 1, 0) == MH_HANDOVER_CROWDED) {
        mh_status status = mh_batch_copy_out(batch, err);
        if (status != MH_OK) {
            mh_batch_unref(batch);
            return status;
        }
        pthread_mutex_lock(&self->sync.lock);
        self->sync.stats.batches_copied_out++;
        pthread_mutex_unlock(&self->sync.lock);
    }
    *out = batch;
    return MH_OK;
}

mh_status mh_loader_next_within(mh_loader *self, uint64_t timeout_ns, mh_batch **out, mh_error *err)
{
    mh_error own;
    mh_under_way taken;
    if (!err)
        err = &own;
    if (self->fork_generation != mh_fork_generation())
        return mh_fail(err, MH_ERR_FORKED, "this loader belongs to the process that opened it");
    do {
        MH_TRY(plan(self, err));
        if (self->due_index == mh_stream_batches(&self->stream, self->due_epoch)) {
            self->due_epoch++;
            self->due_index = 0;
            return MH_END;
        }
        if (self->sync.seated == self->sync.due)
            return mh_fail(err, MH_ERR_NOMEM, "all memory for batches is in use");
        MH_TRY(wait_for_due(self, timeout_ns, err));
        take_due(self, &taken);
    } while (all_skipped(&taken));
    mh_status status = hand_out(self, &taken, out, err);
    mh_error later; /* of planning: the next call meets it again */
    (void)!plan(self, &later);
    return status;
}

mh_status mh_loader_next(mh_loader *self, mh_batch **out, mh_error *err)
{
    return mh_loader_next_within(self, UINT64_MAX / 2, out, err);
}

/* --- places --- */

uint64_t mh_loader_batches(const mh_loader *self)
{
    return mh_stream_batches(&self->stream, self->stream.start_epoch + 1);
}

void mh_loader_position(const mh_loader *self, uint64_t *out_epoch, uint64_t *out_samples)
{
    uint64_t start = self->due_epoch == self->stream.start_epoch ? self->stream.start : 0;
    uint64_t done = start + self->due_index * self->options.batch_size * self->options.world;
    *out_epoch = self->due_epoch;
    *out_samples = done < self->stream.choice.count ? done : self->stream.choice.count;
}

/* What nobody has begun is not read; what is being read is waited for. */
static void end_pieces_locked(mh_loader *self)
{
    for (uint64_t n = self->sync.due; n < self->sync.planned; n++) {
        mh_under_way *batch = &self->sync.ring[n % self->horizon];
        batch->left -= (batch->batch->samples - batch->next) * self->dataset->field_count;
        batch->next = batch->batch->samples;
    }
    self->sync.dropping = true;
    for (uint64_t n = self->sync.due; n < self->sync.planned; n++)
        while (self->sync.ring[n % self->horizon].left)
            pthread_cond_wait(&self->sync.ready, &self->sync.lock);
    self->sync.dropping = false;
}

static void drop_under_way(mh_loader *self)
{
    pthread_mutex_lock(&self->sync.lock);
    self->sync.wait.at = 0;
    if (self->dataset->by_units)
        mh_units_drop(self);
    else
        end_pieces_locked(self);
    for (; self->sync.due < self->sync.planned; self->sync.due++) {
        mh_under_way *place = &self->sync.ring[self->sync.due % self->horizon];
        mh_batch_unref(place->batch);
        place->batch = NULL;
    }
    self->sync.seated = self->sync.due;
    pthread_mutex_unlock(&self->sync.lock);
}

mh_status mh_loader_seek(mh_loader *self, uint64_t epoch, uint64_t start, mh_error *err)
{
    if (self->fork_generation != mh_fork_generation())
        return mh_fail(err, MH_ERR_FORKED, "this loader belongs to the process that opened it");
    if (start > self->dataset->count) /* and what is under way stays */
        return mh_fail(err, MH_ERR_INVALID, "position %llu is beyond the %llu samples",
                       (unsigned long long)start, (unsigned long long)self->dataset->count);
    drop_under_way(self);
    self->due_epoch = epoch;
    self->due_index = 0;
    MH_TRY(mh_stream_seek(&self->stream, epoch, start, err));
    return plan(self, err);
}

mh_status mh_loader_seek_legs(mh_loader *self, uint64_t epoch, const mh_leg *legs, uint32_t count,
                              mh_error *err)
{
    if (self->fork_generation != mh_fork_generation())
        return mh_fail(err, MH_ERR_FORKED, "this loader belongs to the process that opened it");
    drop_under_way(self);
    self->due_epoch = epoch;
    self->due_index = 0;
    MH_TRY(mh_stream_seek_legs(&self->stream, epoch, legs, count, err));
    return plan(self, err);
}

static void add_unit_counts(const mh_loader *self, mh_loader_stats *stats)
{
    mh_residency_counts counts;
    if (!self->sync.residency)
        return;
    mh_residency_counts_read(self->sync.residency, &counts);
    stats->units_fetched = counts.fetched;
    stats->units_decoded = counts.decoded;
    stats->units_refetched = counts.refetched;
    stats->units_bytes_peak = counts.bytes_peak;
}

static void add_source_counts(mh_loader *self, mh_loader_stats *stats)
{
    mh_source_stats source;
    mh_source_stats_read(self->source, &source);
    stats->requests = source.requests;
    stats->requests_retried = source.retried;
    stats->requests_hedged = source.hedged;
    stats->requests_peak = source.in_flight_peak;
    stats->cache_hits = source.cache_hits;
    stats->cache_misses = source.cache_misses;
    stats->cache_bytes = source.cache_hit_bytes;
    stats->cache_written_bytes = source.cache_written_bytes;
    stats->cache_evicted_bytes = source.cache_evicted_bytes;
    stats->cache_corrupt = source.cache_corrupt;
}

void mh_loader_stats_read(const mh_loader *loader, mh_loader_stats *out)
{
    mh_loader *self = (mh_loader *)loader; /* the lock is not part of what is promised constant */
    size_t size = out->struct_size;
    if (self->fork_generation != mh_fork_generation())
        return;
    pthread_mutex_lock(&self->sync.lock);
    mh_loader_stats stats = self->sync.stats;
    add_unit_counts(self, &stats);
    stats.cpu_ns = mh_times_cpu_ns(self);
    pthread_mutex_unlock(&self->sync.lock);
    stats.struct_size = size;
    stats.threads = self->options.threads;
    stats.in_flight = self->options.in_flight;
    add_source_counts(self, &stats);
    mh_sized_write(out, size, &stats, sizeof stats);
}
