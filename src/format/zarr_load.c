/* zarr_load.c - what is read of a Zarr store while it opens: indexes of shards, coordinates
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/zarr_data.h"
#include "format/zip_directory.h"

#include <stdio.h>
#include <string.h>

/* --- shards --- */

/* What reading the indexes of one array needs. */
typedef struct loading {
    const mh_dataset *dataset;
    const mh_zarr_data *data;
    mh_zarr_variable *variable;
    mh_source *source;
    mh_chain_room *room;
    uint8_t *bytes; /* of an index as stored */
} loading;

/* In a list of places: behind the header of a zip entry, whose length it says itself. */
static mh_status find_listed(const loading *l, uint64_t number, mh_unit *out, uint64_t *out_bytes,
                             mh_error *err)
{
    uint8_t header[MH_ZIP_LOCAL_BYTES];
    uint64_t got = 0, skipped = 0;
    const mh_zarr_place *place = mh_zarr_place_of(l->variable, number);
    if (!place)
        return MH_OK;
    if (place->bytes || place->whole)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s: %s is a shard without a size",
                       l->variable->member->path, place->key);
    *out = (mh_unit){.object = place->object, .offset = place->offset};
    *out_bytes = place->size;
    if (!place->header)
        return MH_OK;
    const mh_read read = {
        .object = place->object, .offset = place->offset, .size = sizeof header, .into = header};
    if (place->header < sizeof header)
        return mh_fail(err, MH_ERR_CORRUPT, "%s: the zip header is cut", place->key);
    MH_TRY(mh_source_read(l->source, &read, &got, err));
    MH_TRY(mh_zip_local_skip(&skipped, header, place->header, err));
    out->offset += skipped;
    return MH_OK;
}

/* Where a shard lies: *out_bytes is 0 where there is no such object. */
static mh_status find_shard(const loading *l, uint64_t number, mh_unit *out, uint64_t *out_bytes,
                            mh_error *err)
{
    char name[MH_NAME_MOST];
    mh_object object;
    const mh_source_options options = mh_dataset_source_options(l->dataset, 1);
    *out = (mh_unit){.object = l->variable->first_object + (uint32_t)number};
    *out_bytes = 0;
    if (l->variable->member->store.listed)
        return find_listed(l, number, out, out_bytes, err);
    mh_zarr_describe(l->data, out->object, &object, name);
    mh_status status = l->dataset->source->stat(&object, &options, err);
    if (status == MH_ERR_NOT_FOUND)
        return MH_OK;
    *out_bytes = object.size;
    return status;
}

static mh_status read_index(const loading *l, uint64_t number, mh_zarr_shard *shard, mh_error *err)
{
    const mh_zarr_array *array = &l->variable->node->array;
    const uint64_t size = mh_chain_stored_most(&array->index);
    uint64_t bytes = 0, got = 0;
    mh_unit place;
    MH_TRY(find_shard(l, number, &place, &bytes, err));
    if (bytes == 0)
        return MH_OK;
    if (bytes < size)
        return mh_fail(err, MH_ERR_CORRUPT, "%llu bytes, its index alone has %llu",
                       (unsigned long long)bytes, (unsigned long long)size);
    const mh_read read = {.object = place.object,
                          .offset = place.offset + (array->index_at_start ? 0 : bytes - size),
                          .size = size,
                          .into = l->bytes};
    MH_TRY(mh_source_read(l->source, &read, &got, err));
    shard->begin = place.offset;
    shard->object = place.object;
    shard->chunks = mh_calloc(array->shard_chunks, sizeof *shard->chunks);
    if (!shard->chunks)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the index of a shard");
    return mh_zarr_shard_read(shard->chunks, array, l->room, l->bytes, size, bytes, err);
}

/* A shard whose index is damaged fails the samples that need it, not the others. */
static mh_status load_shard(const loading *l, uint64_t number, mh_error *err)
{
    mh_zarr_shard *shard = &l->variable->shards[number];
    mh_status status = read_index(l, number, shard, err);
    if (status != MH_ERR_CORRUPT)
        return status;
    shard->broken = mh_calloc(1, sizeof *shard->broken);
    if (!shard->broken)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the index of a shard");
    *shard->broken = *err;
    mh_free(shard->chunks);
    shard->chunks = NULL;
    return MH_OK;
}

/* Whether any window, or its target, may reach into the shard. */
static bool is_reached(const loading *l, const mh_variable *variable, uint64_t number)
{
    const mh_zarr_array *array = &l->variable->node->array;
    uint64_t at[MH_DIMS_MOST];
    uint32_t count = 0;
    const mh_window_dim *dims = mh_windows_dims(l->data->windows, &count);
    mh_zarr_grid_at(array, number, at);
    for (uint32_t i = 0; i < array->dims; i++)
        for (uint32_t k = 0; k < count; k++) {
            if (strcmp(dims[k].name, variable->dim_names[i]) != 0)
                continue;
            const int64_t grid = array->grid[i], shift = dims[k].target;
            const int64_t from =
                (int64_t)(at[i] * (uint64_t)grid) +
                (int64_t)(variable->goes_on && i == variable->along ? variable->begin : 0);
            const int64_t begin = (int64_t)dims[k].begin + (shift < 0 ? shift : 0);
            const int64_t end = (int64_t)dims[k].end + (shift > 0 ? shift : 0);
            if (from >= end || from + grid <= begin)
                return false;
        }
    return true;
}

