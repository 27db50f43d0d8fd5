/* chunkings.c - what windows cost in an order and a memory, with the chunks there are or others
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/chunkings.h"

#include "array/plan.h"
#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

#define LENGTHS_MOST 10 /* tried along a dimension */
#define FINALISTS 10    /* of a class of size: these are computed exactly */
#define CLASS_LEAST (UINT64_C(256) << 10)

/* --- the cost of an order --- */

/* Row by row. With windows in the same place along the first `fixed` dimensions, and all of the
 * others: the chunks of such a slab are what must stay for the next one to find them. */
static mh_status slab_cost(const mh_windows *windows, uint32_t fixed, mh_amplification *out,
                           mh_error *err)
{
    uint64_t cell[MH_DIMS_MOST] = {0};
    for (uint32_t d = 0; d < windows->dim_count; d++)
        cell[d] = d < fixed ? 1 : windows->dims[d].length + 1;
    return mh_amplification_of(windows, cell, out, err);
}

static mh_status cost_in_rows(const mh_windows *windows, uint64_t memory_bytes, mh_chunking *out,
                              mh_error *err)
{
    mh_amplification slab;
    for (uint32_t d = 0; d <= windows->dim_count; d++) {
        MH_TRY(slab_cost(windows, d + 1, &slab, err));
        if (d == 0)
            out->enough_bytes = slab.block_bytes;
        if (slab.block_bytes <= (double)memory_bytes || d + 1 >= windows->dim_count)
            return slab_cost(windows, d, &out->cost, err);
    }
    return MH_OK;
}

/* Some of what is decoded `least` times with enough memory is not there when it is wanted next. */
static void want_memory(mh_chunking *out, uint64_t samples, uint64_t memory_bytes)
{
    mh_amplification *cost = &out->cost;
    const double alone = cost->sample_bytes * (double)samples;
    if (out->enough_bytes <= (double)memory_bytes)
        return;
    const double lost = 1 - (double)memory_bytes / out->enough_bytes;
    cost->decoded_chunks += lost * (cost->sample_chunks * (double)samples - cost->decoded_chunks);
    cost->decoded_bytes += lost * (alone - cost->decoded_bytes);
    cost->factor = cost->unique_bytes > 0 ? cost->decoded_bytes / cost->unique_bytes : 1;
}

static mh_status cost_in_order(const mh_windows *windows, mh_reading reading, uint64_t memory_bytes,
                               mh_chunking *out, mh_error *err)
{
    mh_cells cells;
    uint32_t parts;
    if (reading == MH_READING_ROWS)
        return cost_in_rows(windows, memory_bytes, out, err);
    if (reading == MH_READING_ANYWHERE) {
        MH_TRY(slab_cost(windows, 0, &out->cost, err));
        out->enough_bytes = out->cost.unique_bytes;
    } else {
        MH_TRY(mh_blocks_choose(windows, MH_POOL_BYTES, &cells, &parts, &out->cost, err));
        out->enough_bytes = out->cost.block_bytes * parts;
        if (out->enough_bytes > out->cost.unique_bytes)
            out->enough_bytes = out->cost.unique_bytes;
    }
    want_memory(out, windows->count, memory_bytes);
    return MH_OK;
}

/* The grid whose chunks are the largest: it stands for all. */
static const mh_grid *largest_grid(const mh_windows *windows)
{
    const mh_grid *found = &windows->grids[0];
    for (size_t i = 1; i < windows->grid_count; i++)
        if (windows->grids[i].chunk_bytes > found->chunk_bytes)
            found = &windows->grids[i];
    return found;
}

mh_status mh_chunking_of(const mh_windows *windows, mh_reading reading, uint64_t memory_bytes,
                         mh_chunking *out, mh_error *err)
{
    mh_chunking made = {0};
    const mh_grid *shown = largest_grid(windows);
    MH_TRY(cost_in_order(windows, reading, memory_bytes, &made, err));
    for (size_t i = 0; i < windows->grid_count; i++) /* what the shown one lacks, of the others */
        for (uint32_t k = 0; k < windows->grids[i].variable->dims; k++)
            made.chunk[windows->grids[i].dim[k]] = windows->grids[i].variable->chunk[k];
    for (uint32_t k = 0; k < shown->variable->dims; k++)
        made.chunk[shown->dim[k]] = shown->variable->chunk[k];
    made.chunk_bytes = (double)shown->chunk_bytes;
    *out = made;
    return MH_OK;
}

