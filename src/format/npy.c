/* npy.c - NumPy's .npy and .npz files: samples along the first axis, a field for each array
 * SPDX-License-Identifier: Apache-2.0
 *
 * Values that lie in the file as they are delivered go by pieces. Where one wanted array is in the
 * other byte order, in Fortran order or has several wanted members, all go by units: a sample's row
 * of an array, or a whole array in Fortran order. They are numbered with the whole arrays first,
 * then the rows, sample by sample.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/few_files.h"
#include "format/format.h"
#include "format/npy_arrays.h"
#include "format/npy_header.h"
#include "source/source.h"

#include <stdio.h>
#include <string.h>

static int folder_probe(const mh_candidate *candidate)
{
    mh_few_files folder;
    if (candidate->source != &mh_source_file ||
        mh_few_files_list(&folder, candidate->path, ".npy .npz", NULL) != MH_OK)
        return 0;
    int found = folder.count > 0;
    mh_few_files_deinit(&folder);
    return found;
}

/* An archive is one of NumPy's when its first file is an array; a long name is not seen whole. */
static int npy_probe(const mh_candidate *candidate)
{
    if (candidate->directory)
        return folder_probe(candidate);
    const uint8_t *head = candidate->head;
    size_t size = candidate->head_size;
    if (size >= MH_NPY_MAGIC_BYTES && memcmp(head, MH_NPY_MAGIC, MH_NPY_MAGIC_BYTES) == 0)
        return 1;
    if (size < 30 || memcmp(head, "PK\3\4", 4) != 0)
        return 0;
    size_t name = head[26] | (size_t)head[27] << 8;
    return name > size - 30 || (name > 4 && memcmp(head + 30 + name - 4, ".npy", 4) == 0);
}

/* --- after the choice of fields --- */

/* "x.npy", or "x in data.npz". */
static void array_name(const mh_dataset *dataset, uint32_t number, char *out, size_t room)
{
    const mh_npy_arrays *arrays = dataset->own;
    const mh_npy_array *array = &arrays->list[number];
    const char *path = dataset->objects.list[array->object].name;
    size_t field = 0;
    while (field < dataset->field_count && arrays->fields[dataset->tags[field]].array != number)
        field++;
    if (array->in_archive && field < dataset->field_count)
        (void)snprintf(out, room, "%s in %s", dataset->fields[field].name, path);
    else
        (void)snprintf(out, room, "%s", path);
}

/* All have equally many samples. Arrays of an archive that are not wanted do not count: archives
 * often hold several sets. */
static mh_status count_samples(mh_dataset *dataset, mh_error *err)
{
    const mh_npy_arrays *arrays = dataset->own;
    char name[200], other[200];
    uint32_t first = arrays->count;
    for (uint32_t i = 0; i < arrays->count; i++) {
        const mh_npy_array *array = &arrays->list[i];
        if (array->in_archive && !array->kept)
            continue;
        array_name(dataset, i, name, sizeof name);
        if (!array->has_axis)
            return mh_fail(err, MH_ERR_INVALID,
                           "%s holds a single value, not samples along an axis", name);
        if (first == arrays->count) {
            first = i;
            dataset->count = array->samples;
        }
        if (array->samples == dataset->count)
            continue;
        array_name(dataset, first, other, sizeof other);
        return mh_fail(err, MH_ERR_INVALID, "%s has %llu samples and %s has %llu", other,
                       (unsigned long long)dataset->count, name,
                       (unsigned long long)array->samples);
    }
    return MH_OK;
}

/* Whether the field's bytes are one piece of the file, and no other field wants its row. */
static int goes_by_piece(const mh_npy_arrays *arrays, const mh_npy_field *field)
{
    const mh_npy_array *array = &arrays->list[field->array];
    return mh_strided_is_plain(&field->values) && (array->kept == 1 || field->values.run == 0);
}

/* Arrays that no wanted value lies in need no unit. */
static void number_slots(mh_dataset *dataset, mh_npy_arrays *arrays, int whole)
{
    for (size_t i = 0; i < dataset->field_count; i++) {
        const mh_npy_field *field = &arrays->fields[dataset->tags[i]];
        mh_npy_array *array = &arrays->list[field->array];
        uint32_t slots = arrays->whole_count + arrays->row_count, slot = 0;
        if (array->whole != whole || field->values.run == 0)
            continue;
        while (slot < slots && arrays->order[slot] != field->array)
            slot++;
        if (slot < slots)
            continue;
        arrays->order[slot] = field->array;
        array->slot = slot;
        *(whole ? &arrays->whole_count : &arrays->row_count) += 1;
        uint64_t bytes = whole ? array->data_bytes : array->sample_step;
        if (bytes > dataset->unit_bytes_most)
            dataset->unit_bytes_most = bytes;
    }
}

