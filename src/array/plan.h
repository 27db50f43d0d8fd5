/* plan.h - what windows are made of: inside this room
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ARRAY_PLAN_H
#define MH_ARRAY_PLAN_H

#include "array/convert.h"
#include "array/windows.h"

#define MH_NOT_SEATED UINT32_MAX

/* A variable, or a part of one, and its grid of chunks. The parts of a variable follow each other.
 */
typedef struct mh_grid {
    const mh_variable *variable;
    uint32_t parts;                                  /* of the variable; of parts that go on: 0 */
    uint32_t dim[MH_DIMS_MOST];                      /* which of the windows' dimensions each is */
    uint64_t begin[MH_DIMS_MOST], end[MH_DIMS_MOST]; /* which places of the dimension it has */
    uint64_t chunks_along[MH_DIMS_MOST];
    uint64_t first_unit, chunks, chunk_bytes;
    mh_convert convert;
    uint64_t into_steps[MH_DIMS_MOST]; /* bytes between neighbours in a delivered window */
    uint32_t seats[2];                 /* of the window and of its target */
} mh_grid;

struct mh_windows {
    mh_window_dim dims[MH_DIMS_MOST];
    uint32_t dim_count;
    int has_target;
    uint64_t count, unit_count;
    uint32_t units_most;
    mh_grid *grids;
    size_t grid_count, variable_count;
    mh_window_field *fields;
    size_t field_count;
};

/* Chunks from `first` to `last`, that one too, along each dimension of a variable. */
typedef struct mh_box {
    uint32_t dims;
    bool empty; /* of a part that the window does not reach */
    uint64_t first[MH_DIMS_MOST], last[MH_DIMS_MOST];
} mh_box;

/* What the window of a sample whose first values are at `origin`, or its target, has of a grid. */
mh_box mh_grid_box(const mh_windows *windows, const mh_grid *grid, const uint64_t *origin,
                   int target);

/* Steps on to the next chunk of the box, the last dimension first; 0 behind the last one. */
static inline int mh_box_step(const mh_box *box, uint64_t *at)
{
    for (uint32_t d = box->dims; d-- > 0;) {
        if (at[d]++ < box->last[d])
            return 1;
        at[d] = box->first[d];
    }
    return 0;
}

static inline int mh_box_holds(const mh_box *box, const uint64_t *at)
{
    if (box->empty)
        return 0;
    for (uint32_t d = 0; d < box->dims; d++)
        if (at[d] < box->first[d] || at[d] > box->last[d])
            return 0;
    return 1;
}

/* Chunks in it, and the place of one among them in C order. */
static inline uint64_t mh_box_size(const mh_box *box)
{
    uint64_t size = !box->empty;
    for (uint32_t d = 0; d < box->dims && size; d++)
        size *= box->last[d] - box->first[d] + 1;
    return size;
}

static inline uint64_t mh_box_place(const mh_box *box, const uint64_t *at)
{
    uint64_t place = 0;
    for (uint32_t d = 0; d < box->dims; d++)
        place = place * (box->last[d] - box->first[d] + 1) + at[d] - box->first[d];
    return place;
}

/* The first values of a sample's window. */
void mh_windows_origin_at(const mh_windows *windows, uint64_t sample, uint64_t *out);

#endif
