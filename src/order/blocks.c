/* blocks.c - a shuffle that keeps the samples of a block close in time
 * SPDX-License-Identifier: Apache-2.0
 *
 * A rank's piece of the line is a *run*: blocks of which the first and the last may be cut by its
 * neighbours'. Before round t the run has delivered, of its block j, the first min(t - j, parts)
 * parts: s_j * min(t - j, parts) / parts samples, rounded down. Summed over j that is all blocks up
 * to t - parts and a few of the others, so where a round begins takes `parts` additions. The
 * block that a number of samples falls in bounds the round from both sides: no table of rounds is
 * needed.
 */
#include "order/blocks.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/mix.h"
#include "order/keyed.h"

#include <string.h>

__extension__ typedef unsigned __int128 wide;

/* What is drawn: blocks, samples of a block, samples of a round. */
enum { BLOCKS, MEMBERS, ROUNDS };

struct mh_blocks {
    mh_cells cells;
    uint64_t *firsts; /* NULL: by cells */
    uint64_t count, samples, equal_size;
    uint32_t parts;
    uint64_t seed, epoch;
    mh_keyed order;   /* of blocks */
    uint64_t *begins; /* where each stands in the line, and the end; NULL: all have equal_size */
};

/* --- blocks as they lie --- */

static uint64_t block_size(const mh_blocks *self, uint64_t block)
{
    return self->firsts ? self->firsts[block + 1] - self->firsts[block]
                        : mh_cells_size(&self->cells, block);
}

static uint64_t block_sample(const mh_blocks *self, uint64_t block, uint64_t member)
{
    return self->firsts ? self->firsts[block] + member
                        : mh_cells_sample(&self->cells, block, member);
}

static uint64_t block_find(const mh_blocks *self, uint64_t sample, uint64_t *member)
{
    if (!self->firsts)
        return mh_cells_find(&self->cells, sample, member);
    uint64_t low = 0, high = self->count; /* the last block that begins at or before it */
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        *(self->firsts[middle] <= sample ? &low : &high) = middle;
    }
    *member = sample - self->firsts[low];
    return low;
}

static mh_keyed keyed_for(const mh_blocks *self, int what, uint64_t number, uint64_t count)
{
    mh_keyed keyed;
    const uint64_t salt = mh_mix(mh_mix((uint64_t)what + UINT64_C(0x626c6f636b73)) + number);
    mh_keyed_init(&keyed, count, self->seed ^ salt, self->epoch);
    return keyed;
}

/* --- the line --- */

/* The sample at a position, which is in the block that is number `at` in the line. */
static uint64_t line_sample(const mh_blocks *self, uint64_t at, uint64_t within)
{
    const uint64_t block = mh_keyed_at(&self->order, at);
    const mh_keyed members = keyed_for(self, MEMBERS, block, block_size(self, block));
    return block_sample(self, block, mh_keyed_at(&members, within));
}

static uint64_t line_begin(const mh_blocks *self, uint64_t at)
{
    return self->begins ? self->begins[at] : at * self->equal_size;
}

/* The block of the line that holds a position; empty blocks hold none. */
static uint64_t line_block(const mh_blocks *self, uint64_t position)
{
    if (!self->begins)
        return position / self->equal_size;
    uint64_t low = 0, high = self->count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        *(self->begins[middle] <= position ? &low : &high) = middle;
    }
    return low;
}

static mh_status line_make(mh_blocks *self, mh_error *err)
{
    mh_keyed_init(&self->order, self->count, self->seed, self->epoch);
    if (self->equal_size || self->count == 0)
        return MH_OK;
    self->begins = mh_calloc(self->count + 1, sizeof *self->begins);
    if (!self->begins)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the order of %llu blocks",
                       (unsigned long long)self->count);
    for (uint64_t at = 0; at < self->count; at++)
        self->begins[at + 1] = self->begins[at] + block_size(self, mh_keyed_at(&self->order, at));
    return MH_OK;
}

static mh_status take_list(mh_blocks *self, const mh_block_spec *spec, mh_error *err)
{
    self->count = spec->block_count;
    self->firsts = mh_calloc(self->count + 1, sizeof *self->firsts);
    if (!self->firsts)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %llu blocks",
                       (unsigned long long)self->count);
    if (self->count)
        memcpy(self->firsts, spec->firsts, (self->count + 1) * sizeof *self->firsts);
    for (uint64_t i = 0; i < self->count; i++)
        if (self->firsts[i + 1] < self->firsts[i] || self->firsts[0] != 0)
            return mh_fail(err, MH_ERR_INVALID, "block %llu ends before it begins",
                           (unsigned long long)i);
    self->samples = self->firsts[self->count];
    return MH_OK;
}

