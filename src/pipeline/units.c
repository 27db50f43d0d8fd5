/* units.c - samples made of units: fetched, decoded, placed
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "pipeline/loader.h"
#include "sys/clock.h"

#define SUBSTITUTES_MOST                                                                           \
    8 /* broken one after the other: it is not single samples that are broken */

/* --- the plan --- */

static mh_under_way *batch_of(const mh_loader *self, const mh_sample *sample)
{
    return &self->sync.ring[sample->position / self->options.batch_size % self->horizon];
}

static uint64_t index_of(const mh_loader *self, const mh_sample *sample)
{
    return sample->position % self->options.batch_size;
}

static void queue(mh_under_way *batch, mh_sample *sample)
{
    if (sample->queued)
        return;
    sample->queued = true;
    sample->next = NULL;
    if (batch->ready_first)
        batch->ready_last->next = sample;
    else
        batch->ready_first = sample;
    batch->ready_last = sample;
}

void mh_units_ready(void *loader, mh_sample *sample)
{
    mh_loader *self = loader;
    if (sample->position / self->options.batch_size < self->sync.seated)
        queue(batch_of(self, sample), sample);
}

static void sample_over(mh_loader *self, mh_under_way *batch, mh_sample *sample)
{
    sample->over = true;
    mh_work_over(self, batch, 1);
}

static void plan_sample(mh_loader *self, mh_under_way *batch, mh_sample *sample)
{
    mh_error err;
    uint64_t i = index_of(self, sample);
    if (mh_residency_plan(self->sync.residency, sample, batch->batch->numbers[i], &err) == MH_OK)
        return;
    mh_work_failed(batch, i, &err);
    sample_over(self, batch, sample);
}

void mh_units_plan(mh_loader *self, uint64_t number)
{
    mh_under_way *batch = &self->sync.ring[number % self->horizon];
    batch->left = batch->batch->samples + 1;
    for (uint64_t i = 0; i < batch->batch->samples; i++) {
        mh_sample *sample = &batch->samples[i];
        *sample =
            (mh_sample){.position = number * self->options.batch_size + i, .uses = sample->uses};
        plan_sample(self, batch, sample);
    }
}

void mh_units_seated(mh_loader *self, uint64_t number)
{
    mh_under_way *batch = &self->sync.ring[number % self->horizon];
    for (uint64_t i = 0; i < batch->batch->samples; i++)
        if (!batch->samples[i].waiting && !batch->samples[i].over)
            queue(batch, &batch->samples[i]);
}

/* The lowest sample that is not over; UINT64_MAX: all are. */
static uint64_t head_of(mh_loader *self)
{
    for (uint64_t number = self->sync.due; number < self->sync.planned; number++) {
        mh_under_way *batch = &self->sync.ring[number % self->horizon];
        while (batch->next < batch->batch->planned && batch->samples[batch->next].over)
            batch->next++;
        if (batch->next < batch->batch->planned)
            return batch->samples[batch->next].position;
    }
    return UINT64_MAX;
}

/* --- taking --- */

/* Where reads are not waited for, none has to be begun early. */
static mh_reach reach_of(const mh_loader *self, uint64_t head)
{
    const bool waits = !self->source->type->try_now || self->sync.cold;
    return (mh_reach){.head = head,
                      .soon = self->sync.seated * self->options.batch_size,
                      .ahead = waits ? 2 * (uint64_t)self->options.in_flight : 0};
}

static bool take_fetch(mh_loader *self, mh_unit_task *out)
{
    if (self->sync.fetching >= self->options.in_flight)
        return false;
    const mh_reach reach = reach_of(self, head_of(self));
    mh_resident *unit = mh_residency_fetch(self->sync.residency, &reach);
    if (!unit)
        return false;
    self->sync.fetching++;
    *out = (mh_unit_task){.work = MH_WORK_FETCH, .unit = unit};
    return true;
}

static bool take_decode(mh_loader *self, mh_unit_task *out)
{
    mh_resident *unit = self->sync.decode_first;
    if (!unit)
        return false;
    self->sync.decode_first = unit->next;
    *out = (mh_unit_task){.work = MH_WORK_DECODE, .unit = unit};
    return true;
}

