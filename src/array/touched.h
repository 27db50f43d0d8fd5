/* touched.h - how many chunks windows reach into, along one dimension
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ARRAY_TOUCHED_H
#define MH_ARRAY_TOUCHED_H

#include "array/window_text.h"

/* Chunks of the windows, of their targets, and those that are of both. */
typedef struct mh_touched {
    double window, target, both;
} mh_touched;

/* Summed over all cells of that length, each chunk once per cell; and of the cell with the most.
 * A chunk of 0: the variable lacks the dimension, each cell counts one. Pure. */
void mh_touched_sum(const mh_window_dim *dim, uint64_t chunk, uint64_t cell, mh_touched *sum,
                    mh_touched *most);

#endif