/* --- other chunks --- */

/* The same windows over arrays of other chunks. */
typedef struct rechunked {
    mh_windows windows;
    mh_grid *grids;
    mh_variable *variables;
} rechunked;

static mh_status copy_windows(rechunked *out, const mh_windows *windows, mh_error *err)
{
    const size_t count = windows->grid_count;
    out->windows = *windows;
    out->grids = mh_calloc(count, sizeof *out->grids);
    out->variables = mh_calloc(count, sizeof *out->variables);
    if (!out->grids || !out->variables)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to compare chunks");
    memcpy(out->grids, windows->grids, count * sizeof *out->grids);
    for (size_t i = 0; i < count; i++) { /* parts stay parts: they are stores of their own */
        out->variables[i] = *windows->grids[i].variable;
        out->grids[i].variable = &out->variables[i];
    }
    out->windows.grids = out->grids;
    return MH_OK;
}

static void set_chunk(rechunked *copy, const uint64_t *chunk)
{
    for (size_t i = 0; i < copy->windows.grid_count; i++) {
        mh_grid *grid = &copy->grids[i];
        grid->chunk_bytes = grid->convert.stored_bytes;
        for (uint32_t k = 0; k < copy->variables[i].dims; k++) {
            copy->variables[i].chunk[k] = chunk[grid->dim[k]];
            grid->chunk_bytes *= chunk[grid->dim[k]];
        }
    }
}

