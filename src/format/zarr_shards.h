/* zarr_shards.h - where the chunks of a sharded array lie: the index of each shard, read once
 * SPDX-License-Identifier: Apache-2.0
 *
 * A shard is an object that holds many chunks and an index of them at its end or its start. The
 * indexes of all shards that windows reach into are read while the dataset opens; after that a
 * chunk is a range of bytes like any other.
 */
#ifndef MH_FORMAT_ZARR_SHARDS_H
#define MH_FORMAT_ZARR_SHARDS_H

#include "format/zarr_array.h"

/* A chunk inside its shard. */
typedef struct mh_zarr_range {
    uint64_t offset, size; /* size 0: there is no such chunk */
} mh_zarr_range;

/* What the index of one shard says; plain memory. */
typedef struct mh_zarr_shard {
    mh_zarr_range *chunks; /* shard_chunks of them; NULL: no chunk is there */
    uint32_t object;       /* of a store that is a list */
    uint64_t begin;        /* of the shard in its object */
    mh_error *broken;      /* NULL: it is sound */
} mh_zarr_shard;

/* Reads an index of array->shard_chunks entries from its bytes as stored. `room` is for array->
 * index. Chunks lie inside the shard_bytes and have at most as many bytes as a chunk can have. Pure
 * but for the allocation. MH_ERR_CORRUPT, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_zarr_shard_read(mh_zarr_range *out, const mh_zarr_array *array,
                                           mh_chain_room *room, const uint8_t *bytes, uint64_t size,
                                           uint64_t shard_bytes, mh_error *err);

/* The shard's number in the grid, and the chunk's number in its shard, of the chunk at `at`. */
uint64_t mh_zarr_shard_of(const mh_zarr_array *array, const uint64_t *at, uint64_t *out_inner);

/* Numbers of the grid: how many there are, and the place of number `number`. */
uint64_t mh_zarr_grid_count(const mh_zarr_array *array);
void mh_zarr_grid_at(const mh_zarr_array *array, uint64_t number, uint64_t *out);

#endif
