/* residency.c - units in memory: planned uses, fetching in their order, eviction by next use
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/residency.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

#define TABLE_LEAST 64u

struct mh_residency {
    const mh_dataset *dataset;
    mh_sample_ready *ready;
    void *context;
    uint64_t budget, least;
    bool roomy; /* all units fit at a time: none is ever evicted */
    mh_buffers buffers;
    uint64_t fixed_bytes;   /* of units that cannot be evicted now: in work, or being read */
    mh_unit_heap wanted;    /* WANTED, the nearest use first */
    mh_unit_heap evictable; /* READY, the farthest use first; of pinned ones some; none if roomy */
    mh_resident **table;    /* by id, table_size of them: a power of two */
    size_t table_size, unit_count;
    uint64_t unused_count; /* units */
    mh_resident *spare;    /* entries to use again */
    uint64_t *ids;         /* of one sample */
    mh_residency_counts counts;
};

/* What one unit takes at most, as read and decoded: two blocks, each up to a quarter larger than
 * what is in it. */
static uint64_t dearest_unit(const mh_dataset *dataset)
{
    uint64_t unit = dataset->unit_bytes_most;
    return unit + unit / 4 + 2 * mh_buffer_bytes(1);
}

uint64_t mh_residency_least(const mh_dataset *dataset)
{
    uint64_t least;
    return __builtin_mul_overflow(dearest_unit(dataset), (uint64_t)dataset->units_most, &least)
               ? UINT64_MAX
               : least;
}

static bool is_roomy(const mh_dataset *dataset, uint64_t budget)
{
    uint64_t all;
    return !__builtin_mul_overflow(dearest_unit(dataset), dataset->unit_count, &all) &&
           !__builtin_add_overflow(all, mh_residency_least(dataset), &all) && all <= budget;
}

bool mh_residency_complete(const mh_residency *self)
{
    return self->roomy && self->unit_count == self->dataset->unit_count && !self->wanted.count;
}

static void is_used(mh_residency *self, mh_resident *unit)
{
    self->unused_count -= unit->unused;
    unit->unused = false;
}

static void give_back(mh_residency *self, mh_resident *unit)
{
    is_used(self, unit);
    mh_buffers_put(&self->buffers, unit->read, unit->unit.size);
    mh_buffers_put(&self->buffers, unit->decoded, unit->unit.decoded_bytes);
    unit->read = unit->decoded = NULL;
    unit->held_bytes = 0;
}

/* --- the table --- */

