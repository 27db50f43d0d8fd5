/* open.c - opening and closing a loader: options checked, memory reserved, threads started
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/struct_size.h"
#include "base/units.h"
#include "pipeline/loader.h"
#include "source/simulated.h"
#include "sys/cpu.h"
#include "sys/memory.h"

#include <millhead/plan.h>
#include <string.h>
#include <time.h>

#define PREFETCH_MOST 4096u
#define THREADS_MOST 1024
#define BATCH_MOST (UINT64_C(1) << 32)
#define RUN_BYTES (UINT64_C(64) << 10) /* some 50 us of reading what is cached */
#define RUN_MOST UINT64_C(128)
#define TASK_BYTES (UINT64_C(512) << 10) /* the same of placing what is in memory */
#define TASK_MOST UINT64_C(512)
#define SMALL_BATCHES_MOST 32u
#define PLAN_MOST (UINT64_C(1) << 18) /* uses of units that are planned at a time */
#define BLOCK_PARTS 16u
#define BLOCK_BYTES (UINT64_C(1) << 20)
#define HELD_SLOTS 2u /* `for batch in loader` holds one while it asks for the next */
#define KEPT_SHARE                                                                                 \
    16u /* of the memory that units have otherwise, for batches that are kept longer */

/* --- options --- */

static mh_status check_options(const mh_loader_options *o, mh_error *err)
{
    if (o->batch_size < 1 || o->batch_size > BATCH_MOST)
        return mh_fail(err, MH_ERR_INVALID, "batch_size must be from 1 to 2^32, not %llu",
                       (unsigned long long)o->batch_size);
    if (o->world < 1 || o->rank >= o->world)
        return mh_fail(err, MH_ERR_INVALID, "rank %llu of %llu does not exist",
                       (unsigned long long)o->rank, (unsigned long long)o->world);
    if ((unsigned)o->shuffle >= MH_SHUFFLE_KINDS)
        return mh_fail(err, MH_ERR_INVALID, "unknown shuffle %d", (int)o->shuffle);
    if ((unsigned)o->on_error >= MH_ON_ERROR_KINDS)
        return mh_fail(err, MH_ERR_INVALID, "unknown on_error %d", (int)o->on_error);
    if (o->threads < -1 || o->threads > THREADS_MOST)
        return mh_fail(err, MH_ERR_INVALID, "threads must be from 0 to %d, not %d", THREADS_MOST,
                       o->threads);
    if (o->prefetch > PREFETCH_MOST)
        return mh_fail(err, MH_ERR_INVALID, "prefetch must be at most %u, not %u", PREFETCH_MOST,
                       o->prefetch);
    if (o->drop_last && o->uneven)
        return mh_fail(err, MH_ERR_INVALID, "drop_last and uneven exclude each other");
    if (o->weights && o->shuffle != MH_SHUFFLE_NONE)
        return mh_fail(err, MH_ERR_INVALID, "weights draw samples at random: leave shuffle out");
    if (o->subset && o->shuffle == MH_SHUFFLE_BLOCKS)
        return mh_fail(err, MH_ERR_INVALID, "shuffle by blocks takes no subset: it shuffles all");
    return MH_OK;
}

static int default_threads(void)
{
    mh_plan_cpus_options options;
    mh_plan_cpus plan;
    mh_error err;
    mh_plan_cpus_options_init(&options);
    if (mh_plan_cpus_make(&plan, &options, &err) != MH_OK || plan.workers_per_gpu < 1)
        return 1;
    return plan.workers_per_gpu < THREADS_MOST ? plan.workers_per_gpu : THREADS_MOST;
}

static mh_status take_options(mh_loader *self, const mh_loader_options *given, mh_error *err)
{
    mh_loader_options *o = &self->options;
    mh_loader_options_init(o);
    if (given)
        MH_TRY(MH_SIZED_TAKE(o, given, mh_loader_options, on_error, err));
    MH_TRY(check_options(o, err));
    MH_TRY(mh_choice_init(&self->stream.choice, self->dataset->count, o->subset, o->subset_count,
                          o->weights, o->weight_count, err));
    o->subset = NULL; /* the caller's */
    o->weights = NULL;
    if (o->start > self->stream.choice.count)
        return mh_fail(err, MH_ERR_INVALID, "position %llu is beyond the %llu samples",
                       (unsigned long long)o->start, (unsigned long long)self->stream.choice.count);
    if (o->threads < 0)
        o->threads = default_threads();
    if (!o->in_flight)
        o->in_flight = 16;
    if (!o->prefetch)
        o->prefetch = 2;
    return MH_OK;
}

