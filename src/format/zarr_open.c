/* zarr_open.c - opening Zarr stores: which arrays become fields, and the windows over them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/steps_text.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/nearest.h"
#include "format/zarr_data.h"

#include <stdio.h>
#include <string.h>

/* --- which arrays --- */

/* Whether a text of parts ("time=4,lat=64") has one for that name. */
static bool has_part(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = text; at; at = strchr(at, ',')) {
        at += strspn(at, ", ");
        if (strncmp(at, name, length) == 0 && at[length + strspn(at + length, " ")] == '=')
            return true;
    }
    return false;
}

/* Without a choice of the user's: everything that windows cut, but for coordinates. */
static bool is_default(const mh_zarr_node *node, const char *window)
{
    const mh_zarr_array *array = &node->array;
    if (node->refused.code != MH_OK)
        return array->dims > 1 || node->refused.code == MH_ERR_CORRUPT;
    if (array->dims == 0 || mh_zarr_is_coordinate(node))
        return false;
    bool cut = !window || !*window;
    for (uint32_t i = 0; i < array->dims && !cut; i++)
        cut = has_part(window, array->dim_names[i]);
    return cut;
}

static mh_status fail_unknown(const mh_zarr_member *member, const char *name, mh_error *err)
{
    mh_nearest nearest = mh_nearest_to(name, strlen(name));
    char known[256] = "", hint[96];
    size_t used = 0;
    for (size_t i = 0; i < member->nodes.count; i++) {
        mh_nearest_offer(&nearest, member->nodes.list[i].name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     member->nodes.list[i].name);
    }
    return mh_fail(err, MH_ERR_INVALID, "unknown field '%s': %s has %s%s", name, member->path,
                   known, mh_nearest_hint(&nearest, hint, sizeof hint));
}

/* Node number `at` as the next variable. */
static mh_status take_node(mh_zarr_data *data, size_t at, mh_error *err)
{
    const mh_zarr_node *node = &data->members->nodes.list[at];
    for (size_t i = 0; i < data->count; i++)
        if (data->list[i].node == node)
            return MH_OK;
    if (node->refused.code != MH_OK) {
        if (err)
            *err = node->refused;
        return node->refused.code;
    }
    data->list[data->count++] = (mh_zarr_variable){.member = data->members, .node = node};
    return MH_OK;
}

static mh_status take_named(mh_zarr_data *data, const char *name, mh_error *err)
{
    const mh_zarr_nodes *nodes = &data->members->nodes;
    for (size_t i = 0; i < nodes->count; i++)
        if (strcmp(nodes->list[i].name, name) == 0)
            return take_node(data, i, err);
    return fail_unknown(data->members, name, err);
}

/* The dimensions of the largest array: those that the window was most likely meant for. */
static mh_status fail_no_array(const mh_zarr_member *member, const char *window, mh_error *err)
{
    char dims[256] = "none";
    uint32_t most = 0;
    for (size_t i = 0; i < member->nodes.count; i++) {
        const mh_zarr_array *array = &member->nodes.list[i].array;
        size_t used = 0;
        if (array->dims <= most)
            continue;
        most = array->dims;
        for (uint32_t d = 0; d < most && used < sizeof dims; d++)
            used += (size_t)snprintf(dims + used, sizeof dims - used, "%s%s", d ? ", " : "",
                                     array->dim_names[d]);
    }
    return mh_fail(err, MH_ERR_INVALID,
                   "%s: no array has the dimensions of the window '%s': there are %s", member->path,
                   window ? window : "", dims);
}

/* Of several stores, what the first one has. */
static mh_status choose(mh_zarr_data *data, const mh_dataset_options *options, mh_error *err)
{
    const mh_zarr_nodes *nodes = &data->members->nodes;
    data->list = mh_calloc(nodes->count * data->member_count, sizeof *data->list);
    data->variables = mh_calloc(nodes->count * data->member_count, sizeof *data->variables);
    if (!data->list || !data->variables)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu arrays", nodes->count);
    for (size_t i = 0; options->fields && i < options->field_count; i++) {
        const char *name = options->fields[i];
        if (strcmp(name, MH_ZARR_ORIGIN) == 0)
            data->wants_origin = true;
        else if (strncmp(name, "target", 6) != 0) /* comes with its variable */
            MH_TRY(take_named(data, name, err));
    }
    for (size_t i = 0; !options->fields && i < nodes->count; i++)
        if (nodes->count == 1 || is_default(&nodes->list[i], options->window))
            MH_TRY(take_node(data, i, err));
    return data->count ? MH_OK : fail_no_array(data->members, options->window, err);
}

/* --- as array/ has them --- */

