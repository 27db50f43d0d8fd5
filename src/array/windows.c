/* windows.c - samples that are windows over chunked arrays: which there are
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/windows.h"

#include "array/plan.h"
#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

#define UNITS_MOST (UINT64_C(1) << 24) /* of one sample: it could not be held anyway */
#define COUNT_MOST (UINT64_C(1) << 62)

/* --- dimensions --- */

static uint32_t dim_called(const mh_windows *self, const char *name)
{
    uint32_t d = 0;
    while (d < self->dim_count && strcmp(self->dims[d].name, name) != 0)
        d++;
    return d;
}

/* How the parts of a variable lie behind each other; `first` is number 0 of them. */
static mh_status lay_parts(mh_windows *self, const mh_variable *variables, size_t number,
                           mh_error *err)
{
    const uint32_t along = variables[number].along;
    mh_grid *first = &self->grids[number];
    do {
        const mh_variable *variable = &variables[number + first->parts];
        mh_grid *grid = first + first->parts++;
        grid->variable = variable;
        grid->seats[0] = grid->seats[1] = MH_NOT_SEATED;
        memcpy(grid->end, variable->shape, sizeof grid->end);
        if (!variable->goes_on)
            continue;
        if (variable->begin > COUNT_MOST || variable->shape[along] > COUNT_MOST)
            return mh_fail(err, MH_ERR_INVALID, "%s is too long along %s", variable->name,
                           variable->dim_names[along]);
        grid->begin[along] = variable->begin;
        grid->end[along] += variable->begin;
    } while (number + first->parts < self->grid_count && variables[number + first->parts].goes_on);
    return MH_OK;
}

static mh_status take_dims(mh_windows *self, mh_grid *grid, mh_error *err)
{
    const mh_variable *variable = grid->variable;
    for (uint32_t k = 0; k < variable->dims; k++) {
        const uint32_t d = dim_called(self, variable->dim_names[k]);
        const uint64_t length = grid[grid->parts - 1].end[k];
        for (uint32_t before = 0; before < k; before++)
            if (grid->dim[before] == d)
                return mh_fail(err, MH_ERR_UNSUPPORTED, "%s has the dimension %s twice",
                               variable->name, variable->dim_names[k]);
        if (d == MH_DIMS_MOST)
            return mh_fail(err, MH_ERR_UNSUPPORTED,
                           "the fields have more than %d dimensions together: choose some fields",
                           MH_DIMS_MOST);
        if (d == self->dim_count)
            self->dims[self->dim_count++] =
                (mh_window_dim){.name = variable->dim_names[k], .length = length};
        if (self->dims[d].length != length)
            return mh_fail(err, MH_ERR_INVALID,
                           "%s is %llu long in %s and %llu in another field: choose fields that "
                           "agree",
                           self->dims[d].name, (unsigned long long)length, variable->name,
                           (unsigned long long)self->dims[d].length);
        grid->dim[k] = d;
    }
    for (uint32_t part = 1; part < grid->parts; part++)
        memcpy(grid[part].dim, grid->dim, sizeof grid->dim);
    return MH_OK;
}

/* --- one variable --- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The most chunks that a window reaches into along a dimension: origins lie at all multiples of the
 * divisor that stride and chunk have in common, counted from the first, and the last such place in
 * a chunk is the worst. */
static uint64_t most_along(const mh_window_dim *dim, uint64_t chunk, int64_t target,
                           uint64_t chunks)
{
    const uint64_t step = common_divisor(dim->stride, chunk);
    const uint64_t first = (uint64_t)((int64_t)dim->first + target) % step;
    const uint64_t most = (chunk - step + first + dim->window - 1) / chunk + 1;
    return most < chunks ? most : chunks;
}

/* The same where parts are joined, for any origins. The worst one is the last place of some chunk:
 * from each of them on, up to the chunk in which the window ends. */
static uint64_t most_across(const mh_grid *parts, uint32_t k, uint64_t window)
{
    const mh_grid *last = parts + parts->parts - 1, *at = parts; /* `at` has the window's end */
    uint64_t most = 0, begun = 0, before = 0; /* chunks before the first one, and before `at` */
    for (const mh_grid *grid = parts; grid <= last; begun += grid++->chunks_along[k]) {
        const uint64_t chunk = grid->variable->chunk[k];
        for (uint64_t c = 0; c < grid->chunks_along[k]; c++) {
            uint64_t place = grid->begin[k] + (c + 1) * chunk;
            place = (place < grid->end[k] ? place : grid->end[k]) + window - 2;
            place = place < last->end[k] ? place : last->end[k] - 1;
            while (place >= at->end[k])
                before += at++->chunks_along[k];
            const uint64_t end = before + (place - at->begin[k]) / at->variable->chunk[k] + 1;
            most = end - begun - c > most ? end - begun - c : most;
        }
    }
    return most;
}

