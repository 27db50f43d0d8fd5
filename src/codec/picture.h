/* picture.h - what an encoded picture is: its codec, size and orientation, from its first bytes
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions over bytes: no library, no state, any thread.
 */
#ifndef MH_CODEC_PICTURE_H
#define MH_CODEC_PICTURE_H

#include <millhead/error.h>

/* Larger pictures are refused before any memory is asked for; Pillow refuses at the same number. */
#define MH_PICTURE_SIDE_MOST 65535
#define MH_PICTURE_PIXELS_MOST UINT64_C(178956970)

typedef enum mh_picture_kind {
    MH_PICTURE_OTHER, /* neither of those below */
    MH_PICTURE_JPEG,
    MH_PICTURE_PNG,
} mh_picture_kind;

/* As the file stores it: width and height before any turning by its orientation. */
typedef struct mh_picture {
    mh_picture_kind kind;
    uint32_t width, height;
    uint8_t
        channels; /* stored: 1 grey or palette, 2 grey and alpha, 3 colour, 4 with alpha or CMYK */
    uint8_t bits; /* of a channel */
    uint8_t palette;     /* the channel is an index (PNG) */
    uint8_t progressive; /* regions cost as much as all of it (progressive JPEG, interlaced PNG) */
    uint8_t orientation; /* EXIF's, 1 to 8; 1: as stored, also where there is no EXIF */
} mh_picture;

/* Which codec's first bytes these are; 12 bytes are enough. */
mh_picture_kind mh_picture_kind_of(const uint8_t *bytes, uint64_t size);

/* Reads the header. `whole` says whether `bytes` is the whole file; a beginning of it is enough as
 * soon as it holds the header: MH_AGAIN asks for more bytes (twice as many, say).
 * Errors: MH_ERR_CORRUPT (also "truncated" when whole), MH_ERR_UNSUPPORTED (not a picture that we
 * know, too large, 12-bit JPEG). *out is untouched on failure. */
MH_MUST_CHECK mh_status mh_picture_describe(mh_picture *out, const uint8_t *bytes, uint64_t size,
                                            int whole, mh_error *err);

#endif
