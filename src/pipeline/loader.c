/* loader.c - a dataset in batches: planning, waiting and handing out, on the consumer's thread
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/loader.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/struct_size.h"
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

/* --- epochs --- */

static mh_status share_of(const mh_loader *self, uint64_t epoch, mh_share *out, mh_error *err)
{
    const mh_loader_options *o = &self->options;
    uint64_t start = epoch == self->start_epoch ? self->start : 0;
    mh_share_mode mode = o->uneven ? MH_SHARE_UNEVEN : o->drop_last ? MH_SHARE_CUT : MH_SHARE_PAD;
    return mh_share_init(out, self->dataset->count, start, o->world, o->rank, mode, err);
}

static uint64_t batches_of(const mh_loader *self, uint64_t epoch)
{
    mh_share share;
    mh_error err;
    const mh_loader_options *o = &self->options;
    if (share_of(self, epoch, &share, &err) != MH_OK)
        return 0; /* checked when the loader was opened or sought */
    uint64_t batches = share.length / o->batch_size;
    if (!o->drop_last && share.length % o->batch_size)
        batches++;
    if (!o->limit_batches)
        return batches;
    /* an epoch entered late has the steps before its start behind it */
    uint64_t start = epoch == self->start_epoch ? self->start : 0;
    uint64_t done = start / o->batch_size / o->world;
    uint64_t limit = o->limit_batches > done ? o->limit_batches - done : 0;
    return limit < batches ? limit : batches;
}

static mh_status order_of(mh_loader *self, uint64_t epoch, mh_error *err)
{
    static const mh_order_kind kinds[MH_SHUFFLE_KINDS] = {
        [MH_SHUFFLE_NONE] = MH_ORDER_SEQUENTIAL,
        [MH_SHUFFLE_ALL] = MH_ORDER_KEYED,
        [MH_SHUFFLE_TORCH] = MH_ORDER_TORCH,
    };
    mh_share share;
    const mh_loader_options *o = &self->options;
    uint64_t seed = o->shuffle == MH_SHUFFLE_TORCH ? o->seed + epoch : o->seed;
    MH_TRY(share_of(self, epoch, &share, err));
    mh_order_free(self->order);
    self->order = NULL;
    return mh_order_new(&self->order, kinds[o->shuffle], seed, epoch, &share, err);
}

/* --- planning --- */

static uint64_t samples_in(const mh_loader *self, uint64_t index)
{
    uint64_t left = mh_order_length(self->order) - index * self->options.batch_size;
    return left < self->options.batch_size ? left : self->options.batch_size;
}

static void fill_numbers(mh_loader *self, mh_batch *batch, uint64_t index)
{
    const mh_loader_options *o = &self->options;
    uint64_t first = index * o->batch_size;
    uint64_t start = self->planned_epoch == self->start_epoch ? self->start : 0;
    for (uint64_t i = 0; i < batch->samples; i++)
        batch->numbers[i] = mh_order_at(self->order, first + i);
    batch->position = start + o->rank + first * o->world;
}

/* Gives the next batch a slot and its numbers, and lets the threads have it. MH_AGAIN: not now. */
static mh_status plan_one(mh_loader *self, mh_error *err)
{
    uint64_t batches = batches_of(self, self->planned_epoch);
    if (self->planned_index == batches) {
        if (batches_of(self, self->planned_epoch + 1) == 0)
            return MH_AGAIN;
        self->planned_epoch++;
        self->planned_index = 0;
        mh_order_free(self->order);
        self->order = NULL;
    }
    if (!self->order)
        MH_TRY(order_of(self, self->planned_epoch, err));
    mh_slot *slot = mh_pool_grant(self->pool);
    if (!slot)
        return MH_AGAIN;
    mh_batch *batch;
    mh_status status =
        mh_batch_new(&batch, self->dataset, slot, samples_in(self, self->planned_index), err);
    if (status != MH_OK) {
        mh_slot_abandon(slot);
        return status;
    }
    fill_numbers(self, batch, self->planned_index++);
    pthread_mutex_lock(&self->sync.lock);
    self->sync.ring[self->sync.planned % self->depth] =
        (mh_under_way){.batch = batch,
                       .left = batch->samples * self->dataset->field_count,
                       .failed_sample = UINT64_MAX};
    self->sync.planned++;
    uint64_t under_way = self->sync.planned - self->sync.due;
    if (under_way > self->sync.stats.slots_peak)
        self->sync.stats.slots_peak = under_way;
    pthread_cond_broadcast(&self->sync.work);
    pthread_mutex_unlock(&self->sync.lock);
    return MH_OK;
}

/* As many as prefetch= allows; only the consumer changes due and planned. */
static mh_status plan(mh_loader *self, mh_error *err)
{
    mh_status status = MH_OK;
    while (status == MH_OK && self->sync.planned - self->sync.due < self->depth)
        status = plan_one(self, err);
    return status == MH_AGAIN ? MH_OK : status;
}

/* --- waiting and handing out --- */

static void deadline_after(struct timespec *out, uint64_t timeout_ns)
{
    uint64_t at = mh_clock_ns();
    at = timeout_ns > UINT64_MAX - at ? UINT64_MAX : at + timeout_ns;
    out->tv_sec = (time_t)(at / 1000000000u);
    out->tv_nsec = (long)(at % 1000000000u);
}

