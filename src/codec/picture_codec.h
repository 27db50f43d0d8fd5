/* picture_codec.h - what a codec of pictures does: rows of a region, from encoded bytes
 * SPDX-License-Identifier: Apache-2.0
 *
 * A codec is one file that ends in one const table, and a line in the list of picture_codec_list.c.
 * Its state belongs to one thread at a time and is used again for one picture after the other:
 *
 *     codec->begin(state, bytes, size, &wanted, &rows, err)
 *     codec->rows(state, into, count, err)          as often as wanted, from the region's first row
 *     codec->end(state)                             also after a failure, and before the last row
 */
#ifndef MH_CODEC_PICTURE_CODEC_H
#define MH_CODEC_PICTURE_CODEC_H

#include "codec/picture.h"
#include <millhead/dataset.h>

/* Kernels may read this many bytes behind a row. */
#define MH_ROW_SLACK 64

typedef enum mh_pixels {
    MH_PIXELS_RGB,    /* three bytes each: Pillow's convert("RGB") */
    MH_PIXELS_STORED, /* one byte each, as stored: grey, or the index into a palette */
} mh_pixels;

/* What is wanted of a picture. The region lies in the picture as it is after shrinking. */
typedef struct mh_picture_wanted {
    mh_picture picture; /* as described */
    mh_pixels pixels;
    uint32_t shrink; /* 1, 2, 4 or 8: each side is divided by it, rounded up; only JPEG's may be
                      * over 1 */
    uint32_t x, y, width, height;
} mh_picture_wanted;

/* How the codec delivers rows. */
typedef struct mh_row_layout {
    uint64_t bytes; /* of a row, without the slack; it may hold more than the region */
    uint64_t lead;  /* bytes before the region's first pixel */
} mh_row_layout;

typedef struct mh_picture_codec {
    const char *name;
    const char *suffixes; /* ".jpg .jpeg" */
    const char *what;     /* one line for `millhead list` */
    mh_picture_kind kind;
    mh_status (*state_new)(void **out, mh_error *err);
    void (*state_free)(void *state);
    /* `bytes` must live until end. */
    mh_status (*begin)(void *state, const uint8_t *bytes, uint64_t size,
                       const mh_picture_wanted *wanted, mh_row_layout *out, mh_error *err);
    /* The next `count` rows, layout.bytes each. No more rows in all than the region has. */
    mh_status (*rows)(void *state, uint8_t *const *into, uint32_t count, mh_error *err);
    void (*end)(void *state);
} mh_picture_codec;

/* Ended by NULL: those of this build. */
extern const mh_picture_codec *const mh_picture_codecs[];
extern const mh_picture_codec mh_codec_jpeg;
extern const mh_picture_codec mh_codec_png;

/* The codec of a kind of picture. MH_ERR_UNSUPPORTED: the build is without it. */
MH_MUST_CHECK mh_status mh_picture_codec_find(const mh_picture_codec **out, mh_picture_kind kind,
                                              mh_error *err);

#endif
