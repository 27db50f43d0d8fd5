/* place.c - the chunks of a sample, and its values copied out of them
 * SPDX-License-Identifier: Apache-2.0
 *
 * A sample's chunks are listed variable by variable and part by part: those of its window in C
 * order, then those of its target that are not among them. Placing walks the same list.
 */
#include "array/plan.h"

#include <string.h>

void mh_windows_origin_at(const mh_windows *self, uint64_t sample, uint64_t *out)
{
    for (uint32_t d = self->dim_count; d-- > 0;) {
        const mh_window_dim *dim = &self->dims[d];
        out[d] = dim->first + sample % dim->count * dim->stride;
        sample /= dim->count;
    }
}

void mh_windows_origin(const mh_windows *self, uint64_t sample, int64_t *out)
{
    uint64_t origin[MH_DIMS_MOST];
    mh_windows_origin_at(self, sample, origin);
    for (uint32_t d = 0; d < self->dim_count; d++)
        out[d] = (int64_t)origin[d];
}

static uint64_t begin_of(const mh_window_dim *dim, uint64_t origin, int target)
{
    return target ? (uint64_t)((int64_t)origin + dim->target) : origin;
}

mh_box mh_grid_box(const mh_windows *self, const mh_grid *grid, const uint64_t *origin, int target)
{
    const mh_variable *variable = grid->variable;
    mh_box box = {.dims = variable->dims};
    for (uint32_t k = 0; k < variable->dims; k++) {
        const mh_window_dim *dim = &self->dims[grid->dim[k]];
        const uint64_t begin = begin_of(dim, origin[grid->dim[k]], target);
        const uint64_t low = begin > grid->begin[k] ? begin : grid->begin[k];
        const uint64_t window_end = begin + dim->window;
        const uint64_t high = window_end < grid->end[k] ? window_end : grid->end[k];
        if (low >= high) {
            box.empty = true;
            return box;
        }
        box.first[k] = (low - grid->begin[k]) / variable->chunk[k];
        box.last[k] = (high - 1 - grid->begin[k]) / variable->chunk[k];
    }
    return box;
}

/* The parts of a variable from the first to the last that a sample needs something of. */
typedef struct parts {
    const mh_grid *first, *end;
} parts;

/* The one with that place; they have no gaps. */
static const mh_grid *part_at(const mh_grid *first, uint64_t place)
{
    const uint32_t k = first->variable->along;
    uint32_t low = 0, high = first->parts;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        *(first[middle].begin[k] <= place ? &low : &high) = middle;
    }
    return first + low;
}

static parts parts_of(const mh_windows *self, const mh_grid *first, const uint64_t *origin)
{
    if (first->parts == 1)
        return (parts){first, first + 1};
    const uint32_t d = first->dim[first->variable->along];
    const mh_window_dim *dim = &self->dims[d];
    const uint64_t window = origin[d], target = begin_of(dim, origin[d], self->has_target);
    return (parts){part_at(first, window < target ? window : target),
                   part_at(first, (window < target ? target : window) + dim->window - 1) + 1};
}

/* --- which chunks --- */

static uint64_t number_of(const mh_grid *grid, const uint64_t *at)
{
    uint64_t number = 0;
    for (uint32_t k = 0; k < grid->variable->dims; k++)
        number = number * grid->chunks_along[k] + at[k];
    return number;
}

static uint32_t list_box(const mh_grid *grid, const mh_box *box, const mh_box *but, uint64_t *ids)
{
    uint64_t at[MH_DIMS_MOST];
    uint32_t count = 0;
    if (box->empty)
        return 0;
    memcpy(at, box->first, sizeof at);
    do {
        if (!but || !mh_box_holds(but, at))
            ids[count++] = grid->first_unit + number_of(grid, at);
    } while (mh_box_step(box, at));
    return count;
}

uint32_t mh_windows_units_of(const mh_windows *self, uint64_t sample, uint64_t *ids)
{
    uint64_t origin[MH_DIMS_MOST];
    uint32_t count = 0;
    mh_windows_origin_at(self, sample, origin);
    for (size_t i = 0; i < self->grid_count; i += self->grids[i].parts) {
        const parts needed = parts_of(self, &self->grids[i], origin);
        for (const mh_grid *grid = needed.first; grid < needed.end; grid++) {
            const mh_box window = mh_grid_box(self, grid, origin, 0);
            count += list_box(grid, &window, NULL, ids + count);
            if (self->has_target) {
                const mh_box target = mh_grid_box(self, grid, origin, 1);
                count += list_box(grid, &target, &window, ids + count);
            }
        }
    }
    return count;
}

/* --- copying --- */

/* Values to copy: `lengths` of them along each dimension. */
typedef struct strip {
    uint32_t dims;
    uint64_t lengths[MH_DIMS_MOST];
    uint64_t from_steps[MH_DIMS_MOST], into_steps[MH_DIMS_MOST];
} strip;

/* Drops dimensions of length 1, and merges those that lie together on both sides. Rows get as long
 * as they can; along the last dimension that is left delivered values lie together. */
