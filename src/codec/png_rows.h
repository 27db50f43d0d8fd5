/* png_rows.h - rows of a PNG as stored become pixels
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_CODEC_PNG_ROWS_H
#define MH_CODEC_PNG_ROWS_H

#include "codec/picture_codec.h"

/* How rows of one picture are stored. */
typedef struct mh_png_rows {
    mh_picture picture;
    mh_pixels pixels;        /* what they become */
    uint8_t palette[256][3]; /* entries that the file does not have are as Pillow's */
} mh_png_rows;

/* Fills the palette with what indices beyond the file's own palette stand for. */
void mh_png_palette_init(mh_png_rows *rows);

/* Bytes of a stored row. */
uint64_t mh_png_row_bytes(const mh_picture *picture);

/* Pixels x to x + width of a stored row. */
void mh_png_row_convert(const mh_png_rows *rows, const uint8_t *stored, uint32_t x, uint32_t width,
                        uint8_t *out);

#endif
