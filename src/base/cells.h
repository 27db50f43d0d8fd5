/* cells.h - samples in cells: which ones lie close together in storage
 * SPDX-License-Identifier: Apache-2.0
 *
 * Samples are numbered row-major over a grid of origins, `count` along each dimension; origin k
 * lies at start + k * stride. The grid is cut into cells of `cell` along each dimension, counted
 * from 0, and the samples of a cell are numbered row-major too. Cells that no origin lies in are
 * left out. All of it is arithmetic: no memory, any thread.
 */
#ifndef MH_BASE_CELLS_H
#define MH_BASE_CELLS_H

#include <stdint.h>

#define MH_CELLS_DIMS_MOST 16

typedef struct mh_cells_dim {
    uint64_t count;
    uint64_t start, stride; /* stride is at least 1 */
    uint64_t cell;          /* at least 1 */
} mh_cells_dim;

typedef struct mh_cells {
    uint32_t dims; /* 0: there are no cells */
    mh_cells_dim dim[MH_CELLS_DIMS_MOST];
} mh_cells;

/* Samples in a row, `size` to a cell. */
mh_cells mh_cells_of_runs(uint64_t samples, uint64_t size);

uint64_t mh_cells_samples(const mh_cells *cells);
uint64_t mh_cells_count(const mh_cells *cells);

/* Samples of a cell, whose number is below count: at least 1. */
uint64_t mh_cells_size(const mh_cells *cells, uint64_t cell);

/* The size of every cell; 0: they differ, or may: it is found without looking at all. */
uint64_t mh_cells_equal_size(const mh_cells *cells);

/* The sample that is number `member` of a cell; and the other way round. */
uint64_t mh_cells_sample(const mh_cells *cells, uint64_t cell, uint64_t member);
uint64_t mh_cells_find(const mh_cells *cells, uint64_t sample, uint64_t *out_member);

#endif
