/* npy_arrays.h - the arrays that .npy and .npz files hold, and the fields made of them
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_NPY_ARRAYS_H
#define MH_FORMAT_NPY_ARRAYS_H

#include "format/format.h"
#include "format/strided.h"

typedef struct mh_npy_array {
    uint32_t object;
    int in_archive; /* a member of an .npz */
    int has_axis;   /* else it is a single value */
    int whole;      /* samples are scattered over it: Fortran order */
    uint64_t samples;
    uint64_t data_offset, data_bytes;
    uint64_t sample_step; /* bytes from a sample's first value to that of the next */
    uint32_t kept;        /* fields of it that are wanted */
    uint32_t slot;        /* among a sample's units */
} mh_npy_array;

/* By the field's tag. */
typedef struct mh_npy_field {
    uint32_t array;
    uint64_t offset; /* of its first value, in the sample */
    mh_strided values;
} mh_npy_field;

/* What dataset->own is for this format. */
typedef struct mh_npy_arrays {
    mh_npy_array *list;
    mh_npy_field *fields;
    uint32_t *order; /* arrays by slot: those read as a whole, then those read by rows */
    uint32_t count, field_count;
    uint32_t whole_count, row_count;
} mh_npy_arrays;

/* Lists what the paths hold in dataset->own, with a field for each array or member. Reads headers
 * through one source. */
MH_MUST_CHECK mh_status mh_npy_arrays_read(mh_dataset *dataset, const char *const *paths,
                                           size_t count, mh_error *err);

#endif
