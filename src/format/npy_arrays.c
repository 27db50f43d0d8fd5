/* npy_arrays.c - the arrays that .npy and .npz files hold, and the fields made of them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/npy_arrays.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/few_files.h"
#include "format/npy_header.h"
#include "format/zip_directory.h"

#include <stdio.h>
#include <string.h>

#define HEAD_ROOM (MH_NPY_HEAD_MOST + 16u)
#define NAME_ROOM 512

/* What reading takes, for all files. */
typedef struct reader {
    mh_dataset *dataset;
    mh_npy_arrays *arrays;
    mh_source *source;
    mh_npy_header *header;
    uint8_t *head; /* HEAD_ROOM */
} reader;

/* Where an array's file lies: an object, or a part of one. */
typedef struct place {
    uint32_t object;
    uint64_t offset, bytes;
    int in_archive;
} place;

static mh_status read_bytes(const reader *r, uint32_t object, uint64_t offset, uint64_t size,
                            uint8_t *into, mh_error *err)
{
    const mh_read read = {.object = object, .offset = offset, .size = size, .into = into};
    uint64_t got;
    return mh_source_read(r->source, &read, &got, err);
}

/* --- fields --- */

/* Bytes from one value to the next along each dimension of the array. */
static void array_strides(const mh_npy_header *header, uint64_t *strides)
{
    uint64_t step = header->item_bytes;
    for (uint32_t i = 0; i < header->dims; i++) {
        uint32_t dim = header->fortran ? i : header->dims - 1 - i;
        strides[dim] = step;
        step *= (uint64_t)header->shape[dim]; /* too large only where another length is 0 */
    }
}

static mh_status new_field(mh_npy_arrays *arrays, mh_npy_field **out, mh_error *err)
{
    mh_npy_field *fields = mh_realloc(arrays->fields, arrays->field_count + 1u, sizeof *fields);
    if (!fields)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %u fields", arrays->field_count + 1);
    arrays->fields = fields;
    *out = &fields[arrays->field_count++];
    return MH_OK;
}

/* A sample's dimensions are those of the array after the first one, then those of the member. */
static mh_status add_field(reader *r, const char *name, const mh_npy_member *member, mh_error *err)
{
    const mh_npy_header *header = r->header;
    uint32_t outer = header->dims ? header->dims - 1 : 0;
    uint64_t strides[2 * MH_DIMS_MOST + 1];
    mh_field field = {.dtype = member->dtype, .dims = outer + member->dims};
    char full[NAME_ROOM];
    mh_npy_field *made = NULL;
    if (field.dims > MH_DIMS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy samples of more than %d dimensions",
                       MH_DIMS_MOST);
    if (snprintf(full, sizeof full, "%s%s%s", name, *member->name ? "." : "", member->name) >=
        (int)sizeof full)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the name of a field is too long");
    array_strides(header, strides);
    memcpy(strides + 1 + outer, member->strides, member->dims * sizeof *strides);
    memcpy(field.shape, header->shape + 1, outer * sizeof *field.shape);
    memcpy(field.shape + outer, member->shape, member->dims * sizeof *field.shape);
    MH_TRY(mh_dataset_add_field(r->dataset, full, r->arrays->field_count, &field, err));
    MH_TRY(new_field(r->arrays, &made, err));
    *made = (mh_npy_field){
        .array = r->arrays->count - 1,
        .offset = member->offset,
        .values =
            mh_strided_of(field.dtype.bits / 8, member->swap, field.dims, field.shape, strides + 1),
    };
    return MH_OK;
}

/* --- an array --- */

static mh_status new_array(mh_npy_arrays *arrays, mh_npy_array **out, mh_error *err)
{
    mh_npy_array *list = mh_realloc(arrays->list, arrays->count + 1u, sizeof *list);
    if (list)
        arrays->list = list;
    uint32_t *order = mh_realloc(arrays->order, arrays->count + 1u, sizeof *order);
    if (order)
        arrays->order = order;
    if (!list || !order)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %u arrays", arrays->count + 1);
    *out = &list[arrays->count++];
    return MH_OK;
}

