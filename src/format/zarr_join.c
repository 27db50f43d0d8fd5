/* zarr_join.c - several Zarr stores as one, joined along a dimension
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first store says which arrays there are. Those that have the dimension go on in the other
 * stores, in the order in which the stores were given; the others are the first one's.
 */
#include "array/coordinate.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/nearest.h"
#include "format/zarr_data.h"

#include <stdio.h>
#include <string.h>

/* --- coordinates --- */

/* Of one store. `values` is NULL where it has none. */
typedef struct coordinate {
    double *values;
    uint64_t count;
    const char *units, *calendar;
} coordinate;

static mh_status read_coordinate(const mh_zarr_member *member, const char *dim, coordinate *out,
                                 mh_error *err)
{
    const mh_zarr_node *node = mh_zarr_coordinate_of(member, dim);
    *out = (coordinate){.units = "", .calendar = ""};
    if (!node)
        return MH_OK;
    out->units = node->array.units;
    out->calendar = node->array.calendar;
    return mh_zarr_read_values(member, node, &out->values, &out->count, err);
}

/* Whether a store has it and it is not the first one's. */
static mh_status differs(const mh_zarr_data *data, size_t member, const char *dim, bool *out,
                         mh_error *err)
{
    coordinate first, other;
    MH_TRY(read_coordinate(data->members, dim, &first, err));
    mh_status status = read_coordinate(&data->members[member], dim, &other, err);
    if (status == MH_OK && first.values && other.values)
        *out = first.count != other.count || strcmp(first.units, other.units) != 0 ||
               strcmp(first.calendar, other.calendar) != 0 ||
               memcmp(first.values, other.values, first.count * sizeof *first.values) != 0;
    mh_free(first.values);
    mh_free(other.values);
    return status;
}

/* Behind the values there are; in seconds since 1970 where `in_seconds`. */
static mh_status append(double **values, uint64_t *count, const coordinate *more, bool in_seconds,
                        mh_error *err)
{
    double seconds = 1, since = 0;
    double *list = mh_realloc(*values, *count + more->count + 1, sizeof *list);
    if (!list)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a coordinate");
    *values = list;
    if (in_seconds && !mh_coordinate_units(more->units, more->calendar, &seconds, &since))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "units '%s' are not those of the other stores",
                       more->units);
    for (uint64_t i = 0; i < more->count; i++)
        list[(*count)++] = in_seconds ? more->values[i] * seconds + since : more->values[i];
    return MH_OK;
}

static bool units_differ(const mh_zarr_data *data, const char *dim)
{
    const mh_zarr_node *first = mh_zarr_coordinate_of(data->members, dim), *other;
    for (size_t m = 1; m < data->member_count; m++)
        if ((other = mh_zarr_coordinate_of(&data->members[m], dim)) != NULL &&
            strcmp(first->array.units, other->array.units) != 0)
            return true;
    return false;
}

mh_status mh_zarr_join_values(const mh_zarr_data *data, const char *dim, double **out,
                              uint64_t *out_count, mh_coordinate_kind *out_kind, mh_error *err)
{
    const bool joined = strcmp(data->joined, dim) == 0;
    const mh_zarr_node *node = mh_zarr_coordinate_of(data->members, dim);
    double *values = NULL;
    uint64_t count = 0;
    mh_status status = MH_OK;
    if (!node)
        return mh_fail(err, MH_ERR_NOT_FOUND, "%s has no coordinate for the dimension %s",
                       data->members->path, dim);
    const bool in_seconds = joined && units_differ(data, dim);
    for (size_t m = 0; m < (joined ? data->member_count : 1) && status == MH_OK; m++) {
        coordinate more;
        status = read_coordinate(&data->members[m], dim, &more, err);
        if (status == MH_OK && !more.values)
            status = mh_fail(err, MH_ERR_NOT_FOUND, "it has no coordinate %s", dim);
        if (status == MH_OK && strcmp(more.calendar, node->array.calendar) != 0)
            status = mh_fail(err, MH_ERR_UNSUPPORTED, "%s is in the calendar '%s', in %s in '%s'",
                             dim, more.calendar, data->members->path, node->array.calendar);
        if (status == MH_OK)
            status = append(&values, &count, &more, in_seconds, err);
        mh_free(more.values);
        if (status != MH_OK)
            mh_error_prefix(err, "%s", data->members[m].path);
    }
    if (status != MH_OK) {
        mh_free(values);
        return status;
    }
    (void)snprintf(out_kind->units, sizeof out_kind->units, "%s",
                   in_seconds ? "seconds since 1970-01-01" : node->array.units);
    (void)snprintf(out_kind->calendar, sizeof out_kind->calendar, "%s", node->array.calendar);
    *out = values;
    *out_count = count;
    return MH_OK;
}

/* --- which dimension --- */

static const mh_zarr_node *node_at(const mh_zarr_member *member, const char *path)
{
    for (size_t i = 0; i < member->nodes.count; i++)
        if (strcmp(member->nodes.list[i].path, path) == 0)
            return &member->nodes.list[i];
    return NULL;
}