static void merge(strip *values, uint64_t from_step, uint64_t into_step)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < values->dims; k++) {
        const uint64_t length = values->lengths[k];
        if (length == 1)
            continue;
        if (kept > 0 && values->from_steps[kept - 1] == values->from_steps[k] * length &&
            values->into_steps[kept - 1] == values->into_steps[k] * length) {
            values->lengths[kept - 1] *= length;
        } else {
            values->lengths[kept++] = length;
        }
        values->from_steps[kept - 1] = values->from_steps[k];
        values->into_steps[kept - 1] = values->into_steps[k];
    }
    if (kept == 0 || values->into_steps[kept - 1] != into_step) {
        values->lengths[kept] = 1; /* rows of one value each */
        values->from_steps[kept] = from_step;
        values->into_steps[kept++] = into_step;
    }
    values->dims = kept;
}

/* Rows are along the last dimension, where delivered values lie together. */
static void copy(const mh_convert *convert, const strip *values, const uint8_t *from, uint8_t *into)
{
    const uint32_t row = values->dims - 1;
    uint64_t at[MH_DIMS_MOST] = {0};
    for (;;) {
        convert->row(convert, from, values->from_steps[row], into, values->lengths[row]);
        uint32_t k = row;
        while (k-- > 0) {
            from += values->from_steps[k];
            into += values->into_steps[k];
            if (++at[k] < values->lengths[k])
                break;
            from -= values->from_steps[k] * at[k];
            into -= values->into_steps[k] * at[k];
            at[k] = 0;
        }
        if (k == UINT32_MAX)
            return;
    }
}

/* What one chunk (NULL: missing) has of a window that begins at `begin`. */
static void place_chunk(const mh_windows *self, const mh_grid *grid, const uint64_t *begin,
                        const uint64_t *at, const uint8_t *chunk, uint8_t *into)
{
    const mh_variable *variable = grid->variable;
    strip values = {.dims = variable->dims};
    for (uint32_t k = 0; k < variable->dims; k++) {
        const uint64_t length = variable->chunk[k], first = grid->begin[k] + at[k] * length;
        const uint64_t window_end = begin[k] + self->dims[grid->dim[k]].window;
        const uint64_t end = window_end < grid->end[k] ? window_end : grid->end[k];
        const uint64_t low = first > begin[k] ? first : begin[k];
        const uint64_t high = first + length < end ? first + length : end;
        values.lengths[k] = high - low;
        values.from_steps[k] = chunk ? variable->steps[k] : 0;
        values.into_steps[k] = grid->into_steps[k];
        chunk = chunk ? chunk + (low - first) * variable->steps[k] : NULL;
        into += (low - begin[k]) * grid->into_steps[k];
    }
    merge(&values, grid->convert.stored_bytes, grid->convert.delivered_bytes);
    copy(&grid->convert, &values, chunk ? chunk : variable->fill, into);
}

/* --- a sample --- */

static const uint8_t *chunk_number(const mh_chunks *chunks, uint64_t number)
{
    return *(const uint8_t *const *)(const void *)((const uint8_t *)chunks->first +
                                                   number * chunks->step);
}

/* The first chunk of the variable is number `base`. Gives the number after the last one's. */
static uint64_t place_window(const mh_windows *self, const mh_grid *grid, const uint64_t *origin,
                             const mh_chunks *chunks, uint64_t base, int target, uint8_t *into)
{
    const mh_box window = mh_grid_box(self, grid, origin, 0);
    const mh_box box = target ? mh_grid_box(self, grid, origin, 1) : window;
    uint64_t at[MH_DIMS_MOST], begin[MH_DIMS_MOST];
    uint64_t own = base + mh_box_size(&window);
    if (box.empty)
        return own;
    memcpy(at, box.first, sizeof at);
    for (uint32_t k = 0; k < grid->variable->dims; k++)
        begin[k] = begin_of(&self->dims[grid->dim[k]], origin[grid->dim[k]], target);
    do {
        const uint64_t number =
            mh_box_holds(&window, at) ? base + mh_box_place(&window, at) : own++;
        if (into)
            place_chunk(self, grid, begin, at, chunk_number(chunks, number), into);
    } while (mh_box_step(&box, at));
    return own;
}

void mh_windows_place(const mh_windows *self, uint64_t sample, const mh_chunks *chunks,
                      uint8_t *const *into)
{
    uint64_t origin[MH_DIMS_MOST], base = 0;
    mh_windows_origin_at(self, sample, origin);
    for (size_t i = 0; i < self->grid_count; i += self->grids[i].parts) {
        const uint32_t *seats = self->grids[i].seats;
        const parts needed = parts_of(self, &self->grids[i], origin);
        for (const mh_grid *grid = needed.first; grid < needed.end; grid++) {
            uint64_t next = base;
            for (int target = 0; target <= self->has_target; target++)
                next = place_window(self, grid, origin, chunks, base, target,
                                    seats[target] == MH_NOT_SEATED ? NULL : into[seats[target]]);
            base = next;
        }
    }
}
