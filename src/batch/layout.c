/* layout.c - where the fields of a batch lie in one block of memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/layout.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

#define LOOKED_AT UINT64_C(4096) /* samples, to tell how large they are as a rule */

/* Where the parts of a field lie; of a field that is not ragged, the first. */
typedef struct field_place {
    uint64_t values, offsets, shapes;
} field_place;

/* `bytes`: of the values of all samples. */
static bool place_field(uint64_t *end, const mh_field *field, uint64_t count, uint64_t bytes,
                        field_place *out)
{
    uint64_t shapes;
    *out = (field_place){0};
    if (!mh_layout_part(end, bytes, &out->values))
        return false;
    if (!field->ragged)
        return true;
    return count < UINT32_MAX &&
           mh_layout_part(end, (count + 1) * sizeof(int64_t), &out->offsets) &&
           !__builtin_mul_overflow(count, field->dims * sizeof(int64_t), &shapes) &&
           mh_layout_part(end, shapes, &out->shapes);
}

uint64_t mh_layout_measure(const mh_layout *layout, size_t field, uint64_t sample, int64_t *shape)
{
    uint64_t bytes = layout->fields[field].dtype.bits / 8;
    layout->measure(layout->measured, field, sample, shape);
    for (uint32_t d = 0; d < layout->fields[field].dims; d++)
        bytes *= (uint64_t)shape[d];
    return bytes;
}

static bool values_bytes(const mh_layout *layout, size_t field, const uint64_t *samples,
                         uint64_t count, uint64_t *out)
{
    int64_t shape[MH_DIMS_MOST];
    if (!layout->fields[field].ragged)
        return !__builtin_mul_overflow(count, layout->fields[field].bytes, out);
    *out = 0;
    for (uint64_t i = 0; i < count; i++)
        if (__builtin_add_overflow(*out, mh_layout_measure(layout, field, samples[i], shape), out))
            return false;
    return true;
}

static mh_status fail_size(uint64_t count, mh_error *err)
{
    return mh_fail(err, MH_ERR_INVALID, "a batch of %llu samples is too large",
                   (unsigned long long)count);
}

mh_status mh_layout_bytes(uint64_t *out, const mh_layout *layout, const uint64_t *samples,
                          uint64_t count, mh_error *err)
{
    uint64_t end = 0, bytes;
    field_place place;
    for (size_t i = 0; i < layout->field_count; i++)
        if (!values_bytes(layout, i, samples, count, &bytes) ||
            !place_field(&end, &layout->fields[i], count, bytes, &place))
            return fail_size(count, err);
    *out = end ? end : 1;
    return MH_OK;
}

/* A sum of `count` draws is its mean and rarely more than four times its spread beyond. */
static double usual_values(const mh_layout *layout, size_t field, uint64_t dataset_count,
                           uint64_t count)
{
    uint64_t looked = dataset_count < LOOKED_AT ? dataset_count : LOOKED_AT;
    double sum = 0, squares = 0;
    int64_t shape[MH_DIMS_MOST];
    for (uint64_t i = 0; i < looked; i++) {
        uint64_t sample = (uint64_t)((double)i * (double)dataset_count / (double)looked);
        double bytes = (double)mh_layout_measure(layout, field, sample, shape);
        sum += bytes;
        squares += bytes * bytes;
    }
    if (looked == 0)
        return 0;
    double mean = sum / (double)looked, spread = squares / (double)looked - mean * mean;
    double usual = mean * (double)count + 4 * sqrt(spread > 0 ? spread * (double)count : 0);
    double most = (double)layout->fields[field].bytes * (double)count;
    return usual < most ? usual : most;
}

mh_status mh_layout_usual_bytes(uint64_t *out, const mh_layout *layout, uint64_t dataset_count,
                                uint64_t count, mh_error *err)
{
    uint64_t end = 0, bytes;
    field_place place;
    for (size_t i = 0; i < layout->field_count; i++) {
        const mh_field *field = &layout->fields[i];
        if (!field->ragged) {
            if (__builtin_mul_overflow(count, field->bytes, &bytes))
                return fail_size(count, err);
        } else {
            double usual = usual_values(layout, i, dataset_count, count);
            bytes = usual < 0x1p62 ? (uint64_t)usual + 1 : UINT64_MAX;
        }
        if (!place_field(&end, field, count, bytes, &place))
            return fail_size(count, err);
    }
    *out = end ? end : 1;
    return MH_OK;
}

/* Where each sample's values begin, counted in values, and their shapes. */
static void fill_offsets(const mh_layout *layout, size_t field, const uint64_t *samples,
                         uint64_t count, const mh_array *array)
{
    int64_t *offsets = (int64_t *)array->offsets, *shapes = (int64_t *)array->shapes, end = 0;
    const uint64_t item = array->dtype.bits / 8;
    for (uint64_t i = 0; i < count; i++) {
        offsets[i] = end;
        end += (int64_t)(mh_layout_measure(layout, field, samples[i],
                                           shapes + i * array->sample_dims) /
                         item);
    }
    offsets[count] = end;
}

uint64_t mh_layout_describe(const mh_layout *layout, const uint64_t *samples, uint64_t count,
                            uint8_t *memory, mh_array *arrays)
{
    uint64_t end = 0, bytes = 0;
    for (size_t i = 0; i < layout->field_count; i++) {
        field_place place;
        const mh_field *field = &layout->fields[i];
        mh_array *array = &arrays[i];
        (void)values_bytes(layout, i, samples, count, &bytes);
        (void)place_field(&end, field, count, bytes, &place);
        *array = (mh_array){.name = field->name,
                            .dtype = field->dtype,
                            .dims = field->ragged ? 1 : field->dims + 1,
                            .shape = {(int64_t)count},
                            .data = memory + place.values,
                            .bytes = bytes};
        if (!field->ragged) {
            memcpy(array->shape + 1, field->shape, field->dims * sizeof *array->shape);
            continue;
        }
        array->offsets = (const int64_t *)(void *)(memory + place.offsets);
        array->shapes = (const int64_t *)(void *)(memory + place.shapes);
        array->sample_dims = field->dims;
        fill_offsets(layout, i, samples, count, array);
        array->shape[0] = array->offsets[count];
    }
    return end ? end : 1;
}
