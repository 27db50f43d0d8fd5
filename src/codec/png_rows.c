/* png_rows.c - rows of a PNG as stored become pixels
 * SPDX-License-Identifier: Apache-2.0
 *
 * As Pillow's convert("RGB"): alpha is dropped, of 16 bits the higher 8 are kept (of grey ones the
 * value itself, up to 255), fewer than 8 bits are spread over the range.
 */
#include "codec/png_rows.h"

#include <string.h>

void mh_png_palette_init(mh_png_rows *rows)
{
    for (unsigned i = 0; i < 256; i++)
        memset(rows->palette[i], (int)i, 3);
}

uint64_t mh_png_row_bytes(const mh_picture *picture)
{
    return ((uint64_t)picture->width * picture->channels * picture->bits + 7) / 8;
}

/* Value number `at` of a row of 1, 2, 4 or 8 bits each. */
static uint8_t unpacked(const uint8_t *stored, uint64_t at, unsigned bits)
{
    uint64_t first = at * bits;
    unsigned shift = 8 - bits - (unsigned)(first % 8);
    return (uint8_t)(stored[first / 8] >> shift & ((1U << bits) - 1));
}

/* One channel of up to 8 bits: indices, or grey. */
static void convert_single(const mh_png_rows *rows, const uint8_t *stored, uint32_t x,
                           uint32_t width, uint8_t *out)
{
    const mh_picture *picture = &rows->picture;
    unsigned bits = picture->bits;
    /* A mask's single bits are labels; other grey is spread over the range */
    unsigned spread = picture->palette || (bits == 1 && rows->pixels == MH_PIXELS_STORED)
                          ? 1
                          : 255 / ((1U << bits) - 1);
    for (uint32_t i = 0; i < width; i++) {
        uint8_t value = (uint8_t)(unpacked(stored, (uint64_t)x + i, bits) * spread);
        if (rows->pixels == MH_PIXELS_STORED)
            out[i] = value;
        else if (picture->palette)
            memcpy(out + 3 * (size_t)i, rows->palette[value], 3);
        else
            memset(out + 3 * (size_t)i, value, 3);
    }
}

/* Grey of 16 bits: Pillow keeps the value, up to 255. */
static void convert_deep_grey(const uint8_t *stored, uint32_t width, uint8_t *out)
{
    for (uint32_t i = 0; i < width; i++)
        memset(out + 3 * (size_t)i, stored[2 * (size_t)i] ? 255 : stored[2 * (size_t)i + 1], 3);
}

void mh_png_row_convert(const mh_png_rows *rows, const uint8_t *stored, uint32_t x, uint32_t width,
                        uint8_t *out)
{
    const mh_picture *picture = &rows->picture;
    if (picture->channels == 1 && picture->bits <= 8) {
        convert_single(rows, stored, x, width, out);
        return;
    }
    size_t channel = picture->bits / 8, pixel = channel * picture->channels;
    stored += x * pixel;
    if (picture->channels == 1) {
        convert_deep_grey(stored, width, out);
        return;
    }
    if (pixel == 3) {
        memcpy(out, stored, 3 * (size_t)width);
        return;
    }
    size_t step = picture->channels < 3 ? 0 : channel; /* grey with alpha: one value for all */
    for (uint32_t i = 0; i < width; i++, stored += pixel, out += 3) {
        out[0] = stored[0];
        out[1] = stored[step];
        out[2] = stored[2 * step];
    }
}