/* --- memory --- */

static uint64_t default_memory(void)
{
    mh_memory_room room;
    mh_memory_room_read(&room, "");
    return room.available_bytes / 4;
}

static bool has_ragged(const mh_dataset *dataset)
{
    for (size_t i = 0; i < dataset->field_count; i++)
        if (dataset->fields[i].ragged)
            return true;
    return false;
}

/* Of the memory for a dataset of units, slots have at most half, and a share for batches that the
 * consumer keeps; where batches differ in size, they have room for some that are larger. */
static mh_status divide(const mh_loader *self, uint64_t batch_bytes, uint64_t *slots,
                        uint64_t *units, mh_error *err)
{
    uint64_t budget = self->options.memory_bytes ? self->options.memory_bytes : default_memory();
    uint64_t least = self->dataset->by_units ? mh_residency_least(self->dataset) : 0;
    uint64_t needed;
    if (__builtin_add_overflow(least, batch_bytes, &needed) || needed > budget)
        return mh_fail(err, MH_ERR_NOMEM, "%s takes %s, and memory allows only %s",
                       least ? "a batch with the units of a sample" : "a batch",
                       MH_BYTES((double)batch_bytes + (double)least), MH_BYTES((double)budget));
    uint64_t wanted = (self->depth + (uint64_t)HELD_SLOTS) * batch_bytes;
    *slots = budget;
    if (!self->dataset->by_units)
        return MH_OK;
    if (has_ragged(self->dataset))
        wanted += wanted / 2;
    wanted += budget / KEPT_SHARE;
    *slots = wanted < budget / 2 ? wanted : budget / 2;
    if (*slots < batch_bytes)
        *slots = batch_bytes;
    if (budget - *slots < least)
        *slots = budget - least;
    *units = budget - *slots;
    return MH_OK;
}

/* Of the units' memory, some is for the rare batch that is larger than its slot. */
static void set_apart(mh_loader *self, uint64_t *units)
{
    if (!has_ragged(self->dataset))
        return;
    self->apart_most = (*units - mh_residency_least(self->dataset)) / 2 + 1;
    *units -= self->apart_most - 1;
}

/* Slots for what is under way and what the consumer holds, as many as the memory allows; the rest
 * is for units. */
static mh_status reserve(mh_loader *self, uint64_t *units, mh_error *err)
{
    uint64_t bytes, slots = 0;
    const mh_layout layout = mh_dataset_layout(self->dataset);
    MH_TRY(mh_layout_usual_bytes(&bytes, &layout, self->dataset->count, self->options.batch_size,
                                 err));
    self->slot_bytes = bytes;
    bytes = mh_pool_slot_bytes(bytes);
    MH_TRY(divide(self, bytes, &slots, units, err));
    set_apart(self, units);
    MH_TRY(mh_pool_open_private(&self->pool, slots, err));
    mh_status status = mh_pool_reserve(self->pool, bytes, self->depth + HELD_SLOTS, err);
    return mh_pool_unheld(self->pool) > 0 ? MH_OK : status;
}

static uint64_t sample_bytes(const mh_dataset *dataset)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < dataset->field_count; i++)
        bytes += dataset->fields[i].bytes;
    return bytes ? bytes : 1;
}

/* Where every read of a piece waits for a link, batches enough for twice the reads in flight: a
 * slot is where their bytes belong anyway. Units are read without a slot. */
static uint64_t depth_for_reads(const mh_loader *self)
{
    const mh_loader_options *o = &self->options;
    uint64_t reads = o->batch_size * self->dataset->field_count;
    if (!o->simulate || !reads || self->dataset->by_units)
        return 0;
    return (2 * (uint64_t)o->in_flight + reads - 1) / reads + 1;
}

/* Small batches are over sooner than a thread wakes up: there is a task for each thread, and as
 * much again ready, unless memory is short. */
static uint64_t depth_for_tasks(const mh_loader *self)
{
    const mh_loader_options *o = &self->options;
    uint64_t bytes = TASK_BYTES * ((uint64_t)o->threads + 1), batch, depth;
    bool short_of_memory = o->memory_bytes && o->memory_bytes / 64 < bytes;
    if (!o->threads || short_of_memory ||
        __builtin_mul_overflow(o->batch_size, sample_bytes(self->dataset), &batch))
        return 0;
    depth = (bytes + batch - 1) / batch;
    return depth < SMALL_BATCHES_MOST ? depth : SMALL_BATCHES_MOST;
}

