/* chunk_plan.c - what the windows of a dataset cost, and which chunks would be better
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/plan.h>

#include "array/chunkings.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "format/format.h"
#include "sys/memory.h"

#include <string.h>

#define FOR_CHUNKS 0.9 /* of a loader's memory; the rest is for batches */

void mh_plan_store_options_init_sized(mh_plan_store_options *options, size_t size)
{
    const mh_plan_store_options defaults = {.struct_size = size};
    mh_sized_write(options, size, &defaults, sizeof defaults);
}

static mh_reading reading_of(mh_shuffle shuffle)
{
    if (shuffle == MH_SHUFFLE_NONE)
        return MH_READING_ROWS;
    return shuffle == MH_SHUFFLE_BLOCKS ? MH_READING_BLOCKS : MH_READING_ANYWHERE;
}

static mh_store_chunks row_of(const mh_chunking *chunking)
{
    mh_store_chunks row = {.chunk_bytes = chunking->chunk_bytes,
                           .sample_chunks = chunking->cost.sample_chunks,
                           .sample_bytes = chunking->cost.sample_bytes,
                           .reads = chunking->cost.decoded_chunks,
                           .decoded_bytes = chunking->cost.decoded_bytes,
                           .unique_bytes = chunking->cost.unique_bytes,
                           .memory_bytes = chunking->enough_bytes / FOR_CHUNKS};
    memcpy(row.chunk, chunking->chunk, sizeof row.chunk);
    return row;
}

static mh_status fill(mh_plan_store *out, const mh_windows *windows, mh_shuffle shuffle,
                      mh_error *err)
{
    mh_chunking stored, rows[MH_CHUNKINGS_MOST];
    const mh_reading reading = reading_of(shuffle);
    const uint64_t for_chunks = (uint64_t)((double)out->memory_bytes * FOR_CHUNKS);
    const mh_window_dim *dims = mh_windows_dims(windows, &out->dims);
    MH_TRY(mh_chunking_of(windows, reading, for_chunks, &stored, err));
    MH_TRY(mh_chunkings_try(windows, reading, for_chunks, rows, &out->row_count, &out->best, err));
    for (uint32_t d = 0; d < out->dims; d++) {
        out->names[d] = dims[d].name;
        out->window[d] = dims[d].window;
    }
    out->samples = mh_windows_count(windows);
    out->useful_bytes = stored.cost.useful_bytes;
    out->stored = row_of(&stored);
    for (size_t i = 0; i < out->row_count; i++)
        out->rows[i] = row_of(&rows[i]);
    return MH_OK;
}

mh_status mh_plan_store_make(mh_plan_store *out, const mh_dataset *dataset,
                             const mh_plan_store_options *given, mh_error *err)
{
    mh_plan_store_options options;
    mh_plan_store made = {0};
    _Static_assert(MH_PLAN_STORE_ROWS == MH_CHUNKINGS_MOST, "a row for each class of size");
    mh_plan_store_options_init(&options);
    if (!out || !dataset || !given)
        return mh_fail(err, MH_ERR_INVALID, "the plan needs a dataset, options and a place");
    MH_TRY(MH_SIZED_TAKE(&options, given, mh_plan_store_options, memory_bytes, err));
    if ((unsigned)options.shuffle >= MH_SHUFFLE_KINDS)
        return mh_fail(err, MH_ERR_INVALID, "unknown order %d", (int)options.shuffle);
    if (!dataset->format->windows)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "data of the format %s has no chunks",
                       dataset->format->name);
    made.memory_bytes = options.memory_bytes;
    if (!made.memory_bytes) {
        mh_memory_room room;
        mh_memory_room_read(&room, "");
        made.memory_bytes = room.available_bytes / 4;
    }
    MH_TRY(fill(&made, dataset->format->windows(dataset), options.shuffle, err));
    *out = made;
    return MH_OK;
}
