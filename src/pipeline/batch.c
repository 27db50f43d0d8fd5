/* batch.c - a batch of the native pipeline: memory of a slot, described field by field
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/batch.h"

#include "base/alloc.h"
#include "base/error.h"

#include <assert.h>
#include <string.h>

static bool aligned_end(uint64_t *end, uint64_t samples, uint64_t bytes)
{
    uint64_t size;
    return !__builtin_mul_overflow(samples, bytes, &size) &&
           !__builtin_add_overflow(*end, size, end) &&
           !__builtin_add_overflow(*end, MH_LEAF_ALIGN - 1, end) &&
           (*end = *end / MH_LEAF_ALIGN * MH_LEAF_ALIGN) <= SIZE_MAX / 8;
}

mh_status mh_batch_bytes(uint64_t *out, const mh_dataset *dataset, uint64_t samples, mh_error *err)
{
    size_t count;
    uint64_t end = 0;
    const mh_field *fields = mh_dataset_fields(dataset, &count);
    for (size_t i = 0; i < count; i++)
        if (!aligned_end(&end, samples, fields[i].bytes))
            return mh_fail(err, MH_ERR_INVALID, "a batch of %llu samples is too large",
                           (unsigned long long)samples);
    *out = end ? end : 1;
    return MH_OK;
}

static void describe(mh_batch *batch, uint8_t *memory)
{
    uint64_t end = 0;
    const mh_field *fields = mh_dataset_fields(batch->dataset, &batch->array_count);
    for (size_t i = 0; i < batch->array_count; i++) {
        mh_array *array = &batch->arrays[i];
        *array = (mh_array){.name = fields[i].name,
                            .dtype = fields[i].dtype,
                            .dims = fields[i].dims + 1,
                            .shape = {(int64_t)batch->samples},
                            .data = memory + end,
                            .bytes = batch->samples * fields[i].bytes};
        memcpy(array->shape + 1, fields[i].shape, fields[i].dims * sizeof *array->shape);
        (void)aligned_end(&end, batch->samples, fields[i].bytes);
    }
}

mh_status mh_batch_new(mh_batch **out, mh_dataset *dataset, mh_slot *slot, uint64_t samples,
                       mh_error *err)
{
    size_t fields;
    (void)mh_dataset_fields(dataset, &fields);
    size_t head = sizeof(mh_batch) + fields * sizeof(mh_array);
    mh_batch *batch = NULL;
    if (samples < (SIZE_MAX / 2 - head) / sizeof(uint64_t))
        batch = mh_calloc(1, head + samples * sizeof(uint64_t));
    if (!batch)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch of %llu samples",
                       (unsigned long long)samples);
    atomic_init(&batch->refs, 1);
    batch->dataset = mh_dataset_ref(dataset);
    batch->slot = slot;
    batch->samples = samples;
    batch->numbers = (uint64_t *)((uint8_t *)batch + head);
    if (slot)
        describe(batch, mh_slot_data(slot));
    *out = batch;
    return MH_OK;
}

mh_status mh_batch_new_own(mh_batch **out, mh_dataset *dataset, uint64_t samples, mh_error *err)
{
    uint64_t bytes = 0;
    mh_batch *batch = NULL;
    MH_TRY(mh_batch_bytes(&bytes, dataset, samples, err));
    MH_TRY(mh_batch_new(&batch, dataset, NULL, samples, err));
    assert(batch);
    batch->own = mh_calloc(1, bytes);
    if (!batch->own) {
        mh_batch_unref(batch);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch of %llu bytes",
                       (unsigned long long)bytes);
    }
    describe(batch, batch->own);
    *out = batch;
    return MH_OK;
}

mh_status mh_batch_copy_out(mh_batch *batch, mh_error *err)
{
    uint64_t bytes = 0;
    if (!batch->slot)
        return MH_OK;
    MH_TRY(mh_batch_bytes(&bytes, batch->dataset, batch->samples, err));
    uint8_t *copy = mh_calloc(1, bytes);
    if (!copy)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a copy of a batch of %llu bytes",
                       (unsigned long long)bytes);
    memcpy(copy, mh_slot_data(batch->slot), bytes);
    mh_slot_abandon(batch->slot);
    batch->slot = NULL;
    batch->own = copy;
    describe(batch, copy);
    return MH_OK;
}

void mh_batch_deliver(mh_batch *batch)
{
    if (batch->slot)
        mh_slot_hold(batch->slot, 1);
    batch->delivered = true;
}

uint64_t mh_batch_samples(const mh_batch *batch)
{
    return batch->samples;
}

const uint64_t *mh_batch_numbers(const mh_batch *batch)
{
    return batch->numbers;
}

uint64_t mh_batch_position(const mh_batch *batch)
{
    return batch->position;
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
    if (batch->slot && batch->delivered)
        mh_slot_unref(batch->slot);
    else if (batch->slot)
        mh_slot_abandon(batch->slot);
    mh_dataset_unref(batch->dataset);
    mh_free(batch->own);
    mh_free(batch);
}