/* MH_OK when the batch that is due is ready; MH_ERR_TIMEOUT. Without threads this does the work. */
static mh_status wait_for_due(mh_loader *self, uint64_t timeout_ns, mh_error *err)
{
    struct timespec deadline;
    deadline_after(&deadline, timeout_ns);
    const mh_under_way *due = &self->sync.ring[self->sync.due % self->depth];
    mh_status status = MH_OK;
    pthread_mutex_lock(&self->sync.lock);
    while (due->left && status == MH_OK) {
        if (self->options.threads == 0) {
            pthread_mutex_unlock(&self->sync.lock);
            bool worked = mh_fill_one(self->rooms);
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
static void take_due(mh_loader *self, mh_under_way *out, uint64_t waited_ns)
{
    mh_loader_stats *stats = &self->sync.stats;
    pthread_mutex_lock(&self->sync.lock);
    *out = self->sync.ring[self->sync.due % self->depth];
    self->sync.ring[self->sync.due % self->depth] = (mh_under_way){0};
    self->sync.due++;
    stats->wait_ns += waited_ns;
    if (waited_ns > stats->wait_most_ns)
        stats->wait_most_ns = waited_ns;
    if (out->failed_sample == UINT64_MAX) {
        stats->batches++;
        stats->samples += out->batch->samples;
    }
    pthread_mutex_unlock(&self->sync.lock);
    self->due_index++;
}

static mh_status hand_out(mh_loader *self, mh_under_way *taken, mh_batch **out, mh_error *err)
{
    mh_batch *batch = taken->batch;
    if (taken->failed_sample != UINT64_MAX) {
        *err = taken->error;
        mh_error_prefix(err, "sample %llu",
                        (unsigned long long)batch->numbers[taken->failed_sample]);
        mh_batch_unref(batch);
        return taken->error.code;
    }
    if (mh_pool_unheld(self->pool) <= 1) { /* the consumer holds all others: keep one moving */
        mh_status status = mh_batch_copy_out(batch, err);
        if (status != MH_OK) {
            mh_batch_unref(batch);
            return status;
        }
        pthread_mutex_lock(&self->sync.lock);
        self->sync.stats.batches_copied_out++;
        pthread_mutex_unlock(&self->sync.lock);
    }
    mh_batch_deliver(batch);
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
    MH_TRY(plan(self, err));
    if (self->due_index == batches_of(self, self->due_epoch)) {
        self->due_epoch++;
        self->due_index = 0;
        return MH_END;
    }
    if (self->sync.planned == self->sync.due)
        return mh_fail(err, MH_ERR_NOMEM, "all memory for batches is in use");
    uint64_t began = mh_clock_ns();
    MH_TRY(wait_for_due(self, timeout_ns, err));
    take_due(self, &taken, mh_clock_ns() - began);
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
    return batches_of(self, self->start_epoch + 1);
}

void mh_loader_position(const mh_loader *self, uint64_t *out_epoch, uint64_t *out_samples)
{
    uint64_t start = self->due_epoch == self->start_epoch ? self->start : 0;
    uint64_t done = start + self->due_index * self->options.batch_size * self->options.world;
    *out_epoch = self->due_epoch;
    *out_samples = done < self->dataset->count ? done : self->dataset->count;
}

/* What nobody has begun is not read; what is being read is waited for, then all is dropped. */
static void drop_under_way(mh_loader *self)
{
    pthread_mutex_lock(&self->sync.lock);
    for (uint64_t n = self->sync.due; n < self->sync.planned; n++) {
        mh_under_way *batch = &self->sync.ring[n % self->depth];
        batch->left -= (batch->batch->samples - batch->next) * self->dataset->field_count;
        batch->next = batch->batch->samples;
    }
    for (uint64_t n = self->sync.due; n < self->sync.planned; n++)
        while (self->sync.ring[n % self->depth].left)
            pthread_cond_wait(&self->sync.ready, &self->sync.lock);
    for (; self->sync.due < self->sync.planned; self->sync.due++) {
        mh_under_way *batch = &self->sync.ring[self->sync.due % self->depth];
        mh_batch_unref(batch->batch);
        *batch = (mh_under_way){0};
    }
    pthread_mutex_unlock(&self->sync.lock);
}

mh_status mh_loader_seek(mh_loader *self, uint64_t epoch, uint64_t start, mh_error *err)
{
    mh_share share;
    if (self->fork_generation != mh_fork_generation())
        return mh_fail(err, MH_ERR_FORKED, "this loader belongs to the process that opened it");
    if (start > self->dataset->count)
        return mh_fail(err, MH_ERR_INVALID, "position %llu is beyond the %llu samples",
                       (unsigned long long)start, (unsigned long long)self->dataset->count);
    drop_under_way(self);
    mh_order_free(self->order);
    self->order = NULL;
    self->start_epoch = self->planned_epoch = self->due_epoch = epoch;
    self->start = start;
    self->planned_index = self->due_index = 0;
    MH_TRY(share_of(self, epoch, &share, err));
    return plan(self, err);
}

void mh_loader_stats_read(const mh_loader *loader, mh_loader_stats *out)
{
    mh_loader *self = (mh_loader *)loader; /* the lock is not part of what is promised constant */
    size_t size = out->struct_size;
    if (self->fork_generation != mh_fork_generation())
        return;
    pthread_mutex_lock(&self->sync.lock);
    mh_loader_stats stats = self->sync.stats;
    pthread_mutex_unlock(&self->sync.lock);
    stats.struct_size = size;
    stats.threads = self->options.threads;
    mh_sized_write(out, size, &stats, sizeof stats);
}