/* The array's dimension of that name; its `dims`: it lacks it. */
static uint32_t dim_called(const mh_zarr_array *array, const char *name)
{
    uint32_t d = 0;
    while (d < array->dims && strcmp(array->dim_names[d], name) != 0)
        d++;
    return d;
}

/* Whether the array's dimension has another length, or another coordinate, in some store. */
static mh_status varies(const mh_zarr_data *data, const mh_zarr_node *node, uint32_t d, bool *out,
                        mh_error *err)
{
    const char *dim = node->array.dim_names[d];
    *out = false;
    for (size_t m = 1; m < data->member_count && !*out; m++) {
        const mh_zarr_node *other = node_at(&data->members[m], node->path);
        const uint32_t at = other ? dim_called(&other->array, dim) : 0;
        if (other && at < other->array.dims && other->array.shape[at] != node->array.shape[d])
            *out = true;
        else
            MH_TRY(differs(data, m, dim, out, err));
    }
    return MH_OK;
}

static mh_status take_wanted(mh_zarr_data *data, const char *wanted, mh_error *err)
{
    char hint[192];
    mh_nearest nearest = mh_nearest_to(wanted, strlen(wanted));
    for (size_t i = 0; i < data->count; i++) {
        const mh_zarr_array *array = &data->list[i].node->array;
        if (dim_called(array, wanted) < array->dims) {
            (void)snprintf(data->joined, sizeof data->joined, "%s", wanted);
            return MH_OK;
        }
        for (uint32_t d = 0; d < array->dims; d++)
            mh_nearest_offer(&nearest, array->dim_names[d]);
    }
    return mh_fail(err, MH_ERR_INVALID, "no field has the dimension '%s' to join %s along%s",
                   wanted, data->members->path, mh_nearest_hint(&nearest, hint, sizeof hint));
}

/* The first that varies; else the first of which no coordinate says that it does not. */
static mh_status find_dimension(mh_zarr_data *data, mh_error *err)
{
    const char *without = NULL, *found = NULL;
    for (size_t i = 0; i < data->count && !found; i++) {
        const mh_zarr_node *node = data->list[i].node;
        for (uint32_t d = 0; d < node->array.dims && !found; d++) {
            const char *dim = node->array.dim_names[d];
            bool is_it = false;
            MH_TRY(varies(data, node, d, &is_it, err));
            if (is_it)
                found = dim;
            else if (!without && !mh_zarr_coordinate_of(data->members, dim))
                without = dim;
        }
    }
    found = found ? found : without;
    if (!found)
        return mh_fail(err, MH_ERR_INVALID,
                       "%s and %s have the same coordinates: say along which dimension to join",
                       data->members[0].path, data->members[1].path);
    (void)snprintf(data->joined, sizeof data->joined, "%s", found);
    return MH_OK;
}

/* Stores in a wrong order, or of overlapping times, are most likely not meant. */
static mh_status check_order(const mh_zarr_data *data, mh_error *err)
{
    mh_coordinate_kind kind;
    double *values = NULL;
    uint64_t count = 0, at = 0;
    mh_status status = mh_zarr_join_values(data, data->joined, &values, &count, &kind, err);
    if (status != MH_OK) /* no coordinate, or one that says nothing about order */
        return status == MH_ERR_NOT_FOUND || status == MH_ERR_UNSUPPORTED ? MH_OK : status;
    const bool falls = count > 1 && values[count - 1] < values[0];
    for (size_t m = 0; m + 1 < data->member_count && status == MH_OK; m++) {
        const mh_zarr_node *node = mh_zarr_coordinate_of(&data->members[m], data->joined);
        at += (uint64_t)node->array.shape[0];
        if (at == 0 || at >= count)
            continue;
        if (falls ? values[at] >= values[at - 1] : values[at] <= values[at - 1])
            status = mh_fail(err, MH_ERR_INVALID,
                             "%s does not go on from %s to %s: give them in order, or say join "
                             "where that is meant",
                             data->joined, data->members[m].path, data->members[m + 1].path);
    }
    mh_free(values);
    return status;
}

/* --- whether they fit --- */