static mh_sample *pop_ready(mh_under_way *batch)
{
    for (mh_sample *sample; (sample = batch->ready_first);) {
        batch->ready_first = sample->next;
        sample->queued = false;
        if (!sample->waiting) /* else a unit was evicted again */
            return sample;
    }
    return NULL;
}

static bool take_place(mh_loader *self, mh_unit_task *out)
{
    for (uint64_t number = self->sync.due; number < self->sync.seated; number++) {
        mh_under_way *batch = &self->sync.ring[number % self->horizon];
        if (batch->left == 1) { /* all samples are over: only finishing is left */
            *out = (mh_unit_task){.work = MH_WORK_FINISH, .batch = batch};
            batch->left = 2; /* and somebody does it */
            return true;
        }
        *out = (mh_unit_task){.work = MH_WORK_PLACE, .batch = batch};
        mh_sample **last = &out->samples;
        for (uint64_t count = 0; count < self->run && (*last = pop_ready(batch)); count++) {
            mh_residency_pin(self->sync.residency, *last);
            last = &(*last)->next;
        }
        *last = NULL;
        if (out->samples)
            return true;
    }
    return false;
}

bool mh_units_take(mh_work_room *room)
{
    mh_loader *self = room->loader;
    mh_unit_task *out = &room->task;
    if (self->sync.dropping)
        return false;
    bool remote = !self->source->type->try_now || self->sync.cold;
    bool taken = (remote && take_fetch(self, out)) || take_place(self, out) ||
                 take_decode(self, out) || take_fetch(self, out) ||
                 take_place(self, out); /* of units for which there was no memory */
    self->sync.working += taken;
    return taken;
}

bool mh_units_take_ready(mh_work_room *room)
{
    mh_loader *self = room->loader;
    bool taken = !self->sync.dropping && take_place(self, &room->task);
    self->sync.working += taken;
    return taken;
}

bool mh_units_left(const mh_loader *self)
{
    if (self->sync.dropping)
        return false;
    for (uint64_t number = self->sync.due; number < self->sync.seated; number++) {
        const mh_under_way *batch = &self->sync.ring[number % self->horizon];
        if (batch->ready_first || batch->left == 1)
            return true;
    }
    const mh_reach reach = reach_of(self, UINT64_MAX); /* the lowest sample's batch is seated */
    return self->sync.decode_first || (self->sync.fetching < self->options.in_flight &&
                                       mh_residency_wants(self->sync.residency, &reach));
}

/* --- doing --- */

/* Something was done that may let others go on. */
static void wake(mh_loader *self)
{
    mh_work_wake(self);
    if (self->options.threads == 0 || self->sync.dropping)
        pthread_cond_broadcast(&self->sync.ready);
}

static void fetch_over(mh_loader *self, mh_resident *unit, uint64_t got, const mh_error *err)
{
    self->sync.fetching--;
    unit->missing = err && err->code == MH_ERR_NOT_FOUND && unit->unit.may_be_missing;
    if (err && !unit->missing)
        mh_residency_failed(self->sync.residency, unit, err);
    else {
        unit->got = unit->missing ? 0 : got;
        self->sync.stats.bytes_read += unit->got;
        if (mh_residency_fetched(self->sync.residency, unit)) {
            unit->next = NULL;
            if (self->sync.decode_first)
                self->sync.decode_last->next = unit;
            else
                self->sync.decode_first = unit;
            self->sync.decode_last = unit;
        }
    }
    wake(self);
}

static void read_done(void *loader, void *tag, uint64_t got, const mh_error *err)
{
    mh_loader *self = loader;
    mh_resident *unit = tag;
    pthread_mutex_lock(&self->sync.lock);
    unit->times.got = mh_work_flying(self, -1);
    fetch_over(self, unit, got, err);
    pthread_mutex_unlock(&self->sync.lock);
}

static mh_status submit(mh_loader *self, const mh_read *read, mh_error *err)
{
    pthread_mutex_lock(&self->sync.lock);
    mh_work_flying(self, 1);
    pthread_mutex_unlock(&self->sync.lock);
    mh_status status = mh_source_submit(self->source, read, 1, read_done, self, err);
    if (status == MH_OK)
        return MH_OK;
    pthread_mutex_lock(&self->sync.lock);
    mh_work_flying(self, -1);
    pthread_mutex_unlock(&self->sync.lock);
    return status;
}

