/* finish.c - what a sample's values are: from bytes of pixels to their type and layout
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/finish.h"

#include <string.h>

const mh_dtype mh_finish_dtypes[4] = {{1, 8}, {2, 16}, {4, 16}, {2, 32}};

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Drops the lowest `count` bits; what they were rounds to the nearest, ties to even. */
static uint32_t round_off(uint32_t bits, unsigned count)
{
    uint32_t kept = bits >> count, rest = bits & ((UINT32_C(1) << count) - 1);
    uint32_t half = UINT32_C(1) << (count - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t mh_half_bits(float value)
{
    uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00); /* not a number */
    if (size >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00); /* rounds beyond the largest half */
    if (size >= 0x38800000)
        return (uint16_t)(sign | round_off(size - 0x38000000, 13));
    if (size < 0x33000000)
        return (uint16_t)sign; /* below half of the smallest half */
    /* A half without leading one: its unit is 2^-24 */
    unsigned shift = 126 - (size >> 23);
    return (uint16_t)(sign | round_off((size & 0x7fffff) | 0x800000, shift));
}

static float half_value(uint16_t bits)
{
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 31  ? float_of(0x7f800000 | fraction << 13)
                 : exponent == 0 ? (float)fraction * 0x1p-24F
                                 : float_of((exponent + 112) << 23 | fraction << 13);
    return bits & 0x8000 ? -size : size;
}

uint16_t mh_bfloat_bits(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40); /* not a number */
    return (uint16_t)round_off(bits, 16);
}

void mh_finish_init(mh_finish *finish, uint32_t channels, bool is_mask)
{
    *finish = (mh_finish){
        .channels = channels, .is_mask = is_mask, .as_bytes = true, .dtype = mh_finish_dtypes[0]};
    for (uint32_t channel = 0; channel < MH_CHANNELS_MOST; channel++)
        for (uint32_t byte = 0; byte < 256; byte++)
            finish->values[channel][byte] = (float)byte;
}

static bool is_half(mh_dtype dtype)
{
    return dtype.code == 2 && dtype.bits == 16;
}

static bool is_bfloat(mh_dtype dtype)
{
    return dtype.code == 4;
}

void mh_finish_cast(mh_finish *finish, mh_dtype dtype)
{
    float *values = finish->values[0];
    finish->dtype = dtype;
    finish->as_bytes = finish->as_bytes && dtype.code == 1;
    for (uint32_t i = 0; i < MH_CHANNELS_MOST * 256; i++)
        if (is_half(dtype))
            values[i] = half_value(mh_half_bits(values[i]));
        else if (is_bfloat(dtype))
            values[i] = float_of((uint32_t)mh_bfloat_bits(values[i]) << 16);
}

void mh_finish_seal(mh_finish *finish)
{
    const float *values = finish->values[0];
    uint32_t *bits = finish->bits[0];
    for (uint32_t i = 0; i < MH_CHANNELS_MOST * 256; i++)
        bits[i] = is_half(finish->dtype)     ? mh_half_bits(values[i])
                  : is_bfloat(finish->dtype) ? mh_bfloat_bits(values[i])
                                             : float_bits(values[i]);
}

/* Every channel of a row: its bytes are `step` apart in the row and its values in the result. */
static void look_up_16(const uint32_t *table, const uint8_t *from, uint16_t *to, uint32_t count,
                       uint32_t from_step, uint32_t to_step)
{
    for (uint32_t i = 0; i < count; i++)
        to[(size_t)i * to_step] = (uint16_t)table[from[(size_t)i * from_step]];
}

static void look_up_32(const uint32_t *table, const uint8_t *from, uint32_t *to, uint32_t count,
                       uint32_t from_step, uint32_t to_step)
{
    for (uint32_t i = 0; i < count; i++)
        to[(size_t)i * to_step] = table[from[(size_t)i * from_step]];
}

static void copy_bytes(const uint8_t *from, uint8_t *to, uint32_t count, uint32_t step)
{
    for (uint32_t i = 0; i < count; i++)
        to[i] = from[(size_t)i * step];
}

void mh_finish_row(const mh_finish *finish, uint8_t *into, mh_size size, uint32_t y,
                   const uint8_t *row)
{
    uint32_t channels = finish->channels, bytes = finish->dtype.bits / 8, width = size.width;
    bool planes = finish->planes && channels > 1;
    if (finish->as_bytes && !planes) {
        memcpy(into + (size_t)y * width * channels, row, (size_t)width * channels);
        return;
    }
    for (uint32_t channel = 0; channel < channels; channel++) {
        size_t first = planes ? ((size_t)channel * size.height + y) * width
                              : (size_t)y * width * channels + channel;
        uint8_t *to = into + first * bytes;
        uint32_t to_step = planes ? 1 : channels;
        if (finish->as_bytes)
            copy_bytes(row + channel, to, width, channels);
        else if (bytes == 2)
            look_up_16(finish->bits[channel], row + channel, (uint16_t *)(void *)to, width,
                       channels, to_step);
        else
            look_up_32(finish->bits[channel], row + channel, (uint32_t *)(void *)to, width,
                       channels, to_step);
    }
}
