/* batch.c - batches: their memory, and how they get into the consumer's hands
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/batch.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

/* --- memory --- */

mh_status mh_batch_new(mh_batch **out, const mh_layout *layout, uint64_t samples, mh_error *err)
{
    const size_t of_sample = 2 * sizeof(uint64_t) + sizeof(uint8_t *);
    size_t head = sizeof(mh_batch) + layout->field_count * sizeof(mh_array);
    mh_batch *batch = NULL;
    if (samples < (SIZE_MAX / 2 - head) / of_sample)
        batch = mh_calloc(1, head + samples * of_sample);
    if (!batch)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch of %llu samples",
                       (unsigned long long)samples);
    atomic_init(&batch->refs, 1);
    batch->layout = *layout;
    batch->planned = batch->samples = samples;
    batch->numbers = (uint64_t *)(void *)((uint8_t *)batch + head);
    batch->positions = batch->numbers + samples;
    batch->apart = (uint8_t **)(void *)(batch->positions + samples);
    batch->array_count = layout->field_count;
    *out = batch;
    return MH_OK;
}

static void describe(mh_batch *batch, uint8_t *memory)
{
    batch->bytes =
        mh_layout_describe(&batch->layout, batch->numbers, batch->planned, memory, batch->arrays);
}

void mh_batch_seat(mh_batch *batch, mh_slot *slot)
{
    batch->slot = slot;
    describe(batch, mh_slot_data(slot));
}

mh_status mh_batch_seat_own(mh_batch *batch, mh_error *err)
{
    uint64_t bytes = 0;
    MH_TRY(mh_layout_bytes(&bytes, &batch->layout, batch->numbers, batch->planned, err));
    batch->own = mh_calloc(1, bytes);
    if (!batch->own)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch of %llu bytes",
                       (unsigned long long)bytes);
    describe(batch, batch->own);
    return MH_OK;
}

/* --- handing over --- */

mh_handover mh_hand_over(mh_pool *pool, uint64_t largest, uint32_t spare, uint64_t small)
{
    if (largest < small)
        return MH_HANDOVER_SMALL;
    return mh_pool_unheld(pool) > spare ? MH_HANDOVER_LENT : MH_HANDOVER_CROWDED;
}

mh_handover mh_batch_hand_over(mh_batch *batch, mh_pool *pool, uint32_t spare, uint64_t small)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < batch->array_count; i++)
        if (batch->arrays[i].bytes > largest)
            largest = batch->arrays[i].bytes;
    mh_handover answer = batch->slot ? mh_hand_over(pool, largest, spare, small) : MH_HANDOVER_LENT;
    batch->lent = batch->slot && answer == MH_HANDOVER_LENT;
    if (batch->lent)
        mh_slot_hold(batch->slot, 1);
    return answer;
}

mh_status mh_batch_lend(mh_batch **out, mh_slot *slot, const mh_leaf *leaves, uint32_t leaf_count,
                        mh_error *err)
{
    mh_batch *batch = NULL;
    const mh_layout layout = {.field_count = leaf_count};
    mh_status status = mh_batch_new(&batch, &layout, 0, err);
    if (!batch)
        return status;
    batch->slot = slot;
    batch->lent = true;
    mh_slot_hold(slot, 1);
    for (uint32_t i = 0; i < leaf_count; i++)
        batch->arrays[i] = mh_leaf_array(&leaves[i], mh_slot_data(slot) + leaves[i].offset);
    *out = batch;
    return MH_OK;
}

static void move_to(mh_array *array, const uint8_t *from, uint8_t *to)
{
    array->data = to + ((const uint8_t *)array->data - from);
    if (!array->offsets)
        return;
    array->offsets = (const int64_t *)(const void *)(to + ((const uint8_t *)array->offsets - from));
    array->shapes = (const int64_t *)(const void *)(to + ((const uint8_t *)array->shapes - from));
}

mh_status mh_batch_copy_out(mh_batch *batch, mh_error *err)
{
    uint64_t bytes = batch->bytes;
    if (!batch->slot)
        return MH_OK;
    uint8_t *copy = mh_calloc(1, bytes);
    if (!copy)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a copy of a batch of %llu bytes",
                       (unsigned long long)bytes);
    const uint8_t *from = mh_slot_data(batch->slot);
    memcpy(copy, from, bytes);
    for (size_t i = 0; i < batch->array_count; i++)
        move_to(&batch->arrays[i], from, copy);
    mh_slot_abandon(batch->slot);
    batch->slot = NULL;
    batch->own = copy;
    return MH_OK;
}

/* --- in the consumer's hands --- */

uint64_t mh_batch_samples(const mh_batch *batch)
{
    return batch->samples;
}

const uint64_t *mh_batch_numbers(const mh_batch *batch)
{
    return batch->numbers;
}

const uint64_t *mh_batch_positions(const mh_batch *batch)
{
    return batch->positions;
}

const mh_array *mh_batch_array(const mh_batch *batch, size_t at)
{
    return at < batch->array_count ? &batch->arrays[at] : NULL;
}

mh_batch *mh_batch_ref(mh_batch *batch)
{
    atomic_fetch_add_explicit(&batch->refs, 1, memory_order_relaxed);
    return batch;
}

void mh_batch_unref(mh_batch *batch)
{
    if (!batch || atomic_fetch_sub_explicit(&batch->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (batch->slot && batch->lent)
        mh_slot_unref(batch->slot);
    else if (batch->slot)
        mh_slot_abandon(batch->slot);
    mh_batch_forget_apart(batch);
    if (batch->release)
        batch->release(batch->owner);
    mh_free(batch->own);
    mh_free(batch);
}