static mh_status load_variable(loading *l, const mh_variable *variable, mh_error *err)
{
    const mh_zarr_array *array = &l->variable->node->array;
    const mh_chain *index = &array->index;
    const uint64_t shards = l->variable->grid_count;
    mh_status status = MH_OK;
    l->variable->shards = mh_calloc(shards ? shards : 1, sizeof *l->variable->shards);
    l->bytes = mh_calloc(mh_chain_stored_most(index), 1);
    if (!l->variable->shards || !l->bytes)
        status = mh_fail(err, MH_ERR_NOMEM, "no memory for the indexes of %llu shards",
                         (unsigned long long)shards);
    if (status == MH_OK)
        status = mh_chain_room_new(&l->room, &index, 1, err);
    for (uint64_t i = 0; i < shards && status == MH_OK; i++)
        if (is_reached(l, variable, i))
            status = load_shard(l, i, err);
    mh_chain_room_free(l->room);
    mh_free(l->bytes);
    l->room = NULL;
    l->bytes = NULL;
    return status;
}

mh_status mh_zarr_shards_load(mh_dataset *dataset, mh_error *err)
{
    mh_zarr_data *data = dataset->own;
    loading l = {.dataset = dataset, .data = data};
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    mh_status status = MH_OK;
    for (size_t i = 0; i < data->count && status == MH_OK; i++) {
        if (!data->list[i].node->array.sharded)
            continue;
        if (!l.source)
            status = dataset->source->open(&l.source, &dataset->objects, &options, err);
        l.variable = &data->list[i];
        if (status == MH_OK)
            status = load_variable(&l, &data->variables[i], err);
    }
    mh_source_close(l.source);
    return status;
}

/* --- coordinates --- */

bool mh_zarr_is_coordinate(const mh_zarr_node *node)
{
    const char *slash = strrchr(node->path, '/');
    return node->array.dims == 1 &&
           strcmp(slash ? slash + 1 : node->path, node->array.dim_names[0]) == 0;
}

const mh_zarr_node *mh_zarr_coordinate_of(const mh_zarr_member *member, const char *dim)
{
    for (size_t i = 0; i < member->nodes.count; i++) {
        const mh_zarr_node *node = &member->nodes.list[i];
        if (node->refused.code == MH_OK && mh_zarr_is_coordinate(node) &&
            strcmp(node->array.dim_names[0], dim) == 0)
            return node;
    }
    return NULL;
}

/* One chunk into `out`, decoded; a missing one is all fill values, for which NULL stands. */
static mh_status read_chunk(const mh_zarr_member *member, const mh_zarr_node *node,
                            const uint64_t *at, mh_chain_room *room, uint8_t *out,
                            const uint8_t **chunk, mh_error *err)
{
    char key[MH_NAME_MOST];
    uint8_t *bytes = NULL;
    uint64_t size = 0;
    int used = snprintf(key, sizeof key, "%s/", node->path);
    if (used < 0 || (size_t)used >= sizeof key ||
        !mh_zarr_key(&node->array, at, key + used, sizeof key - (size_t)used))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s: a key is too long", member->path);
    *chunk = NULL;
    mh_status status = mh_zarr_store_get(&member->store, key, &bytes, &size, err);
    if (status == MH_ERR_NOT_FOUND)
        return MH_OK;
    if (status == MH_OK)
        status = mh_chain_decode(&node->array.chain, room, bytes, size, out, err);
    if (status == MH_ERR_CORRUPT)
        mh_error_prefix(err, "%s: chunk %s", member->path, key);
    mh_free(bytes);
    *chunk = out;
    return status;
}

/* All chunks behind each other, then one window over everything. */
static mh_status place_values(const mh_zarr_member *member, const mh_zarr_node *node,
                              mh_windows *windows, uint8_t *memory, const uint8_t **chunks,
                              double *out, mh_error *err)
{
    const uint64_t count = mh_windows_unit_count(windows);
    const mh_chain *chain = &node->array.chain;
    mh_chain_room *room = NULL;
    uint8_t *into[] = {(uint8_t *)out};
    MH_TRY(mh_chain_room_new(&room, &chain, 1, err));
    mh_status status = MH_OK;
    for (uint64_t i = 0; i < count && status == MH_OK; i++) {
        const mh_chunk chunk = mh_windows_chunk(windows, i);
        status =
            read_chunk(member, node, chunk.at, room, memory + i * chain->bytes[0], &chunks[i], err);
    }
    mh_chain_room_free(room);
    if (status == MH_OK)
        mh_windows_place(windows, 0, &(mh_chunks){chunks, sizeof *chunks}, into);
    return status;
}

mh_status mh_zarr_read_values(const mh_zarr_member *member, const mh_zarr_node *node, double **out,
                              uint64_t *out_count, mh_error *err)
{
    mh_variable variable;
    mh_windows *windows = NULL;
    const mh_window_texts none = {0};
    const uint64_t values = (uint64_t)node->array.shape[0];
    if (node->array.sharded || node->array.dims != 1 || values > UINT32_MAX)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s: the coordinate %s is sharded or too long",
                       member->path, node->name);
    MH_TRY(mh_zarr_variable_fill(&variable, node, true, err));
    variable.decoding.cast = (mh_dtype){2, 64};
    MH_TRY(mh_windows_new(&windows, &variable, 1, &none, NULL, NULL, err));
    const uint64_t chunks = mh_windows_unit_count(windows);
    uint8_t *memory = mh_calloc(chunks + 1, node->array.chain.bytes[0]);
    const uint8_t **list = mh_calloc(chunks + 1, sizeof *list);
    double *found = mh_calloc(values + 1, sizeof *found);
    mh_status status = memory && list && found
                           ? place_values(member, node, windows, memory, list, found, err)
                           : mh_fail(err, MH_ERR_NOMEM, "no memory for %s", node->name);
    mh_windows_free(windows);
    mh_free(memory);
    mh_free((void *)list);
    if (status != MH_OK) {
        mh_free(found);
        return status;
    }
    *out = found;
    *out_count = values;
    return MH_OK;
}
