/* stream.c - epochs cut into a rank's batches
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/stream.h"

#include "base/error.h"

#include <string.h>

static uint64_t start_of(const mh_stream *self, uint64_t epoch)
{
    return epoch == self->start_epoch ? self->start : 0;
}

static mh_share_mode mode_of(const mh_loader_options *o)
{
    return o->uneven ? MH_SHARE_UNEVEN : o->drop_last ? MH_SHARE_CUT : MH_SHARE_PAD;
}

static mh_status share_of(const mh_stream *self, uint64_t epoch, mh_share *out, mh_error *err)
{
    const mh_loader_options *o = self->options;
    return mh_share_init(out, self->choice.count, start_of(self, epoch), o->world, o->rank,
                         mode_of(o), err);
}

/* The legs of other numbers of ranks, and what this one had before the start, are behind. */
static mh_status block_share_of(const mh_stream *self, uint64_t epoch, mh_block_share *out,
                                mh_error *err)
{
    const mh_loader_options *o = self->options;
    mh_leg legs[MH_LEGS_MOST + 1];
    uint32_t count = epoch == self->start_epoch ? self->leg_count : 0;
    const uint64_t done = count ? self->legs_done : 0, start = start_of(self, epoch);
    memcpy(legs, self->legs, sizeof self->legs);
    if ((start - done) % o->world && start < self->choice.count)
        return mh_fail(err, MH_ERR_INVALID,
                       "position %llu is not one that %llu ranks reach together",
                       (unsigned long long)start, (unsigned long long)o->world);
    if (start > done)
        legs[count++] = (mh_leg){o->world, (start - done + o->world - 1) / o->world};
    return mh_block_share_init(out, self->choice.count, legs, count, o->world, o->rank, mode_of(o),
                               err);
}

static mh_status length_of(const mh_stream *self, uint64_t epoch, uint64_t *out, mh_error *err)
{
    mh_share share;
    mh_block_share block_share;
    if (self->options->shuffle == MH_SHUFFLE_BLOCKS) {
        MH_TRY(block_share_of(self, epoch, &block_share, err));
        *out = block_share.length;
        return MH_OK;
    }
    MH_TRY(share_of(self, epoch, &share, err));
    *out = share.length;
    return MH_OK;
}

uint64_t mh_stream_batches(const mh_stream *self, uint64_t epoch)
{
    uint64_t length;
    mh_error err;
    const mh_loader_options *o = self->options;
    if (length_of(self, epoch, &length, &err) != MH_OK)
        return 0; /* checked by seek */
    uint64_t batches = length / o->batch_size;
    if (!o->drop_last && length % o->batch_size)
        batches++;
    if (!o->limit_batches)
        return batches;
    /* an epoch entered late has the steps before its start behind it */
    uint64_t done = start_of(self, epoch) / o->batch_size / o->world;
    uint64_t limit = o->limit_batches > done ? o->limit_batches - done : 0;
    return limit < batches ? limit : batches;
}

static mh_status make_order(mh_stream *self, mh_error *err)
{
    static const mh_order_kind kinds[MH_SHUFFLE_KINDS] = {
        [MH_SHUFFLE_NONE] = MH_ORDER_SEQUENTIAL,
        [MH_SHUFFLE_ALL] = MH_ORDER_KEYED,
        [MH_SHUFFLE_TORCH] = MH_ORDER_TORCH,
    };
    mh_share share;
    const mh_loader_options *o = self->options;
    if (o->shuffle == MH_SHUFFLE_BLOCKS) {
        MH_TRY(block_share_of(self, self->epoch, &self->share, err));
        return mh_blocks_new(&self->blocks, &self->spec, o->seed, self->epoch, err);
    }
    uint64_t seed = o->shuffle == MH_SHUFFLE_TORCH ? o->seed + self->epoch : o->seed;
    MH_TRY(share_of(self, self->epoch, &share, err));
    return mh_order_new(&self->order, kinds[o->shuffle], seed, self->epoch, &share, err);
}

static void forget_order(mh_stream *self)
{
    mh_order_free(self->order);
    mh_blocks_free(self->blocks);
    self->order = NULL;
    self->blocks = NULL;
}

