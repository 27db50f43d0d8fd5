/* stream.c - epochs cut into a rank's batches
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/stream.h"

#include "base/error.h"

static uint64_t start_of(const mh_stream *self, uint64_t epoch)
{
    return epoch == self->start_epoch ? self->start : 0;
}

static mh_status share_of(const mh_stream *self, uint64_t epoch, mh_share *out, mh_error *err)
{
    const mh_loader_options *o = self->options;
    mh_share_mode mode = o->uneven ? MH_SHARE_UNEVEN : o->drop_last ? MH_SHARE_CUT : MH_SHARE_PAD;
    return mh_share_init(out, self->count, start_of(self, epoch), o->world, o->rank, mode, err);
}

uint64_t mh_stream_batches(const mh_stream *self, uint64_t epoch)
{
    mh_share share;
    mh_error err;
    const mh_loader_options *o = self->options;
    if (share_of(self, epoch, &share, &err) != MH_OK)
        return 0; /* checked by seek */
    uint64_t batches = share.length / o->batch_size;
    if (!o->drop_last && share.length % o->batch_size)
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
    uint64_t seed = o->shuffle == MH_SHUFFLE_TORCH ? o->seed + self->epoch : o->seed;
    MH_TRY(share_of(self, self->epoch, &share, err));
    return mh_order_new(&self->order, kinds[o->shuffle], seed, self->epoch, &share, err);
}

static void forget_order(mh_stream *self)
{
    mh_order_free(self->order);
    self->order = NULL;
}

mh_status mh_stream_seek(mh_stream *self, uint64_t epoch, uint64_t start, mh_error *err)
{
    mh_share share;
    if (start > self->count)
        return mh_fail(err, MH_ERR_INVALID, "position %llu is beyond the %llu samples",
                       (unsigned long long)start, (unsigned long long)self->count);
    forget_order(self);
    self->start_epoch = self->epoch = epoch;
    self->start = start;
    self->index = 0;
    return share_of(self, epoch, &share, err);
}

void mh_stream_close(mh_stream *self)
{
    forget_order(self);
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
    if (!self->order)
        MH_TRY(make_order(self, err));
    uint64_t first = self->index * o->batch_size;
    uint64_t left = mh_order_length(self->order) - first;
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
    uint64_t position = start_of(self, self->epoch) + o->rank + first * o->world;
    for (uint64_t i = 0; i < batch->samples; i++, position += o->world) {
        numbers[i] = mh_order_at(self->order, first + i);
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
    const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t state = mix(self->options->seed + golden);
    state = mix(state + epoch);
    state = mix(state + position);
    state = mix(state + attempt);
    return state % self->count;
}
