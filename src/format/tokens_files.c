/* tokens_files.c - token files opened: bare, with Megatron's index, or NumPy's
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/npy_header.h"
#include "format/tokens.h"

#include <stdio.h>
#include <string.h>

#define INDEX_MOST (UINT64_C(16) << 30)

static int ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

static mh_status take_dtype(mh_tokens *self, mh_dtype dtype, const char *path, mh_error *err)
{
    if (dtype.code > 1)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s does not hold integers", path);
    if (self->stored.bits && (self->stored.bits != dtype.bits || self->stored.code != dtype.code))
        return mh_fail(err, MH_ERR_INVALID,
                       "%s holds %sint%u, and dtype= or the files before say %sint%u", path,
                       dtype.code ? "u" : "", dtype.bits, self->stored.code ? "u" : "",
                       self->stored.bits);
    self->stored = dtype;
    return MH_OK;
}

static mh_status add(mh_dataset *dataset, mh_tokens *self, const char *path, uint64_t data_offset,
                     uint64_t tokens, mh_error *err)
{
    mh_tokens_file *files = mh_realloc(self->files, self->file_count + 1u, sizeof *files);
    if (!files)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %s", path);
    self->files = files;
    mh_tokens_file *file = &files[self->file_count];
    *file = (mh_tokens_file){.data_offset = data_offset, .first = self->tokens, .tokens = tokens};
    MH_TRY(mh_dataset_add_object(dataset, path, &file->object, err));
    self->file_count++;
    self->tokens += tokens;
    return MH_OK;
}

static mh_status size_of(const mh_dataset *dataset, const char *path, uint64_t *out, mh_error *err)
{
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    mh_object object = {.name = path};
    MH_TRY(dataset->source->stat(&object, &options, err));
    *out = object.size;
    return MH_OK;
}

/* --- the three kinds --- */

static mh_status add_bare(mh_dataset *dataset, mh_tokens *self, const char *path, mh_error *err)
{
    uint64_t bytes;
    MH_TRY(size_of(dataset, path, &bytes, err));
    if (!self->stored.bits)
        return mh_fail(err, MH_ERR_INVALID,
                       "%s does not say what its tokens are: give tokens:%s,dtype=uint16", path,
                       path);
    if (bytes % (self->stored.bits / 8u))
        return mh_fail(err, MH_ERR_CORRUPT, "%s has %llu bytes: not a whole number of %sint%u",
                       path, (unsigned long long)bytes, self->stored.code ? "u" : "",
                       self->stored.bits);
    MH_TRY(add(dataset, self, path, 0, bytes / (self->stored.bits / 8u), err));
    return mh_tokens_pack_file(dataset, self, NULL, err);
}

static mh_status add_indexed(mh_dataset *dataset, mh_tokens *self, const char *index_path,
                             const char *path, mh_error *err)
{
    mh_megatron_index index = {0};
    uint8_t *bytes;
    uint64_t size, bin_bytes;
    MH_TRY(size_of(dataset, path, &bin_bytes, err));
    MH_TRY(mh_dataset_get(dataset, index_path, INDEX_MOST, &bytes, &size, err));
    mh_status status = mh_megatron_index_read(&index, bytes, (size_t)size, bin_bytes, err);
    if (status != MH_OK)
        mh_error_prefix(err, "%s", index_path);
    if (status == MH_OK)
        status = take_dtype(self, index.dtype, path, err);
    if (status == MH_OK)
        status = add(dataset, self, path, 0, index.tokens, err);
    if (status == MH_OK)
        status = mh_tokens_pack_file(dataset, self, &index, err);
    mh_free(bytes);
    return status;
}

static mh_status add_npy(mh_dataset *dataset, mh_tokens *self, const char *path, mh_error *err)
{
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    uint64_t got = 0, bytes;
    uint8_t *head = mh_calloc(MH_NPY_HEAD_MOST, 1);
    mh_npy_header *header = mh_calloc(1, sizeof *header);
    mh_status status = MH_OK;
    if (!head || !header)
        status = mh_fail(err, MH_ERR_NOMEM, "no memory for %s", path);
    if (status == MH_OK)
        status = size_of(dataset, path, &bytes, err);
    if (status == MH_OK)
        status = dataset->source->get(path, &options, MH_NPY_HEAD_MOST, head, &got, err);
    if (status == MH_OK && (status = mh_npy_header_read(header, head, (size_t)got, err)) != MH_OK)
        mh_error_prefix(err, "%s", path);
    if (status == MH_OK && (header->dims != 1 || header->members[0].swap != 1 ||
                            header->members[0].dims != 0 || header->members[0].name[0]))
        status =
            mh_fail(err, MH_ERR_UNSUPPORTED,
                    "%s is not one dimension of plain tokens of this machine's byte order", path);
    if (status == MH_OK && header->data_bytes > bytes - header->data_offset)
        status = mh_fail(err, MH_ERR_CORRUPT, "%s ends after %llu bytes of %llu", path,
                         (unsigned long long)bytes,
                         (unsigned long long)header->data_offset + header->data_bytes);
    if (status == MH_OK)
        status = take_dtype(self, header->members[0].dtype, path, err);
    if (status == MH_OK)
        status = add(dataset, self, path, header->data_offset, (uint64_t)header->shape[0], err);
    if (status == MH_OK)
        status = mh_tokens_pack_file(dataset, self, NULL, err);
    mh_free(head);
    mh_free(header);
    return status;
}

/* An .idx beside a .bin makes it Megatron's, whichever of them is named, or neither. */
mh_status mh_tokens_add_file(mh_dataset *dataset, mh_tokens *self, const char *path, mh_error *err)
{
    char index_path[MH_TOKENS_PATH_ROOM + 8], bin_path[MH_TOKENS_PATH_ROOM + 8];
    uint64_t size;
    mh_error ignored;
    if (ends_with(path, ".npy"))
        return add_npy(dataset, self, path, err);
    const int named = ends_with(path, ".bin") || ends_with(path, ".idx");
    const int stem = (int)(strlen(path) - (named ? 4 : 0));
    (void)snprintf(index_path, sizeof index_path, "%.*s.idx", stem, path);
    (void)snprintf(bin_path, sizeof bin_path, "%.*s.bin", stem, path);
    if (ends_with(path, ".idx") || size_of(dataset, index_path, &size, &ignored) == MH_OK)
        return add_indexed(dataset, self, index_path, bin_path, err);
    return add_bare(dataset, self, path, err);
}
