/* npy.c - NumPy's .npy files: one field each, samples along the first axis
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/format.h"
#include "format/npy_header.h"

#include <stdio.h>
#include <string.h>

static int npy_probe(const uint8_t *head, size_t size)
{
    return size >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
}

/* By number of the object, which is the field's tag too. */
typedef struct npy_file {
    uint64_t data_offset;
    uint64_t row_bytes;
} npy_file;

static mh_status read_head(mh_npy_header *out, const mh_dataset *dataset, uint32_t object,
                           mh_error *err)
{
    const mh_object *file = &dataset->objects.list[object];
    size_t size = file->size < MH_NPY_HEAD_MOST + 16 ? (size_t)file->size : MH_NPY_HEAD_MOST + 16;
    uint8_t *head = mh_calloc(size, 1);
    if (!head)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the header of %s", file->name);
    mh_source *source = NULL;
    const mh_read read = {.object = object, .size = size, .into = head};
    mh_status status = dataset->source->open(&source, &dataset->objects, 1, err);
    if (status == MH_OK)
        status = mh_source_read(source, &read, err);
    mh_source_close(source);
    if (status == MH_OK) {
        status = mh_npy_header_read(out, head, size, err);
        if (status != MH_OK)
            mh_error_prefix(err, "%s", file->name);
    }
    mh_free(head);
    return status;
}

static mh_status check_file(const mh_npy_header *header, const mh_object *file, mh_error *err)
{
    if (header->dims == 0)
        return mh_fail(err, MH_ERR_INVALID, "%s holds a single value, not samples along an axis",
                       file->name);
    unsigned long long has = file->size - header->data_offset, says = header->data_bytes;
    if (has < says)
        return mh_fail(err, MH_ERR_CORRUPT,
                       "%s: the header says %llu bytes of data, there are %llu", file->name, says,
                       has);
    return MH_OK;
}

/* "train/images.npy" gives the field "images". */
static void field_name(char *out, size_t room, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(out, room, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(out, '.');
    if (dot && dot != out)
        *dot = '\0';
}

static mh_status add_file(mh_dataset *dataset, const char *path, mh_error *err)
{
    uint32_t object;
    mh_npy_header header = {0};
    char name[256];
    npy_file *files = dataset->own;
    MH_TRY(mh_dataset_add_object(dataset, path, &object, err));
    MH_TRY(read_head(&header, dataset, object, err));
    MH_TRY(check_file(&header, &dataset->objects.list[object], err));
    mh_field field = {.dtype = header.dtype, .dims = header.dims - 1};
    memcpy(field.shape, header.shape + 1, field.dims * sizeof *field.shape);
    field_name(name, sizeof name, path);
    MH_TRY(mh_dataset_add_field(dataset, name, object, &field, err));
    files[object] = (npy_file){.data_offset = header.data_offset, .row_bytes = field.bytes};
    uint64_t rows = (uint64_t)header.shape[0];
    if (object == 0)
        dataset->count = rows;
    if (rows != dataset->count)
        return mh_fail(err, MH_ERR_INVALID, "%s has %llu samples and %s has %llu",
                       dataset->objects.list[0].name, (unsigned long long)dataset->count, path,
                       (unsigned long long)rows);
    return MH_OK;
}

static mh_status npy_open(mh_dataset *dataset, const char *const *paths, size_t count,
                          mh_error *err)
{
    dataset->own = mh_calloc(count, sizeof(npy_file));
    if (!dataset->own)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu files", count);
    for (size_t i = 0; i < count; i++)
        MH_TRY(add_file(dataset, paths[i], err));
    return MH_OK;
}

static mh_piece npy_piece(const mh_dataset *dataset, uint32_t tag, uint64_t sample)
{
    const npy_file *file = (const npy_file *)dataset->own + tag;
    return (mh_piece){.object = tag, .offset = file->data_offset + sample * file->row_bytes};
}

static void npy_close(mh_dataset *dataset)
{
    mh_free(dataset->own);
}

const mh_format mh_format_npy = {
    .name = "npy",
    .what = "NumPy arrays: samples along the first axis, a file for each field",
    .suffixes = ".npy",
    .probe = npy_probe,
    .open = npy_open,
    .piece = npy_piece,
    .close = npy_close,
};