mh_status mh_zarr_variable_fill(mh_variable *out, const mh_zarr_node *node, bool cf, mh_error *err)
{
    const mh_zarr_array *array = &node->array;
    *out = (mh_variable){.name = node->name,
                         .dims = array->dims,
                         .dtype = array->type.dtype,
                         .swapped = array->type.big_endian};
    for (uint32_t i = 0; i < array->dims; i++) {
        out->dim_names[i] = array->dim_names[i];
        out->shape[i] = (uint64_t)array->shape[i];
        out->chunk[i] = (uint64_t)array->chunk[i];
    }
    memcpy(out->fill, array->fill, sizeof out->fill);
    if (cf)
        out->decoding = array->decoding;
    return mh_variable_steps_transposed(out, array->order, err);
}

/* Behind the one before it, where that is the same variable in another store. */
static void go_on(mh_zarr_data *data, size_t number)
{
    mh_variable *variable = &data->variables[number];
    const mh_variable *before = variable - 1;
    while (*data->joined && variable->along < variable->dims &&
           strcmp(variable->dim_names[variable->along], data->joined) != 0)
        variable->along++;
    if (variable->along == variable->dims)
        variable->along = 0; /* it lacks the dimension */
    if (data->list[number].member == data->members)
        return;
    variable->name = before->name;
    variable->goes_on = true;
    variable->begin = before->begin + before->shape[variable->along];
}

static mh_status fill_variable(mh_dataset *dataset, mh_zarr_data *data, size_t number, bool cf,
                               uint64_t *objects, mh_error *err)
{
    uint64_t chunks;
    mh_zarr_variable *variable = &data->list[number];
    const mh_zarr_array *array = &variable->node->array;
    const bool listed = variable->member->store.listed;
    MH_TRY(mh_zarr_variable_fill(&data->variables[number], variable->node, cf, err));
    MH_TRY(mh_variable_check(&data->variables[number], &variable->chunk_bytes, &chunks, err));
    go_on(data, number);
    variable->first_object = (uint32_t)*objects;
    variable->grid_count = mh_zarr_grid_count(array);
    if (variable->grid_count > UINT32_MAX - *objects)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s: more than 2^32 chunks",
                       variable->member->path);
    *objects += variable->grid_count;
    uint64_t stored = mh_chain_stored_most(&array->chain), bytes = variable->chunk_bytes;
    if (array->chain.count == 0 && !array->sharded && !listed) {
        data->any_plain = true;
        bytes = 0;
    }
    if (stored + bytes > dataset->unit_bytes_most)
        dataset->unit_bytes_most = stored + bytes;
    return MH_OK;
}

static mh_status fill_variables(mh_dataset *dataset, mh_zarr_data *data, mh_error *err)
{
    const char *decode = dataset->options.decode;
    bool cf = !decode || strcmp(decode, "cf") == 0;
    uint64_t objects = 0;
    if (!cf && strcmp(decode, "none") != 0)
        return mh_fail(err, MH_ERR_INVALID, "unknown decode '%s': cf or none", decode);
    for (size_t i = 0; i < data->count; i++)
        MH_TRY(fill_variable(dataset, data, i, cf, &objects, err));
    if (dataset->options.pipeline)
        MH_TRY(mh_array_steps_read(data->variables, data->count, dataset->options.pipeline, err));
    MH_TRY(mh_zarr_join_types(data, err));
    if (!data->members->store.listed)
        dataset->objects =
            (mh_objects){.count = (uint32_t)objects, .describe = mh_zarr_describe, .context = data};
    return MH_OK;
}

/* --- windows --- */

typedef struct coordinates {
    const mh_zarr_data *data;
    double *values; /* of the last one asked for */
    mh_coordinate_kind kind;
} coordinates;

static mh_status look_up(void *context, const char *dim, mh_coordinate *out, mh_error *err)
{
    coordinates *c = context;
    mh_free(c->values);
    c->values = NULL;
    MH_TRY(mh_zarr_join_values(c->data, dim, &c->values, &out->count, &c->kind, err));
    out->values = c->values;
    out->units = c->kind.units[0] ? c->kind.units : NULL;
    out->calendar = c->kind.calendar[0] ? c->kind.calendar : NULL;
    return MH_OK;
}

static mh_status make_windows(mh_dataset *dataset, mh_zarr_data *data, mh_error *err)
{
    const mh_dataset_options *options = &dataset->options;
    coordinates c = {.data = data};
    const mh_window_texts texts = {.window = options->window,
                                   .stride = options->stride,
                                   .select = options->select,
                                   .target = options->target};
    mh_status status =
        mh_windows_new(&data->windows, data->variables, data->count, &texts, look_up, &c, err);
    mh_free(c.values);
    if (status != MH_OK)
        mh_error_prefix(err, "%s", data->members->path);
    return status;
}

