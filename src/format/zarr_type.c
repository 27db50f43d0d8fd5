/* zarr_type.c - types of numbers as Zarr 2 and 3 name them, and values of chunks that are missing
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "format/zarr_array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, CODE_COMPLEX = 5, CODE_BOOL };

/* --- names --- */

mh_status mh_zarr_type_v2(mh_zarr_type *out, mh_json_view dtype, mh_error *err)
{
    static const struct {
        char kind;
        uint8_t code;
        const char *sizes;
    } kinds[] = {{'b', CODE_BOOL, "1"},    {'i', CODE_INT, "1248"},  {'u', CODE_UINT, "1248"},
                 {'f', CODE_FLOAT, "248"}, {'c', CODE_COMPLEX, "8"}, {'M', CODE_INT, "8"},
                 {'m', CODE_INT, "8"}};
    char text[64];
    if (mh_json_view_kind(dtype) == MH_JSON_ARRAY)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "an array of structures");
    if (!mh_json_view_text(dtype, text, sizeof text) || strlen(text) < 3)
        return mh_fail(err, MH_ERR_CORRUPT, "the dtype is not a type of NumPy");
    bool ordered = strchr("<>|=", text[0]) != NULL;
    bool dates = text[1] == 'M' || text[1] == 'm';
    out->big_endian = text[0] == '>';
    if (ordered && strcmp(text + 1, "c16") == 0) {
        out->dtype = (mh_dtype){CODE_COMPLEX, 128};
        return MH_OK;
    }
    for (size_t i = 0; ordered && i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == text[1] && strchr(kinds[i].sizes, text[2]) &&
            text[3] == (dates && text[3] ? '[' : '\0')) {
            out->dtype = (mh_dtype){kinds[i].code, (uint8_t)(8 * (text[2] - '0'))};
            return MH_OK;
        }
    return mh_fail(err, MH_ERR_UNSUPPORTED, "an array of the type '%s'", text);
}

mh_status mh_zarr_type_v3(mh_zarr_type *out, mh_json_view data_type, mh_error *err)
{
    static const struct {
        const char *name;
        mh_dtype dtype;
    } names[] = {{"bool", {CODE_BOOL, 8}},
                 {"int8", {CODE_INT, 8}},
                 {"int16", {CODE_INT, 16}},
                 {"int32", {CODE_INT, 32}},
                 {"int64", {CODE_INT, 64}},
                 {"uint8", {CODE_UINT, 8}},
                 {"uint16", {CODE_UINT, 16}},
                 {"uint32", {CODE_UINT, 32}},
                 {"uint64", {CODE_UINT, 64}},
                 {"float16", {CODE_FLOAT, 16}},
                 {"float32", {CODE_FLOAT, 32}},
                 {"float64", {CODE_FLOAT, 64}},
                 {"bfloat16", {CODE_BFLOAT, 16}},
                 {"complex64", {CODE_COMPLEX, 64}},
                 {"complex128", {CODE_COMPLEX, 128}},
                 {"numpy.datetime64", {CODE_INT, 64}},
                 {"numpy.timedelta64", {CODE_INT, 64}}};
    char text[64];
    bool extension = mh_json_view_kind(data_type) == MH_JSON_OBJECT;
    if (!mh_json_view_text(extension ? mh_json_member(data_type, "name") : data_type, text,
                           sizeof text))
        return mh_fail(err, MH_ERR_CORRUPT, "the data_type has no name");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, text) == 0) {
            *out = (mh_zarr_type){.dtype = names[i].dtype};
            return MH_OK;
        }
    return mh_fail(err, MH_ERR_UNSUPPORTED, "an array of the type '%s'", text);
}

/* --- fill values --- */

static uint32_t narrowed(double value, uint32_t exponent_bits, uint32_t mantissa_bits)
{
    /* IEEE's smaller formats: round to nearest even from the double's own bits. */
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = (uint32_t)(bits >> 63) << (exponent_bits + mantissa_bits);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t infinite = ((1u << exponent_bits) - 1) << mantissa_bits;
    if (isnan(value))
        return sign | infinite | 1u << (mantissa_bits - 1);
    if (isinf(value))
        return sign | infinite;
    double magnitude = fabs(value);
    int exponent;
    (void)frexp(magnitude, &exponent);
    if (exponent - 1 < 1 - bias)
        exponent = 2 - bias; /* subnormal */
    double scaled = rint(ldexp(magnitude, (int)mantissa_bits + 1 - exponent));
    if (magnitude == 0)
        return sign;
    /* The hidden bit adds one to the exponent where the number is normal, and a carry does too. */
    uint64_t result = (uint64_t)scaled + ((uint64_t)(exponent - 2 + bias) << mantissa_bits);
    return sign | (uint32_t)(result > infinite ? infinite : result);
}

static bool hex_bits(const char *text, uint64_t *out)
{
    char *end;
    if (strncmp(text, "0x", 2) != 0 || strlen(text) > 18 || strlen(text) < 3)
        return false;
    *out = strtoull(text, &end, 16);
    return *end == '\0';
}