static size_t place_of(const mh_residency *self, uint64_t id)
{
    return (size_t)(id * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (self->table_size - 1);
}

static mh_resident *find(const mh_residency *self, uint64_t id)
{
    mh_resident *unit = self->table[place_of(self, id)];
    while (unit && unit->id != id)
        unit = unit->next_same;
    return unit;
}

/* Twice the size; where there is no memory for that, lists get longer. */
static void grow_table(mh_residency *self)
{
    mh_resident **old = self->table;
    size_t old_size = self->table_size;
    mh_resident **table = mh_calloc(2 * old_size, sizeof(mh_resident *));
    if (!table)
        return;
    self->table = table;
    self->table_size = 2 * old_size;
    for (size_t at = 0; at < old_size; at++)
        while (old[at]) {
            mh_resident *unit = old[at];
            old[at] = unit->next_same;
            mh_resident **list = &table[place_of(self, unit->id)];
            unit->next_same = *list;
            *list = unit;
        }
    mh_free(old);
}

/* A WANTED unit; NULL: no memory. */
static mh_resident *add(mh_residency *self, uint64_t id)
{
    if (!mh_heap_reserve(&self->wanted, self->unit_count + 1) ||
        !mh_heap_reserve(&self->evictable, self->unit_count + 1))
        return NULL;
    mh_resident *unit = self->spare;
    if (unit)
        self->spare = unit->next_same;
    else
        unit = mh_calloc(1, sizeof *unit);
    if (!unit)
        return NULL;
    if (self->unit_count >= self->table_size)
        grow_table(self);
    mh_resident **list = &self->table[place_of(self, id)];
    *unit = (mh_resident){.id = id,
                          .unit = self->dataset->format->unit(self->dataset, id),
                          .next_use = UINT64_MAX,
                          .heap_at = MH_HEAP_NONE,
                          .next_same = *list};
    *list = unit;
    self->unit_count++;
    return unit;
}

static void forget(mh_residency *self, mh_resident *unit)
{
    mh_resident **link = &self->table[place_of(self, unit->id)];
    while (*link != unit)
        link = &(*link)->next_same;
    *link = unit->next_same;
    give_back(self, unit);
    mh_free(unit->error);
    unit->error = NULL;
    unit->next_same = self->spare;
    self->spare = unit;
    self->unit_count--;
}

/* --- uses --- */

static mh_unit_heap *heap_of(mh_residency *self, const mh_resident *unit)
{
    return unit->state == MH_UNIT_WANTED ? &self->wanted : &self->evictable;
}

static void next_use_changed(mh_residency *self, mh_resident *unit)
{
    unit->next_use = unit->first ? unit->first->position : UINT64_MAX;
    if (unit->heap_at != MH_HEAP_NONE)
        mh_heap_moved(heap_of(self, unit), unit);
}

/* In order of position: nearly always the last. */
static void add_use(mh_residency *self, mh_resident *unit, mh_use *use)
{
    mh_use **link = &unit->first;
    if (unit->first && unit->last->position < use->position)
        link = &unit->last->next;
    while (*link && (*link)->position < use->position)
        link = &(*link)->next;
    use->unit = unit;
    use->next = *link;
    *link = use;
    if (!use->next)
        unit->last = use;
    if (unit->first == use)
        next_use_changed(self, unit);
}

static void remove_use(mh_residency *self, mh_use *use)
{
    mh_resident *unit = use->unit;
    mh_use **link = &unit->first, *before = NULL;
    while (*link != use) {
        before = *link;
        link = &before->next;
    }
    *link = use->next;
    if (unit->last == use)
        unit->last = before;
    if (!before)
        next_use_changed(self, unit);
}

/* A unit that no sample of the plan uses stays only where one beyond the plan may. */
static void drop_if_unused(mh_residency *self, mh_resident *unit)
{
    bool in_work = unit->state == MH_UNIT_FETCHING || unit->state == MH_UNIT_DECODING;
    bool may_serve = unit->state == MH_UNIT_READY && self->dataset->units_shared;
    if (unit->first || unit->pins || in_work || may_serve)
        return;
    if (unit->heap_at != MH_HEAP_NONE)
        mh_heap_remove(heap_of(self, unit), unit);
    forget(self, unit);
}

mh_status mh_residency_plan(mh_residency *self, mh_sample *sample, uint64_t number, mh_error *err)
{
    uint32_t count = self->dataset->format->units_of(self->dataset, number, self->ids);
    sample->waiting = sample->use_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        mh_use *use = &sample->uses[i];
        mh_resident *unit = find(self, self->ids[i]);
        bool made = !unit;
        if (made)
            unit = add(self, self->ids[i]);
        if (!unit) {
            mh_residency_pin(self, sample);
            mh_residency_finish(self, sample);
            return mh_fail(err, MH_ERR_NOMEM, "no memory to plan a sample");
        }
        use->sample = sample;
        use->position = sample->position;
        add_use(self, unit, use);
        sample->use_count++;
        if (made)
            mh_heap_push(&self->wanted, unit);
        if (unit->state < MH_UNIT_READY)
            sample->waiting++;
    }
    if (!sample->waiting)
        self->ready(self->context, sample);
    return MH_OK;
}

/* --- room --- */