static uint32_t depth_of(const mh_loader *self)
{
    uint64_t depth = self->options.prefetch;
    uint64_t reads = depth_for_reads(self), tasks = depth_for_tasks(self);
    depth = depth > reads ? depth : reads;
    depth = depth > tasks ? depth : tasks;
    return (uint32_t)(depth < PREFETCH_MOST ? depth : PREFETCH_MOST);
}

/* Far enough to have twice the reads in flight in sight, and four times the units that memory
 * holds, so that the farthest next use is known; as many batches as the plan's own memory allows.
 */
static uint32_t horizon_of(const mh_loader *self, uint64_t unit_bytes)
{
    const mh_dataset *data = self->dataset;
    const mh_loader_options *o = &self->options;
    uint64_t units = unit_bytes / (data->unit_bytes_most ? data->unit_bytes_most : 1);
    units = units < PLAN_MOST ? units * 4 : PLAN_MOST;
    if (units < 2 * (uint64_t)o->in_flight)
        units = 2 * (uint64_t)o->in_flight;
    uint64_t served = data->unit_count ? data->count / data->unit_count : 1;
    uint64_t samples = units * (served ? served : 1);
    uint64_t uses = o->batch_size * data->units_most;
    uint64_t batches = samples / o->batch_size + 2;
    if (batches > PLAN_MOST / (uses ? uses : 1))
        batches = PLAN_MOST / (uses ? uses : 1);
    uint64_t epoch = self->stream.choice.count / o->world / o->batch_size;
    if (batches > epoch + self->depth)
        batches = epoch + self->depth;
    if (batches > PREFETCH_MOST)
        batches = PREFETCH_MOST;
    return batches > self->depth + 1 ? (uint32_t)batches : self->depth + 1;
}

/* --- the plan and the threads' rooms --- */

/* Samples that a thread takes at a time. One that is made of its own unit is worth a task. */
static uint64_t run_length(const mh_dataset *dataset)
{
    if (dataset->by_units && !dataset->units_shared)
        return 1;
    uint64_t run = (dataset->by_units ? TASK_BYTES : RUN_BYTES) / sample_bytes(dataset);
    uint64_t most = dataset->by_units ? TASK_MOST : RUN_MOST;
    return run < 1 ? 1 : run > most ? most : run;
}

static mh_status make_ring(mh_loader *self, mh_error *err)
{
    const uint64_t batch = self->options.batch_size, units = self->dataset->units_most;
    self->sync.ring = mh_calloc(self->horizon, sizeof *self->sync.ring);
    bool made = self->sync.ring != NULL;
    if (made && self->dataset->by_units) {
        self->samples = mh_calloc(self->horizon * batch, sizeof *self->samples);
        self->uses = mh_calloc(self->horizon * batch * units, sizeof *self->uses);
        made = self->samples && self->uses;
    }
    for (uint64_t i = 0; made && self->samples && i < self->horizon * batch; i++)
        self->samples[i].uses = self->uses + i * units;
    for (uint32_t n = 0; made && self->samples && n < self->horizon; n++)
        self->sync.ring[n].samples = self->samples + n * batch;
    return made ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for a loader's plan");
}

static mh_status make_rooms(mh_loader *self, mh_error *err)
{
    const mh_dataset *data = self->dataset;
    const uint32_t threads = (uint32_t)self->options.threads;
    self->run = run_length(data);
    self->helps = threads == 0 || !data->by_units || data->units_shared;
    self->room_count = threads + self->helps;
    self->rooms = mh_calloc(self->room_count, sizeof *self->rooms);
    bool made = self->rooms != NULL;
    for (uint32_t i = 0; made && i < self->room_count; i++) {
        mh_work_room *room = &self->rooms[i];
        room->loader = self;
        room->missed = mh_calloc(self->run * data->field_count, sizeof *room->missed);
        room->units = mh_calloc(data->units_most + 1u, sizeof *room->units);
        room->into = mh_calloc(data->field_count, sizeof *room->into);
        made = room->missed && room->units && room->into;
        if (made && data->format->room_new)
            MH_TRY(data->format->room_new(data, &room->format, err));
    }
    return made ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for a loader");
}

static void free_rooms(mh_loader *self)
{
    for (uint32_t i = 0; self->rooms && i < self->room_count; i++) {
        mh_free(self->rooms[i].missed);
        mh_free(self->rooms[i].units);
        if (self->rooms[i].format)
            self->dataset->format->room_free(self->rooms[i].format);
        mh_free((void *)self->rooms[i].into);
    }
    mh_free(self->rooms);
}

/* Blocks where the format names none: chunks; samples as they are read one by one; or else what
 * lies together in a file. */
