/* batch.c - batches: fields laid out in one block of memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/batch.h"

#include "base/alloc.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

#define LOOKED_AT UINT64_C(4096) /* samples, to tell how large they are as a rule */

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

/* values: bytes of all samples together. */
static bool lay_field(uint64_t *end, const mh_field *field, uint64_t samples, uint64_t values,
                      field_layout *out)
{
    uint64_t shapes;
    *out = (field_layout){0};
    if (!lay(end, values, &out->values))
        return false;
    if (!field->ragged)
        return true;
    return samples < UINT32_MAX && lay(end, (samples + 1) * sizeof(int64_t), &out->offsets) &&
           !__builtin_mul_overflow(samples, field->dims * sizeof(int64_t), &shapes) &&
           lay(end, shapes, &out->shapes);
}

/* Of one sample's ragged value; its shape into `shape`. */
static uint64_t measured(const mh_dataset *dataset, size_t field, uint64_t number, int64_t *shape)
{
    uint64_t values = 1;
    dataset->format->measure(dataset, dataset->tags[field], number, shape);
    for (uint32_t d = 0; d < dataset->fields[field].dims; d++)
        values *= (uint64_t)shape[d];
    return values;
}

static bool field_bytes(const mh_batch *batch, size_t field, uint64_t *out)
{
    const mh_field *about = &batch->dataset->fields[field];
    int64_t shape[MH_DIMS_MOST];
    if (!about->ragged)
        return !__builtin_mul_overflow(batch->planned, about->bytes, out);
    *out = 0;
    for (uint64_t i = 0; i < batch->planned; i++)
        if (__builtin_add_overflow(*out,
                                   measured(batch->dataset, field, batch->numbers[i], shape) *
                                       (about->dtype.bits / 8),
                                   out))
            return false;
    return true;
}

static mh_status fail_size(uint64_t samples, mh_error *err)
{
    return mh_fail(err, MH_ERR_INVALID, "a batch of %llu samples is too large",
                   (unsigned long long)samples);
}

mh_status mh_batch_bytes(uint64_t *out, const mh_batch *batch, mh_error *err)
{
    uint64_t end = 0, values;
    field_layout layout;
    for (size_t i = 0; i < batch->array_count; i++)
        if (!field_bytes(batch, i, &values) ||
            !lay_field(&end, &batch->dataset->fields[i], batch->planned, values, &layout))
            return fail_size(batch->planned, err);
    *out = end ? end : 1;
    return MH_OK;
}

/* A sum of `samples` draws is its mean and rarely more than four times its spread beyond. */
static double usual_values(const mh_dataset *dataset, size_t field, uint64_t samples)
{
    const mh_field *about = &dataset->fields[field];
    uint64_t looked = dataset->count < LOOKED_AT ? dataset->count : LOOKED_AT;
    double sum = 0, squares = 0;
    int64_t shape[MH_DIMS_MOST];
    for (uint64_t i = 0; i < looked; i++) {
        uint64_t number = (uint64_t)((double)i * (double)dataset->count / (double)looked);
        double bytes = (double)(measured(dataset, field, number, shape) * (about->dtype.bits / 8));
        sum += bytes;
        squares += bytes * bytes;
    }
    if (looked == 0)
        return 0;
    double mean = sum / (double)looked, spread = squares / (double)looked - mean * mean;
    double usual = mean * (double)samples + 4 * sqrt(spread > 0 ? spread * (double)samples : 0);
    double most = (double)about->bytes * (double)samples;
    return usual < most ? usual : most;
}

mh_status mh_batch_usual_bytes(uint64_t *out, const mh_dataset *dataset, uint64_t samples,
                               mh_error *err)
{
    uint64_t end = 0;
    field_layout layout;
    for (size_t i = 0; i < dataset->field_count; i++) {
        const mh_field *field = &dataset->fields[i];
        double values = field->ragged ? usual_values(dataset, i, samples)
                                      : (double)samples * (double)field->bytes;
        uint64_t bytes = values < 0x1p62 ? (uint64_t)values + 1 : UINT64_MAX;
        if (!field->ragged)
            bytes = values < 0x1p62 ? samples * field->bytes : UINT64_MAX;
        if (!lay_field(&end, field, samples, bytes, &layout))
            return fail_size(samples, err);
    }
    *out = end ? end : 1;
    return MH_OK;
}

/* Where each sample's values begin, and their shapes. */
static void lay_samples(const mh_batch *batch, size_t field)
{
    const mh_array *array = &batch->arrays[field];
    int64_t *offsets = (int64_t *)array->offsets, *shapes = (int64_t *)array->shapes, end = 0;
    for (uint64_t i = 0; i < batch->planned; i++) {
        offsets[i] = end;
        end += (int64_t)measured(batch->dataset, field, batch->numbers[i],
                                 shapes + i * array->sample_dims);
    }
    offsets[batch->planned] = end;
}

