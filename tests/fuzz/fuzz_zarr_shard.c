/* fuzz_zarr_shard.c - fuzz target: chunks that a shard's index names lie inside the shard
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first byte is the number of chunks, and whether a checksum follows; the rest is the index.
 */
#include "format/zarr_shards.h"

#include <stdlib.h>
#include <string.h>

#define SHARD_BYTES 100000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mh_zarr_array array;
    mh_zarr_range ranges[16];
    mh_chain_room *room;
    mh_error err = {0};
    const mh_chain *index = &array.index;
    const mh_json_view none = {NULL, 0};
    if (size < 1)
        return 0;
    array.shard_chunks = 1 + data[0] % 16;
    mh_chain_init(&array.chain, 1000);
    mh_chain_init(&array.index, 16 * array.shard_chunks);
    if (data[0] >= 128 && mh_chain_add(&array.index, "crc32c", none, &err) != MH_OK)
        abort();
    if (mh_chain_room_new(&room, &index, 1, &err) != MH_OK)
        abort();
    uint8_t *bytes = malloc(size);
    if (!bytes)
        abort();
    memcpy(bytes, data + 1, size - 1);
    if (mh_zarr_shard_read(ranges, &array, room, bytes, size - 1, SHARD_BYTES, &err) == MH_OK) {
        for (uint64_t i = 0; i < array.shard_chunks; i++)
            if (ranges[i].offset > SHARD_BYTES || ranges[i].size > SHARD_BYTES - ranges[i].offset ||
                ranges[i].size > 1000)
                abort();
    } else if (err.code != MH_ERR_CORRUPT || !err.message[0]) {
        abort();
    }
    mh_chain_room_free(room);
    free(bytes);
    return 0;
}
