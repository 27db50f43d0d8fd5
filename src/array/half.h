/* half.h - float16 to and from float, without help from the machine
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ARRAY_HALF_H
#define MH_ARRAY_HALF_H

#include <stdint.h>
#include <string.h>

/* A half's exponent is made a float's by a multiplication, which does subnormals too. */
static inline float mh_half_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    float value;
    if ((half & 0x7c00) == 0x7c00) { /* infinity, NaN */
        bits |= 0x7f800000 | sign;
        memcpy(&value, &bits, 4);
        return value;
    }
    memcpy(&value, &bits, 4);
    value *= 0x1p112f;
    memcpy(&bits, &value, 4);
    bits |= sign;
    memcpy(&value, &bits, 4);
    return value;
}

/* To the nearest, ties to even, as NumPy does. */
static inline uint16_t mh_half_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7c00 | (bits >> 13 & 0x3ff) | !(bits >> 13 & 0x3ff));
    if (bits >= 0x477ff000) /* 65520 and more */
        return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) { /* subnormal: adding 0.5 leaves steps of 2^-24 */
        float magnitude;
        memcpy(&magnitude, &bits, 4);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, 4);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits - 0x38000000) >> 13));
}

/* A double is first made a float that is odd where it is not exact, so that rounding twice rounds
 * as once. */
static inline uint16_t mh_half_of_double(double value)
{
    float near = (float)value;
    uint32_t bits;
    memcpy(&bits, &near, 4);
    if ((double)near != value && near == near && (bits & 0x7f800000) != 0x7f800000) {
        const int beyond = near < 0 ? (double)near < value : (double)near > value;
        bits = (bits - (uint32_t)beyond) | 1;
        memcpy(&near, &bits, 4);
    }
    return mh_half_of_float(near);
}

#endif
