/* amplification.c - what windows cost, and blocks that keep it low
 * SPDX-License-Identifier: Apache-2.0
 *
 * All is computed from sums over single dimensions (touched.h). Variables whose chunks have the
 * same lengths have the same sums: they are taken together as one kind.
 */
#include "array/amplification.h"

#include "array/plan.h"
#include "array/touched.h"
#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

#define CANDIDATES_MOST 20 /* lengths of cells along a dimension */
#define TRIED_MOST 200000  /* combinations of them */

typedef struct kind {
    mh_cuts cuts[MH_DIMS_MOST]; /* of each of the windows' dimensions */
    mh_cut *list;               /* what they point into */
    double value_bytes;         /* of a value of each of its variables */
    double variables;
} kind;

/* Of one kind, one dimension and one length of cells. */
typedef struct term {
    mh_touched sum, most;
} term;

/* Chunks of all cells, their bytes, and the bytes of the cell that has the most. */
typedef struct total {
    double chunks, bytes, most;
} total;

typedef struct costs {
    const mh_windows *windows;
    kind *kinds;
    size_t kind_count;
} costs;

static void free_kinds(costs *self)
{
    for (size_t i = 0; self->kinds && i < self->kind_count; i++)
        mh_free(self->kinds[i].list);
    mh_free(self->kinds);
}

/* The cuts of a dimension, from `list` on; gives how many there are. */
static size_t cut_dimension(const mh_grid *parts, uint32_t k, mh_cut *list)
{
    const uint32_t count = k == parts->variable->along ? parts->parts : 1;
    uint64_t number = 0, values = 0;
    size_t made = 0;
    for (uint32_t part = 0; part < count; part++) {
        const uint64_t chunk = parts[part].variable->chunk[k];
        const uint64_t chunks = mh_variable_chunks_along(parts[part].variable, k);
        if (chunks == 0 && count > 1)
            continue;
        list[made++] = (mh_cut){parts[part].begin[k], chunk, number, values};
        number += chunks;
        values += chunks * chunk;
    }
    return made;
}

/* The variable as a kind of its own; its list is freed by the caller. */
static mh_status kind_of(kind *out, const mh_grid *parts, mh_error *err)
{
    *out = (kind){.variables = 1, .value_bytes = parts->convert.stored_bytes};
    out->list = mh_calloc(parts->variable->dims + (size_t)parts->parts, sizeof *out->list);
    if (!out->list)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the cost of windows");
    mh_cut *next = out->list;
    for (uint32_t k = 0; k < parts->variable->dims; k++) {
        mh_cuts *cuts = &out->cuts[parts->dim[k]];
        *cuts = (mh_cuts){next, cut_dimension(parts, k, next)};
        next += cuts->count;
    }
    return MH_OK;
}

static bool is_same(const kind *a, const kind *b)
{
    for (uint32_t d = 0; d < MH_DIMS_MOST; d++)
        if (a->cuts[d].count != b->cuts[d].count ||
            (a->cuts[d].count && memcmp(a->cuts[d].list, b->cuts[d].list,
                                        a->cuts[d].count * sizeof *a->cuts[d].list) != 0))
            return false;
    return true;
}

static mh_status find_kinds(costs *self, const mh_windows *windows, mh_error *err)
{
    self->windows = windows;
    self->kinds = mh_calloc(windows->grid_count, sizeof *self->kinds);
    if (!self->kinds)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the cost of windows");
    for (size_t i = 0; i < windows->grid_count; i += windows->grids[i].parts) {
        kind found;
        MH_TRY(kind_of(&found, &windows->grids[i], err));
        size_t at = 0;
        while (at < self->kind_count && !is_same(&self->kinds[at], &found))
            at++;
        if (at == self->kind_count) {
            self->kinds[self->kind_count++] = found;
            continue;
        }
        self->kinds[at].value_bytes += found.value_bytes;
        self->kinds[at].variables++;
        mh_free(found.list);
    }
    return MH_OK;
}

static double union_of(const mh_windows *windows, const mh_reach *product)
{
    return windows->has_target ? product->window + product->target - product->both
                               : product->window;
}

static void multiply(mh_reach *product, const mh_reach *factor)
{
    product->window *= factor->window;
    product->target *= factor->target;
    product->both *= factor->both;
}

/* terms[kind * dims + d] is to be used. */
static total add_up(const costs *self, const term *const *terms)
{
    const uint32_t dims = self->windows->dim_count;
    total found = {0};
    for (size_t i = 0; i < self->kind_count; i++) {
        const kind *of = &self->kinds[i];
        mh_reach chunks = {1, 1, 1}, values = {1, 1, 1}, largest = {1, 1, 1};
        for (uint32_t d = 0; d < dims; d++) {
            multiply(&chunks, &terms[i * dims + d]->sum.chunks);
            multiply(&values, &terms[i * dims + d]->sum.values);
            multiply(&largest, &terms[i * dims + d]->most.values);
        }
        found.chunks += of->variables * union_of(self->windows, &chunks);
        found.bytes += of->value_bytes * union_of(self->windows, &values);
        found.most +=
            of->value_bytes * (largest.window + (self->windows->has_target ? largest.target : 0));
    }
    return found;
}

