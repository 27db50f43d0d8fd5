/* png_plain.h - the usual PNG, of 8 bits and not interlaced, without libpng
 * SPDX-License-Identifier: Apache-2.0
 *
 * The picture is inflated in one go, then the rows' filters are undone one after the other: about
 * twice as fast as libpng. Whatever is not usual is left to libpng, which knows what to make of it:
 * other kinds, wrong checksums, chunks out of order, pictures too large to hold. One thread at a
 * time.
 */
#ifndef MH_CODEC_PNG_PLAIN_H
#define MH_CODEC_PNG_PLAIN_H

#include "codec/png_rows.h"

#include <stdbool.h>

/* All zeros at first; mh_png_plain_free at the end. */
typedef struct mh_png_plain {
    void *inflater;  /* libdeflate's */
    uint8_t *packed; /* what the data chunks hold, where they are several */
    uint8_t *stored; /* a row of zeros, then all rows, each behind a byte for its filter */
    uint64_t packed_room, stored_room;
    uint64_t row_bytes; /* without that byte */
    uint32_t pixel_bytes;
    uint32_t next; /* the row that comes next */
} mh_png_plain;

/* Reads the PNG that rows->picture describes, and its palette into rows->palette. False: this one
 * is for libpng. */
bool mh_png_plain_begin(mh_png_plain *plain, mh_png_rows *rows, const uint8_t *bytes,
                        uint64_t size);

/* The next row, as it was before filtering; not more than the picture has. It stays until the next
 * begin. */
const uint8_t *mh_png_plain_row(mh_png_plain *plain);

void mh_png_plain_free(mh_png_plain *plain);

#endif
