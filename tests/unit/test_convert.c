/* test_convert.c - values decoded as xarray decodes them, and cast as NumPy does
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/convert.h"
#include "array/half.h"
#include "unit.h"

#include <math.h>

static const mh_dtype int16 = {0, 16}, int32 = {0, 32}, uint8 = {1, 8}, float16 = {2, 16},
                      float32 = {2, 32}, float64 = {2, 64}, int64 = {0, 64};

/* --- float16 --- */

static void halves_go_to_float_and_back(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        const float value = mh_half_to_float((uint16_t)half);
        const int exponent = (int)(half >> 10 & 31), fraction = (int)(half & 1023);
        const double wanted =
            ldexp(exponent ? 1024 + fraction : fraction, (exponent ? exponent : 1) - 25);
        if (exponent < 31)
            assert_true((half >> 15 ? -wanted : wanted) == (double)value);
        else
            assert_true(fraction ? isnan(value) : isinf(value));
        if (!isnan(value))
            assert_int_equal(mh_half_of_float(value), half);
        assert_true(isnan(value) || mh_half_of_double(value) == half);
    }
}

/* Between two neighbours: to the nearer one, from the middle to the even one. */
static void rounding_to_half_is_to_the_nearest(void **state)
{
    (void)state;
    for (uint16_t half = 0; half < 0x7bff; half++) {
        const double low = mh_half_to_float(half), high = mh_half_to_float((uint16_t)(half + 1));
        const double middle = (low + high) / 2;
        const uint16_t even = half & 1 ? (uint16_t)(half + 1) : half;
        assert_int_equal(mh_half_of_float((float)middle), even);
        assert_int_equal(mh_half_of_double(nextafter(middle, low)), half);
        assert_int_equal(mh_half_of_double(nextafter(middle, high)), half + 1);
        assert_int_equal(mh_half_of_double(-nextafter(middle, high)), (half + 1) | 0x8000);
    }
    assert_int_equal(mh_half_of_float(65519.0f), 0x7bff);
    assert_int_equal(mh_half_of_float(65520.0f), 0x7c00);
}

/* --- dtypes --- */

static void check_dtype(mh_dtype stored, mh_decoding decoding, mh_dtype wanted)
{
    mh_dtype dtype = {9, 9};
    assert_int_equal(mh_decoding_dtype(stored, &decoding, &dtype, NULL), MH_OK);
    assert_int_equal(dtype.code, wanted.code);
    assert_int_equal(dtype.bits, wanted.bits);
}

/* As xarray 2026.9 was seen to choose. */
static void dtypes_are_those_of_xarray(void **state)
{
    const mh_cf_value number = {MH_CF_NUMBER, 0.5}, integer = {MH_CF_INTEGER, 2},
                      narrow = {MH_CF_FLOAT32, 0.5}, wide = {MH_CF_FLOAT64, 0.5};
    (void)state;
    check_dtype(int16, (mh_decoding){0}, int16);
    check_dtype(int16, (mh_decoding){.fill_count = 1, .has_fill = true}, float32);
    check_dtype(int32, (mh_decoding){.fill_count = 1, .has_fill = true}, float64);
    check_dtype(float16, (mh_decoding){.fill_count = 1, .has_fill = true}, float16);
    check_dtype(int16, (mh_decoding){.scale = number}, float64);
    check_dtype(int16, (mh_decoding){.scale = integer}, int64);
    check_dtype(int16, (mh_decoding){.scale = narrow}, float32);
    check_dtype(int16, (mh_decoding){.scale = narrow, .offset = narrow}, float32);
    check_dtype(int32, (mh_decoding){.scale = narrow, .offset = narrow}, float64);
    check_dtype(int16, (mh_decoding){.scale = narrow, .offset = wide}, float64);
    check_dtype(int16, (mh_decoding){.offset = narrow}, float64);
    check_dtype(float32, (mh_decoding){.scale = number, .has_fill = true}, float32);
    check_dtype(float32, (mh_decoding){.scale = number}, float64);
    check_dtype(int16, (mh_decoding){.normalise = true, .std = 1}, float32);
    check_dtype(int16, (mh_decoding){.scale = number, .cast = {2, 32}}, float32);
}

static void what_cannot_be_decoded_is_refused(void **state)
{
    mh_decoding fill = {.fill_count = 1}, whole = {.scale = {MH_CF_INTEGER, 2}, .fill_count = 1};
    mh_dtype dtype;
    mh_error err;
    (void)state;
    assert_int_equal(mh_decoding_dtype((mh_dtype){5, 64}, &fill, &dtype, &err), MH_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "complex"));
    assert_int_equal(mh_decoding_dtype(int16, &whole, &dtype, &err), MH_ERR_UNSUPPORTED);
}

/* --- values --- */

