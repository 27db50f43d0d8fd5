/* zarr.c - Zarr stores, versions 2 and 3: windows over named dimensions, cut from chunks
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is where: zarr_array.h reads the metadata of one array, zarr_hierarchy.h that of a store,
 * zarr_store.h knows directories, zip archives and reference files, zarr_shards.h the chunks inside
 * shards, zarr_units.c how a chunk is found and decoded. Cutting windows is src/array's.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/zarr_data.h"

#include <string.h>

static int zarr_probe(const mh_candidate *candidate)
{
    static const char *const names[] = {"/zarr.json", "/.zgroup", "/.zarray", "/.zmetadata"};
    char name[MH_NAME_MOST];
    size_t length = strlen(candidate->path);
    if (!candidate->directory) {
        /* A zip archive or references, by their name: the first bytes are those of others too. */
        bool zip = length > 9 && strcmp(candidate->path + length - 9, ".zarr.zip") == 0;
        bool json = length > 5 && strcmp(candidate->path + length - 5, ".json") == 0;
        return zip || (json && candidate->head_size && candidate->head[0] == '{');
    }
    while (length > 1 && candidate->path[length - 1] == '/')
        length--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mh_object object = {.name = name};
        if (length + strlen(names[i]) >= sizeof name)
            return 0;
        memcpy(name, candidate->path, length);
        memcpy(name + length, names[i], strlen(names[i]) + 1);
        if (candidate->source->stat(&object, candidate->options, NULL) == MH_OK)
            return 1;
    }
    return 0;
}

static mh_status zarr_finish(mh_dataset *dataset, mh_error *err)
{
    mh_zarr_data *data = dataset->own;
    (void)err;
    mh_windows_seat_fields(data->windows, dataset->tags, dataset->field_count);
    return MH_OK;
}

/* --- what a thread needs --- */

typedef struct zarr_room {
    mh_chain_room *codecs;
    uint64_t *ids; /* of a sample */
} zarr_room;

static void zarr_room_free(void *given)
{
    zarr_room *room = given;
    if (!room)
        return;
    mh_chain_room_free(room->codecs);
    mh_free(room->ids);
    mh_free(room);
}

static mh_status zarr_room_new(const mh_dataset *dataset, void **out, mh_error *err)
{
    const mh_zarr_data *data = dataset->own;
    zarr_room *room = mh_calloc(1, sizeof *room);
    const mh_chain **chains = mh_calloc(data->count, sizeof *chains);
    mh_status status = MH_ERR_NOMEM;
    if (room)
        room->ids = mh_calloc(dataset->units_most + 1u, sizeof *room->ids);
    for (size_t i = 0; chains && i < data->count; i++)
        chains[i] = &data->list[i].node->array.chain;
    if (chains && room && room->ids)
        status = mh_chain_room_new(&room->codecs, chains, data->count, err);
    else
        (void)mh_fail(err, MH_ERR_NOMEM, "no memory to decode in");
    mh_free((void *)chains);
    if (status != MH_OK) {
        zarr_room_free(room);
        return status;
    }
    *out = room;
    return MH_OK;
}

/* --- chunks --- */

static uint32_t zarr_units_of(const mh_dataset *dataset, uint64_t sample, uint64_t *ids)
{
    const mh_zarr_data *data = dataset->own;
    return mh_windows_units_of(data->windows, sample, ids);
}

static mh_unit zarr_unit(const mh_dataset *dataset, uint64_t id)
{
    const mh_zarr_data *data = dataset->own;
    const mh_chunk chunk = mh_windows_chunk(data->windows, id);
    return mh_zarr_unit(&data->list[chunk.variable], chunk.at);
}

static mh_status zarr_decode(const mh_dataset *dataset, uint64_t id, mh_bytes bytes, uint8_t *out,
                             void *room, mh_error *err)
{
    const mh_zarr_data *data = dataset->own;
    const mh_chunk chunk = mh_windows_chunk(data->windows, id);
    return mh_zarr_decode(&data->list[chunk.variable], chunk.at, bytes, out,
                          ((zarr_room *)room)->codecs, err);
}

/* --- samples --- */