static void describe(mh_batch *batch, uint8_t *memory)
{
    uint64_t end = 0, values = 0;
    for (size_t i = 0; i < batch->array_count; i++) {
        field_layout layout;
        const mh_field *field = &batch->dataset->fields[i];
        mh_array *array = &batch->arrays[i];
        (void)field_bytes(batch, i, &values);
        (void)lay_field(&end, field, batch->planned, values, &layout);
        *array = (mh_array){.name = field->name,
                            .dtype = field->dtype,
                            .dims = field->ragged ? 1 : field->dims + 1,
                            .shape = {(int64_t)batch->samples},
                            .data = memory + layout.values,
                            .bytes = values};
        if (!field->ragged) {
            memcpy(array->shape + 1, field->shape, field->dims * sizeof *array->shape);
            continue;
        }
        array->offsets = (const int64_t *)(void *)(memory + layout.offsets);
        array->shapes = (const int64_t *)(void *)(memory + layout.shapes);
        array->sample_dims = field->dims;
        lay_samples(batch, i);
        array->shape[0] = array->offsets[batch->planned];
    }
    batch->bytes = end ? end : 1;
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
    MH_TRY(mh_batch_bytes(&bytes, batch, err));
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

/* Values behind one that is skipped move forward. */
static void finish_ragged(mh_array *array, const mh_batch *batch, const mh_sample *samples)
{
    const uint64_t item = array->dtype.bits / 8, dims = array->sample_dims;
    int64_t *offsets = (int64_t *)array->offsets, *shapes = (int64_t *)array->shapes;
    uint8_t *data = array->data;
    int64_t end = 0;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < batch->planned; i++) {
        int64_t begin = offsets[i], count = offsets[i + 1] - begin;
        if (samples && samples[i].skipped)
            continue;
        memmove(data + (uint64_t)end * item, data + (uint64_t)begin * item, (uint64_t)count * item);
        memmove(shapes + kept * dims, shapes + i * dims, dims * sizeof *shapes);
        offsets[kept++] = end; /* kept <= i: what is read next is still there */
        end += count;
    }
    offsets[kept] = end;
    array->shape[0] = end;
    array->bytes = (uint64_t)end * item;
}

static void leave_out(mh_batch *batch, const mh_sample *samples)
{
    keep_numbers(batch, samples);
    for (size_t i = 0; batch->samples != batch->planned && i < batch->array_count; i++)
        if (batch->dataset->fields[i].ragged)
            finish_ragged(&batch->arrays[i], batch, samples);
        else
            finish_fixed(&batch->arrays[i], batch, i, samples);
}

/* --- samples that stand in for others --- */

mh_status mh_batch_place_apart(const mh_batch *batch, uint64_t i, uint8_t **out, uint8_t **into,
                               mh_error *err)
{
    const mh_dataset *dataset = batch->dataset;
    int64_t shape[MH_DIMS_MOST];
    uint64_t at[2] = {0, 0}; /* the bytes that are needed; then where each field's begin */
    uint8_t *memory = NULL;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t field = 0; field < dataset->field_count; field++) {
            if (!dataset->fields[field].ragged)
                continue;
            if (memory)
                into[field] = memory + at[pass];
            at[pass] += measured(dataset, field, batch->numbers[i], shape) *
                        (dataset->fields[field].dtype.bits / 8);
        }
        if (!memory && !(memory = mh_calloc(at[0] + 1, 1)))
            return mh_fail(err, MH_ERR_NOMEM, "no memory for a sample of %llu bytes",
                           (unsigned long long)at[0]);
    }
    *out = memory;
    return MH_OK;
}

/* One field of `from`, with what was placed apart, into `batch`, whose layout has room for it. */
static void put_together(const mh_batch *batch, const mh_batch *from, size_t field,
                         const mh_sample *samples, uint64_t *apart)
{
    const mh_field *about = &batch->dataset->fields[field];
    for (uint64_t i = 0; i < batch->planned; i++) {
        uint64_t bytes = about->bytes;
        const uint8_t *value = mh_batch_place(from, field, i);
        if (about->ragged)
            bytes =
                (uint64_t)(batch->arrays[field].offsets[i + 1] - batch->arrays[field].offsets[i]) *
                (about->dtype.bits / 8);
        if (about->ragged && samples[i].apart) {
            value = samples[i].apart + apart[i];
            apart[i] += bytes;
        }
        memcpy(mh_batch_place(batch, field, i), value, bytes);
    }
}

/* The batch anew, in memory of its own, because what stands in may be larger. */
static mh_status rebuild(mh_batch *batch, const mh_sample *samples, mh_error *err)
{
    mh_batch *made = NULL;
    uint64_t *apart = mh_calloc(batch->planned, sizeof *apart);
    if (!apart)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch");
    mh_status status = mh_batch_new(&made, batch->dataset, batch->planned, err);
    if (status == MH_OK) {
        memcpy(made->numbers, batch->numbers, batch->planned * sizeof *made->numbers);
        status = mh_batch_seat_own(made, err);
    }
    for (size_t i = 0; status == MH_OK && i < batch->array_count; i++)
        put_together(made, batch, i, samples, apart);
    if (status == MH_OK) {
        if (batch->slot)
            mh_slot_abandon(batch->slot);
        mh_free(batch->own);
        batch->slot = NULL;
        batch->own = made->own;
        batch->bytes = made->bytes;
        memcpy(batch->arrays, made->arrays, batch->array_count * sizeof *batch->arrays);
        made->own = NULL;
    }
    mh_batch_unref(made);
    mh_free(apart);
    return status;
}

mh_status mh_batch_finish(mh_batch *batch, const mh_sample *samples, mh_error *err)
{
    bool apart = false;
    for (uint64_t i = 0; samples && i < batch->planned; i++)
        apart |= samples[i].apart != NULL;
    if (apart)
        MH_TRY(rebuild(batch, samples, err));
    leave_out(batch, samples);
    return MH_OK;
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
