/* zarr_shards.c - where the chunks of a sharded array lie
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/zarr_shards.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

static uint64_t little64(const uint8_t *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* Both numbers all ones: there is no such chunk. */
static mh_status range_read(mh_zarr_range *out, const mh_zarr_array *array, const uint8_t *entry,
                            uint64_t shard_bytes, uint64_t number, mh_error *err)
{
    const uint64_t offset = little64(entry), size = little64(entry + 8);
    *out = (mh_zarr_range){0};
    if (offset == UINT64_MAX && size == UINT64_MAX)
        return MH_OK;
    if (size == 0 || size > mh_chain_stored_most(&array->chain) || offset > shard_bytes ||
        size > shard_bytes - offset)
        return mh_fail(err, MH_ERR_CORRUPT,
                       "the index puts chunk %llu at %llu, %llu bytes, in a shard of %llu",
                       (unsigned long long)number, (unsigned long long)offset,
                       (unsigned long long)size, (unsigned long long)shard_bytes);
    *out = (mh_zarr_range){.offset = offset, .size = size};
    return MH_OK;
}

mh_status mh_zarr_shard_read(mh_zarr_range *out, const mh_zarr_array *array, mh_chain_room *room,
                             const uint8_t *bytes, uint64_t size, uint64_t shard_bytes,
                             mh_error *err)
{
    uint8_t *plain = mh_calloc(array->shard_chunks, 16);
    if (!plain)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the index of a shard");
    mh_status status = mh_chain_decode(&array->index, room, bytes, size, plain, err);
    if (status != MH_OK)
        mh_error_prefix(err, "the index");
    for (uint64_t i = 0; i < array->shard_chunks && status == MH_OK; i++)
        status = range_read(&out[i], array, plain + 16 * i, shard_bytes, i, err);
    mh_free(plain);
    return status;
}

/* --- numbers --- */

static uint64_t grid_along(const mh_zarr_array *array, uint32_t dim)
{
    uint64_t shape = (uint64_t)array->shape[dim], grid = (uint64_t)array->grid[dim];
    return shape / grid + (shape % grid != 0);
}

uint64_t mh_zarr_grid_count(const mh_zarr_array *array)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < array->dims; i++)
        if (__builtin_mul_overflow(count, grid_along(array, i), &count))
            return UINT64_MAX;
    return count;
}

void mh_zarr_grid_at(const mh_zarr_array *array, uint64_t number, uint64_t *out)
{
    for (uint32_t i = array->dims; i-- > 0;) {
        uint64_t along = grid_along(array, i);
        out[i] = number % along;
        number /= along;
    }
}

uint64_t mh_zarr_shard_of(const mh_zarr_array *array, const uint64_t *at, uint64_t *out_inner)
{
    uint64_t shard = 0, inner = 0;
    for (uint32_t i = 0; i < array->dims; i++) {
        uint64_t along = (uint64_t)(array->grid[i] / array->chunk[i]);
        shard = shard * grid_along(array, i) + at[i] / along;
        inner = inner * along + at[i] % along;
    }
    *out_inner = inner;
    return shard;
}