mh_status mh_blocks_new(mh_blocks **out, const mh_block_spec *spec, uint64_t seed, uint64_t epoch,
                        mh_error *err)
{
    if (spec->parts < 1 || spec->parts > MH_PARTS_LIMIT)
        return mh_fail(err, MH_ERR_INVALID, "blocks in use at a time must be from 1 to %d, not %u",
                       MH_PARTS_LIMIT, spec->parts);
    mh_blocks *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for an order of blocks");
    *self = (mh_blocks){.cells = spec->cells, .parts = spec->parts, .seed = seed, .epoch = epoch};
    mh_status status = MH_OK;
    if (spec->cells.dims) {
        self->count = mh_cells_count(&self->cells);
        self->samples = mh_cells_samples(&self->cells);
        self->equal_size = mh_cells_equal_size(&self->cells);
    } else {
        status = take_list(self, spec, err);
    }
    if (status == MH_OK)
        status = line_make(self, err);
    if (status != MH_OK) {
        mh_blocks_free(self);
        return status;
    }
    *out = self;
    return MH_OK;
}

void mh_blocks_free(mh_blocks *self)
{
    if (!self)
        return;
    mh_free(self->firsts);
    mh_free(self->begins);
    mh_free(self);
}

uint64_t mh_blocks_samples(const mh_blocks *self)
{
    return self->samples;
}

/* --- a run: the line from `begin` to `end` --- */

typedef struct run {
    const mh_blocks *blocks;
    uint64_t begin, end;
    uint64_t first, count; /* blocks */
} run;

static run run_of(const mh_blocks *blocks, uint64_t begin, uint64_t end)
{
    run made = {.blocks = blocks, .begin = begin, .end = end};
    if (begin < end) {
        made.first = line_block(blocks, begin);
        made.count = line_block(blocks, end - 1) - made.first + 1;
    }
    return made;
}

/* Where block j of the run begins, counted from the run's begin. */
static uint64_t run_offset(const run *self, uint64_t j)
{
    if (j >= self->count)
        return self->end - self->begin;
    const uint64_t at = line_begin(self->blocks, self->first + j);
    return at > self->begin ? at - self->begin : 0;
}

static uint64_t run_size(const run *self, uint64_t j)
{
    return run_offset(self, j + 1) - run_offset(self, j);
}

/* Samples in the first `parts` parts of a block of that size. */
static uint64_t first_parts(const mh_blocks *blocks, uint64_t size, uint64_t parts)
{
    return (uint64_t)((wide)size * parts / blocks->parts);
}

/* Samples that are delivered before round t. */
static uint64_t before_round(const run *self, uint64_t t)
{
    const uint64_t parts = self->blocks->parts;
    const uint64_t done = t >= parts ? t - parts + 1 : 0; /* blocks that are delivered whole */
    uint64_t samples = run_offset(self, done);
    for (uint64_t j = done; j < t && j < self->count; j++)
        samples += first_parts(self->blocks, run_size(self, j), t - j);
    return samples;
}

/* The round of the run's sample `nth`: the last one that begins at or before it. It holds parts of
 * blocks t - parts + 1 to t, so the block that nth would be in, were they delivered whole, is not
 * after them, nor more than `parts` before t. */
static uint64_t round_of(const run *self, uint64_t nth)
{
    uint64_t low = line_block(self->blocks, self->begin + nth) - self->first;
    uint64_t high = low + self->blocks->parts;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        *(before_round(self, middle) <= nth ? &low : &high) = middle;
    }
    return low;
}

/* Part i of a block of that size: from *begin on; gives its samples. */
static uint64_t part_of(const mh_blocks *blocks, uint64_t size, uint64_t i, uint64_t *begin)
{
    *begin = first_parts(blocks, size, i);
    return first_parts(blocks, size, i + 1) - *begin;
}

/* The order of a round. Ranks draw different ones: their runs begin elsewhere. */
static mh_keyed round_order(const run *self, uint64_t t, uint64_t size)
{
    return keyed_for(self->blocks, ROUNDS, mh_mix(self->begin) + t, size);
}

/* The line's position of the run's sample `nth`. */
static uint64_t run_at(const run *self, uint64_t nth)
{
    const uint64_t t = round_of(self, nth), before = before_round(self, t);
    const mh_keyed order = round_order(self, t, before_round(self, t + 1) - before);
    uint64_t place = mh_keyed_at(&order, nth - before);
    for (uint64_t i = 0; i < self->blocks->parts && i <= t; i++) {
        uint64_t begin;
        if (t - i >= self->count)
            continue;
        const uint64_t samples = part_of(self->blocks, run_size(self, t - i), i, &begin);
        if (place < samples)
            return self->begin + run_offset(self, t - i) + begin + place;
        place -= samples;
    }
    return self->end; /* not reached: the parts of a round add up to it */
}

/* The other way round. */
static uint64_t run_find(const run *self, uint64_t position)
{
    const uint64_t j = line_block(self->blocks, position) - self->first;
    const uint64_t within = position - self->begin - run_offset(self, j), size = run_size(self, j);
    const uint64_t parts = self->blocks->parts;
    const uint64_t i = (uint64_t)((((wide)within + 1) * parts - 1) / size), t = j + i;
    uint64_t place = within - first_parts(self->blocks, size, i), begin;
    for (uint64_t k = 0; k < i; k++)
        if (t - k < self->count)
            place += part_of(self->blocks, run_size(self, t - k), k, &begin);
    const uint64_t before = before_round(self, t);
    const mh_keyed order = round_order(self, t, before_round(self, t + 1) - before);
    return before + mh_keyed_find(&order, place);
}