static mh_status add_described(reader *r, const place *at, const char *name, mh_error *err)
{
    const mh_npy_header *header = r->header;
    uint64_t strides[MH_DIMS_MOST + 1] = {0};
    mh_npy_array *array = NULL;
    unsigned long long has = at->bytes - header->data_offset, says = header->data_bytes;
    if (has < says)
        return mh_fail(err, MH_ERR_CORRUPT, "the header says %llu bytes of data, there are %llu",
                       says, has);
    MH_TRY(new_array(r->arrays, &array, err));
    array_strides(header, strides);
    *array = (mh_npy_array){
        .object = at->object,
        .in_archive = at->in_archive,
        .has_axis = header->dims > 0,
        .whole = header->fortran,
        .samples = header->dims > 0 ? (uint64_t)header->shape[0] : 1,
        .data_offset = at->offset + header->data_offset,
        .data_bytes = header->data_bytes,
        .sample_step = strides[0],
    };
    for (uint32_t i = 0; i < header->member_count; i++)
        MH_TRY(add_field(r, name, &header->members[i], err));
    return MH_OK;
}

/* Puts the place before what is wrong with the bytes; a failure to read them names its file. */
static mh_status at_place(mh_status status, const char *where, mh_error *err)
{
    if (status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED || status == MH_ERR_INVALID)
        mh_error_prefix(err, "%s", where);
    return status;
}

/* The array whose file lies there and begins with `size` bytes that were read into the head; its
 * fields are called `name`. */
static mh_status add_array(reader *r, const place *at, size_t size, const char *name, mh_error *err)
{
    MH_TRY(mh_npy_header_read(r->header, r->head, size, err));
    return add_described(r, at, name, err);
}

static mh_status read_head(reader *r, const place *at, size_t *out_size, mh_error *err)
{
    *out_size = at->bytes < HEAD_ROOM ? (size_t)at->bytes : HEAD_ROOM;
    return read_bytes(r, at->object, at->offset, *out_size, r->head, err);
}

/* --- archives --- */

/* "x.npy" gives the field "x". */
static mh_status entry_name(char *out, const mh_zip_entry *entry, mh_error *err)
{
    size_t length = entry->name_bytes;
    int shown = length < 100 ? (int)length : 100;
    if (length <= 4 || memcmp(entry->name + length - 4, ".npy", 4) != 0)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%.*s in it is not an .npy file", shown,
                       entry->name);
    if (length - 4 >= NAME_ROOM)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the name %.*s... in it is too long", shown,
                       entry->name);
    if (entry->encrypted)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%.*s in it is encrypted", shown, entry->name);
    if (entry->method != 0)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "%.*s in it is compressed: write the file with np.savez, not "
                       "np.savez_compressed",
                       shown, entry->name);
    if (entry->bytes != entry->packed_bytes)
        return mh_fail(err, MH_ERR_CORRUPT, "%.*s in it has two sizes", shown, entry->name);
    memcpy(out, entry->name, length - 4);
    out[length - 4] = '\0';
    return MH_OK;
}

static mh_status add_entry(reader *r, uint32_t object, const mh_zip_entry *entry,
                           const mh_zip_end *end, mh_error *err)
{
    uint8_t local[MH_ZIP_LOCAL_BYTES];
    char name[NAME_ROOM];
    size_t size = 0;
    place at = {.object = object, .bytes = entry->bytes, .in_archive = 1};
    MH_TRY(entry_name(name, entry, err));
    MH_TRY(read_bytes(r, object, entry->header_offset, sizeof local, local, err));
    MH_TRY(mh_zip_local_read(&at.offset, local, entry, end, err));
    MH_TRY(read_head(r, &at, &size, err));
    return at_place(add_array(r, &at, size, name, err), name, err);
}

static mh_status add_entries(reader *r, uint32_t object, const mh_zip_end *end,
                             const uint8_t *directory, mh_error *err)
{
    uint64_t at = 0;
    mh_zip_entry entry;
    for (uint64_t i = 0; i < end->count; i++) {
        MH_TRY(mh_zip_entry_read(&entry, directory, end, &at, err));
        MH_TRY(add_entry(r, object, &entry, end, err));
    }
    return MH_OK;
}

