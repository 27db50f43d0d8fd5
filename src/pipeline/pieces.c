/* pieces.c - samples that lie in files as they are, read straight into their places
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "pipeline/loader.h"
#include "sys/clock.h"

#include <string.h>

/* What became of a run. */
typedef struct outcome {
    uint64_t over; /* pieces that are there or failed */
    uint64_t bytes;
    uint64_t missed;
    uint64_t failed_sample;
    mh_error error;
} outcome;

/* --- reads that were handed to the source --- */

/* A read's tag: the batch's place in the ring and the sample's in the batch. */
#define SAMPLE_BITS 40

static void *tag_of(const mh_loader *self, const mh_piece_run *r, uint64_t sample)
{
    return (void *)(uintptr_t)((r->number % self->horizon) << SAMPLE_BITS | sample);
}

static void read_done(void *context, void *tag, uint64_t got, const mh_error *err)
{
    (void)got; /* all of it, or an error */
    mh_loader *self = context;
    uint64_t word = (uint64_t)(uintptr_t)tag;
    uint64_t sample = word & ((UINT64_C(1) << SAMPLE_BITS) - 1);
    pthread_mutex_lock(&self->sync.lock);
    mh_work_flying(self, -1);
    mh_under_way *batch = &self->sync.ring[word >> SAMPLE_BITS];
    if (err)
        mh_work_failed(batch, sample, err);
    mh_work_over(self, batch, 1);
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

static void read_field(mh_work_room *room, const mh_piece_run *r, size_t field, outcome *out)
{
    mh_loader *self = room->loader;
    const mh_batch *batch = r->batch->batch;
    const uint64_t bytes = self->dataset->fields[field].bytes;
    uint8_t *place = mh_batch_place(batch, field, r->first);
    for (uint64_t i = r->first; i < r->first + r->count; i++, place += bytes) {
        mh_error err;
        uint64_t got;
        const mh_piece piece = mh_dataset_piece(self->dataset, field, batch->numbers[i]);
        const mh_read read = {.object = piece.object,
                              .offset = piece.offset,
                              .size = bytes,
                              .into = place,
                              .tag = tag_of(self, r, i)};
        mh_status status = bytes ? mh_source_try_now(self->source, &read, &got, &err) : MH_OK;
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

static void submit_missed(mh_work_room *room, const mh_piece_run *r, outcome *out)
{
    mh_error err;
    mh_loader *self = room->loader;
    if (!out->missed)
        return;
    pthread_mutex_lock(&self->sync.lock);
    mh_work_flying(self, (int64_t)out->missed);
    pthread_mutex_unlock(&self->sync.lock);
    if (mh_source_submit(self->source, room->missed, out->missed, read_done, self, &err) == MH_OK)
        return;
    pthread_mutex_lock(&self->sync.lock);
    mh_work_flying(self, -(int64_t)out->missed);
    pthread_mutex_unlock(&self->sync.lock);
    note_failure(out, r->first, &err);
    out->over += out->missed;
}

void mh_pieces_do(mh_work_room *room)
{
    mh_loader *self = room->loader;
    const mh_piece_run *r = &room->run;
    outcome out = {.failed_sample = UINT64_MAX};
    uint64_t began = mh_clock_ns();
    for (size_t field = 0; field < self->dataset->field_count; field++)
        read_field(room, r, field, &out);
    uint64_t ended = mh_clock_ns();
    uint64_t missed = out.missed, missed_bytes = 0;
    for (uint64_t i = 0; i < missed; i++)
        missed_bytes += room->missed[i].size;
    submit_missed(room, r, &out);
    pthread_mutex_lock(&self->sync.lock);
    self->sync.stats.bytes_read += out.bytes + missed_bytes;
    self->sync.stats.reads_now += out.over;
    self->sync.stats.reads_waited += missed;
    mh_times_task(room, MH_TIME_READ, began, ended);
    if (out.failed_sample != UINT64_MAX)
        mh_work_failed(r->batch, out.failed_sample, &out.error);
    mh_work_over(self, r->batch, out.over);
    pthread_mutex_unlock(&self->sync.lock);
}

/* --- taking runs --- */

/* The oldest batch with samples that nobody has taken; seated: there is none. */
static uint64_t untaken(const mh_loader *self)
{
    uint64_t number = self->sync.due;
    for (; number < self->sync.seated; number++) {
        const mh_under_way *batch = &self->sync.ring[number % self->horizon];
        if (batch->next < batch->batch->samples)
            break;
    }
    return number;
}

bool mh_pieces_left(const mh_loader *self)
{
    return untaken(self) < self->sync.seated;
}

bool mh_pieces_take(mh_work_room *room)
{
    mh_loader *self = room->loader;
    const uint64_t number = untaken(self);
    if (number == self->sync.seated)
        return false;
    mh_under_way *batch = &self->sync.ring[number % self->horizon];
    const uint64_t left = batch->batch->samples - batch->next;
    room->run = (mh_piece_run){.number = number,
                               .batch = batch,
                               .first = batch->next,
                               .count = left < self->run ? left : self->run};
    batch->next += room->run.count;
    return true;
}
