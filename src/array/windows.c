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

static mh_status take_dims(mh_windows *self, mh_grid *grid, mh_error *err)
{
    const mh_variable *variable = grid->variable;
    for (uint32_t k = 0; k < variable->dims; k++) {
        const uint32_t d = dim_called(self, variable->dim_names[k]);
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
                (mh_window_dim){.name = variable->dim_names[k], .length = variable->shape[k]};
        if (self->dims[d].length != variable->shape[k])
            return mh_fail(err, MH_ERR_INVALID,
                           "%s is %llu long in %s and %llu in another field: choose fields that "
                           "agree",
                           self->dims[d].name, (unsigned long long)variable->shape[k],
                           variable->name, (unsigned long long)self->dims[d].length);
        grid->dim[k] = d;
    }
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

static mh_status take_grid(mh_windows *self, mh_grid *grid, mh_error *err)
{
    const mh_variable *variable = grid->variable;
    uint64_t step, units[2] = {1, 1};
    MH_TRY(mh_variable_check(variable, &grid->chunk_bytes, &grid->chunks, err));
    mh_status status = mh_convert_init(&grid->convert, variable->dtype, variable->swapped,
                                       &variable->decoding, err);
    if (status != MH_OK) {
        mh_error_prefix(err, "%s", variable->name);
        return status;
    }
    step = grid->convert.delivered_bytes;
    for (uint32_t k = variable->dims; k-- > 0;) {
        const mh_window_dim *dim = &self->dims[grid->dim[k]];
        grid->chunks_along[k] = mh_variable_chunks_along(variable, k);
        grid->into_steps[k] = step;
        if (__builtin_mul_overflow(step, dim->window, &step) || step > COUNT_MOST)
            return mh_fail(err, MH_ERR_INVALID, "a window of %s is too large", variable->name);
        for (int target = 0; target <= self->has_target && dim->count; target++)
            if (__builtin_mul_overflow(units[target],
                                       most_along(dim, variable->chunk[k], target ? dim->target : 0,
                                                  grid->chunks_along[k]),
                                       &units[target]))
                units[target] = UINT64_MAX / 4;
    }
    uint64_t most = units[0] > UNITS_MOST ? UNITS_MOST : units[0];
    if (self->has_target)
        most += units[1] > UNITS_MOST ? UNITS_MOST : units[1];
    most = most < grid->chunks ? most : grid->chunks;
    if (most + self->units_most > UNITS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "a window reaches into over %llu chunks of %s: take a smaller one",
                       (unsigned long long)UNITS_MOST, variable->name);
    self->units_most += (uint32_t)most;
    grid->first_unit = self->unit_count;
    self->unit_count += grid->chunks;
    return self->unit_count < COUNT_MOST ? MH_OK
                                         : mh_fail(err, MH_ERR_INVALID, "too many chunks in all");
}

/* --- fields --- */

static char *field_name(const mh_windows *self, const mh_variable *variable, int target)
{
    const size_t room = strlen(variable->name) + sizeof "target_";
    char *name = mh_calloc(room, 1);
    if (name && target)
        (void)snprintf(name, room, self->grid_count == 1 ? "target" : "target_%s", variable->name);
    else if (name)
        (void)snprintf(name, room, "%s", variable->name);
    return name;
}

static mh_status make_fields(mh_windows *self, mh_error *err)
{
    const size_t count = self->grid_count * (self->has_target ? 2 : 1);
    self->fields = mh_calloc(count ? count : 1, sizeof *self->fields);
    if (!self->fields)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for windows");
    for (size_t i = 0; i < count; i++) {
        const int target = i >= self->grid_count;
        const uint32_t number = (uint32_t)(i % self->grid_count);
        mh_grid *grid = &self->grids[number];
        mh_window_field *field = &self->fields[self->field_count++];
        *field = (mh_window_field){.name = field_name(self, grid->variable, target),
                                   .variable = number,
                                   .target = target,
                                   .dtype = grid->convert.delivered,
                                   .dims = grid->variable->dims};
        if (!field->name)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for windows");
        for (uint32_t k = 0; k < field->dims; k++)
            field->shape[k] = (int64_t)self->dims[grid->dim[k]].window;
        grid->seats[target] = field->seat = (uint32_t)i;
    }
    return MH_OK;
}

static mh_status fill(mh_windows *self, const mh_variable *variables, const mh_window_texts *texts,
                      mh_coordinate_lookup *lookup, void *context, mh_error *err)
{
    for (size_t i = 0; i < self->grid_count; i++) {
        self->grids[i] =
            (mh_grid){.variable = &variables[i], .seats = {MH_NOT_SEATED, MH_NOT_SEATED}};
        MH_TRY(take_dims(self, &self->grids[i], err));
    }
    MH_TRY(mh_window_dims_read(self->dims, self->dim_count, texts, lookup, context,
                               &self->has_target, err));
    self->count = 1;
    for (uint32_t d = 0; d < self->dim_count; d++)
        if (__builtin_mul_overflow(self->count, self->dims[d].count, &self->count) ||
            self->count > COUNT_MOST)
            return mh_fail(err, MH_ERR_INVALID, "there are more than 2^62 windows");
    for (size_t i = 0; i < self->grid_count; i++)
        MH_TRY(take_grid(self, &self->grids[i], err));
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