/* The most chunks of a variable that a window, or its target, reaches into. */
static uint64_t most_of(const mh_windows *self, const mh_grid *parts, int target)
{
    const mh_variable *variable = parts->variable;
    uint64_t units = 1;
    for (uint32_t k = 0; k < variable->dims; k++) {
        const mh_window_dim *dim = &self->dims[parts->dim[k]];
        const bool joined = parts->parts > 1 && k == variable->along;
        if (!dim->count)
            return 0;
        const uint64_t most = joined ? most_across(parts, k, dim->window)
                                     : most_along(dim, variable->chunk[k], target ? dim->target : 0,
                                                  parts->chunks_along[k]);
        if (__builtin_mul_overflow(units, most, &units) || units > UNITS_MOST)
            return UNITS_MOST;
    }
    return units;
}

static mh_status take_grid(mh_windows *self, mh_grid *grid, mh_error *err)
{
    const mh_variable *variable = grid->variable;
    uint64_t step;
    MH_TRY(mh_variable_check(variable, &grid->chunk_bytes, &grid->chunks, err));
    mh_status status = mh_convert_init(&grid->convert, variable->dtype, variable->swapped,
                                       &variable->decoding, err);
    if (status != MH_OK) {
        mh_error_prefix(err, "%s", variable->name);
        return status;
    }
    step = grid->convert.delivered_bytes;
    for (uint32_t k = variable->dims; k-- > 0;) {
        grid->chunks_along[k] = mh_variable_chunks_along(variable, k);
        grid->into_steps[k] = step;
        if (__builtin_mul_overflow(step, self->dims[grid->dim[k]].window, &step) ||
            step > COUNT_MOST)
            return mh_fail(err, MH_ERR_INVALID, "a window of %s is too large", variable->name);
    }
    grid->first_unit = self->unit_count;
    self->unit_count += grid->chunks;
    return self->unit_count < COUNT_MOST ? MH_OK
                                         : mh_fail(err, MH_ERR_INVALID, "too many chunks in all");
}

static mh_status take_variable(mh_windows *self, mh_grid *parts, mh_error *err)
{
    uint64_t chunks = 0;
    for (uint32_t part = 0; part < parts->parts; part++) {
        MH_TRY(take_grid(self, &parts[part], err));
        chunks += parts[part].chunks;
    }
    uint64_t most = most_of(self, parts, 0) + (self->has_target ? most_of(self, parts, 1) : 0);
    most = most < chunks ? most : chunks;
    if (most + self->units_most > UNITS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "a window reaches into over %llu chunks of %s: take a smaller one",
                       (unsigned long long)UNITS_MOST, parts->variable->name);
    self->units_most += (uint32_t)most;
    return MH_OK;
}

/* --- fields --- */

static char *field_name(const mh_windows *self, const mh_variable *variable, int target)
{
    const size_t room = strlen(variable->name) + sizeof "target_";
    char *name = mh_calloc(room, 1);
    if (name && target)
        (void)snprintf(name, room, self->variable_count == 1 ? "target" : "target_%s",
                       variable->name);
    else if (name)
        (void)snprintf(name, room, "%s", variable->name);
    return name;
}

static mh_status make_field(mh_windows *self, uint32_t number, int target, mh_error *err)
{
    mh_grid *grid = &self->grids[number];
    const uint32_t seat = (uint32_t)self->field_count;
    mh_window_field *field = &self->fields[self->field_count++];
    *field = (mh_window_field){.name = field_name(self, grid->variable, target),
                               .variable = number,
                               .target = target,
                               .dtype = grid->convert.delivered,
                               .dims = grid->variable->dims,
                               .seat = seat};
    if (!field->name)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for windows");
    for (uint32_t k = 0; k < field->dims; k++)
        field->shape[k] = (int64_t)self->dims[grid->dim[k]].window;
    grid->seats[target] = seat;
    return MH_OK;
}

