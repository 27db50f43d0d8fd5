/* decoding.h - how stored values become delivered ones: CF attributes, normalising, another dtype
 * SPDX-License-Identifier: Apache-2.0
 *
 * CF attributes mean what they mean to xarray with mask_and_scale=True, the dtypes of results
 * included: valid_min, valid_max and valid_range are not applied there, nor here. After them come,
 * in this order, (x - mean) / std, a value in place of NaN, and the cast.
 */
#ifndef MH_ARRAY_DECODING_H
#define MH_ARRAY_DECODING_H

#include <millhead/dataset.h>
#include <stdbool.h>

#define MH_CF_FILLS_MOST 8

/* scale_factor or add_offset. A number without a type of its own (JSON) counts as float64 where
 * the result's dtype is chosen, and is then taken in that dtype, as Python's floats are. */
typedef enum mh_cf_type {
    MH_CF_ABSENT,
    MH_CF_NUMBER,  /* a JSON number with a fraction or an exponent */
    MH_CF_INTEGER, /* a JSON number without */
    MH_CF_FLOAT32,
    MH_CF_FLOAT64
} mh_cf_type;

typedef struct mh_cf_value {
    mh_cf_type type;
    double value;
} mh_cf_value;

/* All zero: nothing is done. */
typedef struct mh_decoding {
    /* --- CF --- */
    mh_cf_value scale, offset;
    bool has_fill;       /* there is a _FillValue or missing_value, NaN perhaps */
    uint32_t fill_count; /* those that are not NaN, rounded to the variable's dtype */
    double fills[MH_CF_FILLS_MOST];
    /* --- what the user asks for --- */
    bool normalise;
    double mean, std; /* std is not 0 */
    bool fill_nan;
    double nan_value;
    mh_dtype cast; /* bits 0: none */
} mh_decoding;

/* Whether values are delivered as they are stored (but for their byte order). */
bool mh_decoding_is_plain(mh_dtype stored, const mh_decoding *decoding);

/* The dtype of what is delivered. Normalising makes integers float32, or float64 from 32 bits on.
 * MH_ERR_UNSUPPORTED: a dtype that cannot be decoded so (bool, bfloat, complex; an integer
 * scale_factor alone together with a fill, which xarray refuses too). */
MH_MUST_CHECK mh_status mh_decoding_dtype(mh_dtype stored, const mh_decoding *decoding,
                                          mh_dtype *out, mh_error *err);

#endif