/* The same with cells of these lengths; NULL: each sample alone. */
static mh_status add_up_cells(const costs *self, const uint64_t *cell, total *out, mh_error *err)
{
    const uint32_t dims = self->windows->dim_count;
    const size_t count = self->kind_count * dims;
    term *terms = mh_calloc(count + 1, sizeof *terms);
    const term **used = mh_calloc(count + 1, sizeof *used);
    for (size_t n = 0; terms && used && n < count; n++) {
        const mh_window_dim *dim = &self->windows->dims[n % dims];
        mh_touched_sum(dim, self->kinds[n / dims].cuts[n % dims], cell ? cell[n % dims] : 1,
                       &terms[n].sum, &terms[n].most);
        used[n] = &terms[n];
    }
    const int made = terms && used;
    if (made)
        *out = add_up(self, used);
    mh_free(terms);
    mh_free(used);
    return made ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for the cost of windows");
}

static double useful_bytes(const mh_windows *windows)
{
    double bytes = 0;
    for (size_t i = 0; i < windows->grid_count; i += windows->grids[i].parts) {
        const mh_grid *grid = &windows->grids[i];
        double values = grid->convert.stored_bytes;
        for (uint32_t k = 0; k < grid->variable->dims; k++)
            values *= (double)windows->dims[grid->dim[k]].window;
        bytes += values * (windows->has_target ? 2 : 1);
    }
    return bytes;
}

static mh_status cost_of(const costs *self, const uint64_t *cell, mh_amplification *out,
                         mh_error *err)
{
    uint64_t whole[MH_DIMS_MOST];
    total cells, all, alone;
    const mh_windows *windows = self->windows;
    mh_amplification made = {.factor = 1, .useful_bytes = useful_bytes(windows)};
    for (uint32_t d = 0; d < windows->dim_count; d++)
        whole[d] = windows->dims[d].length + 1;
    if (windows->count > 0) {
        MH_TRY(add_up_cells(self, cell, &cells, err));
        MH_TRY(add_up_cells(self, whole, &all, err));
        MH_TRY(add_up_cells(self, NULL, &alone, err));
        made.decoded_bytes = cells.bytes;
        made.decoded_chunks = cells.chunks;
        made.block_bytes = cells.most;
        made.unique_bytes = all.bytes;
        made.sample_bytes = alone.bytes / (double)windows->count;
        made.sample_chunks = alone.chunks / (double)windows->count;
        made.factor = made.decoded_bytes / made.unique_bytes;
    }
    *out = made;
    return MH_OK;
}

mh_status mh_amplification_of(const mh_windows *windows, const uint64_t *cell,
                              mh_amplification *out, mh_error *err)
{
    costs self = {0};
    mh_status status = find_kinds(&self, windows, err);
    if (status == MH_OK)
        status = cost_of(&self, cell, out, err);
    free_kinds(&self);
    return status;
}

/* --- choosing --- */

/* Lengths that cells may have along each dimension, in chunks, and what each costs. */
typedef struct search {
    costs costs;
    uint32_t tried[MH_DIMS_MOST];
    uint64_t cell[MH_DIMS_MOST][CANDIDATES_MOST];
    term *terms; /* [kind][dimension][candidate] */
    const term **used;
    double unique, good_bytes; /* bytes that blocks may have */
    uint32_t at[MH_DIMS_MOST], best[MH_DIMS_MOST];
    double best_factor, best_bytes;
} search;

static uint64_t largest_chunk(const costs *self, uint32_t d)
{
    uint64_t largest = 1;
    for (size_t i = 0; i < self->kind_count; i++)
        for (size_t n = 0; n < self->kinds[i].cuts[d].count; n++)
            if (self->kinds[i].cuts[d].list[n].chunk > largest)
                largest = self->kinds[i].cuts[d].list[n].chunk;
    return largest;
}

/* 1, 2, 3, 4, 6, 8, 12, ... chunks, up to the whole dimension. */
static void find_candidates(search *self)
{
    const mh_windows *windows = self->costs.windows;
    for (uint32_t d = 0; d < windows->dim_count; d++) {
        const mh_window_dim *dim = &windows->dims[d];
        const uint64_t chunk = largest_chunk(&self->costs, d);
        const uint64_t end = dim->first + (dim->count ? dim->count - 1 : 0) * dim->stride + 1;
        uint64_t chunks = 1;
        do {
            self->cell[d][self->tried[d]++] = chunks * chunk;
            if (chunks * chunk >= end)
                break;
            chunks = chunks < 3                ? chunks + 1
                     : (chunks & (chunks - 1)) ? chunks / 3 * 4
                                               : chunks / 2 * 3;
        } while (self->tried[d] < CANDIDATES_MOST && dim->count > 1);
    }
}

