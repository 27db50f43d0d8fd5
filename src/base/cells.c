/* cells.c - samples in cells: which ones lie close together in storage
 * SPDX-License-Identifier: Apache-2.0
 *
 * Per dimension there are two cases. Where origins are at least a cell apart, each is alone in its
 * cell. Else no cell between the first origin and the last one is empty.
 */
#include "base/cells.h"

mh_cells mh_cells_of_runs(uint64_t samples, uint64_t size)
{
    return (mh_cells){.dims = 1, .dim = {{.count = samples, .stride = 1, .cell = size}}};
}

static uint64_t origin_at(const mh_cells_dim *dim, uint64_t number)
{
    return dim->start + number * dim->stride;
}

static uint64_t cells_along(const mh_cells_dim *dim)
{
    if (dim->count == 0 || dim->stride >= dim->cell)
        return dim->count;
    return origin_at(dim, dim->count - 1) / dim->cell - dim->start / dim->cell + 1;
}

/* The first origin of a cell; of the one after the last: the number of origins. */
static uint64_t first_in(const mh_cells_dim *dim, uint64_t cell)
{
    if (cell == 0 || dim->stride >= dim->cell)
        return cell;
    if (cell == cells_along(dim))
        return dim->count;
    uint64_t begin = (dim->start / dim->cell + cell) * dim->cell;
    return (begin - dim->start + dim->stride - 1) / dim->stride;
}

static uint64_t size_along(const mh_cells_dim *dim, uint64_t cell)
{
    return first_in(dim, cell + 1) - first_in(dim, cell);
}

static uint64_t cell_of(const mh_cells_dim *dim, uint64_t origin)
{
    if (dim->stride >= dim->cell)
        return origin;
    return origin_at(dim, origin) / dim->cell - dim->start / dim->cell;
}

uint64_t mh_cells_samples(const mh_cells *cells)
{
    uint64_t samples = cells->dims > 0;
    for (uint32_t d = 0; d < cells->dims; d++)
        samples *= cells->dim[d].count;
    return samples;
}

uint64_t mh_cells_count(const mh_cells *cells)
{
    uint64_t count = cells->dims > 0;
    for (uint32_t d = 0; d < cells->dims; d++)
        count *= cells_along(&cells->dim[d]);
    return count;
}

uint64_t mh_cells_size(const mh_cells *cells, uint64_t cell)
{
    uint64_t size = 1;
    for (uint32_t d = cells->dims; d-- > 0;) {
        const uint64_t along = cells_along(&cells->dim[d]);
        size *= size_along(&cells->dim[d], cell % along);
        cell /= along;
    }
    return size;
}

/* Between the first and the last cell sizes alternate unless the stride divides the cell. */
static uint64_t equal_size_along(const mh_cells_dim *dim)
{
    const uint64_t along = cells_along(dim);
    if (along == 0)
        return 0;
    const uint64_t first = size_along(dim, 0), last = size_along(dim, along - 1);
    const int even = along <= 2 || dim->stride >= dim->cell ||
                     (dim->cell % dim->stride == 0 && first == dim->cell / dim->stride);
    return even && first == last ? first : 0;
}

uint64_t mh_cells_equal_size(const mh_cells *cells)
{
    uint64_t size = cells->dims > 0;
    for (uint32_t d = 0; d < cells->dims; d++)
        size *= equal_size_along(&cells->dim[d]);
    return size;
}

/* From the last dimension to the first: digits of the cell, of the member in it, and so of the
 * sample. */
uint64_t mh_cells_sample(const mh_cells *cells, uint64_t cell, uint64_t member)
{
    uint64_t sample = 0, weight = 1;
    for (uint32_t d = cells->dims; d-- > 0;) {
        const mh_cells_dim *dim = &cells->dim[d];
        const uint64_t along = cells_along(dim), at = cell % along;
        const uint64_t size = size_along(dim, at);
        sample += (first_in(dim, at) + member % size) * weight;
        weight *= dim->count;
        cell /= along;
        member /= size;
    }
    return sample;
}

uint64_t mh_cells_find(const mh_cells *cells, uint64_t sample, uint64_t *out_member)
{
    uint64_t cell = 0, member = 0, cell_weight = 1, member_weight = 1;
    for (uint32_t d = cells->dims; d-- > 0;) {
        const mh_cells_dim *dim = &cells->dim[d];
        const uint64_t origin = sample % dim->count, at = cell_of(dim, origin);
        cell += at * cell_weight;
        member += (origin - first_in(dim, at)) * member_weight;
        cell_weight *= cells_along(dim);
        member_weight *= size_along(dim, at);
        sample /= dim->count;
    }
    *out_member = member;
    return cell;
}
