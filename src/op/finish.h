/* finish.h - what a sample's values are: from bytes of pixels to their type and layout
 * SPDX-License-Identifier: Apache-2.0
 *
 * A byte has 256 values, so normalising and casting are a table for each channel, made while the
 * text is parsed. Looking up is exact by construction, whatever the CPU.
 */
#ifndef MH_OP_FINISH_H
#define MH_OP_FINISH_H

#include "op/step.h"

#define MH_CHANNELS_MOST 3

struct mh_finish {
    uint32_t channels; /* of a pixel: 3 or 1 */
    bool is_mask;      /* the shape is (height, width), without channels */
    bool planes;       /* channels first */
    bool as_bytes;     /* values are the pixels' bytes, unchanged */
    mh_dtype dtype;
    float values[MH_CHANNELS_MOST][256];
    uint32_t bits[MH_CHANNELS_MOST][256]; /* the values in their type; set by mh_finish_seal */
};

/* Bytes as they are. */
void mh_finish_init(mh_finish *finish, uint32_t channels, bool is_mask);

/* Rounds all values to a type that they are then of. */
void mh_finish_cast(mh_finish *finish, mh_dtype dtype);

/* Makes the table from the values. */
void mh_finish_seal(mh_finish *finish);

/* Writes row number `y` of a sample of this size, `row` being its pixels, into the sample's place
 * at `into`. */
void mh_finish_row(const mh_finish *finish, uint8_t *into, mh_size size, uint32_t y,
                   const uint8_t *row);

/* The nearest half and bfloat16, ties to even, as bits. */
uint16_t mh_half_bits(float value);
uint16_t mh_bfloat_bits(float value);

/* u8, f16, bf16 and f32: the types that casts name, in this order. */
#define MH_DTYPE_NAMES "u8 f16 bf16 f32"
extern const mh_dtype mh_finish_dtypes[4];

#endif
