/* zarr_array.c - what the metadata of a Zarr array says: .zarray and .zattrs, or zarr.json
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/zarr_array.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* --- what both versions have --- */

static mh_status read_lengths(mh_zarr_array *array, mh_json_view shape, mh_json_view grid,
                              mh_error *err)
{
    int dims = mh_json_view_int64s(shape, 0, array->shape, MH_DIMS_MOST);
    if (dims < 0)
        return mh_fail(err, MH_ERR_CORRUPT, "no sound shape of at most %d dimensions",
                       MH_DIMS_MOST);
    if (mh_json_view_int64s(grid, 1, array->grid, MH_DIMS_MOST) != dims)
        return mh_fail(err, MH_ERR_CORRUPT, "no sound chunk shape of %d dimensions", dims);
    array->dims = (uint32_t)dims;
    memcpy(array->chunk, array->grid, sizeof array->chunk);
    array->shard_chunks = 1;
    return MH_OK;
}

/* A list of names; of version 3 null where a dimension has none. */
static mh_status read_names(mh_zarr_array *array, mh_json_view names, mh_error *err)
{
    mh_json_walk walk;
    mh_json_view name;
    uint32_t count = 0;
    if (!names.text || mh_json_view_kind(names) == MH_JSON_NULL)
        return MH_OK;
    if (!mh_json_walk_init(&walk, names) || walk.object)
        return mh_fail(err, MH_ERR_CORRUPT, "the names of dimensions are not a list");
    while (mh_json_walk_next(&walk, NULL, &name)) {
        bool null = mh_json_view_kind(name) == MH_JSON_NULL;
        if (count < array->dims && !null &&
            !mh_json_view_text(name, array->dim_names[count], MH_ZARR_NAME_ROOM))
            return mh_fail(err, MH_ERR_CORRUPT, "a dimension's name is not a text of %d bytes",
                           MH_ZARR_NAME_ROOM - 1);
        count++;
    }
    if (count != array->dims)
        return mh_fail(err, MH_ERR_CORRUPT, "%u names for %u dimensions", count, array->dims);
    return MH_OK;
}

static mh_status read_fill(mh_zarr_array *array, mh_json_view metadata, mh_error *err)
{
    mh_json_view value = mh_json_member(metadata, "fill_value");
    array->has_fill = value.text && mh_json_view_kind(value) != MH_JSON_NULL;
    return mh_zarr_fill(&array->type, value, array->fill, err);
}

/* --- version 2 --- */

static mh_status read_v2(mh_zarr_array *array, mh_json_view metadata, mh_json_view attributes,
                         mh_error *err)
{
    mh_json_view separator = mh_json_member(metadata, "dimension_separator");
    MH_TRY(read_lengths(array, mh_json_member(metadata, "shape"),
                        mh_json_member(metadata, "chunks"), err));
    MH_TRY(mh_zarr_type_v2(&array->type, mh_json_member(metadata, "dtype"), err));
    MH_TRY(read_fill(array, metadata, err));
    array->plain_keys = true;
    array->separator = mh_json_view_is(separator, "/") ? '/' : '.';
    if (separator.text && array->separator == '.' && !mh_json_view_is(separator, "."))
        return mh_fail(err, MH_ERR_CORRUPT, "the dimension_separator is neither . nor /");
    MH_TRY(mh_zarr_codecs_v2(array, metadata, err));
    MH_TRY(read_names(array, mh_json_member(attributes, "_ARRAY_DIMENSIONS"), err));
    return mh_zarr_attributes(array, attributes, err);
}

/* --- version 3 --- */

/* {"name": …, "configuration": …}: the configuration of one that has this name. */
static bool named(mh_json_view object, const char *name, mh_json_view *out)
{
    bool plain = mh_json_view_is(object, name);
    if (!plain && !mh_json_view_is(mh_json_member(object, "name"), name))
        return false;
    *out = mh_json_member(object, "configuration");
    return true;
}

