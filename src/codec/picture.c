/* picture.c - what an encoded picture is: its codec, size and orientation, from its first bytes
 * SPDX-License-Identifier: Apache-2.0
 *
 * A file is a row of segments (JPEG: markers) or chunks (PNG); both say how long they are, so the
 * header is found by hopping from one to the next.
 */
#include "codec/picture.h"

#include "base/error.h"
#include "codec/orientation.h"

#include <stdbool.h>
#include <string.h>

static const uint8_t png_signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

/* Bytes that are read from front to back. */
typedef struct head {
    const uint8_t *bytes;
    uint64_t size;
    bool whole;
} head;

mh_picture_kind mh_picture_kind_of(const uint8_t *bytes, uint64_t size)
{
    if (size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff)
        return MH_PICTURE_JPEG;
    if (size >= sizeof png_signature && memcmp(bytes, png_signature, sizeof png_signature) == 0)
        return MH_PICTURE_PNG;
    return MH_PICTURE_OTHER;
}

static mh_status ran_out(const head *from, mh_error *err)
{
    if (!from->whole)
        return MH_AGAIN;
    return mh_fail(err, MH_ERR_CORRUPT,
                   "truncated: the file ends inside its header, after %llu "
                   "bytes",
                   (unsigned long long)from->size);
}

static uint32_t big_2(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t big_4(const uint8_t *at)
{
    return big_2(at) << 16 | big_2(at + 2);
}

static mh_status check_size(const mh_picture *picture, mh_error *err)
{
    if (picture->width == 0 || picture->height == 0)
        return mh_fail(err, MH_ERR_CORRUPT, "the picture is %ux%u pixels", picture->width,
                       picture->height);
    if (picture->width > MH_PICTURE_SIDE_MOST || picture->height > MH_PICTURE_SIDE_MOST ||
        (uint64_t)picture->width * picture->height > MH_PICTURE_PIXELS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "the picture is %ux%u pixels; over %u on a side or %llu in all are refused",
                       picture->width, picture->height, MH_PICTURE_SIDE_MOST,
                       (unsigned long long)MH_PICTURE_PIXELS_MOST);
    return MH_OK;
}

/* --- JPEG --- */

enum { SOF0 = 0xc0, DHT = 0xc4, JPG = 0xc8, DAC = 0xcc, SOF15 = 0xcf, SOI = 0xd8, EOI = 0xd9 };
enum { SOS = 0xda, APP1 = 0xe1, TEM = 0x01, RST0 = 0xd0, RST7 = 0xd7 };

static bool is_frame(uint8_t marker)
{
    return marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC;
}

/* `at` is behind the marker and its length; `length` bytes are there. */
static mh_status read_frame(mh_picture *out, uint8_t marker, const uint8_t *at, uint32_t length,
                            mh_error *err)
{
    if (length < 6)
        return mh_fail(err, MH_ERR_CORRUPT, "the JPEG frame header has %u bytes", length);
    out->bits = at[0];
    out->height = big_2(at + 1);
    out->width = big_2(at + 3);
    out->channels = at[5];
    out->progressive =
        marker != SOF0 && marker != SOF0 + 1 && marker != 0xc9; /* 0xc9: arithmetic */
    if (out->bits != 8)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "JPEG with %d bits is not supported, only 8",
                       out->bits);
    if (out->channels != 1 && out->channels != 3 && out->channels != 4)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "JPEG with %d components is not supported, only 1, 3 and 4", out->channels);
    return check_size(out, err);
}

