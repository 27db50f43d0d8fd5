/* batch.c - batches: fields laid out in one block of memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/batch.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

/* --- layout --- */

/* Where the parts of a field lie; of a field that is not ragged, the first. */
typedef struct field_layout {
    uint64_t values, offsets, shapes;
} field_layout;

/* Puts `bytes` behind *end, and *end behind them. False: too large. */
static bool lay(uint64_t *end, uint64_t bytes, uint64_t *out)
{
    *out = *end;
    return !__builtin_add_overflow(*end, bytes, end) &&
           !__builtin_add_overflow(*end, MH_LEAF_ALIGN - 1, end) &&
           ((*end &= ~(uint64_t)(MH_LEAF_ALIGN - 1)), *end < SIZE_MAX / 2);
}

static bool lay_field(uint64_t *end, const mh_field *field, uint64_t samples, field_layout *out)
{
    uint64_t bytes, shapes;
    *out = (field_layout){0};
    if (__builtin_mul_overflow(samples, field->bytes, &bytes) || !lay(end, bytes, &out->values))
        return false;
    if (!field->ragged)
        return true;
    return samples < UINT32_MAX && lay(end, (samples + 1) * sizeof(int64_t), &out->offsets) &&
           !__builtin_mul_overflow(samples, field->dims * sizeof(int64_t), &shapes) &&
           lay(end, shapes, &out->shapes);
}

mh_status mh_batch_bytes(uint64_t *out, const mh_dataset *dataset, uint64_t samples, mh_error *err)
{
    uint64_t end = 0;
    field_layout layout;
    for (size_t i = 0; i < dataset->field_count; i++)
        if (!lay_field(&end, &dataset->fields[i], samples, &layout))
            return mh_fail(err, MH_ERR_INVALID, "a batch of %llu samples is too large",
                           (unsigned long long)samples);
    *out = end ? end : 1;
    return MH_OK;
}

static void describe(mh_batch *batch, uint8_t *memory)
{
    uint64_t end = 0;
    for (size_t i = 0; i < batch->array_count; i++) {
        field_layout layout;
        const mh_field *field = &batch->dataset->fields[i];
        mh_array *array = &batch->arrays[i];
        (void)lay_field(&end, field, batch->planned, &layout);
        *array = (mh_array){.name = field->name,
                            .dtype = field->dtype,
                            .dims = field->ragged ? 1 : field->dims + 1,
                            .shape = {(int64_t)batch->samples},
                            .data = memory + layout.values,
                            .bytes = batch->samples * field->bytes};
        if (!field->ragged) {
            memcpy(array->shape + 1, field->shape, field->dims * sizeof *array->shape);
            continue;
        }
        array->offsets = (const int64_t *)(void *)(memory + layout.offsets);
        array->shapes = (const int64_t *)(void *)(memory + layout.shapes);
        array->sample_dims = field->dims;
    }
}

/* --- memory --- */

mh_status mh_batch_new(mh_batch **out, mh_dataset *dataset, uint64_t samples, mh_error *err)
{
    size_t head = sizeof(mh_batch) + dataset->field_count * sizeof(mh_array);
    mh_batch *batch = NULL;
    if (samples < (SIZE_MAX / 2 - head) / (2 * sizeof(uint64_t)))
        batch = mh_calloc(1, head + 2 * samples * sizeof(uint64_t));
    if (!batch)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch of %llu samples",
                       (unsigned long long)samples);
    atomic_init(&batch->refs, 1);
    batch->dataset = mh_dataset_ref(dataset);
    batch->planned = batch->samples = samples;
    batch->numbers = (uint64_t *)((uint8_t *)batch + head);
    batch->positions = batch->numbers + samples;
    batch->array_count = dataset->field_count;
    *out = batch;
    return MH_OK;
}

void mh_batch_seat(mh_batch *batch, mh_slot *slot)
{
    batch->slot = slot;
    describe(batch, mh_slot_data(slot));
}

mh_status mh_batch_seat_own(mh_batch *batch, mh_error *err)
{
    uint64_t bytes = 0;
    MH_TRY(mh_batch_bytes(&bytes, batch->dataset, batch->planned, err));
    batch->own = mh_calloc(1, bytes);
    if (!batch->own)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch of %llu bytes",
                       (unsigned long long)bytes);
    describe(batch, batch->own);
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
    uint64_t bytes = 0;
    if (!batch->slot)
        return MH_OK;
    MH_TRY(mh_batch_bytes(&bytes, batch->dataset, batch->planned, err));
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

/* --- finishing --- */

static void keep_numbers(mh_batch *batch, const mh_sample *samples)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < batch->planned; i++)
        if (!samples || !samples[i].skipped) {
            batch->numbers[kept] = batch->numbers[i];
            batch->positions[kept++] = batch->positions[i];
        }
    batch->samples = kept;
}

static void finish_fixed(mh_array *array, const mh_batch *batch, size_t field,
                         const mh_sample *samples)
{
    uint64_t bytes = batch->dataset->fields[field].bytes, kept = 0;
    for (uint64_t i = 0; i < batch->planned; i++) {
        if (samples && samples[i].skipped)
            continue;
        if (kept != i)
            memmove(mh_batch_place(batch, field, kept), mh_batch_place(batch, field, i), bytes);
        kept++;
    }
    array->shape[0] = (int64_t)kept;
    array->bytes = kept * bytes;
}

/* After keep_numbers: numbers[] are those that stay. */
static void finish_ragged(mh_array *array, const mh_batch *batch, size_t field,
                          const mh_sample *samples)
{
    const mh_dataset *dataset = batch->dataset;
    uint64_t item = array->dtype.bits / 8, end = 0, kept = 0;
    int64_t *offsets = (int64_t *)array->offsets, *shapes = (int64_t *)array->shapes;
    for (uint64_t i = 0; i < batch->planned; i++) {
        if (samples && samples[i].skipped)
            continue;
        int64_t *shape = shapes + kept * array->sample_dims;
        dataset->format->measure(dataset, dataset->tags[field], batch->numbers[kept], shape);
        uint64_t values = 1;
        for (uint32_t d = 0; d < array->sample_dims; d++)
            values *= (uint64_t)shape[d];
        memmove((uint8_t *)array->data + end * item, mh_batch_place(batch, field, i),
                values * item);
        offsets[kept++] = (int64_t)end;
        end += values;
    }
    offsets[kept] = (int64_t)end;
    array->shape[0] = (int64_t)end;
    array->bytes = end * item;
}

void mh_batch_finish(mh_batch *batch, const mh_sample *samples)
{
    keep_numbers(batch, samples);
    for (size_t i = 0; i < batch->array_count; i++)
        if (batch->dataset->fields[i].ragged)
            finish_ragged(&batch->arrays[i], batch, i, samples);
        else if (batch->samples != batch->planned)
            finish_fixed(&batch->arrays[i], batch, i, samples);
}

/* --- in the loop's hands --- */

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
    if (batch->slot && batch->delivered)
        mh_slot_unref(batch->slot);
    else if (batch->slot)
        mh_slot_abandon(batch->slot);
    mh_dataset_unref(batch->dataset);
    mh_free(batch->own);
    mh_free(batch);
}