/* A float as its bits: a number, or one of the texts that stand for what JSON cannot say. */
static bool float_bits(mh_json_view value, mh_dtype dtype, uint64_t *out)
{
    char text[32];
    double number;
    if (mh_json_view_text(value, text, sizeof text)) {
        if (hex_bits(text, out))
            return true;
        if (strcmp(text, "NaN") == 0)
            number = NAN;
        else if (strcmp(text, "Infinity") == 0)
            number = INFINITY;
        else if (strcmp(text, "-Infinity") == 0)
            number = -INFINITY;
        else
            return false;
    } else if (!mh_json_view_double(value, &number)) {
        return false;
    }
    if (dtype.bits == 64) {
        memcpy(out, &number, sizeof number);
    } else if (dtype.bits == 32) {
        float single = (float)number;
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        *out = bits;
    } else {
        *out = dtype.code == CODE_BFLOAT ? narrowed(number, 8, 7) : narrowed(number, 5, 10);
    }
    return true;
}

static bool whole_bits(mh_json_view value, mh_dtype dtype, uint64_t *out)
{
    mh_json json;
    mh_json_token token;
    int64_t number;
    double real;
    if (!value.text)
        return false;
    if (mh_json_view_is(value, "NaT")) {
        *out = UINT64_C(1) << 63;
        return dtype.bits == 64;
    }
    mh_json_init(&json, value.text, value.size);
    if (mh_json_next(&json, &token) != MH_JSON_NUMBER_VALUE)
        return false;
    const unsigned spare = 64u - dtype.bits;
    if (dtype.code == CODE_UINT)
        return mh_json_uint64(&token, out) && *out <= UINT64_MAX >> spare;
    if (!mh_json_int64(&token, &number)) {
        /* 0.0 of a whole number is written by some */
        if (!mh_json_double(&token, &real) || real != rint(real) || fabs(real) > 0x1p52)
            return false;
        number = (int64_t)real;
    }
    *out = (uint64_t)number;
    return number >= INT64_MIN >> spare && number <= INT64_MAX >> spare;
}

static void put_bytes(uint8_t *out, uint64_t bits, uint32_t bytes, bool big_endian)
{
    for (uint32_t i = 0; i < bytes; i++)
        out[big_endian ? bytes - 1 - i : i] = (uint8_t)(bits >> 8 * i);
}

static bool scalar_fill(const mh_zarr_type *type, mh_json_view value, uint8_t *out)
{
    uint64_t bits = 0;
    bool truth;
    const mh_dtype dtype = type->dtype;
    bool good;
    if (dtype.code == CODE_BOOL) {
        good = mh_json_view_bool(value, &truth);
        bits = truth;
        if (!good) /* as some write it */
            good = whole_bits(value, (mh_dtype){CODE_UINT, 8}, &bits) && bits <= 1;
    } else if (dtype.code == CODE_FLOAT || dtype.code == CODE_BFLOAT) {
        good = float_bits(value, dtype, &bits);
    } else {
        good = whole_bits(value, dtype, &bits);
    }
    put_bytes(out, bits, dtype.bits / 8, type->big_endian);
    return good;
}

mh_status mh_zarr_fill(const mh_zarr_type *type, mh_json_view value, uint8_t *out, mh_error *err)
{
    mh_json_kind kind = mh_json_view_kind(value);
    memset(out, 0, MH_VALUE_BYTES_MOST);
    if (!value.text || kind == MH_JSON_NULL)
        return MH_OK;
    bool good;
    if (type->dtype.code == CODE_COMPLEX) {
        const mh_zarr_type half = {{CODE_FLOAT, type->dtype.bits / 2}, type->big_endian};
        mh_json_walk walk;
        mh_json_view part;
        uint32_t count = 0;
        good = mh_json_walk_init(&walk, value) && !walk.object;
        while (good && mh_json_walk_next(&walk, NULL, &part))
            good = count < 2 && scalar_fill(&half, part, out + count++ * (half.dtype.bits / 8u));
        good = good && count == 2;
        if (kind == MH_JSON_NUMBER_VALUE)
            good = scalar_fill(&half, value, out);
    } else {
        good = scalar_fill(type, value, out);
    }
    return good ? MH_OK
                : mh_fail(err, MH_ERR_CORRUPT, "the fill value %.*s does not suit the type",
                          (int)(value.size < 40 ? value.size : 40), value.text);
}

bool mh_zarr_fill_number(const mh_zarr_type *type, const uint8_t *fill, double *out)
{
    const uint32_t bytes = type->dtype.bits / 8;
    const unsigned spare = 64u - type->dtype.bits;
    uint64_t bits = 0;
    if (type->dtype.code == CODE_COMPLEX || bytes > 8)
        return false;
    for (uint32_t i = 0; i < bytes; i++)
        bits |= (uint64_t)fill[type->big_endian ? bytes - 1 - i : i] << 8 * i;
    if (type->dtype.code == CODE_INT) {
        *out = (double)((int64_t)(bits << spare) >> spare);
    } else if (type->dtype.code == CODE_FLOAT && bytes == 8) {
        memcpy(out, &bits, sizeof *out);
    } else if (type->dtype.code == CODE_FLOAT && bytes == 4) {
        float single;
        uint32_t low = (uint32_t)bits;
        memcpy(&single, &low, sizeof single);
        *out = (double)single;
    } else if (type->dtype.code == CODE_FLOAT) {
        const int exponent = (int)(bits >> 10 & 31);
        const double mantissa = (double)(bits & 1023);
        double value = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                       : exponent == 0 ? ldexp(mantissa, -24)
                                       : ldexp(mantissa + 1024, exponent - 25);
        *out = bits >> 15 ? -value : value;
    } else {
        *out = (double)bits;
    }
    return type->dtype.code != CODE_BFLOAT;
}
