/* touched.h - how many chunks windows reach into, along one dimension
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ARRAY_TOUCHED_H
#define MH_ARRAY_TOUCHED_H

#include "array/window_text.h"

/* From `begin` on a dimension is cut into chunks of this length. */
typedef struct mh_cut {
    uint64_t begin, chunk;
    uint64_t number, values; /* chunks before, and their lengths together */
} mh_cut;

/* How a dimension is cut: once, or anew where each part of a variable begins. None: the variable
 * lacks the dimension. The first one begins at 0, two never begin at one place. */
typedef struct mh_cuts {
    const mh_cut *list;
    size_t count;
} mh_cuts;

/* Of the windows, of their targets, and of both. */
typedef struct mh_reach {
    double window, target, both;
} mh_reach;

/* Chunks, and their lengths together. */
typedef struct mh_touched {
    mh_reach chunks, values;
} mh_touched;

/* Summed over all cells of that length, each chunk once per cell; and of the cell with the most. A
 * dimension that is not cut counts one for each cell. Pure. */
void mh_touched_sum(const mh_window_dim *dim, mh_cuts cuts, uint64_t cell, mh_touched *sum,
                    mh_touched *most);

#endif