mh_status mh_stream_seek(mh_stream *self, uint64_t epoch, uint64_t start, mh_error *err)
{
    uint64_t length;
    if (start > self->choice.count)
        return mh_fail(err, MH_ERR_INVALID, "position %llu is beyond the %llu samples",
                       (unsigned long long)start, (unsigned long long)self->choice.count);
    forget_order(self);
    if (epoch != self->start_epoch || start < self->legs_done)
        self->leg_count = 0;
    if (self->leg_count == 0)
        self->legs_done = 0;
    self->start_epoch = self->epoch = epoch;
    self->start = start;
    self->index = 0;
    return length_of(self, epoch, &length, err);
}

mh_status mh_stream_seek_legs(mh_stream *self, uint64_t epoch, const mh_leg *legs, uint32_t count,
                              mh_error *err)
{
    mh_block_share share;
    if (self->options->shuffle != MH_SHUFFLE_BLOCKS)
        return mh_fail(err, MH_ERR_INVALID, "only an order of blocks has legs");
    if (count > MH_LEGS_MOST)
        return mh_fail(err, MH_ERR_INVALID, "%u legs of an epoch, and %d are the most", count,
                       MH_LEGS_MOST);
    MH_TRY(
        mh_block_share_init(&share, self->choice.count, legs, count, 1, 0, MH_SHARE_UNEVEN, err));
    if (count)
        memcpy(self->legs, legs, count * sizeof *legs);
    self->leg_count = count;
    self->legs_done = self->choice.count - share.length;
    self->start_epoch = epoch;
    return mh_stream_seek(self, epoch, self->legs_done, err);
}

void mh_stream_close(mh_stream *self)
{
    forget_order(self);
    mh_choice_deinit(&self->choice);
}

mh_status mh_stream_peek(mh_stream *self, mh_stream_batch *out, mh_error *err)
{
    const mh_loader_options *o = self->options;
    if (self->index == mh_stream_batches(self, self->epoch)) {
        if (mh_stream_batches(self, self->epoch + 1) == 0)
            return MH_AGAIN;
        forget_order(self);
        self->epoch++;
        self->index = 0;
    }
    if (!self->order && !self->blocks)
        MH_TRY(make_order(self, err));
    uint64_t first = self->index * o->batch_size;
    uint64_t left = (self->blocks ? self->share.length : mh_order_length(self->order)) - first;
    *out = (mh_stream_batch){
        .epoch = self->epoch,
        .samples = left < o->batch_size ? left : o->batch_size,
    };
    return MH_OK;
}

void mh_stream_take(mh_stream *self, const mh_stream_batch *batch, uint64_t *numbers,
                    uint64_t *positions)
{
    const mh_loader_options *o = self->options;
    uint64_t first = self->index++ * o->batch_size;
    for (uint64_t i = 0; i < batch->samples && self->blocks; i++)
        numbers[i] = mh_blocks_at(self->blocks, &self->share, first + i, &positions[i]);
    uint64_t position = start_of(self, self->epoch) + o->rank + first * o->world;
    const bool all = mh_choice_is_all(&self->choice);
    if (self->order)
        mh_order_several(self->order, first, batch->samples, numbers);
    for (uint64_t i = 0; i < batch->samples && self->order; i++, position += o->world) {
        if (!all)
            numbers[i] = mh_choice_at(&self->choice, o->seed, self->epoch, numbers[i], 0);
        positions[i] = position;
    }
}

/* --- substitutes --- */

/* The output function of splitmix64. */
static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94D049BB133111EB);
    return bits ^ (bits >> 31);
}

uint64_t mh_stream_substitute(const mh_stream *self, uint64_t epoch, uint64_t position,
                              uint32_t attempt)
{
    const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15), seed = self->options->seed;
    uint64_t state = mix(seed + golden);
    state = mix(state + epoch);
    state = mix(state + position);
    state = mix(state + attempt);
    if (mh_choice_draws(&self->choice)) /* another draw for the same place */
        return mh_choice_at(&self->choice, seed, epoch, position % self->choice.count, attempt + 1);
    return mh_choice_at(&self->choice, seed, epoch, state % self->choice.count, 0);
}