static mh_status describe_jpeg(mh_picture *out, const head *from, mh_error *err)
{
    bool exif_seen = false;
    for (uint64_t at = 2;;) {
        if (at + 4 > from->size)
            return ran_out(from, err);
        if (from->bytes[at] != 0xff || from->bytes[at + 1] == 0x00) {
            at++; /* bytes between segments: decoders pass over them */
            continue;
        }
        uint8_t marker = from->bytes[at + 1];
        if (marker == 0xff) {
            at++;
            continue;
        }
        if (marker == TEM || marker == SOI || (marker >= RST0 && marker <= RST7)) {
            at += 2;
            continue;
        }
        uint32_t length = big_2(from->bytes + at + 2);
        if (marker == SOS || marker == EOI || length < 2)
            return mh_fail(err, MH_ERR_CORRUPT, "the JPEG has no frame header");
        if (at + 2 + length > from->size)
            return ran_out(from, err);
        const uint8_t *body = from->bytes + at + 4;
        if (is_frame(marker))
            return read_frame(out, marker, body, length - 2, err);
        if (marker == APP1 && !exif_seen && length >= 8 && memcmp(body, "Exif\0", 6) == 0) {
            out->orientation = mh_orientation_read(body + 6, length - 8);
            exif_seen = true;
        }
        at += 2 + length;
    }
}

/* --- PNG --- */

#define CHUNK_MOST UINT32_C(0x7fffffff)

static mh_status read_ihdr(mh_picture *out, const uint8_t *at, mh_error *err)
{
    static const uint8_t channels[7] = {1, 0, 3, 1, 2, 0, 4}; /* by colour type */
    uint8_t type = at[9];
    out->width = big_4(at);
    out->height = big_4(at + 4);
    out->bits = at[8];
    out->channels = type < sizeof channels ? channels[type] : 0;
    out->palette = type == 3;
    out->progressive = at[12] != 0;
    bool packed = out->bits == 1 || out->bits == 2 || out->bits == 4;
    bool sound = out->channels != 0 && (out->bits == 8 || (packed && out->channels == 1) ||
                                        (out->bits == 16 && type != 3));
    if (!sound || at[10] != 0 || at[11] != 0 || at[12] > 1)
        return mh_fail(err, MH_ERR_CORRUPT,
                       "the PNG header says colour type %d, %d bits, methods %d, %d, %d", type,
                       out->bits, at[10], at[11], at[12]);
    return check_size(out, err);
}

static mh_status describe_png(mh_picture *out, const head *from, mh_error *err)
{
    if (from->size < 8 + 25)
        return ran_out(from, err);
    if (memcmp(from->bytes + 8, "\0\0\0\rIHDR", 8) != 0)
        return mh_fail(err, MH_ERR_CORRUPT, "the PNG does not begin with its header");
    MH_TRY(read_ihdr(out, from->bytes + 16, err));
    for (uint64_t at = 8 + 25;;) {
        if (at + 8 > from->size)
            return ran_out(from, err);
        uint32_t length = big_4(from->bytes + at);
        const uint8_t *type = from->bytes + at + 4;
        if (memcmp(type, "IDAT", 4) == 0)
            return MH_OK;
        if (memcmp(type, "IEND", 4) == 0 || length > CHUNK_MOST)
            return mh_fail(err, MH_ERR_CORRUPT, "the PNG has no pixels");
        if (at + 12 + length > from->size)
            return ran_out(from, err);
        if (memcmp(type, "eXIf", 4) == 0)
            out->orientation = mh_orientation_read(type + 4, length);
        at += UINT64_C(12) + length;
    }
}

mh_status mh_picture_describe(mh_picture *out, const uint8_t *bytes, uint64_t size, int whole,
                              mh_error *err)
{
    const head from = {bytes, size, whole != 0};
    mh_picture made = {.kind = mh_picture_kind_of(bytes, size), .orientation = 1};
    mh_status status;
    if (made.kind == MH_PICTURE_JPEG)
        status = describe_jpeg(&made, &from, err);
    else if (made.kind == MH_PICTURE_PNG)
        status = describe_png(&made, &from, err);
    else if (size < sizeof png_signature)
        return size == 0 && whole ? mh_fail(err, MH_ERR_CORRUPT, "the file is empty")
                                  : ran_out(&from, err);
    else
        return mh_fail(err, MH_ERR_UNSUPPORTED, "not a JPEG or PNG picture");
    if (status == MH_OK)
        *out = made;
    return status;
}