static mh_status find_terms(search *self, mh_error *err)
{
    const mh_windows *windows = self->costs.windows;
    const size_t count = self->costs.kind_count * windows->dim_count;
    self->terms = mh_calloc(count * CANDIDATES_MOST + 1, sizeof *self->terms);
    self->used = mh_calloc(count + 1, sizeof *self->used);
    if (!self->terms || !self->used)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the cost of windows");
    for (size_t n = 0; n < count; n++) {
        const uint32_t d = (uint32_t)(n % windows->dim_count);
        const mh_cuts cuts = self->costs.kinds[n / windows->dim_count].cuts[d];
        for (uint32_t c = 0; c < self->tried[d]; c++) {
            term *one = &self->terms[n * CANDIDATES_MOST + c];
            mh_touched_sum(&windows->dims[d], cuts, self->cell[d][c], &one->sum, &one->most);
        }
    }
    return MH_OK;
}

/* A good factor beats any other, and of good ones the smallest blocks do; else what fits beats what
 * does not, and then the least factor does. */
static void judge(search *self)
{
    const uint32_t dims = self->costs.windows->dim_count;
    for (size_t n = 0; n < self->costs.kind_count * dims; n++)
        self->used[n] = &self->terms[n * CANDIDATES_MOST + self->at[n % dims]];
    const total found = add_up(&self->costs, self->used);
    const double bytes = found.most, factor = found.bytes / self->unique;
    const int fits = bytes <= self->good_bytes, good = fits && factor <= MH_AMPLIFICATION_GOOD;
    const int best_fits = self->best_bytes <= self->good_bytes;
    const int best_good = best_fits && self->best_factor <= MH_AMPLIFICATION_GOOD;
    int better = good != best_good ? good : fits != best_fits ? fits : factor < self->best_factor;
    if (good == best_good && fits == best_fits && (good || !fits))
        better = bytes < self->best_bytes;
    if (!better && self->best_bytes >= 0)
        return;
    memcpy(self->best, self->at, sizeof self->best);
    self->best_factor = factor;
    self->best_bytes = bytes;
}

static void try_all(search *self)
{
    const uint32_t dims = self->costs.windows->dim_count;
    self->best_bytes = -1;
    for (uint32_t tried = 0; tried < TRIED_MOST; tried++) {
        judge(self);
        uint32_t d = dims;
        while (d-- > 0) {
            if (++self->at[d] < self->tried[d])
                break;
            self->at[d] = 0;
        }
        if (d == UINT32_MAX)
            return;
    }
}

static mh_status choose(search *self, uint64_t pool_bytes, mh_cells *out, uint32_t *out_parts,
                        mh_amplification *out_cost, mh_error *err)
{
    const mh_windows *windows = self->costs.windows;
    uint64_t cell[MH_DIMS_MOST] = {0};
    find_candidates(self);
    for (uint32_t d = 0; d < windows->dim_count; d++)
        cell[d] = self->cell[d][0];
    MH_TRY(cost_of(&self->costs, cell, out_cost, err));
    self->unique = out_cost->unique_bytes;
    self->good_bytes = (double)pool_bytes / MH_PARTS_LEAST;
    if (windows->count > 0 && windows->dim_count > 0) {
        MH_TRY(find_terms(self, err));
        try_all(self);
        for (uint32_t d = 0; d < windows->dim_count; d++)
            cell[d] = self->cell[d][self->best[d]];
        MH_TRY(cost_of(&self->costs, cell, out_cost, err));
    }
    *out = (mh_cells){.dims = windows->dim_count};
    for (uint32_t d = 0; d < windows->dim_count; d++)
        out->dim[d] = (mh_cells_dim){.count = windows->dims[d].count,
                                     .start = windows->dims[d].first,
                                     .stride = windows->dims[d].stride,
                                     .cell = cell[d]};
    const double parts = (double)pool_bytes / (out_cost->block_bytes + 1);
    *out_parts = parts < MH_PARTS_LEAST  ? MH_PARTS_LEAST
                 : parts > MH_PARTS_MOST ? MH_PARTS_MOST
                                         : (uint32_t)parts;
    return MH_OK;
}

mh_status mh_blocks_choose(const mh_windows *windows, uint64_t pool_bytes, mh_cells *out,
                           uint32_t *out_parts, mh_amplification *out_cost, mh_error *err)
{
    search *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the cost of windows");
    mh_status status = find_kinds(&self->costs, windows, err);
    if (status == MH_OK)
        status = choose(self, pool_bytes, out, out_parts, out_cost, err);
    free_kinds(&self->costs);
    mh_free(self->terms);
    mh_free(self->used);
    mh_free(self);
    return status;
}
