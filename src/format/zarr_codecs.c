/* zarr_codecs.c - how the chunks of a Zarr array are encoded: filters, compressors, shards
 * SPDX-License-Identifier: Apache-2.0
 *
 * Transposing and byte order cost nothing here: they become the order in which placing walks
 * through a chunk. What is left is a chain of codecs over bytes.
 */
#include "base/error.h"
#include "format/zarr_array.h"

#include <stdio.h>
#include <string.h>

static void note_codec(mh_zarr_array *array, const char *name)
{
    size_t used = strlen(array->codec_names);
    (void)snprintf(array->codec_names + used, sizeof array->codec_names - used, "%s%s",
                   used ? ", " : "", name);
}

static mh_status chunk_bytes(const mh_zarr_array *array, const int64_t *chunk, uint64_t *out,
                             mh_error *err)
{
    uint64_t bytes = array->type.dtype.bits / 8;
    for (uint32_t i = 0; i < array->dims; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)chunk[i], &bytes) || bytes > MH_ZARR_CHUNK_MOST)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "a chunk is larger than 1 TiB");
    *out = bytes;
    return MH_OK;
}

/* --- version 2 --- */

static mh_status add_v2(mh_zarr_array *array, mh_json_view codec, mh_error *err)
{
    char name[64];
    if (!mh_json_view_text(mh_json_member(codec, "id"), name, sizeof name))
        return mh_fail(err, MH_ERR_CORRUPT, "a filter or compressor has no id");
    note_codec(array, name);
    return mh_chain_add(&array->chain, name, codec, err);
}

mh_status mh_zarr_codecs_v2(mh_zarr_array *array, mh_json_view metadata, mh_error *err)
{
    mh_json_view filters = mh_json_member(metadata, "filters"), filter;
    mh_json_view compressor = mh_json_member(metadata, "compressor");
    mh_json_view order = mh_json_member(metadata, "order");
    mh_json_walk walk;
    uint64_t bytes = 0;
    bool fortran = mh_json_view_is(order, "F");
    if (!fortran && !mh_json_view_is(order, "C"))
        return mh_fail(err, MH_ERR_CORRUPT, "the order is neither C nor F");
    for (uint32_t i = 0; i < array->dims; i++)
        array->order[i] = fortran ? array->dims - 1 - i : i;
    MH_TRY(chunk_bytes(array, array->chunk, &bytes, err));
    mh_chain_init(&array->chain, bytes);
    if (mh_json_walk_init(&walk, filters)) {
        if (walk.object)
            return mh_fail(err, MH_ERR_CORRUPT, "filters are not a list");
        while (mh_json_walk_next(&walk, NULL, &filter))
            MH_TRY(add_v2(array, filter, err));
    }
    if (mh_json_view_kind(compressor) == MH_JSON_OBJECT)
        MH_TRY(add_v2(array, compressor, err));
    return MH_OK;
}

/* --- version 3 --- */

typedef struct codec_entry {
    char name[64];
    mh_json_view options; /* text NULL: none */
} codec_entry;

/* {"name": …, "configuration": …}, or the name alone. */
static mh_status entry_read(codec_entry *out, mh_json_view codec, mh_error *err)
{
    mh_json_view name = codec;
    out->options = (mh_json_view){NULL, 0};
    if (mh_json_view_kind(codec) == MH_JSON_OBJECT) {
        name = mh_json_member(codec, "name");
        out->options = mh_json_member(codec, "configuration");
    }
    if (!mh_json_view_text(name, out->name, sizeof out->name))
        return mh_fail(err, MH_ERR_CORRUPT, "a codec has no name");
    return MH_OK;
}

static mh_status take_transpose(mh_zarr_array *array, mh_json_view options, mh_error *err)
{
    int64_t order[MH_DIMS_MOST];
    uint32_t before[MH_DIMS_MOST], seen = 0;
    mh_json_view given = mh_json_member(options, "order");
    const int dims = (int)array->dims;
    if (mh_json_view_is(given, "C"))
        return MH_OK;
    bool fortran = mh_json_view_is(given, "F");
    if (!fortran && mh_json_view_int64s(given, 0, order, MH_DIMS_MOST) != dims)
        return mh_fail(err, MH_ERR_CORRUPT, "the order of transpose is not one of %d dimensions",
                       dims);
    memcpy(before, array->order, sizeof before);
    for (int i = 0; i < dims; i++) {
        int64_t from = fortran ? dims - 1 - i : order[i];
        if (from >= dims || (seen >> from & 1))
            return mh_fail(err, MH_ERR_CORRUPT, "the order of transpose is not a permutation");
        seen |= 1u << from;
        array->order[i] = before[from];
    }
    return MH_OK;
}

static mh_status take_bytes(mh_zarr_array *array, mh_json_view options, mh_error *err)
{
    mh_json_view endian = mh_json_member(options, "endian");
    array->type.big_endian = mh_json_view_is(endian, "big");
    if (endian.text && mh_json_view_kind(endian) != MH_JSON_NULL && !array->type.big_endian &&
        !mh_json_view_is(endian, "little"))
        return mh_fail(err, MH_ERR_CORRUPT, "the codec bytes has an unknown endian");
    if (array->type.big_endian && array->chain.count)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "filters of big-endian numbers");
    return MH_OK;
}