/* Bytes of the largest chunk; as a number that does not overflow. */
static double bytes_of(const mh_windows *windows, const uint64_t *chunk)
{
    double most = 0;
    for (size_t i = 0; i < windows->grid_count; i++) {
        double bytes = windows->grids[i].convert.stored_bytes;
        for (uint32_t k = 0; k < windows->grids[i].variable->dims; k++)
            bytes *= (double)chunk[windows->grids[i].dim[k]];
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Chunks that a window anywhere reaches into along a dimension, mean. */
static double touched_along(const mh_window_dim *dim, uint64_t chunk)
{
    if (dim->count <= 1 || (dim->stride % chunk == 0 && dim->first % chunk == 0))
        return (double)((dim->window + chunk - 1) / chunk);
    return 1 + (double)(dim->window - 1) / (double)chunk;
}

/* --- which are tried --- */

typedef struct lengths {
    uint32_t count;
    uint64_t of[LENGTHS_MOST];
} lengths;

static void add_length(lengths *list, const mh_window_dim *dim, uint64_t length)
{
    length = length > dim->length ? dim->length : length;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->of[i] == length)
            return;
    if (length > 0)
        list->of[list->count++] = length;
}

static void find_lengths(lengths *list, const mh_window_dim *dim, uint64_t stored)
{
    const uint64_t window = dim->window;
    add_length(list, dim, 1);
    add_length(list, dim, dim->stride);
    add_length(list, dim, (window + 3) / 4);
    add_length(list, dim, (window + 1) / 2);
    add_length(list, dim, window);
    if (window <= dim->length / 4) {
        add_length(list, dim, 2 * window);
        add_length(list, dim, 4 * window);
    }
    add_length(list, dim, stored);
    add_length(list, dim, dim->length);
}

/* Those of one class of size, the one with the least first. */
typedef struct finalist {
    double guess; /* of what a sample alone costs */
    uint64_t chunk[MH_DIMS_MOST];
} finalist;

typedef struct contest {
    const mh_windows *windows;
    lengths along[MH_DIMS_MOST];
    finalist list[MH_CHUNKINGS_MOST][FINALISTS];
    size_t count[MH_CHUNKINGS_MOST];
} contest;

static double guess(const mh_windows *windows, const uint64_t *chunk, double bytes)
{
    double chunks = 1;
    for (uint32_t d = 0; d < windows->dim_count; d++)
        chunks *= touched_along(&windows->dims[d], chunk[d]);
    return chunks * (bytes + (double)MH_READ_COSTS_BYTES);
}

static void enter(contest *self, const uint64_t *chunk)
{
    const double bytes = bytes_of(self->windows, chunk);
    uint64_t most = CLASS_LEAST;
    size_t class = 0;
    for (; bytes > (double)most && class < MH_CHUNKINGS_MOST; most *= 4)
        class ++;
    if (class == MH_CHUNKINGS_MOST || bytes < 4096)
        return;
    finalist one = {.guess = guess(self->windows, chunk, bytes)};
    memcpy(one.chunk, chunk, sizeof one.chunk);
    finalist *list = self->list[class];
    size_t at = self->count[class];
    if (at == FINALISTS && list[--at].guess <= one.guess)
        return;
    for (; at > 0 && list[at - 1].guess > one.guess; at--)
        list[at] = list[at - 1];
    list[at] = one;
    self->count[class] += self->count[class] < FINALISTS;
}

static void enter_all(contest *self)
{
    const uint32_t dims = self->windows->dim_count;
    uint32_t at[MH_DIMS_MOST] = {0};
    uint64_t chunk[MH_DIMS_MOST] = {0};
    for (uint32_t tried = 0; tried < 200000; tried++) {
        for (uint32_t d = 0; d < dims; d++)
            chunk[d] = self->along[d].of[at[d]];
        enter(self, chunk);
        uint32_t d = dims;
        while (d-- > 0) {
            if (++at[d] < self->along[d].count)
                break;
            at[d] = 0;
        }
        if (d == UINT32_MAX)
            return;
    }
}

/* The best of a class. */
static mh_status judge(const contest *self, size_t class, rechunked *copy, mh_reading reading,
                       uint64_t memory_bytes, mh_chunking *out, mh_error *err)
{
    for (size_t i = 0; i < self->count[class]; i++) {
        mh_chunking made = {0};
        set_chunk(copy, self->list[class][i].chunk);
        MH_TRY(mh_chunking_of(&copy->windows, reading, memory_bytes, &made, err));
        if (i == 0 || mh_chunking_score(&made) < mh_chunking_score(out))
            *out = made;
    }
    return MH_OK;
}

static mh_status hold(contest *self, rechunked *copy, mh_reading reading, uint64_t memory_bytes,
                      mh_chunking *out, size_t *out_count, size_t *out_best, mh_error *err)
{
    const mh_windows *windows = self->windows;
    mh_chunking stored;
    size_t count = 0, best = 0;
    MH_TRY(copy_windows(copy, windows, err));
    MH_TRY(mh_chunking_of(windows, reading, memory_bytes, &stored, err));
    for (uint32_t d = 0; d < windows->dim_count; d++)
        find_lengths(&self->along[d], &windows->dims[d], stored.chunk[d]);
    enter_all(self);
    for (size_t class = 0; class < MH_CHUNKINGS_MOST; class ++) {
        if (!self->count[class])
            continue;
        MH_TRY(judge(self, class, copy, reading, memory_bytes, &out[count], err));
        if (mh_chunking_score(&out[count]) < mh_chunking_score(&out[best]))
            best = count;
        count++;
    }
    *out_count = count;
    *out_best = best;
    return MH_OK;
}

mh_status mh_chunkings_try(const mh_windows *windows, mh_reading reading, uint64_t memory_bytes,
                           mh_chunking out[MH_CHUNKINGS_MOST], size_t *out_count, size_t *out_best,
                           mh_error *err)
{
    rechunked copy = {0};
    *out_count = 0;
    if (windows->count == 0 || windows->dim_count == 0)
        return MH_OK;
    contest *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to compare chunks");
    self->windows = windows;
    mh_status status = hold(self, &copy, reading, memory_bytes, out, out_count, out_best, err);
    mh_free(copy.grids);
    mh_free(copy.variables);
    mh_free(self);
    return status;
}