static mh_status add_fields(mh_dataset *dataset, mh_zarr_data *data, mh_error *err)
{
    const mh_window_field *window;
    for (uint32_t i = 0; (window = mh_windows_field(data->windows, i)); i++) {
        mh_field field = {.dtype = window->dtype, .dims = window->dims};
        memcpy(field.shape, window->shape, sizeof field.shape);
        MH_TRY(mh_dataset_add_field(dataset, window->name, i, &field, err));
    }
    if (data->wants_origin) {
        mh_field origin = {.dtype = {0, 64}, .dims = 1};
        uint32_t dims;
        (void)mh_windows_dims(data->windows, &dims);
        origin.shape[0] = dims;
        MH_TRY(mh_dataset_add_field(dataset, MH_ZARR_ORIGIN, MH_ZARR_ORIGIN_TAG, &origin, err));
    }
    dataset->fields_chosen = 1;
    dataset->count = mh_windows_count(data->windows);
    dataset->by_units = 1;
    dataset->units_shared = 1;
    dataset->units_most = mh_windows_units_most(data->windows);
    dataset->unit_count = mh_windows_unit_count(data->windows);
    return mh_blocks_choose(data->windows, MH_POOL_BYTES, &dataset->cells, &dataset->block_parts,
                            &data->cost, err);
}

/* --- all --- */

static uint64_t mixed(uint64_t state, uint64_t value)
{
    state = (state ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return state ^ state >> 29;
}

/* Metadata and what is cut: chunks that are written anew are not seen. */
static uint64_t fingerprint(const mh_zarr_data *data)
{
    uint64_t state = 0;
    uint32_t count = 0;
    const mh_window_dim *dims = mh_windows_dims(data->windows, &count);
    for (size_t i = 0; i < data->count; i++)
        state = mixed(state, data->list[i].node->hash);
    for (uint32_t i = 0; i < count; i++) {
        state = mixed(state, dims[i].begin);
        state = mixed(state, dims[i].end);
        state = mixed(state, dims[i].window);
        state = mixed(state, dims[i].stride);
        state = mixed(state, (uint64_t)dims[i].target);
    }
    return state;
}

/* Dimensions without names get those that xarray gives them. */
static void name_dims(mh_zarr_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        for (uint32_t d = 0; d < nodes->list[i].array.dims; d++)
            if (!nodes->list[i].array.dim_names[d][0])
                (void)snprintf(nodes->list[i].array.dim_names[d], MH_ZARR_NAME_ROOM, "dim_%u", d);
}

static mh_status open_member(mh_dataset *dataset, mh_zarr_data *data, const char *path,
                             mh_error *err)
{
    const mh_source_type *before = dataset->source;
    mh_zarr_member *first = data->members, *member = &first[data->member_count];
    char *copy = mh_calloc(strlen(path) + 1, 1);
    if (!copy)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a dataset");
    member->path = memcpy(copy, path, strlen(path));
    data->member_count++;
    MH_TRY(mh_source_of(&dataset->source, path, err));
    MH_TRY(mh_zarr_store_open(&member->store, dataset, path, err));
    if (member != first && dataset->source != before)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s is reached by %s, %s by %s: copy one of them",
                       first->path, before->name, path, dataset->source->name);
    if (member->store.listed != first->store.listed)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s is %s and %s is %s: join stores of one kind",
                       first->path, first->store.listed ? "one file" : "a directory", path,
                       member->store.listed ? "one file" : "a directory");
    MH_TRY(mh_zarr_nodes_read(&member->nodes, &member->store, path, err));
    name_dims(&member->nodes);
    return MH_OK;
}

mh_status mh_zarr_open(mh_dataset *dataset, const char *const *paths, size_t count, mh_error *err)
{
    mh_zarr_data *data = mh_calloc(1, sizeof *data);
    if (!data)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a dataset");
    dataset->own = data;
    if (dataset->options.profile)
        return mh_fail(err, MH_ERR_INVALID, "arrays take no profile");
    data->members = mh_calloc(count, sizeof *data->members);
    if (!data->members)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu stores", count);
    for (size_t i = 0; i < count; i++)
        MH_TRY(open_member(dataset, data, paths[i], err));
    MH_TRY(choose(data, &dataset->options, err));
    MH_TRY(mh_zarr_join(data, dataset->options.join, err));
    MH_TRY(fill_variables(dataset, data, err));
    MH_TRY(make_windows(dataset, data, err));
    MH_TRY(add_fields(dataset, data, err));
    MH_TRY(mh_zarr_shards_load(dataset, err));
    dataset->fingerprint = fingerprint(data);
    return MH_OK;
}

void mh_zarr_close(mh_dataset *dataset)
{
    mh_zarr_data *data = dataset->own;
    if (!data)
        return;
    for (size_t i = 0; i < data->count; i++) {
        mh_zarr_variable *variable = &data->list[i];
        for (uint64_t k = 0; variable->shards && k < variable->grid_count; k++) {
            mh_free(variable->shards[k].chunks);
            mh_free(variable->shards[k].broken);
        }
        mh_free(variable->shards);
    }
    mh_windows_free(data->windows);
    mh_free(data->list);
    mh_free(data->variables);
    for (size_t i = 0; i < data->member_count; i++) {
        mh_zarr_nodes_free(&data->members[i].nodes);
        mh_zarr_store_close(&data->members[i].store);
        mh_free((char *)data->members[i].path);
    }
    mh_free(data->members);
    mh_free(data);
}
