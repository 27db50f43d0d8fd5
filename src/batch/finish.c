/* finish.c - a batch whose samples are all placed becomes dense
 * SPDX-License-Identifier: Apache-2.0
 *
 * Nothing is to do but where samples are skipped, or others stand in for them: those with ragged
 * fields are placed apart, because they may be larger than their place.
 */
#include "batch/batch.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

/* What `apart` of a sample that is left out points to. */
static uint8_t skipped_mark;

static bool is_skipped(const mh_batch *batch, uint64_t i)
{
    return batch->apart[i] == &skipped_mark;
}

static void forget(mh_batch *batch, uint64_t i)
{
    if (!is_skipped(batch, i))
        mh_free(batch->apart[i]);
    batch->apart[i] = NULL;
}

void mh_batch_forget_apart(mh_batch *batch)
{
    bool uneven = atomic_load_explicit(&batch->uneven, memory_order_relaxed);
    for (uint64_t i = 0; uneven && i < batch->planned; i++)
        forget(batch, i);
}

void mh_batch_skip(mh_batch *batch, uint64_t i)
{
    forget(batch, i);
    batch->apart[i] = &skipped_mark;
    atomic_store_explicit(&batch->uneven, true, memory_order_relaxed);
}

mh_status mh_batch_place_apart(mh_batch *batch, uint64_t i, uint8_t **into, mh_error *err)
{
    const mh_layout *layout = &batch->layout;
    int64_t shape[MH_DIMS_MOST];
    uint64_t at[2] = {0, 0}; /* the bytes that are needed; then where each field's begin */
    uint8_t *memory = NULL;
    forget(batch, i);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t field = 0; field < layout->field_count; field++) {
            if (!layout->fields[field].ragged)
                continue;
            if (memory)
                into[field] = memory + at[pass];
            at[pass] += mh_layout_measure(layout, field, batch->numbers[i], shape);
        }
        if (!memory && !(memory = mh_calloc(at[0] + 1, 1)))
            return mh_fail(err, MH_ERR_NOMEM, "no memory for a sample of %llu bytes",
                           (unsigned long long)at[0]);
    }
    batch->apart[i] = memory;
    atomic_store_explicit(&batch->uneven, true, memory_order_relaxed);
    return MH_OK;
}

/* --- samples that stand in for others --- */

/* One field of `from`, with what was placed apart, into `batch`, whose layout has room for it.
 * taken[i]: bytes of sample i's memory apart that other fields had. */
static void put_together(const mh_batch *batch, const mh_batch *from, size_t field, uint64_t *taken)
{
    const mh_field *about = &batch->layout.fields[field];
    for (uint64_t i = 0; i < batch->planned; i++) {
        uint64_t bytes = about->bytes;
        const uint8_t *value = mh_batch_place(from, field, i);
        if (is_skipped(from, i))
            continue;
        if (about->ragged)
            bytes =
                (uint64_t)(mh_batch_place(batch, field, i + 1) - mh_batch_place(batch, field, i));
        if (about->ragged && from->apart[i]) {
            value = from->apart[i] + taken[i];
            taken[i] += bytes;
        }
        memcpy(mh_batch_place(batch, field, i), value, bytes);
    }
}

/* The batch anew, in memory of its own, because what stands in may be larger. */
static mh_status rebuild(mh_batch *batch, mh_error *err)
{
    mh_batch *made = NULL;
    uint64_t *taken = mh_calloc(batch->planned, sizeof *taken);
    if (!taken)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch");
    mh_status status = mh_batch_new(&made, &batch->layout, batch->planned, err);
    if (status == MH_OK) {
        memcpy(made->numbers, batch->numbers, batch->planned * sizeof *made->numbers);
        status = mh_batch_seat_own(made, err);
    }
    for (size_t i = 0; status == MH_OK && i < batch->array_count; i++)
        put_together(made, batch, i, taken);
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
    mh_free(taken);
    return status;
}

/* --- samples that are left out --- */

static uint64_t keep_numbers(mh_batch *batch)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < batch->planned; i++)
        if (!is_skipped(batch, i)) {
            batch->numbers[kept] = batch->numbers[i];
            batch->positions[kept++] = batch->positions[i];
        }
    return kept;
}

static void finish_fixed(mh_array *array, const mh_batch *batch, size_t field)
{
    uint64_t bytes = batch->layout.fields[field].bytes, kept = 0;
    for (uint64_t i = 0; i < batch->planned; i++) {
        if (is_skipped(batch, i))
            continue;
        if (kept != i)
            memmove(mh_batch_place(batch, field, kept), mh_batch_place(batch, field, i), bytes);
        kept++;
    }
    array->shape[0] = (int64_t)kept;
    array->bytes = kept * bytes;
}

/* Values behind one that is skipped move forward. */
static void finish_ragged(mh_array *array, const mh_batch *batch)
{
    const uint64_t item = array->dtype.bits / 8, dims = array->sample_dims;
    int64_t *offsets = (int64_t *)array->offsets, *shapes = (int64_t *)array->shapes;
    uint8_t *data = array->data;
    int64_t end = 0;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < batch->planned; i++) {
        int64_t begin = offsets[i], count = offsets[i + 1] - begin;
        if (is_skipped(batch, i))
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

bool mh_batch_is_even(const mh_batch *batch)
{
    return !atomic_load_explicit(&batch->uneven, memory_order_relaxed);
}

mh_status mh_batch_finish(mh_batch *batch, mh_error *err)
{
    bool apart = false;
    if (mh_batch_is_even(batch))
        return MH_OK;
    for (uint64_t i = 0; i < batch->planned && !apart; i++)
        apart = batch->apart[i] && !is_skipped(batch, i);
    if (apart)
        MH_TRY(rebuild(batch, err));
    batch->samples = keep_numbers(batch);
    for (size_t i = 0; batch->samples != batch->planned && i < batch->array_count; i++)
        if (batch->layout.fields[i].ragged)
            finish_ragged(&batch->arrays[i], batch);
        else
            finish_fixed(&batch->arrays[i], batch, i);
    mh_batch_forget_apart(batch);
    return MH_OK;
}