static mh_status read_keys(mh_zarr_array *array, mh_json_view encoding, mh_error *err)
{
    mh_json_view options = {NULL, 0};
    array->plain_keys = named(encoding, "v2", &options);
    if (!array->plain_keys && !named(encoding, "default", &options))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "an unknown chunk_key_encoding");
    array->separator = array->plain_keys ? '.' : '/';
    mh_json_view separator = mh_json_member(options, "separator");
    if (!separator.text)
        return MH_OK;
    array->separator = mh_json_view_is(separator, ".") ? '.' : '/';
    if (array->separator == '/' && !mh_json_view_is(separator, "/"))
        return mh_fail(err, MH_ERR_CORRUPT, "the separator of keys is neither . nor /");
    return MH_OK;
}

/* What a writer adds is to be understood, unless it says that it need not be. */
static mh_status check_extensions(mh_json_view metadata, mh_error *err)
{
    static const char *const known[] = {
        "zarr_format",         "node_type", "shape",           "data_type",  "chunk_grid",
        "fill_value",          "codecs",    "dimension_names", "attributes", "chunk_key_encoding",
        "storage_transformers"};
    mh_json_walk walk;
    mh_json_token key;
    mh_json_view value;
    bool needed;
    (void)mh_json_walk_init(&walk, metadata);
    while (mh_json_walk_next(&walk, &key, &value)) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && !mh_json_is(&key, known[i]))
            i++;
        if (i < sizeof known / sizeof *known || mh_json_view_kind(value) == MH_JSON_NULL ||
            (mh_json_view_bool(mh_json_member(value, "must_understand"), &needed) && !needed))
            continue;
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the extension '%.*s'",
                       (int)(key.length < 64 ? key.length : 64), key.text);
    }
    mh_json_view transformers = mh_json_member(metadata, "storage_transformers");
    if (mh_json_walk_init(&walk, transformers) && mh_json_walk_next(&walk, &key, &value))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "storage_transformers");
    return MH_OK;
}

static mh_status read_v3(mh_zarr_array *array, mh_json_view metadata, mh_error *err)
{
    mh_json_view grid = {NULL, 0};
    MH_TRY(check_extensions(metadata, err));
    if (!named(mh_json_member(metadata, "chunk_grid"), "regular", &grid))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "a chunk_grid that is not regular");
    MH_TRY(read_lengths(array, mh_json_member(metadata, "shape"),
                        mh_json_member(grid, "chunk_shape"), err));
    MH_TRY(mh_zarr_type_v3(&array->type, mh_json_member(metadata, "data_type"), err));
    MH_TRY(read_keys(array, mh_json_member(metadata, "chunk_key_encoding"), err));
    MH_TRY(mh_zarr_codecs_v3(array, mh_json_member(metadata, "codecs"), err));
    MH_TRY(read_fill(array, metadata, err)); /* in the byte order that the codecs say */
    MH_TRY(read_names(array, mh_json_member(metadata, "dimension_names"), err));
    mh_json_view attributes = mh_json_member(metadata, "attributes");
    if (array->dims && !array->dim_names[0][0]) /* as some writers of version 3 do too */
        MH_TRY(read_names(array, mh_json_member(attributes, "_ARRAY_DIMENSIONS"), err));
    return mh_zarr_attributes(array, attributes, err);
}

mh_status mh_zarr_array_read(mh_zarr_array *out, mh_json_view metadata, mh_json_view attributes,
                             mh_error *err)
{
    int64_t version;
    memset(out, 0, sizeof *out);
    if (!mh_json_view_int64(mh_json_member(metadata, "zarr_format"), &version))
        return mh_fail(err, MH_ERR_CORRUPT, "no zarr_format");
    if (version != 2 && version != 3)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "zarr_format %lld", (long long)version);
    out->version = (int)version;
    return version == 2 ? read_v2(out, metadata, attributes, err) : read_v3(out, metadata, err);
}

/* --- keys --- */

size_t mh_zarr_key(const mh_zarr_array *array, const uint64_t *at, char *out, size_t room)
{
    size_t used = 0;
    if (!array->plain_keys || array->dims == 0)
        used = (size_t)snprintf(out, room, "%s", array->plain_keys ? "0" : "c");
    for (uint32_t i = 0; i < array->dims && used < room; i++) {
        char separator[2] = {array->separator, '\0'};
        used += (size_t)snprintf(out + used, room - used, "%s%llu", used ? separator : "",
                                 (unsigned long long)at[i]);
    }
    return used < room ? used : 0;
}