static void fetch(mh_work_room *room, mh_resident *unit)
{
    mh_loader *self = room->loader;
    mh_error err;
    const mh_read read = {.object = unit->unit.object,
                          .whole = unit->unit.whole,
                          .offset = unit->unit.offset,
                          .size = unit->unit.size,
                          .into = unit->read,
                          .tag = unit};
    uint64_t began = mh_clock_ns(), got = 0;
    unit->times = (mh_unit_times){.asked = began};
    mh_status status = read.size ? mh_source_try_now(self->source, &read, &got, &err) : MH_OK;
    uint64_t ended = mh_clock_ns();
    bool missed = status == MH_AGAIN;
    if (missed)
        status = submit(self, &read, &err);
    pthread_mutex_lock(&self->sync.lock);
    self->sync.working--;
    self->sync.cold = missed;
    self->sync.stats.reads_now += !missed;
    self->sync.stats.reads_waited += missed;
    if (!missed) {
        unit->times.got = ended;
        mh_times_task(room, MH_TIME_READ, began, ended);
    }
    if (!missed || status != MH_OK)
        fetch_over(self, unit, got, status == MH_OK ? NULL : &err);
    else
        wake(self);
    pthread_mutex_unlock(&self->sync.lock);
}

static void decode(mh_work_room *room, mh_resident *unit)
{
    mh_loader *self = room->loader;
    mh_error err;
    const mh_dataset *dataset = self->dataset;
    uint64_t began = mh_clock_ns();
    mh_status status = dataset->format->decode(dataset, unit->id, mh_resident_read(unit),
                                               unit->decoded, room->format, &err);
    uint64_t ended = mh_clock_ns();
    unit->times.decoding = began;
    unit->times.decoded = ended;
    pthread_mutex_lock(&self->sync.lock);
    self->sync.working--;
    mh_times_task(room, MH_TIME_DECODE, began, ended);
    if (status == MH_OK)
        mh_residency_decoded(self->sync.residency, unit);
    else
        mh_residency_failed(self->sync.residency, unit, &err);
    wake(self);
    pthread_mutex_unlock(&self->sync.lock);
}

/* --- placing --- */

/* The sample's units into room->units. */
static mh_status gather(mh_work_room *room, const mh_sample *sample, mh_error *err)
{
    for (uint32_t u = 0; u < sample->use_count; u++) {
        const mh_resident *unit = sample->uses[u].unit;
        if (unit->state == MH_UNIT_FAILED && !unit->error)
            return mh_fail(err, MH_ERR_NOMEM, "no memory to say what failed");
        if (unit->state == MH_UNIT_FAILED) {
            *err = *unit->error;
            return err->code;
        }
        room->units[u] = mh_resident_bytes(unit);
    }
    return MH_OK;
}

/* The memory that a sample is placed from comes near while another one is placed. */
static void warm(mh_work_room *room, const mh_batch *batch, uint64_t i, const mh_sample *sample)
{
    mh_error err; /* placing will meet it again */
    const mh_dataset *dataset = room->loader->dataset;
    if (dataset->format->warm && gather(room, sample, &err) == MH_OK)
        dataset->format->warm(dataset, batch->numbers[i], room->units);
}

static mh_status place_one(mh_work_room *room, mh_batch *batch, uint64_t i, mh_sample *sample,
                           mh_error *err)
{
    const mh_dataset *dataset = room->loader->dataset;
    MH_TRY(gather(room, sample, err));
    for (size_t field = 0; field < dataset->field_count; field++)
        room->into[field] = mh_batch_place(batch, field, i);
    if (sample->substitutes && room->loader->apart_most) /* a field is ragged */
        MH_TRY(mh_batch_place_apart(batch, i, room->into, err));
    const mh_placing placing = {.sample = batch->numbers[i],
                                .seed = room->loader->options.seed,
                                .epoch = batch->epoch,
                                .position = batch->positions[i],
                                .units = room->units,
                                .into = room->into,
                                .room = room->format};
    return dataset->format->place(dataset, &placing, err);
}

static bool is_the_samples_fault(mh_status status)
{
    return status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED || status == MH_ERR_NOT_FOUND;
}