/* The codecs of a chunk: those over arrays, `bytes`, those over bytes. */
static mh_status chunk_codecs(mh_zarr_array *array, mh_json_view codecs, mh_error *err)
{
    mh_json_walk walk;
    mh_json_view codec;
    codec_entry entry;
    uint64_t bytes = 0;
    bool flat = false; /* behind `bytes` */
    MH_TRY(chunk_bytes(array, array->chunk, &bytes, err));
    mh_chain_init(&array->chain, bytes);
    if (!mh_json_walk_init(&walk, codecs) || walk.object)
        return mh_fail(err, MH_ERR_CORRUPT, "codecs are not a list");
    while (mh_json_walk_next(&walk, NULL, &codec)) {
        MH_TRY(entry_read(&entry, codec, err));
        note_codec(array, entry.name);
        if (strcmp(entry.name, "sharding_indexed") == 0)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "sharding_indexed among other codecs");
        if (!flat && strcmp(entry.name, "transpose") == 0) {
            MH_TRY(take_transpose(array, entry.options, err));
        } else if (!flat &&
                   (strcmp(entry.name, "bytes") == 0 || strcmp(entry.name, "endian") == 0)) {
            MH_TRY(take_bytes(array, entry.options, err));
            flat = true;
        } else {
            MH_TRY(mh_chain_add(&array->chain, entry.name, entry.options, err));
        }
    }
    return flat ? MH_OK : mh_fail(err, MH_ERR_CORRUPT, "the codecs lack bytes");
}

/* --- shards --- */

/* Chunks of a shard, whose lengths they must divide. */
static mh_status shard_chunks(mh_zarr_array *array, mh_json_view options, mh_error *err)
{
    if (mh_json_view_int64s(mh_json_member(options, "chunk_shape"), 1, array->chunk,
                            MH_DIMS_MOST) != (int)array->dims)
        return mh_fail(err, MH_ERR_CORRUPT, "sharding_indexed has no sound chunk_shape");
    array->shard_chunks = 1;
    for (uint32_t i = 0; i < array->dims; i++) {
        if (array->grid[i] % array->chunk[i] != 0)
            return mh_fail(err, MH_ERR_CORRUPT, "a shard of %lld is not whole chunks of %lld",
                           (long long)array->grid[i], (long long)array->chunk[i]);
        uint64_t along = (uint64_t)(array->grid[i] / array->chunk[i]);
        if (__builtin_mul_overflow(array->shard_chunks, along, &array->shard_chunks) ||
            array->shard_chunks > MH_ZARR_SHARD_CHUNKS_MOST)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "more than 2^24 chunks in a shard");
    }
    return MH_OK;
}

/* An index that could have any size could not be found: only codecs that keep it. */
static mh_status index_codecs(mh_zarr_array *array, mh_json_view codecs, mh_error *err)
{
    mh_json_walk walk;
    mh_json_view codec;
    codec_entry entry;
    mh_chain_init(&array->index, 16 * array->shard_chunks);
    if (!mh_json_walk_init(&walk, codecs) || walk.object)
        return mh_fail(err, MH_ERR_CORRUPT, "sharding_indexed has no index_codecs");
    while (mh_json_walk_next(&walk, NULL, &codec)) {
        MH_TRY(entry_read(&entry, codec, err));
        if (strcmp(entry.name, "bytes") != 0)
            MH_TRY(mh_chain_add(&array->index, entry.name, entry.options, err));
        else if (mh_json_view_is(mh_json_member(entry.options, "endian"), "big"))
            return mh_fail(err, MH_ERR_UNSUPPORTED, "an index of big-endian numbers");
    }
    if (!array->index.exact[array->index.count])
        return mh_fail(err, MH_ERR_UNSUPPORTED, "a compressed index of shards");
    return MH_OK;
}

static mh_status take_shards(mh_zarr_array *array, mh_json_view options, mh_error *err)
{
    mh_json_view location = mh_json_member(options, "index_location");
    MH_TRY(shard_chunks(array, options, err));
    MH_TRY(index_codecs(array, mh_json_member(options, "index_codecs"), err));
    array->sharded = true;
    array->index_at_start = mh_json_view_is(location, "start");
    if (location.text && !array->index_at_start && !mh_json_view_is(location, "end"))
        return mh_fail(err, MH_ERR_CORRUPT, "index_location is neither start nor end");
    note_codec(array, "sharding_indexed:");
    return chunk_codecs(array, mh_json_member(options, "codecs"), err);
}

mh_status mh_zarr_codecs_v3(mh_zarr_array *array, mh_json_view codecs, mh_error *err)
{
    mh_json_walk walk;
    mh_json_view first, second;
    codec_entry entry;
    for (uint32_t i = 0; i < array->dims; i++)
        array->order[i] = i;
    if (mh_json_walk_init(&walk, codecs) && !walk.object &&
        mh_json_walk_next(&walk, NULL, &first)) {
        MH_TRY(entry_read(&entry, first, err));
        if (strcmp(entry.name, "sharding_indexed") == 0 && !mh_json_walk_next(&walk, NULL, &second))
            return take_shards(array, entry.options, err);
    }
    return chunk_codecs(array, codecs, err);
}
