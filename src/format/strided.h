/* strided.h - values that lie apart, copied together row by row, their bytes turned where needed
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_STRIDED_H
#define MH_FORMAT_STRIDED_H

#include <millhead/dataset.h>

/* Runs of `run` bytes: as many as the lengths multiplied say, `strides` bytes apart. */
typedef struct mh_strided {
    uint64_t run;
    uint32_t swap; /* bytes of each number that stand in the other order: 1 (none), 2, 4, 8 */
    uint32_t dims;
    int64_t shape[MH_DIMS_MOST];
    uint64_t strides[MH_DIMS_MOST];
} mh_strided;

/* Of values of value_bytes in `dims` dimensions (at most MH_DIMS_MOST): what lies together becomes
 * one run. Where there is no value the run is 0. */
mh_strided mh_strided_of(uint64_t value_bytes, uint32_t swap, uint32_t dims, const int64_t *shape,
                         const uint64_t *strides);

/* Whether the bytes are right as they lie, one run from the first to the last. */
static inline int mh_strided_is_plain(const mh_strided *values)
{
    return values->run == 0 || (values->dims == 0 && values->swap == 1);
}

/* Copies all of them. No alignment is needed. */
void mh_strided_copy(const mh_strided *values, const uint8_t *from, uint8_t *into);

#endif
