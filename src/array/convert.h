/* convert.h - rows of stored values made into delivered ones
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stored values lie `step` bytes apart, perhaps in the other byte order; delivered ones lie
 * together. Nothing has to be aligned.
 */
#ifndef MH_ARRAY_CONVERT_H
#define MH_ARRAY_CONVERT_H

#include "array/decoding.h"

typedef struct mh_convert mh_convert;

typedef void mh_convert_row(const mh_convert *convert, const uint8_t *from, uint64_t step,
                            uint8_t *into, uint64_t count);

/* In which type values are while something is done with them. */
typedef enum mh_work { MH_WORK_FLOAT32, MH_WORK_FLOAT64, MH_WORK_INT64 } mh_work;

/* Read-only once made: any number of threads. */
struct mh_convert {
    mh_convert_row *row;
    uint32_t stored_bytes, delivered_bytes; /* of one value */
    uint32_t part_bytes;                    /* half of them for complex numbers */
    int reversed;                           /* the bytes of each part */
    mh_dtype stored, delivered;
    mh_work work;
    uint32_t fill_count;
    double fills[MH_CF_FILLS_MOST]; /* those that the work's type can hold */
    bool scale, scale_wide;         /* wide: computed in float64, then rounded */
    bool offset, offset_wide;
    bool normalise, fill_nan;
    double scale_value, offset_value, mean, std, nan_value;
};

/* For values of a dtype and byte order. Errors: those of mh_decoding_dtype. */
MH_MUST_CHECK mh_status mh_convert_init(mh_convert *out, mh_dtype stored, int swapped,
                                        const mh_decoding *decoding, mh_error *err);

#endif