static void convert(mh_dtype stored, int swapped, mh_decoding decoding, const void *from,
                    uint64_t step, void *into, uint64_t count)
{
    mh_convert made;
    assert_int_equal(mh_convert_init(&made, stored, swapped, &decoding, NULL), MH_OK);
    made.row(&made, from, step, into, count);
}

static void packed_values_are_scaled_and_masked(void **state)
{
    enum { COUNT = 1500 }; /* more than is buffered at a time */
    int16_t stored[COUNT];
    float narrow[COUNT];
    double wide[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++)
        stored[i] = (int16_t)(i * 40 - 30000);
    stored[7] = stored[1400] = -32767;
    const mh_decoding loose = {.scale = {MH_CF_NUMBER, 0.1},
                               .offset = {MH_CF_NUMBER, 273.15},
                               .has_fill = true,
                               .fill_count = 1,
                               .fills = {-32767}};
    convert(int16, 0, loose, stored, 2, wide, COUNT);
    mh_decoding typed = loose;
    typed.scale.type = typed.offset.type = MH_CF_FLOAT32;
    convert(int16, 0, typed, stored, 2, narrow, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const float scaled = (float)stored[i] * 0.1f;
        if (stored[i] == -32767) {
            assert_true(isnan(wide[i]) && isnan(narrow[i]));
            continue;
        }
        assert_true(wide[i] == (double)stored[i] * 0.1 + 273.15);
        assert_true(narrow[i] == scaled + 273.15f);
    }
}

static void reversed_and_strided_values_are_gathered(void **state)
{
    const uint8_t bytes[] = {0, 1, 9, 9, 0x12, 0x34, 9, 9, 0xff, 0xfe, 9, 9};
    const uint8_t complex[] = {1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 9, 10, 11, 12, 13, 14, 15, 16, 0, 0};
    const uint8_t turned[] = {4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9, 16, 15, 14, 13};
    int16_t plain[3];
    int64_t cast[3];
    uint8_t pairs[16];
    (void)state;
    convert(int16, 1, (mh_decoding){0}, bytes, 4, plain, 3);
    convert(int16, 1, (mh_decoding){.cast = {0, 64}}, bytes, 4, cast, 3);
    assert_int_equal(plain[0], 1);
    assert_int_equal(plain[1], 0x1234);
    assert_int_equal(plain[2], -2);
    for (int i = 0; i < 3; i++)
        assert_true(cast[i] == plain[i]);
    convert((mh_dtype){5, 64}, 1, (mh_decoding){0}, complex, 10, pairs, 2);
    assert_memory_equal(pairs, turned, 16);
    memcpy(pairs + 8, complex + 10, 8);
    memcpy(pairs, complex, 8);
    convert((mh_dtype){5, 64}, 1, (mh_decoding){0}, pairs, 8, pairs, 2);
    assert_memory_equal(pairs, turned, 16);
}

static void normalising_comes_before_nan_and_cast(void **state)
{
    const float stored[] = {1, NAN, -9, 300};
    const mh_decoding decoding = {
        .normalise = true, .mean = 1, .std = 2, .fill_nan = true, .nan_value = 7, .cast = {0, 8}};
    int8_t out[4];
    float floats[4];
    (void)state;
    convert(float32, 0, decoding, stored, 4, out, 4);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[1], 7);
    assert_int_equal(out[2], -5);
    assert_int_equal(out[3], 127);
    convert(float32, 0, (mh_decoding){.fill_nan = true}, stored, 4, floats, 4);
    assert_true(floats[1] == 0 && floats[3] == 300);
}

static void casts_round_once(void **state)
{
    const uint64_t large[] = {UINT64_MAX, (UINT64_C(1) << 53) + 1};
    const uint8_t bytes[] = {0, 255};
    double wide[2];
    float narrow[2];
    uint16_t halves[2];
    (void)state;
    convert((mh_dtype){1, 64}, 0, (mh_decoding){.cast = float64}, large, 8, wide, 2);
    convert((mh_dtype){1, 64}, 0, (mh_decoding){.cast = float32}, large, 8, narrow, 2);
    assert_true(wide[0] == 0x1p64 && wide[1] == 0x1p53 && narrow[0] == 0x1p64f);
    convert(uint8, 0, (mh_decoding){.cast = float16}, bytes, 1, halves, 2);
    assert_int_equal(halves[1], mh_half_of_float(255));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_go_to_float_and_back),
        cmocka_unit_test(rounding_to_half_is_to_the_nearest),
        cmocka_unit_test(dtypes_are_those_of_xarray),
        cmocka_unit_test(what_cannot_be_decoded_is_refused),
        cmocka_unit_test(packed_values_are_scaled_and_masked),
        cmocka_unit_test(reversed_and_strided_values_are_gathered),
        cmocka_unit_test(normalising_comes_before_nan_and_cast),
        cmocka_unit_test(casts_round_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