/* Chunks that are placed as they were read have the size that they must have. */
static mh_status check_plain(const mh_dataset *dataset, const mh_placing *placing, mh_error *err)
{
    const mh_zarr_data *data = dataset->own;
    uint64_t *ids = ((zarr_room *)placing->room)->ids;
    const uint32_t count = mh_windows_units_of(data->windows, placing->sample, ids);
    for (uint32_t i = 0; i < count; i++) {
        const mh_bytes *unit = &placing->units[i];
        const mh_chunk chunk = mh_windows_chunk(data->windows, ids[i]);
        const mh_zarr_variable *variable = &data->list[chunk.variable];
        if (!unit->data || unit->size == variable->chunk_bytes)
            continue;
        (void)mh_fail(err, MH_ERR_CORRUPT, "%llu bytes, there should be %llu",
                      (unsigned long long)unit->size, (unsigned long long)variable->chunk_bytes);
        mh_zarr_name_chunk(variable, chunk.at, err);
        return MH_ERR_CORRUPT;
    }
    return MH_OK;
}

static void place_origin(const mh_dataset *dataset, const mh_placing *placing)
{
    const mh_zarr_data *data = dataset->own;
    int64_t origin[MH_DIMS_MOST];
    uint32_t dims;
    (void)mh_windows_dims(data->windows, &dims);
    mh_windows_origin(data->windows, placing->sample, origin);
    for (size_t i = 0; i < dataset->field_count; i++)
        if (dataset->tags[i] == MH_ZARR_ORIGIN_TAG)
            memcpy(placing->into[i], origin, dims * sizeof *origin);
}

static mh_status zarr_place(const mh_dataset *dataset, const mh_placing *placing, mh_error *err)
{
    const mh_zarr_data *data = dataset->own;
    const mh_chunks chunks = {.first = &placing->units[0].data, .step = sizeof *placing->units};
    if (data->any_plain)
        MH_TRY(check_plain(dataset, placing, err));
    mh_windows_place(data->windows, placing->sample, &chunks, placing->into);
    if (data->wants_origin)
        place_origin(dataset, placing);
    return MH_OK;
}

/* --- for people --- */

static int zarr_storage(const mh_dataset *dataset, uint32_t tag, mh_field_storage *out)
{
    const mh_zarr_data *data = dataset->own;
    const mh_window_field *field = mh_windows_field(data->windows, tag);
    if (!field)
        return 0;
    const mh_variable *variable = &data->variables[field->variable];
    const mh_zarr_array *array = &data->list[field->variable].node->array;
    *out = (mh_field_storage){
        .dims = array->dims, .codec = array->codec_names, .bytes = array->type.dtype.bits / 8};
    for (uint32_t i = 0; i < array->dims; i++) {
        out->dim_names[i] = variable->dim_names[i];
        out->shape[i] = variable->shape[i];
        out->chunk[i] = variable->chunk[i];
    }
    for (size_t part = field->variable + 1u; part < data->count; part++) {
        if (!data->variables[part].goes_on)
            break;
        out->shape[variable->along] += data->variables[part].shape[variable->along];
    }
    for (uint32_t i = 0; i < array->dims; i++)
        out->bytes *= out->shape[i];
    return 1;
}

static mh_status zarr_costs(const mh_dataset *dataset, mh_dataset_cost *out, mh_error *err)
{
    const mh_amplification *found = &((const mh_zarr_data *)dataset->own)->cost;
    (void)err;
    *out = (mh_dataset_cost){.unique_bytes = found->unique_bytes,
                             .decoded_bytes = found->decoded_bytes,
                             .amplification = found->factor,
                             .sample_bytes = found->sample_bytes,
                             .useful_bytes = found->useful_bytes};
    return MH_OK;
}

static const mh_windows *zarr_windows(const mh_dataset *dataset)
{
    return ((const mh_zarr_data *)dataset->own)->windows;
}

const mh_format mh_format_zarr = {
    .name = "zarr",
    .what = "Zarr 2 and 3: windows over named dimensions; directories, .zarr.zip, references",
    .suffixes = ".zarr .zarr.zip .json",
    .takes = MH_TAKES_WINDOW | MH_TAKES_PIPELINE | MH_TAKES_JOIN,
    .probe = zarr_probe,
    .open = mh_zarr_open,
    .finish = zarr_finish,
    .close = mh_zarr_close,
    .room_new = zarr_room_new,
    .room_free = zarr_room_free,
    .units_of = zarr_units_of,
    .unit = zarr_unit,
    .decode = zarr_decode,
    .place = zarr_place,
    .storage = zarr_storage,
    .costs = zarr_costs,
    .windows = zarr_windows,
};