static void evict(mh_residency *self, mh_resident *unit)
{
    mh_heap_remove(&self->evictable, unit);
    give_back(self, unit);
    if (!unit->first) {
        forget(self, unit);
        return;
    }
    unit->state = MH_UNIT_WANTED;
    unit->evicted = true;
    for (mh_use *use = unit->first; use; use = use->next)
        use->sample->waiting++;
    mh_heap_push(&self->wanted, unit);
}

static bool is_near(const mh_residency *self, uint64_t position, const mh_reach *reach)
{
    return position == reach->head || position < reach->soon || self->unused_count < reach->ahead;
}

/* Whether `bytes` more fit, after evictions that the use at `position` is worth. */
static bool make_room(mh_residency *self, uint64_t bytes, uint64_t position, const mh_reach *reach)
{
    uint64_t for_others = self->budget - (position == reach->head ? 0 : self->least);
    if (self->fixed_bytes + bytes > for_others)
        return false;
    while (self->buffers.used + bytes > self->budget) {
        mh_resident *victim = mh_heap_top(&self->evictable);
        if (!victim || victim->next_use <= position || !is_near(self, position, reach))
            return false;
        if (victim->pins) /* until it is let go */
            mh_heap_remove(&self->evictable, victim);
        else
            evict(self, victim);
    }
    return true;
}

/* --- what became of it --- */

static void no_more_waiting(mh_residency *self, mh_resident *unit)
{
    for (mh_use *use = unit->first; use; use = use->next)
        if (--use->sample->waiting == 0)
            self->ready(self->context, use->sample);
}

/* A READY unit may go again. */
static void may_go(mh_residency *self, mh_resident *unit)
{
    self->fixed_bytes -= unit->held_bytes;
    if (!self->roomy && unit->heap_at == MH_HEAP_NONE)
        mh_heap_push(&self->evictable, unit);
}

static void is_ready(mh_residency *self, mh_resident *unit)
{
    unit->state = MH_UNIT_READY;
    may_go(self, unit);
    no_more_waiting(self, unit);
    drop_if_unused(self, unit);
}

bool mh_residency_fetched(mh_residency *self, mh_resident *unit)
{
    if (unit->unit.decoded_bytes) {
        unit->state = MH_UNIT_DECODING;
        return true;
    }
    is_ready(self, unit);
    return false;
}

void mh_residency_decoded(mh_residency *self, mh_resident *unit)
{
    uint64_t read_bytes = unit->read ? mh_buffer_bytes(unit->unit.size) : 0;
    mh_buffers_put(&self->buffers, unit->read, unit->unit.size);
    unit->read = NULL;
    unit->held_bytes -= read_bytes;
    self->fixed_bytes -= read_bytes;
    self->counts.decoded++;
    is_ready(self, unit);
}

static void has_failed(mh_residency *self, mh_resident *unit, const mh_error *err)
{
    give_back(self, unit);
    unit->state = MH_UNIT_FAILED;
    unit->error = mh_calloc(1, sizeof *unit->error);
    if (unit->error)
        *unit->error = *err;
    if (unit->error)
        unit->error->place.unit = unit->id;
    no_more_waiting(self, unit);
    drop_if_unused(self, unit);
}

void mh_residency_failed(mh_residency *self, mh_resident *unit, const mh_error *err)
{
    self->fixed_bytes -= unit->held_bytes;
    has_failed(self, unit, err);
}

/* --- fetching --- */

static bool take_blocks(mh_residency *self, mh_resident *unit)
{
    const mh_unit *about = &unit->unit;
    if (about->size)
        unit->read = mh_buffers_get(&self->buffers, about->size);
    if (about->decoded_bytes)
        unit->decoded = mh_buffers_get(&self->buffers, about->decoded_bytes);
    if ((unit->read || !about->size) && (unit->decoded || !about->decoded_bytes))
        return true;
    give_back(self, unit);
    return false;
}

static uint64_t bytes_of(const mh_resident *unit)
{
    return mh_buffer_bytes(unit->unit.size) + mh_buffer_bytes(unit->unit.decoded_bytes);
}