static mh_block_spec blocks_of(const mh_dataset *dataset)
{
    uint64_t size = 1, bytes = 0;
    mh_block_spec spec = {.cells = dataset->cells,
                          .parts = dataset->block_parts ? dataset->block_parts : BLOCK_PARTS};
    if (spec.cells.dims)
        return spec;
    for (size_t i = 0; i < dataset->field_count; i++)
        bytes += dataset->fields[i].bytes;
    if (!dataset->by_units)
        size = BLOCK_BYTES / (bytes ? bytes : 1);
    else if (dataset->units_shared && dataset->unit_count)
        size = (dataset->count + dataset->unit_count - 1) / dataset->unit_count;
    spec.cells = mh_cells_of_runs(dataset->count, size ? size : 1);
    return spec;
}

static mh_status make_plan(mh_loader *self, mh_error *err)
{
    uint64_t unit_bytes = 0;
    self->depth = depth_of(self);
    MH_TRY(reserve(self, &unit_bytes, err));
    self->horizon = self->dataset->by_units ? horizon_of(self, unit_bytes) : self->depth;
    MH_TRY(make_ring(self, err));
    MH_TRY(make_rooms(self, err));
    self->stream.options = &self->options;
    self->stream.spec = blocks_of(self->dataset);
    if (!self->dataset->by_units)
        return MH_OK;
    return mh_residency_open(&self->sync.residency, self->dataset, unit_bytes, mh_units_ready, self,
                             err);
}

/* --- opening and closing --- */

static void init_sync(mh_loader *self)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&self->sync.lock, NULL);
    pthread_cond_init(&self->sync.work, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->sync.ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static mh_status start_threads(mh_loader *self, mh_error *err)
{
    for (int i = 0; i < self->options.threads; i++)
        MH_TRY(mh_thread_start(&self->rooms[i].thread, "millhead-work", mh_work_thread,
                               &self->rooms[i], err));
    return MH_OK;
}

static mh_status open_source(mh_loader *self, mh_error *err)
{
    mh_link link;
    mh_source *files;
    const mh_loader_options *o = &self->options;
    const mh_source_options options = mh_dataset_source_options(self->dataset, o->in_flight);
    MH_TRY(mh_source_open(&files, self->dataset->source, &self->dataset->objects, &options, err));
    self->source = files;
    if (!o->simulate)
        return MH_OK;
    MH_TRY(mh_link_parse(&link, o->simulate, err));
    self->options.simulate = NULL; /* the caller's text */
    return mh_source_simulate(&self->source, files, &link, o->in_flight, err);
}

static mh_status open_parts(mh_loader *self, const mh_loader_options *given, mh_error *err)
{
    MH_TRY(take_options(self, given, err));
    MH_TRY(make_plan(self, err));
    MH_TRY(open_source(self, err));
    MH_TRY(start_threads(self, err));
    return mh_loader_seek(self, self->options.epoch, self->options.start, err);
}

mh_status mh_loader_open(mh_loader **out, mh_dataset *dataset, const mh_loader_options *options,
                         mh_error *err)
{
    mh_loader *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a loader");
    self->dataset = mh_dataset_ref(dataset);
    self->fork_generation = mh_fork_generation();
    init_sync(self);
    mh_status status = open_parts(self, options, err);
    if (status != MH_OK) {
        mh_loader_close(self);
        return status;
    }
    *out = self;
    return MH_OK;
}

/* Threads end after the run in hand; then no read is begun, and those under way are waited for. */
static void stop_threads(mh_loader *self)
{
    pthread_mutex_lock(&self->sync.lock);
    self->sync.stop = true;
    pthread_cond_broadcast(&self->sync.work);
    pthread_mutex_unlock(&self->sync.lock);
    for (uint32_t i = 0; self->rooms && i < self->room_count; i++)
        mh_thread_join(&self->rooms[i].thread);
    mh_source_close(self->source);
}

void mh_loader_close(mh_loader *self)
{
    if (!self || self->fork_generation != mh_fork_generation())
        return;
    stop_threads(self);
    for (uint64_t n = self->sync.due; n < self->sync.planned; n++)
        mh_batch_unref(self->sync.ring[n % self->horizon].batch);
    mh_residency_close(self->sync.residency);
    mh_free(self->events_memory);
    free_rooms(self);
    mh_free(self->sync.ring);
    mh_free(self->samples);
    mh_free(self->uses);
    mh_stream_close(&self->stream);
    mh_pool_unref(self->pool);
    mh_dataset_unref(self->dataset);
    pthread_cond_destroy(&self->sync.ready);
    pthread_cond_destroy(&self->sync.work);
    pthread_mutex_destroy(&self->sync.lock);
    mh_free(self);
}
