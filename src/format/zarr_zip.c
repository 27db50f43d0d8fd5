/* zarr_zip.c - the keys of a store that is a zip archive
 * SPDX-License-Identifier: Apache-2.0
 *
 * Only the directory at the archive's end is read. It does not say how long the header before each
 * entry's bytes is, so entries are read with room for it.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/zarr_store.h"
#include "format/zip_directory.h"

#include <string.h>

#define EXTRAS_MOST 64u /* in a local header: writers add dates and wide sizes */

static mh_status read_range(mh_source *source, uint32_t object, uint64_t offset, uint64_t size,
                            uint8_t **out, mh_error *err)
{
    uint64_t got;
    uint8_t *bytes = mh_calloc(size + 1, 1);
    const mh_read read = {.object = object, .offset = offset, .size = size, .into = bytes};
    if (!bytes)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the directory of a zip archive");
    mh_status status = size ? mh_source_read(source, &read, &got, err) : MH_OK;
    if (status != MH_OK)
        mh_free(bytes);
    else
        *out = bytes;
    return status;
}

/* Into *place, its key's bytes into `text`. */
static mh_status take_entry(mh_zarr_place *place, const mh_zip_entry *entry, const mh_zip_end *end,
                            char *text, mh_error *err)
{
    const int shown = entry->name_bytes < 100 ? (int)entry->name_bytes : 100;
    memcpy(text, entry->name, entry->name_bytes);
    text[entry->name_bytes] = '\0';
    if (entry->method != 0 || entry->encrypted)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "%.*s in it is %s: write chunks to zip archives uncompressed", shown,
                       entry->name, entry->encrypted ? "encrypted" : "compressed");
    if (entry->bytes != entry->packed_bytes)
        return mh_fail(err, MH_ERR_CORRUPT, "%.*s in it has two sizes", shown, entry->name);
    uint64_t header = MH_ZIP_LOCAL_BYTES + entry->name_bytes + EXTRAS_MOST;
    uint64_t room = end->offset - entry->header_offset; /* not negative: entries are checked */
    if (entry->bytes > room)
        return mh_fail(err, MH_ERR_CORRUPT, "%.*s in it lies beyond the directory", shown,
                       entry->name);
    if (header > room - entry->bytes)
        header = room - entry->bytes;
    *place = (mh_zarr_place){.key = text,
                             .header = (uint32_t)header,
                             .offset = entry->header_offset,
                             .size = entry->bytes};
    return MH_OK;
}

static mh_status take_entries(mh_zarr_places *out, const uint8_t *directory, const mh_zip_end *end,
                              mh_error *err)
{
    uint64_t at = 0;
    mh_zip_entry entry;
    /* An entry is longer than its name by far more than the NUL that is added. */
    out->memory = mh_calloc(end->bytes + 1, 1);
    out->list = mh_calloc(end->count + 1, sizeof *out->list);
    char *text = (char *)out->memory;
    if (!out->memory || !out->list)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %llu entries of a zip archive",
                       (unsigned long long)end->count);
    for (uint64_t i = 0; i < end->count; i++) {
        MH_TRY(mh_zip_entry_read(&entry, directory, end, &at, err));
        if (entry.name_bytes && entry.name[entry.name_bytes - 1] == '/')
            continue; /* a folder */
        MH_TRY(take_entry(&out->list[out->count], &entry, end, text, err));
        out->count++;
        text += entry.name_bytes + 1;
    }
    mh_zarr_places_sort(out);
    return MH_OK;
}

static mh_status read_places(mh_zarr_places *out, const mh_object *file, uint32_t object,
                             mh_source *source, mh_error *err)
{
    mh_zip_end end = {0};
    uint8_t *bytes = NULL;
    uint64_t tail = file->size < MH_ZIP_TAIL_MOST ? file->size : MH_ZIP_TAIL_MOST;
    MH_TRY(read_range(source, object, file->size - tail, tail, &bytes, err));
    mh_status status = mh_zip_end_read(&end, bytes, tail, file->size, err);
    mh_free(bytes);
    MH_TRY(status);
    MH_TRY(read_range(source, object, end.offset, end.bytes, &bytes, err));
    status = take_entries(out, bytes, &end, err);
    mh_free(bytes);
    return status;
}

mh_status mh_zarr_places_zip(mh_zarr_places *out, mh_dataset *dataset, uint32_t object,
                             mh_error *err)
{
    mh_source *source = NULL;
    const mh_object *file = &dataset->objects.list[object];
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    MH_TRY(dataset->source->open(&source, &dataset->objects, &options, err));
    mh_status status = read_places(out, file, object, source, err);
    mh_source_close(source);
    if (status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED)
        mh_error_prefix(err, "%s", file->name);
    return status;
}