bool mh_residency_wants(const mh_residency *self, const mh_reach *reach)
{
    const mh_resident *unit = mh_heap_top(&self->wanted);
    return unit && (is_near(self, unit->next_use, reach) ||
                    self->buffers.used + bytes_of(unit) <= self->budget);
}

mh_resident *mh_residency_fetch(mh_residency *self, const mh_reach *reach)
{
    mh_error err;
    mh_resident *unit = mh_heap_top(&self->wanted);
    if (!unit)
        return NULL;
    uint64_t position = unit->next_use;
    uint64_t bytes = bytes_of(unit);
    if (!make_room(self, bytes, position, reach))
        return NULL;
    mh_heap_remove(&self->wanted, unit);
    if (!take_blocks(self, unit)) {
        (void)!mh_fail(&err, MH_ERR_NOMEM, "no memory for %llu bytes", (unsigned long long)bytes);
        has_failed(self, unit, &err);
        return NULL;
    }
    unit->state = MH_UNIT_FETCHING;
    unit->unused = true;
    self->unused_count++;
    unit->held_bytes = bytes;
    self->fixed_bytes += bytes;
    self->counts.fetched++;
    self->counts.refetched += unit->evicted;
    if (self->buffers.used > self->counts.bytes_peak)
        self->counts.bytes_peak = self->buffers.used;
    return unit;
}

/* --- being read --- */

void mh_residency_pin(mh_residency *self, mh_sample *sample)
{
    for (uint32_t i = 0; i < sample->use_count; i++) {
        mh_resident *unit = sample->uses[i].unit;
        if (unit->pins++ == 0 && unit->state == MH_UNIT_READY)
            self->fixed_bytes += unit->held_bytes;
    }
}

void mh_residency_finish(mh_residency *self, mh_sample *sample)
{
    for (uint32_t i = 0; i < sample->use_count; i++) {
        mh_resident *unit = sample->uses[i].unit;
        is_used(self, unit);
        remove_use(self, &sample->uses[i]);
        if (--unit->pins == 0 && unit->state == MH_UNIT_READY)
            may_go(self, unit);
        drop_if_unused(self, unit);
    }
    sample->use_count = 0;
}

/* --- opening and closing --- */

void mh_residency_clear(mh_residency *self)
{
    self->wanted.count = self->evictable.count = 0;
    for (size_t at = 0; at < self->table_size; at++)
        while (self->table[at])
            forget(self, self->table[at]);
    self->fixed_bytes = 0;
}

mh_status mh_residency_open(mh_residency **out, const mh_dataset *dataset, uint64_t budget_bytes,
                            mh_sample_ready *ready, void *context, mh_error *err)
{
    mh_residency *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a loader");
    *self = (mh_residency){.dataset = dataset,
                           .ready = ready,
                           .context = context,
                           .budget = budget_bytes,
                           .least = mh_residency_least(dataset),
                           .roomy = is_roomy(dataset, budget_bytes),
                           .buffers.limit = budget_bytes,
                           .evictable.farthest_first = true,
                           .table_size = TABLE_LEAST,
                           .table = mh_calloc(TABLE_LEAST, sizeof(mh_resident *)),
                           .ids = mh_calloc(dataset->units_most, sizeof(uint64_t))};
    if (!self->table || !self->ids) {
        mh_residency_close(self);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a loader");
    }
    *out = self;
    return MH_OK;
}

void mh_residency_close(mh_residency *self)
{
    if (!self)
        return;
    if (self->table)
        mh_residency_clear(self);
    while (self->spare) {
        mh_resident *unit = self->spare;
        self->spare = unit->next_same;
        mh_free(unit);
    }
    mh_buffers_trim(&self->buffers);
    mh_heap_free(&self->wanted);
    mh_heap_free(&self->evictable);
    mh_free(self->table);
    mh_free(self->ids);
    mh_free(self);
}

void mh_residency_counts_read(const mh_residency *self, mh_residency_counts *out)
{
    *out = self->counts;
}
