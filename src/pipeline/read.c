/* read.c - samples of a dataset by number, without a loader
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "pipeline/dataset_batch.h"

#include <string.h>

static mh_status check_numbers(const mh_dataset *dataset, const uint64_t *numbers, size_t count,
                               mh_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] >= dataset->count)
            return mh_fail(err, MH_ERR_INVALID, "no sample has the number %llu: there are %llu",
                           (unsigned long long)numbers[i], (unsigned long long)dataset->count);
    return MH_OK;
}

/* --- pieces --- */

static mh_status read_pieces(mh_source *source, const mh_dataset *dataset, const mh_batch *batch,
                             uint64_t i, mh_error *err)
{
    for (size_t field = 0; field < batch->array_count; field++) {
        const mh_piece piece = mh_dataset_piece(dataset, field, batch->numbers[i]);
        const mh_read read = {.object = piece.object,
                              .offset = piece.offset,
                              .size = dataset->fields[field].bytes,
                              .into = mh_batch_place(batch, field, i)};
        uint64_t got;
        if (read.size)
            MH_TRY(mh_source_read(source, &read, &got, err));
    }
    return MH_OK;
}

/* --- units --- */

/* The units of one sample; those that the next one needs too, at the same place, stay. */
typedef struct unit_room {
    uint32_t count;
    uint64_t *ids, *kept; /* of this sample; of `blocks` */
    uint8_t **blocks;     /* NULL: none */
    mh_bytes *units;      /* what samples are placed from, in the blocks */
    uint8_t **into;
    void *format;
} unit_room;

static mh_status room_make(unit_room *room, mh_dataset *dataset, mh_error *err)
{
    *room = (unit_room){.count = dataset->units_most,
                        .ids = mh_calloc(dataset->units_most, sizeof(uint64_t)),
                        .kept = mh_calloc(dataset->units_most, sizeof(uint64_t)),
                        .blocks = mh_calloc(dataset->units_most, sizeof(uint8_t *)),
                        .units = mh_calloc(dataset->units_most, sizeof(mh_bytes)),
                        .into = mh_calloc(dataset->field_count, sizeof(uint8_t *))};
    if (room->ids && room->kept && room->blocks && room->units && room->into)
        return mh_dataset_room(dataset, &room->format, err);
    return mh_fail(err, MH_ERR_NOMEM, "no memory for %u units", dataset->units_most);
}

static void room_free(unit_room *room, mh_dataset *dataset)
{
    mh_dataset_room_done(dataset, room->format);
    for (uint32_t u = 0; room->blocks && u < room->count; u++)
        mh_free(room->blocks[u]);
    mh_free(room->ids);
    mh_free(room->kept);
    mh_free((void *)room->blocks);
    mh_free(room->units);
    mh_free((void *)room->into);
}

/* Reads unit number `u` of the sample into a block of its own. */
static mh_status read_unit(mh_source *source, const mh_dataset *dataset, unit_room *room,
                           uint32_t u, mh_error *err)
{
    const mh_unit unit = dataset->format->unit(dataset, room->ids[u]);
    uint8_t *block = mh_calloc(1, unit.size + unit.decoded_bytes + 1);
    if (!block)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %llu bytes",
                       (unsigned long long)(unit.size + unit.decoded_bytes));
    room->blocks[u] = block; /* decoded bytes first, then those that were read */
    const mh_read read = {.object = unit.object,
                          .whole = unit.whole,
                          .offset = unit.offset,
                          .size = unit.size,
                          .into = block + unit.decoded_bytes};
    uint64_t got = 0;
    mh_status status = unit.size ? mh_source_read(source, &read, &got, err) : MH_OK;
    bool missing = status == MH_ERR_NOT_FOUND && unit.may_be_missing;
    if (status != MH_OK && !missing)
        return status;
    room->units[u] = (mh_bytes){.data = missing ? NULL : read.into, .size = missing ? 0 : got};
    if (!unit.decoded_bytes)
        return MH_OK;
    MH_TRY(
        dataset->format->decode(dataset, room->ids[u], room->units[u], block, room->format, err));
    room->units[u] = (mh_bytes){.data = block, .size = unit.decoded_bytes};
    return MH_OK;
}

static mh_status read_units(mh_source *source, const mh_dataset *dataset, const mh_batch *batch,
                            uint64_t i, unit_room *room, mh_error *err)
{
    uint32_t count = dataset->format->units_of(dataset, batch->numbers[i], room->ids);
    for (uint32_t u = 0; u < count; u++) {
        if (room->blocks[u] && room->kept[u] == room->ids[u])
            continue;
        mh_free(room->blocks[u]);
        room->blocks[u] = NULL;
        MH_TRY(read_unit(source, dataset, room, u, err));
        room->kept[u] = room->ids[u];
    }
    for (size_t field = 0; field < batch->array_count; field++)
        room->into[field] = mh_batch_place(batch, field, i);
    const mh_placing placing = {.sample = batch->numbers[i],
                                .position = batch->numbers[i],
                                .units = room->units,
                                .into = room->into,
                                .room = room->format};
    return dataset->format->place(dataset, &placing, err);
}

/* --- either --- */

static mh_status read_all(mh_source *source, mh_dataset *dataset, mh_batch *batch, mh_error *err)
{
    unit_room room = {0};
    mh_status status = MH_OK;
    MH_TRY(mh_batch_seat_own(batch, err));
    if (dataset->by_units)
        status = room_make(&room, dataset, err);
    for (uint64_t i = 0; i < batch->samples && status == MH_OK; i++) {
        status = dataset->by_units ? read_units(source, dataset, batch, i, &room, err)
                                   : read_pieces(source, dataset, batch, i, err);
        if (status != MH_OK)
            mh_error_at_sample(err, batch->numbers[i]);
    }
    room_free(&room, dataset);
    return status;
}

mh_status mh_dataset_read(mh_dataset *dataset, const uint64_t *numbers, size_t count,
                          mh_batch **out, mh_error *err)
{
    mh_error own;
    mh_source *source = NULL;
    mh_batch *batch = NULL;
    if (!err)
        err = &own;
    MH_TRY(check_numbers(dataset, numbers, count, err));
    MH_TRY(mh_dataset_source(dataset, &source, err));
    MH_TRY(mh_dataset_batch_new(&batch, dataset, count, err));
    if (count)
        memcpy(batch->numbers, numbers, count * sizeof *numbers);
    mh_status status = read_all(source, dataset, batch, err);
    if (status != MH_OK) {
        mh_batch_unref(batch);
        return status;
    }
    *out = batch;
    return MH_OK;
}