static mh_status npy_finish(mh_dataset *dataset, mh_error *err)
{
    mh_npy_arrays *arrays = dataset->own;
    for (size_t i = 0; i < dataset->field_count; i++)
        arrays->list[arrays->fields[dataset->tags[i]].array].kept++;
    MH_TRY(count_samples(dataset, err));
    for (size_t i = 0; i < dataset->field_count && dataset->count > 0; i++)
        if (!goes_by_piece(arrays, &arrays->fields[dataset->tags[i]]))
            dataset->by_units = 1;
    if (!dataset->by_units)
        return MH_OK;
    number_slots(dataset, arrays, 1);
    number_slots(dataset, arrays, 0);
    dataset->units_shared = arrays->whole_count > 0;
    dataset->units_most = arrays->whole_count + arrays->row_count;
    if (__builtin_mul_overflow(dataset->count, (uint64_t)arrays->row_count, &dataset->unit_count) ||
        __builtin_add_overflow(dataset->unit_count, (uint64_t)arrays->whole_count,
                               &dataset->unit_count))
        return mh_fail(err, MH_ERR_INVALID, "%s: too many samples", dataset->objects.list[0].name);
    return MH_OK;
}

/* --- pieces --- */

static mh_piece npy_piece(const mh_dataset *dataset, uint32_t tag, uint64_t sample)
{
    const mh_npy_arrays *arrays = dataset->own;
    const mh_npy_field *field = &arrays->fields[tag];
    const mh_npy_array *array = &arrays->list[field->array];
    return (mh_piece){.object = array->object,
                      .offset = array->data_offset + sample * array->sample_step + field->offset};
}

/* --- units --- */

static uint32_t npy_units_of(const mh_dataset *dataset, uint64_t sample, uint64_t *ids)
{
    const mh_npy_arrays *arrays = dataset->own;
    for (uint32_t i = 0; i < arrays->whole_count; i++)
        ids[i] = i;
    for (uint32_t i = 0; i < arrays->row_count; i++)
        ids[arrays->whole_count + i] = arrays->whole_count + sample * arrays->row_count + i;
    return arrays->whole_count + arrays->row_count;
}

static mh_unit npy_unit(const mh_dataset *dataset, uint64_t id)
{
    const mh_npy_arrays *arrays = dataset->own;
    const mh_npy_array *array;
    if (id < arrays->whole_count) {
        array = &arrays->list[arrays->order[id]];
        return (mh_unit){
            .object = array->object, .offset = array->data_offset, .size = array->data_bytes};
    }
    id -= arrays->whole_count;
    array = &arrays->list[arrays->order[arrays->whole_count + id % arrays->row_count]];
    return (mh_unit){.object = array->object,
                     .offset = array->data_offset + id / arrays->row_count * array->sample_step,
                     .size = array->sample_step};
}

static mh_status npy_place(const mh_dataset *dataset, const mh_placing *placing, mh_error *err)
{
    const mh_npy_arrays *arrays = dataset->own;
    (void)err;
    for (size_t i = 0; i < dataset->field_count; i++) {
        const mh_npy_field *field = &arrays->fields[dataset->tags[i]];
        const mh_npy_array *array = &arrays->list[field->array];
        if (field->values.run == 0)
            continue;
        uint64_t begin = array->whole ? placing->sample * array->sample_step : 0;
        mh_strided_copy(&field->values, placing->units[array->slot].data + begin + field->offset,
                        placing->into[i]);
    }
    return MH_OK;
}

static void npy_close(mh_dataset *dataset)
{
    mh_npy_arrays *arrays = dataset->own;
    if (!arrays)
        return;
    mh_free(arrays->list);
    mh_free(arrays->fields);
    mh_free(arrays->order);
    mh_free(arrays);
}

const mh_format mh_format_npy = {
    .name = "npy",
    .what = "NumPy arrays (.npy, .npz): samples along the first axis, a field for each array",
    .suffixes = ".npy .npz",
    .probe = npy_probe,
    .open = mh_npy_arrays_read,
    .finish = npy_finish,
    .piece = npy_piece,
    .units_of = npy_units_of,
    .unit = npy_unit,
    .place = npy_place,
    .close = npy_close,
};
