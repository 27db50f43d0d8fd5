/* fill.c - reading samples into their places
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "pipeline/loader.h"
#include "sys/clock.h"

#include <string.h>

/* Samples of a batch that one thread took. */
typedef struct run {
    uint64_t number; /* of the batch */
    mh_under_way *batch;
    uint64_t first, count;
} run;

/* What became of a run. */
typedef struct outcome {
    uint64_t over; /* pieces that are there or failed */
    uint64_t bytes;
    uint64_t missed;
    uint64_t failed_sample;
    mh_error error;
} outcome;

/* --- telling the loader --- */

static void pieces_over_locked(mh_loader *self, mh_under_way *batch, uint64_t pieces)
{
    batch->left -= pieces;
    if (batch->left == 0)
        pthread_cond_broadcast(&self->sync.ready);
}

static void failed_locked(mh_under_way *batch, uint64_t sample, const mh_error *err)
{
    if (sample < batch->failed_sample) {
        batch->failed_sample = sample;
        batch->error = *err;
    }
}

/* A read's tag: the batch's place in the ring and the sample's in the batch. */
#define SAMPLE_BITS 40

static void *tag_of(const mh_loader *self, const run *r, uint64_t sample)
{
    return (void *)(uintptr_t)((r->number % self->depth) << SAMPLE_BITS | sample);
}

static void read_done(void *context, void *tag, const mh_error *err)
{
    mh_loader *self = context;
    uint64_t word = (uint64_t)(uintptr_t)tag;
    uint64_t sample = word & ((UINT64_C(1) << SAMPLE_BITS) - 1);
    pthread_mutex_lock(&self->sync.lock);
    mh_under_way *batch = &self->sync.ring[word >> SAMPLE_BITS];
    if (err)
        failed_locked(batch, sample, err);
    pieces_over_locked(self, batch, 1);
    pthread_mutex_unlock(&self->sync.lock);
}

/* --- one run --- */

static void note_failure(outcome *out, uint64_t sample, const mh_error *err)
{
    if (sample < out->failed_sample) {
        out->failed_sample = sample;
        out->error = *err;
    }
}

static void fill_field(mh_fill_room *room, const run *r, size_t field, outcome *out)
{
    mh_loader *self = room->loader;
    const mh_batch *batch = r->batch->batch;
    const uint64_t bytes = self->dataset->fields[field].bytes;
    uint8_t *place = (uint8_t *)batch->arrays[field].data + r->first * bytes;
    for (uint64_t i = r->first; i < r->first + r->count; i++, place += bytes) {
        mh_error err;
        const mh_piece piece = mh_dataset_piece(self->dataset, field, batch->numbers[i]);
        const mh_read read = {.object = piece.object,
                              .offset = piece.offset,
                              .size = bytes,
                              .into = place,
                              .tag = tag_of(self, r, i)};
        mh_status status = bytes ? mh_source_try_now(self->source, &read, &err) : MH_OK;
        if (status == MH_AGAIN) {
            room->missed[out->missed++] = read;
            continue;
        }
        out->over++;
        if (status == MH_OK)
            out->bytes += bytes;
        else
            note_failure(out, i, &err);
    }
}

static void submit_missed(mh_fill_room *room, const run *r, outcome *out)
{
    mh_error err;
    mh_loader *self = room->loader;
    if (!out->missed ||
        mh_source_submit(self->source, room->missed, out->missed, read_done, self, &err) == MH_OK)
        return;
    note_failure(out, r->first, &err);
    out->over += out->missed;
}

static void fill_run(mh_fill_room *room, const run *r)
{
    mh_loader *self = room->loader;
    outcome out = {.failed_sample = UINT64_MAX};
    uint64_t began = mh_clock_ns();
    for (size_t field = 0; field < self->dataset->field_count; field++)
        fill_field(room, r, field, &out);
    uint64_t read_ns = mh_clock_ns() - began;
    uint64_t missed = out.missed, missed_bytes = 0;
    for (uint64_t i = 0; i < missed; i++)
        missed_bytes += room->missed[i].size;
    submit_missed(room, r, &out);
    pthread_mutex_lock(&self->sync.lock);
    self->sync.stats.bytes_read += out.bytes + missed_bytes;
    self->sync.stats.reads_now += out.over;
    self->sync.stats.reads_waited += missed;
    self->sync.stats.read_ns += read_ns;
    if (out.failed_sample != UINT64_MAX)
        failed_locked(r->batch, out.failed_sample, &out.error);
    pieces_over_locked(self, r->batch, out.over);
    pthread_mutex_unlock(&self->sync.lock);
}

/* --- taking runs --- */

static bool take_run_locked(mh_loader *self, run *out)
{
    for (uint64_t number = self->sync.due; number < self->sync.planned; number++) {
        mh_under_way *batch = &self->sync.ring[number % self->depth];
        uint64_t untaken = batch->batch->samples - batch->next;
        if (!untaken)
            continue;
        *out = (run){.number = number,
                     .batch = batch,
                     .first = batch->next,
                     .count = untaken < self->run ? untaken : self->run};
        batch->next += out->count;
        return true;
    }
    return false;
}

bool mh_fill_one(mh_fill_room *room)
{
    run r;
    mh_loader *self = room->loader;
    pthread_mutex_lock(&self->sync.lock);
    bool taken = take_run_locked(self, &r);
    pthread_mutex_unlock(&self->sync.lock);
    if (taken)
        fill_run(room, &r);
    return taken;
}

void *mh_fill_thread(void *argument)
{
    mh_fill_room *room = argument;
    mh_loader *self = room->loader;
    pthread_mutex_lock(&self->sync.lock);
    while (!self->sync.stop) {
        run r;
        if (!take_run_locked(self, &r)) {
            pthread_cond_wait(&self->sync.work, &self->sync.lock);
            continue;
        }
        pthread_mutex_unlock(&self->sync.lock);
        fill_run(room, &r);
        pthread_mutex_lock(&self->sync.lock);
    }
    pthread_mutex_unlock(&self->sync.lock);
    return NULL;
}