/* Plans another sample in its place. False: too many have been tried. */
static bool substitute(mh_loader *self, mh_under_way *way, mh_sample *sample)
{
    mh_batch *batch = way->batch;
    uint64_t i = index_of(self, sample);
    if (sample->substitutes == SUBSTITUTES_MOST)
        return false;
    batch->numbers[i] = mh_stream_substitute(&self->stream, batch->epoch, batch->positions[i],
                                             ++sample->substitutes);
    way->replaced += sample->substitutes == 1;
    plan_sample(self, way, sample);
    return true;
}

/* What becomes of a sample that was placed or not. Locked. */
static void placed(mh_loader *self, mh_under_way *way, mh_sample *sample, mh_status status,
                   const mh_error *err)
{
    mh_on_error policy = is_the_samples_fault(status) ? self->options.on_error : MH_ON_ERROR_RAISE;
    mh_residency_finish(self->sync.residency, sample);
    if (status != MH_OK && policy == MH_ON_ERROR_REPLACE && substitute(self, way, sample))
        return;
    if (status != MH_OK && policy == MH_ON_ERROR_SKIP) {
        mh_batch_skip(way->batch, index_of(self, sample));
        way->skipped++;
    } else if (status != MH_OK)
        mh_work_failed(way, index_of(self, sample), err);
    sample_over(self, way, sample);
}

/* Of the sample's units the one that was there last. */
static mh_unit_times last_unit(const mh_sample *sample)
{
    mh_unit_times last = {0};
    for (uint32_t u = 0; u < sample->use_count; u++) {
        const mh_unit_times *times = &sample->uses[u].unit->times;
        if (times->got > last.got || times->decoded > last.decoded)
            last = *times;
    }
    return last;
}

static void place(mh_work_room *room)
{
    mh_loader *self = room->loader;
    mh_under_way *way = room->task.batch;
    mh_sample *good = NULL;
    uint64_t began = mh_clock_ns();
    for (mh_sample *sample = room->task.samples, *next; sample; sample = next) {
        mh_error err;
        next = sample->next;
        if (next)
            warm(room, way->batch, index_of(self, next), next);
        mh_status status = place_one(room, way->batch, index_of(self, sample), sample, &err);
        if (status == MH_OK) {
            sample->next = good;
            good = sample;
            continue;
        }
        pthread_mutex_lock(&self->sync.lock);
        placed(self, way, sample, status, &err);
        pthread_mutex_unlock(&self->sync.lock);
    }
    uint64_t ended = mh_clock_ns();
    pthread_mutex_lock(&self->sync.lock);
    if (good)
        way->times = (mh_batch_times){.unit = last_unit(good), .placing = began};
    for (mh_sample *next; good; good = next) {
        next = good->next;
        self->sync.stats.placed++;
        placed(self, way, good, MH_OK, NULL);
    }
    mh_times_task(room, MH_TIME_PLACE, began, ended);
    if (way->left == 1 && mh_batch_is_even(way->batch)) /* finishing is no task of its own */
        mh_work_over(self, way, 1);
    self->sync.working--;
    wake(self);
    pthread_mutex_unlock(&self->sync.lock);
}

/* Nobody else has the batch now: all its samples are over. */
static void finish(mh_loader *self, mh_under_way *way)
{
    mh_error err;
    bool failed = way->failed_sample != UINT64_MAX;
    if (!failed)
        failed = mh_batch_finish(way->batch, &err) != MH_OK;
    pthread_mutex_lock(&self->sync.lock);
    if (failed && way->failed_sample == UINT64_MAX)
        mh_work_failed(way, 0, &err);
    self->sync.working--;
    mh_work_over(self, way, 2);
    wake(self);
    pthread_mutex_unlock(&self->sync.lock);
}

void mh_units_do(mh_work_room *room)
{
    const mh_unit_task *task = &room->task;
    switch (task->work) {
    case MH_WORK_FETCH:
        fetch(room, task->unit);
        break;
    case MH_WORK_DECODE:
        decode(room, task->unit);
        break;
    case MH_WORK_PLACE:
        place(room);
        break;
    case MH_WORK_FINISH:
        finish(room->loader, task->batch);
        break;
    }
}

/* --- dropping --- */

void mh_units_drop(mh_loader *self)
{
    self->sync.dropping = true;
    while (self->sync.working || self->sync.fetching)
        pthread_cond_wait(&self->sync.ready, &self->sync.lock);
    self->sync.decode_first = NULL;
    mh_residency_clear(self->sync.residency);
    self->sync.dropping = false;
}