static mh_status find_directory(const reader *r, uint32_t object, mh_zip_end *out, mh_error *err)
{
    const mh_object *file = &r->dataset->objects.list[object];
    uint64_t size = file->size < MH_ZIP_TAIL_MOST ? file->size : MH_ZIP_TAIL_MOST;
    uint8_t *tail = mh_calloc(size, 1);
    if (!tail)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the end of %s", file->name);
    mh_status status = read_bytes(r, object, file->size - size, size, tail, err);
    if (status == MH_OK)
        status = mh_zip_end_read(out, tail, size, file->size, err);
    mh_free(tail);
    return status;
}

static mh_status add_archive(reader *r, uint32_t object, mh_error *err)
{
    mh_zip_end end = {0};
    MH_TRY(find_directory(r, object, &end, err));
    if (end.count == 0)
        return mh_fail(err, MH_ERR_INVALID, "there is no array in it");
    uint8_t *directory = mh_calloc(end.bytes, 1);
    if (!directory)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the directory of %s",
                       r->dataset->objects.list[object].name);
    mh_status status = read_bytes(r, object, end.offset, end.bytes, directory, err);
    if (status == MH_OK)
        status = add_entries(r, object, &end, directory, err);
    mh_free(directory);
    return status;
}

/* --- files --- */

/* "train/images.npy" gives the field "images". */
static mh_status file_name(char *out, const char *path, mh_error *err)
{
    const char *slash = strrchr(path, '/');
    if (snprintf(out, NAME_ROOM, "%s", slash ? slash + 1 : path) >= NAME_ROOM)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s: the name is too long", path);
    char *dot = strrchr(out, '.');
    if (dot && dot != out)
        *dot = '\0';
    return MH_OK;
}

static mh_status add_file(reader *r, uint32_t object, mh_error *err)
{
    const mh_object *file = &r->dataset->objects.list[object];
    const place at = {.object = object, .bytes = file->size};
    size_t size = 0;
    char name[NAME_ROOM];
    if (file->size == 0)
        return mh_fail(err, MH_ERR_CORRUPT, "%s is empty", file->name);
    MH_TRY(read_head(r, &at, &size, err));
    if (size >= 2 && memcmp(r->head, "PK", 2) == 0)
        return at_place(add_archive(r, object, err), file->name, err);
    MH_TRY(file_name(name, file->name, err));
    return at_place(add_array(r, &at, size, name, err), file->name, err);
}

/* A file, or the files of a folder. */
static mh_status add_path(mh_dataset *dataset, const char *path, mh_error *err)
{
    uint32_t object;
    mh_few_files folder = {.count = 0};
    if (dataset->source == &mh_source_file)
        MH_TRY(mh_few_files_list(&folder, path, ".npy .npz", err));
    if (folder.count == 0)
        return mh_dataset_add_object(dataset, path, &object, err);
    mh_status status = MH_OK;
    for (size_t i = 0; i < folder.count && status == MH_OK; i++)
        status = mh_dataset_add_object(dataset, folder.paths[i], &object, err);
    mh_few_files_deinit(&folder);
    return status;
}

mh_status mh_npy_arrays_read(mh_dataset *dataset, const char *const *paths, size_t count,
                             mh_error *err)
{
    reader r = {.dataset = dataset, .arrays = mh_calloc(1, sizeof *r.arrays)};
    dataset->own = r.arrays;
    if (!r.arrays)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu files", count);
    for (size_t i = 0; i < count; i++)
        MH_TRY(add_path(dataset, paths[i], err));
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    MH_TRY(dataset->source->open(&r.source, &dataset->objects, &options, err));
    r.header = mh_calloc(1, sizeof *r.header);
    r.head = mh_calloc(HEAD_ROOM, 1);
    mh_status status = r.header && r.head ? MH_OK : MH_ERR_NOMEM;
    if (status != MH_OK)
        (void)mh_fail(err, MH_ERR_NOMEM, "no memory for the header of %s", paths[0]);
    for (uint32_t i = 0; i < dataset->objects.count && status == MH_OK; i++)
        status = add_file(&r, i, err);
    mh_source_close(r.source);
    mh_free(r.header);
    mh_free(r.head);
    return status;
}
