/* zarr_attributes.c - attributes of an array that change its values: those of the CF conventions
 * SPDX-License-Identifier: Apache-2.0
 *
 * As xarray reads them with mask_and_scale: of version 2 the array's own fill value is what stands
 * for missing values, of version 3 only an attribute is.
 */
#include "base/error.h"
#include "format/zarr_array.h"

#include <math.h>
#include <string.h>

/* scale_factor and add_offset: a number, a list of one, or a text that is a number. */
static mh_status read_factor(mh_cf_value *out, mh_json_view attributes, const char *name,
                             mh_error *err)
{
    mh_json_view value = mh_json_member(attributes, name), inner;
    mh_json_walk walk;
    int64_t whole;
    if (!value.text || mh_json_view_kind(value) == MH_JSON_NULL)
        return MH_OK;
    if (mh_json_walk_init(&walk, value) && !walk.object && mh_json_walk_next(&walk, NULL, &inner))
        value = inner;
    if (!mh_json_view_double(value, &out->value))
        return mh_fail(err, MH_ERR_CORRUPT, "the attribute %s is not a number", name);
    out->type = mh_json_view_int64(value, &whole) ? MH_CF_INTEGER : MH_CF_NUMBER;
    return MH_OK;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* xarray writes fill values of floats into version 3 as the base64 text of a little-endian double.
 */
static bool base64_double(const char *text, double *out)
{
    uint8_t bytes[9];
    uint64_t bits = 0;
    if (strlen(text) != 12)
        return false;
    for (int group = 0; group < 3; group++) {
        uint32_t word = 0;
        for (int i = 0; i < 4; i++) {
            char c = text[4 * group + i];
            int digit = group == 2 && i == 3 && c == '=' ? 0 : base64_digit(c);
            if (digit < 0)
                return false;
            word = word << 6 | (uint32_t)digit;
        }
        for (int i = 0; i < 3; i++)
            bytes[3 * group + i] = (uint8_t)(word >> (16 - 8 * i));
    }
    for (int i = 0; i < 8; i++)
        bits |= (uint64_t)bytes[i] << 8 * i;
    memcpy(out, &bits, sizeof *out);
    return true;
}

static void add_fill(mh_decoding *decoding, double value)
{
    decoding->has_fill = true;
    for (uint32_t i = 0; i < decoding->fill_count; i++)
        if (decoding->fills[i] == value)
            return;
    if (!isnan(value) && decoding->fill_count < MH_CF_FILLS_MOST)
        decoding->fills[decoding->fill_count++] = value;
}

/* One value of _FillValue or missing_value, rounded to the stored type. */
static bool fill_number(const mh_zarr_array *array, mh_json_view value, double *out)
{
    uint8_t bytes[MH_VALUE_BYTES_MOST];
    char text[32];
    mh_error ignored;
    if (mh_json_view_text(value, text, sizeof text) && base64_double(text, out)) {
        if (array->type.dtype.bits == 32)
            *out = (double)(float)*out;
        return true;
    }
    return mh_zarr_fill(&array->type, value, bytes, &ignored) == MH_OK &&
           mh_zarr_fill_number(&array->type, bytes, out);
}

static mh_status read_fills(mh_zarr_array *array, mh_json_view attributes, const char *name,
                            mh_error *err)
{
    mh_json_view value = mh_json_member(attributes, name), inner;
    mh_json_walk walk;
    double number;
    if (!value.text || mh_json_view_kind(value) == MH_JSON_NULL)
        return MH_OK;
    if (mh_json_walk_init(&walk, value)) {
        while (!walk.object && mh_json_walk_next(&walk, NULL, &inner)) {
            if (!fill_number(array, inner, &number))
                return mh_fail(err, MH_ERR_CORRUPT, "the attribute %s is not a number", name);
            add_fill(&array->decoding, number);
        }
        return MH_OK;
    }
    if (!fill_number(array, value, &number))
        return mh_fail(err, MH_ERR_CORRUPT, "the attribute %s is not a number", name);
    add_fill(&array->decoding, number);
    return MH_OK;
}

mh_status mh_zarr_attributes(mh_zarr_array *array, mh_json_view attributes, mh_error *err)
{
    const uint8_t code = array->type.dtype.code;
    double fill;
    (void)mh_json_view_text(mh_json_member(attributes, "units"), array->units, sizeof array->units);
    (void)mh_json_view_text(mh_json_member(attributes, "calendar"), array->calendar,
                            sizeof array->calendar);
    if (code > 2) /* neither whole numbers nor floats: nothing to decode */
        return MH_OK;
    MH_TRY(read_factor(&array->decoding.scale, attributes, "scale_factor", err));
    MH_TRY(read_factor(&array->decoding.offset, attributes, "add_offset", err));
    if (array->version == 2) {
        if (array->has_fill && mh_zarr_fill_number(&array->type, array->fill, &fill))
            add_fill(&array->decoding, fill);
    } else {
        MH_TRY(read_fills(array, attributes, "_FillValue", err));
    }
    return read_fills(array, attributes, "missing_value", err);
}