/* --- ranks --- */

/* Where the part of `rank` of `world` begins in a line. */
static uint64_t cut(uint64_t total, uint64_t rank, uint64_t world)
{
    return (uint64_t)((wide)total * rank / world);
}

/* The rank whose part of a line holds a position. */
static uint64_t rank_at(uint64_t total, uint64_t world, uint64_t position)
{
    return (uint64_t)((((wide)position + 1) * world - 1) / total);
}

static mh_status take_legs(mh_block_share *self, uint64_t samples, const mh_leg *legs,
                           uint32_t count, mh_error *err)
{
    self->totals[0] = samples;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t total = self->totals[self->last], world = legs[i].world;
        if (world < 1 || world > MH_RANKS_MOST ||
            legs[i].samples > total / world + (total % world != 0))
            return mh_fail(err, MH_ERR_INVALID,
                           "no epoch of %llu samples goes on after %llu on "
                           "each of %llu ranks",
                           (unsigned long long)total, (unsigned long long)legs[i].samples,
                           (unsigned long long)world);
        if (legs[i].samples == 0)
            continue;
        if (self->last > 0 && self->legs[self->last - 1].world == world) {
            self->last--; /* as if it had gone on */
            self->legs[self->last].samples += legs[i].samples;
        } else if (self->last == MH_LEGS_MOST) {
            return mh_fail(err, MH_ERR_INVALID,
                           "the epoch was resumed with another number of ranks over %d times",
                           MH_LEGS_MOST);
        } else {
            self->legs[self->last] = legs[i];
        }
        const uint64_t before = self->totals[self->last];
        const wide given = (wide)self->legs[self->last].samples * world;
        self->totals[++self->last] = given < before ? before - (uint64_t)given : 0;
    }
    return MH_OK;
}

mh_status mh_block_share_init(mh_block_share *out, uint64_t samples, const mh_leg *legs,
                              uint32_t leg_count, uint64_t world, uint64_t rank, mh_share_mode mode,
                              mh_error *err)
{
    mh_block_share made = {.rank = rank};
    if (world < 1 || world > MH_RANKS_MOST || rank >= world || (unsigned)mode >= MH_SHARE_MODES)
        return mh_fail(err, MH_ERR_INVALID, "rank %llu of %llu does not exist",
                       (unsigned long long)rank, (unsigned long long)world);
    MH_TRY(take_legs(&made, samples, legs, leg_count, err));
    const uint64_t total = made.totals[made.last];
    made.legs[made.last] = (mh_leg){.world = world};
    made.begin = cut(total, rank, world);
    made.own = cut(total, rank + 1, world) - made.begin;
    made.length = mode == MH_SHARE_UNEVEN ? made.own
                  : mode == MH_SHARE_CUT  ? total / world
                                          : total / world + (total % world != 0);
    *out = made;
    return MH_OK;
}

/* From a place in the line of a leg to one in the line of the leg before it: behind what the rank
 * that has it there had delivered. Ranks before r have left cut(r) - r * samples. */
static uint64_t leg_before(uint64_t total, const mh_leg *leg, uint64_t place)
{
    uint64_t low = 0, high = leg->world;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        *(cut(total, middle, leg->world) - middle * leg->samples <= place ? &low : &high) = middle;
    }
    return place + (low + 1) * leg->samples;
}

uint64_t mh_blocks_at(const mh_blocks *self, const mh_block_share *share, uint64_t nth,
                      uint64_t *out_position)
{
    const uint64_t total = share->totals[share->last];
    uint64_t place = share->begin + nth;
    if (nth >= share->own) /* padding: the rank's own head, or anything where it has none */
        place = share->own ? share->begin + nth % share->own : share->rank % total;
    for (uint32_t leg = share->last; leg-- > 0;)
        place = leg_before(share->totals[leg], &share->legs[leg], place);
    const uint64_t world = share->legs[0].world, rank = rank_at(self->samples, world, place);
    const run own =
        run_of(self, cut(self->samples, rank, world), cut(self->samples, rank + 1, world));
    const uint64_t position = run_at(&own, place - own.begin);
    const uint64_t block = line_block(self, position);
    *out_position = position;
    return line_sample(self, block, position - line_begin(self, block));
}

uint64_t mh_blocks_find(const mh_blocks *self, uint64_t world, uint64_t sample, uint64_t *out_rank)
{
    uint64_t member;
    const uint64_t block = block_find(self, sample, &member);
    const mh_keyed members = keyed_for(self, MEMBERS, block, block_size(self, block));
    const uint64_t position =
        line_begin(self, mh_keyed_find(&self->order, block)) + mh_keyed_find(&members, member);
    *out_rank = rank_at(self->samples, world, position);
    const run own = run_of(self, cut(self->samples, *out_rank, world),
                           cut(self->samples, *out_rank + 1, world));
    return run_find(&own, position);
}
