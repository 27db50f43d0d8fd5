/* kernels.h - the loops that touch every pixel: plain C, and faster versions for some CPUs
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every version gives the same bits. Rows that are read have MH_ROW_SLACK readable bytes behind
 * them; what is written are exactly the bytes of the result.
 */
#ifndef MH_OP_KERNELS_H
#define MH_OP_KERNELS_H

#include "codec/picture_codec.h"
#include "op/weights.h"

#define MH_ACROSS_ROWS 4 /* rows that are resized at once */

typedef struct mh_kernels {
    const char *name;
    /* Resizes `rows` rows (1 to MH_ACROSS_ROWS) of pixels of `channels` bytes; BLEND only. */
    void (*across)(const mh_weights *weights, const uint8_t *const *from, uint8_t *const *to,
                   uint32_t rows, uint32_t channels);
    /* Result number `at` from lengths[at] rows of `bytes` bytes; BLEND only. */
    void (*down)(const mh_weights *weights, uint32_t at, const uint8_t *const *rows, uint8_t *to,
                 uint32_t bytes);
} mh_kernels;

extern const mh_kernels mh_kernels_plain;

/* The fastest that this CPU has. */
const mh_kernels *mh_kernels_best(void);

/* A sum of weighted bytes as a byte. */
static inline uint8_t mh_weighted_byte(int32_t sum)
{
    sum = (sum + (1 << (MH_WEIGHT_BITS - 1))) >> MH_WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

#endif
