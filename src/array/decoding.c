/* decoding.c - which dtype decoded values have: xarray's rules
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/decoding.h"

#include "base/error.h"

enum { INT, UINT, FLOAT, BFLOAT = 4, COMPLEX, BOOL }; /* DLPack's codes */

static const mh_dtype float32 = {FLOAT, 32}, float64 = {FLOAT, 64}, int64 = {INT, 64};

static bool same(mh_dtype a, mh_dtype b)
{
    return a.code == b.code && a.bits == b.bits;
}

static bool is_integer(mh_dtype dtype)
{
    return dtype.code == INT || dtype.code == UINT;
}

static bool is_packed(const mh_decoding *decoding)
{
    return decoding->scale.type != MH_CF_ABSENT || decoding->offset.type != MH_CF_ABSENT;
}

bool mh_decoding_is_plain(mh_dtype stored, const mh_decoding *decoding)
{
    return !is_packed(decoding) && decoding->fill_count == 0 && !decoding->normalise &&
           !(decoding->fill_nan && stored.code == FLOAT) &&
           (decoding->cast.bits == 0 || same(decoding->cast, stored));
}

/* Of a number without a type of its own: float64, or int64 where it is whole. */
static mh_dtype type_of(mh_cf_type type)
{
    return type == MH_CF_FLOAT32 ? float32 : type == MH_CF_INTEGER ? int64 : float64;
}

/* What packed values become where their attributes decide. Two attributes of one float type are
 * trusted, but for 32-bit integers, which float32 cannot hold; a lone offset may be large. */
static mh_dtype packed_dtype(mh_dtype stored, const mh_decoding *decoding)
{
    const mh_dtype scale = type_of(decoding->scale.type), offset = type_of(decoding->offset.type);
    if (decoding->offset.type == MH_CF_ABSENT)
        return scale;
    if (decoding->scale.type == MH_CF_ABSENT || !same(scale, offset) || scale.code != FLOAT)
        return float64;
    return stored.bits == 32 && is_integer(stored) ? float64 : scale;
}

static mh_dtype small_float(mh_dtype stored)
{
    return stored.bits <= 16 ? float32 : float64;
}

static mh_dtype cf_dtype(mh_dtype stored, const mh_decoding *decoding)
{
    if (decoding->fill_count > 0 && !is_packed(decoding))
        return stored.code == FLOAT ? stored : small_float(stored);
    if (!is_packed(decoding))
        return stored;
    /* a fill of NaN masks nothing, but xarray then leaves the dtype as it is */
    if (decoding->has_fill && decoding->fill_count == 0)
        return stored;
    return packed_dtype(stored, decoding);
}

mh_status mh_decoding_dtype(mh_dtype stored, const mh_decoding *decoding, mh_dtype *out,
                            mh_error *err)
{
    *out = stored;
    if (mh_decoding_is_plain(stored, decoding))
        return MH_OK;
    if (!is_integer(stored) && stored.code != FLOAT &&
        !(stored.code == BOOL && decoding->cast.bits))
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "values that are %s cannot be decoded: leave CF decoding off",
                       stored.code == BOOL      ? "bool"
                       : stored.code == COMPLEX ? "complex"
                                                : "bfloat16");
    mh_dtype dtype = cf_dtype(stored, decoding);
    if (is_packed(decoding) && is_integer(dtype) && decoding->fill_count > 0)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "a scale_factor that is an integer leaves no NaN for the fill value");
    if (decoding->normalise && (is_integer(dtype) || dtype.bits == 16))
        dtype = small_float(dtype);
    if (decoding->cast.bits) {
        if (!is_integer(decoding->cast) && decoding->cast.code != FLOAT)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "cast makes only integers and floats");
        dtype = decoding->cast;
    }
    *out = dtype;
    return MH_OK;
}