/* What does not agree, of an array in the first store and in another. */
static mh_status check_shape(const mh_zarr_data *data, const mh_zarr_array *first,
                             const mh_zarr_member *member, const mh_zarr_node *node, mh_error *err)
{
    const mh_zarr_array *other = &node->array;
    const char *name = node->name, *path = data->members->path;
    if (first->dims != other->dims)
        return mh_fail(err, MH_ERR_INVALID, "%s has %u dimensions in %s and %u in %s", name,
                       first->dims, path, other->dims, member->path);
    for (uint32_t d = 0; d < first->dims; d++) {
        const char *dim = first->dim_names[d];
        if (strcmp(dim, other->dim_names[d]) != 0)
            return mh_fail(err, MH_ERR_INVALID, "%s has the dimension %s in %s where %s has %s",
                           name, dim, path, member->path, other->dim_names[d]);
        if (strcmp(dim, data->joined) == 0)
            continue;
        if (first->shape[d] != other->shape[d])
            return mh_fail(err, MH_ERR_INVALID,
                           "%s is %lld long in %s and %lld in %s: joined along %s they may differ "
                           "in that alone",
                           dim, (long long)first->shape[d], path, (long long)other->shape[d],
                           member->path, data->joined);
        if (first->chunk[d] != other->chunk[d])
            return mh_fail(err, MH_ERR_INVALID,
                           "%s has chunks of %lld along %s in %s and of %lld in %s: joined along "
                           "%s they may differ in that alone",
                           name, (long long)first->chunk[d], dim, path, (long long)other->chunk[d],
                           member->path, data->joined);
    }
    if (first->type.dtype.code != other->type.dtype.code ||
        first->type.dtype.bits != other->type.dtype.bits)
        return mh_fail(err, MH_ERR_INVALID, "%s is stored in one type in %s and in another in %s",
                       name, path, member->path);
    return MH_OK;
}

/* Of a coordinate that is delivered, numbers in two units would be one line. */
static mh_status check_units(const mh_zarr_data *data, const mh_zarr_node *first,
                             const mh_zarr_member *member, const mh_zarr_node *node, mh_error *err)
{
    if (!mh_zarr_is_coordinate(first) || strcmp(first->array.units, node->array.units) == 0)
        return MH_OK;
    return mh_fail(err, MH_ERR_INVALID, "the field %s is in '%s' in %s and in '%s' in %s",
                   first->name, first->array.units, data->members->path, node->array.units,
                   member->path);
}

/* The other dimensions have the same coordinates, where both stores have some. */
static mh_status check_coordinates(const mh_zarr_data *data, const mh_zarr_array *array,
                                   mh_error *err)
{
    for (uint32_t d = 0; d < array->dims; d++) {
        const char *dim = array->dim_names[d];
        for (size_t m = 1; m < data->member_count && strcmp(dim, data->joined) != 0; m++) {
            bool other = false;
            MH_TRY(differs(data, m, dim, &other, err));
            if (other)
                return mh_fail(err, MH_ERR_INVALID,
                               "the coordinate %s of %s is not that of %s: joined along %s they "
                               "may differ in that alone",
                               dim, data->members->path, data->members[m].path, data->joined);
        }
    }
    return MH_OK;
}

static mh_status take_others(mh_zarr_data *data, const mh_zarr_node *first, mh_error *err)
{
    for (size_t m = 1; m < data->member_count; m++) {
        const mh_zarr_member *member = &data->members[m];
        const mh_zarr_node *node = node_at(member, first->path);
        if (!node)
            return mh_fail(err, MH_ERR_INVALID, "%s has no array '%s', as %s has", member->path,
                           first->name, data->members->path);
        if (node->refused.code != MH_OK) {
            if (err)
                *err = node->refused;
            return node->refused.code;
        }
        MH_TRY(check_shape(data, &first->array, member, node, err));
        MH_TRY(check_units(data, first, member, node, err));
        data->list[data->count++] = (mh_zarr_variable){.member = member, .node = node};
    }
    return MH_OK;
}

/* --- all --- */

static mh_status spread(mh_zarr_data *data, mh_error *err)
{
    const size_t count = data->count;
    mh_status status = MH_OK;
    mh_zarr_variable *chosen = mh_calloc(count, sizeof *chosen);
    if (!chosen)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu arrays", count);
    memcpy(chosen, data->list, count * sizeof *chosen);
    data->count = 0;
    for (size_t i = 0; i < count && status == MH_OK; i++) {
        const mh_zarr_array *array = &chosen[i].node->array;
        data->list[data->count++] = chosen[i];
        if (dim_called(array, data->joined) < array->dims)
            status = take_others(data, chosen[i].node, err);
        if (status == MH_OK)
            status = check_coordinates(data, array, err);
    }
    mh_free(chosen);
    return status;
}

mh_status mh_zarr_join(mh_zarr_data *data, const char *wanted, mh_error *err)
{
    if (wanted)
        MH_TRY(take_wanted(data, wanted, err));
    if (data->member_count == 1)
        return MH_OK;
    if (!wanted) {
        MH_TRY(find_dimension(data, err));
        MH_TRY(check_order(data, err));
    }
    return spread(data, err);
}

mh_status mh_zarr_join_types(const mh_zarr_data *data, mh_error *err)
{
    mh_dtype first = {0}, other;
    for (size_t i = 0; i < data->count; i++) {
        const mh_variable *variable = &data->variables[i];
        MH_TRY(mh_decoding_dtype(variable->dtype, &variable->decoding, &other, err));
        if (!variable->goes_on)
            first = other;
        else if (first.code != other.code || first.bits != other.bits)
            return mh_fail(err, MH_ERR_INVALID,
                           "%s is decoded to one type in %s and to another in %s: give decode none "
                           "or a cast",
                           variable->name, data->members->path, data->list[i].member->path);
    }
    return MH_OK;
}
