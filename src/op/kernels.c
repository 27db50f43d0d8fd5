/* kernels.c - the loops that touch every pixel, in plain C
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/kernels.h"

#include "op/x86/kernels_avx2.h"

static void across(const mh_weights *weights, const uint8_t *const *from, uint8_t *const *to,
                   uint32_t rows, uint32_t channels)
{
    for (uint32_t i = 0; i < weights->count; i++) {
        const int32_t *values = weights->values + (size_t)i * weights->stride;
        size_t first = (size_t)weights->starts[i] * channels;
        for (uint32_t row = 0; row < rows; row++)
            for (uint32_t channel = 0; channel < channels; channel++) {
                const uint8_t *pixel = from[row] + first + channel;
                int32_t sum = 0;
                for (uint32_t k = 0; k < weights->lengths[i]; k++)
                    sum += values[k] * pixel[(size_t)k * channels];
                to[row][(size_t)i * channels + channel] = mh_weighted_byte(sum);
            }
    }
}

static void down(const mh_weights *weights, uint32_t at, const uint8_t *const *rows, uint8_t *to,
                 uint32_t bytes)
{
    const int32_t *values = weights->values + (size_t)at * weights->stride;
    for (uint32_t i = 0; i < bytes; i++) {
        int32_t sum = 0;
        for (uint32_t k = 0; k < weights->lengths[at]; k++)
            sum += values[k] * rows[k][i];
        to[i] = mh_weighted_byte(sum);
    }
}

const mh_kernels mh_kernels_plain = {"plain", across, down};

const mh_kernels *mh_kernels_best(void)
{
#if MH_X86
    if (__builtin_cpu_supports("avx2"))
        return &mh_kernels_avx2;
#endif
    return &mh_kernels_plain;
}
