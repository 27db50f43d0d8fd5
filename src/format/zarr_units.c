/* zarr_units.c - chunks of Zarr arrays: where each lies, and how its bytes are decoded
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure once the store is open.
 */
#include "base/error.h"
#include "format/zarr_data.h"
#include "format/zip_directory.h"

#include <stdio.h>
#include <string.h>

/* The key of number `number` of the grid, with the array's path. */
static void key_of(const mh_zarr_node *node, uint64_t number, char *out, size_t room)
{
    uint64_t at[MH_DIMS_MOST];
    size_t used = 0;
    mh_zarr_grid_at(&node->array, number, at);
    if (*node->path)
        used = (size_t)snprintf(out, room, "%s/", node->path);
    if (used < room)
        (void)mh_zarr_key(&node->array, at, out + used, room - used);
}

void mh_zarr_describe(const void *context, uint32_t number, mh_object *out, char *name)
{
    const mh_zarr_data *data = context;
    size_t at = 0, high = data->count; /* the last array that begins at or before it */
    while (high - at > 1) {
        const size_t middle = at + (high - at) / 2;
        *(data->list[middle].first_object <= number ? &at : &high) = middle;
    }
    int used = snprintf(name, MH_NAME_MOST, "%s/", data->list[at].member->store.root);
    if (used > 0 && (size_t)used < MH_NAME_MOST)
        key_of(data->list[at].node, number - data->list[at].first_object, name + used,
               MH_NAME_MOST - (size_t)used);
    *out = (mh_object){.name = name, .size = MH_SIZE_UNKNOWN};
}

void mh_zarr_name_chunk(const mh_zarr_variable *variable, const uint64_t *at, mh_error *err)
{
    const char *path = variable->member->path;
    const mh_zarr_array *array = &variable->node->array;
    char key[256] = "";
    uint64_t inner, number = mh_zarr_shard_of(array, at, &inner);
    uint64_t place[MH_DIMS_MOST];
    mh_zarr_grid_at(array, number, place);
    (void)mh_zarr_key(array, place, key, sizeof key);
    if (array->sharded)
        mh_error_prefix(err, "%s: array '%s', chunk %llu of shard %s", path, variable->node->name,
                        (unsigned long long)inner, key);
    else
        mh_error_prefix(err, "%s: array '%s', chunk %s", path, variable->node->name, key);
}

/* --- where --- */

const mh_zarr_place *mh_zarr_place_of(const mh_zarr_variable *variable, uint64_t number)
{
    char key[MH_NAME_MOST];
    key_of(variable->node, number, key, sizeof key);
    return mh_zarr_places_find(&variable->member->store.places, key);
}

/* In a list of places. */
static mh_unit listed_unit(const mh_zarr_variable *variable, uint64_t number, uint64_t most)
{
    const mh_zarr_place *place = mh_zarr_place_of(variable, number);
    mh_unit unit = {0};
    if (!place || place->bytes)
        return unit; /* nothing to read */
    unit.object = place->object;
    unit.whole = place->whole;
    unit.offset = place->offset;
    unit.size = place->whole ? most : place->header + place->size;
    return unit;
}

static mh_unit shard_unit(const mh_zarr_variable *variable, uint64_t number, uint64_t inner)
{
    const mh_zarr_shard *shard = &variable->shards[number];
    mh_unit unit = {0};
    if (!shard->chunks || !shard->chunks[inner].size)
        return unit;
    unit.object =
        variable->member->store.listed ? shard->object : variable->first_object + (uint32_t)number;
    unit.offset = shard->begin + shard->chunks[inner].offset;
    unit.size = shard->chunks[inner].size;
    return unit;
}

mh_unit mh_zarr_unit(const mh_zarr_variable *variable, const uint64_t *at)
{
    const mh_zarr_array *array = &variable->node->array;
    uint64_t inner, number = mh_zarr_shard_of(array, at, &inner);
    const uint64_t most = mh_chain_stored_most(&array->chain);
    mh_unit unit;
    if (variable->shards)
        unit = shard_unit(variable, number, inner);
    else if (variable->member->store.listed)
        unit = listed_unit(variable, number, most);
    else
        unit = (mh_unit){.object = variable->first_object + (uint32_t)number,
                         .size = most,
                         .whole = 1,
                         .may_be_missing = 1};
    bool plain = unit.whole && array->chain.count == 0;
    unit.decoded_bytes = plain ? 0 : variable->chunk_bytes;
    return unit;
}

/* --- what --- */

static void fill_chunk(const mh_zarr_array *array, uint8_t *out, uint64_t bytes)
{
    const size_t value = array->type.dtype.bits / 8;
    uint64_t done = value;
    if (bytes == 0)
        return;
    memcpy(out, array->fill, value);
    while (done < bytes) { /* what is there, once more */
        uint64_t more = done < bytes - done ? done : bytes - done;
        memcpy(out + done, out, more);
        done += more;
    }
}

/* The bytes that codecs decode: without the header of a zip entry, from the list, or none. */
static mh_status stored_bytes(const mh_zarr_variable *variable, uint64_t number, mh_bytes *bytes,
                              mh_error *err)
{
    uint64_t begin = 0;
    const mh_zarr_place *place = mh_zarr_place_of(variable, number);
    if (!place) {
        bytes->data = NULL;
        return MH_OK;
    }
    if (place->bytes) {
        *bytes = (mh_bytes){.data = place->bytes, .size = place->size};
        return MH_OK;
    }
    if (!place->header)
        return MH_OK;
    MH_TRY(mh_zip_local_skip(&begin, bytes->data, place->header, err));
    *bytes = (mh_bytes){.data = bytes->data + begin, .size = place->size};
    return MH_OK;
}

static mh_status decode_chunk(const mh_zarr_variable *variable, const uint64_t *at, mh_bytes bytes,
                              uint8_t *out, mh_chain_room *room, mh_error *err)
{
    const mh_zarr_array *array = &variable->node->array;
    uint64_t inner, number = mh_zarr_shard_of(array, at, &inner);
    if (variable->shards) {
        const mh_zarr_shard *shard = &variable->shards[number];
        if (shard->broken) {
            if (err)
                *err = *shard->broken;
            return shard->broken->code;
        }
        if (!shard->chunks || !shard->chunks[inner].size)
            bytes.data = NULL;
    } else if (variable->member->store.listed) {
        MH_TRY(stored_bytes(variable, number, &bytes, err));
    }
    if (bytes.data)
        return mh_chain_decode(&array->chain, room, bytes.data, bytes.size, out, err);
    fill_chunk(array, out, variable->chunk_bytes);
    return MH_OK;
}

mh_status mh_zarr_decode(const mh_zarr_variable *variable, const uint64_t *at, mh_bytes bytes,
                         uint8_t *out, mh_chain_room *room, mh_error *err)
{
    mh_status status = decode_chunk(variable, at, bytes, out, room, err);
    if (status != MH_OK)
        mh_zarr_name_chunk(variable, at, err);
    return status;
}