static mh_status make_fields(mh_windows *self, mh_error *err)
{
    self->fields = mh_calloc(2 * self->grid_count, sizeof *self->fields);
    if (!self->fields)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for windows");
    for (int target = 0; target <= self->has_target; target++)
        for (size_t i = 0; i < self->grid_count; i += self->grids[i].parts)
            MH_TRY(make_field(self, (uint32_t)i, target, err));
    return MH_OK;
}

static mh_status fill(mh_windows *self, const mh_variable *variables, const mh_window_texts *texts,
                      mh_coordinate_lookup *lookup, void *context, mh_error *err)
{
    for (size_t i = 0; i < self->grid_count; i += self->grids[i].parts) {
        MH_TRY(lay_parts(self, variables, i, err));
        MH_TRY(take_dims(self, &self->grids[i], err));
        self->variable_count++;
    }
    MH_TRY(mh_window_dims_read(self->dims, self->dim_count, texts, lookup, context,
                               &self->has_target, err));
    self->count = 1;
    for (uint32_t d = 0; d < self->dim_count; d++)
        if (__builtin_mul_overflow(self->count, self->dims[d].count, &self->count) ||
            self->count > COUNT_MOST)
            return mh_fail(err, MH_ERR_INVALID, "there are more than 2^62 windows");
    for (size_t i = 0; i < self->grid_count; i += self->grids[i].parts)
        MH_TRY(take_variable(self, &self->grids[i], err));
    return make_fields(self, err);
}

mh_status mh_windows_new(mh_windows **out, const mh_variable *variables, size_t count,
                         const mh_window_texts *texts, mh_coordinate_lookup *lookup, void *context,
                         mh_error *err)
{
    if (count == 0)
        return mh_fail(err, MH_ERR_INVALID, "no array to take windows of");
    mh_windows *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for windows");
    self->grid_count = count;
    self->grids = mh_calloc(count, sizeof *self->grids);
    mh_status status = self->grids ? fill(self, variables, texts, lookup, context, err)
                                   : mh_fail(err, MH_ERR_NOMEM, "no memory for windows");
    if (status != MH_OK) {
        mh_windows_free(self);
        return status;
    }
    *out = self;
    return MH_OK;
}

void mh_windows_free(mh_windows *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->field_count; i++)
        mh_free(self->fields[i].name);
    mh_free(self->fields);
    mh_free(self->grids);
    mh_free(self);
}

/* --- looking --- */

uint64_t mh_windows_count(const mh_windows *self)
{
    return self->count;
}

const mh_window_dim *mh_windows_dims(const mh_windows *self, uint32_t *out_count)
{
    *out_count = self->dim_count;
    return self->dims;
}

const mh_window_field *mh_windows_field(const mh_windows *self, size_t at)
{
    return at < self->field_count ? &self->fields[at] : NULL;
}

void mh_windows_seat_fields(mh_windows *self, const uint32_t *fields, size_t count)
{
    for (size_t i = 0; i < self->field_count; i++)
        self->fields[i].seat = MH_NOT_SEATED;
    for (size_t i = 0; i < count; i++)
        if (fields[i] < self->field_count)
            self->fields[fields[i]].seat = (uint32_t)i;
    for (size_t i = 0; i < self->field_count; i++)
        self->grids[self->fields[i].variable].seats[self->fields[i].target] = self->fields[i].seat;
}

uint64_t mh_windows_unit_count(const mh_windows *self)
{
    return self->unit_count;
}

uint32_t mh_windows_units_most(const mh_windows *self)
{
    return self->units_most;
}

uint64_t mh_windows_unit_id(const mh_windows *self, uint32_t variable, uint64_t number)
{
    return self->grids[variable].first_unit + number;
}

mh_chunk mh_windows_chunk(const mh_windows *self, uint64_t id)
{
    size_t low = 0, high = self->grid_count; /* the last grid that begins at or before id */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(self->grids[middle].first_unit <= id ? &low : &high) = middle;
    }
    while (self->grids[low].chunks == 0 && low > 0) /* arrays of length 0 begin there too */
        low--;
    const mh_grid *grid = &self->grids[low];
    mh_chunk chunk = {.variable = (uint32_t)low, .number = id - grid->first_unit};
    uint64_t rest = chunk.number;
    for (uint32_t k = grid->variable->dims; k-- > 0; rest /= grid->chunks_along[k])
        chunk.at[k] = rest % grid->chunks_along[k];
    return chunk;
}
