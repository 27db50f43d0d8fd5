/* png_plain.c - chunks, libdeflate, filters
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/png_plain.h"

#include "base/alloc.h"
#include "codec/png_chunks.h"
#include "codec/png_filter.h"

#include <mh_config.h>

#include <string.h>

#if MH_HAVE_DEFLATE
#include <libdeflate.h>

#define STORED_BYTES_MOST (UINT64_C(64) << 20) /* of one thread; larger pictures go row by row */
#define INFLATED_MOST 1032                     /* times the packed bytes: deflate gives no more */
#define FILTER_LAST 4

/* --- what is in the file --- */

static bool is_sound(const mh_png_chunk *found)
{
    return libdeflate_crc32(0, found->name, found->size + (size_t)4) ==
           mh_png_number(found->data + found->size);
}

static bool may_be_ignored(const mh_png_chunk *found)
{
    return found->name[0] & 0x20; /* a small letter */
}

static bool reserve(uint8_t **block, uint64_t *room, uint64_t bytes)
{
    if (bytes <= *room)
        return true;
    mh_free(*block);
    *block = mh_realloc(NULL, bytes, 1);
    *room = *block ? bytes : 0;
    return *block;
}

typedef struct contents {
    mh_png_chunk header, palette;
    mh_png_chunk first; /* data chunk; the others follow it */
    uint64_t first_at;  /* where the chunk behind it begins */
    uint64_t packed;    /* bytes of all of them */
} contents;

/* Which chunks there are, in the order that they must have. */
static bool find_contents(const uint8_t *bytes, uint64_t size, contents *out)
{
    mh_png_chunk found;
    uint64_t at = MH_PNG_CHUNKS_AT;
    bool data_over = false;
    *out = (contents){0};
    if (!mh_png_chunk_next(bytes, size, &at, &out->header) ||
        !mh_png_chunk_is(&out->header, "IHDR"))
        return false;
    while (mh_png_chunk_next(bytes, size, &at, &found)) {
        if (mh_png_chunk_is(&found, "IEND"))
            return out->first.name;
        if (mh_png_chunk_is(&found, "IDAT")) {
            if (data_over || !is_sound(&found))
                return false;
            if (!out->first.name) {
                out->first = found;
                out->first_at = at;
            }
            out->packed += found.size;
            continue;
        }
        data_over = out->first.name;
        if (mh_png_chunk_is(&found, "PLTE") && !out->palette.name && !data_over)
            out->palette = found;
        else if (!may_be_ignored(&found))
            return false;
    }
    return false;
}

static bool read_palette(const contents *file, mh_png_rows *rows)
{
    const mh_png_chunk *palette = &file->palette;
    if (!rows->picture.palette)
        return true;
    if (!palette->name || palette->size == 0 || palette->size % 3 || palette->size > 3 * 256 ||
        !is_sound(palette))
        return false;
    memcpy(rows->palette, palette->data, palette->size);
    return true;
}

/* All data chunks' bytes one behind the other; NULL: no memory. */
static const uint8_t *join(mh_png_plain *plain, const contents *file, const uint8_t *bytes,
                           uint64_t size)
{
    uint64_t done = file->first.size, at = file->first_at;
    if (done == file->packed)
        return file->first.data;
    if (!reserve(&plain->packed, &plain->packed_room, file->packed))
        return NULL;
    memcpy(plain->packed, file->first.data, done);
    for (mh_png_chunk found; done < file->packed && mh_png_chunk_next(bytes, size, &at, &found);) {
        memcpy(plain->packed + done, found.data, found.size);
        done += found.size;
    }
    return plain->packed;
}

/* --- rows --- */

static uint8_t *stored_row(const mh_png_plain *plain, uint64_t number)
{
    return plain->stored + plain->row_bytes + number * (plain->row_bytes + 1) + 1;
}

static bool filters_are_known(const mh_png_plain *plain, uint32_t height)
{
    for (uint32_t row = 0; row < height; row++)
        if (stored_row(plain, row)[-1] > FILTER_LAST)
            return false;
    return true;
}

static bool inflate_all(mh_png_plain *plain, const contents *file, const uint8_t *bytes,
                        uint64_t size, uint32_t height)
{
    const uint64_t wanted = (plain->row_bytes + 1) * height;
    if (wanted > STORED_BYTES_MOST || wanted / INFLATED_MOST > file->packed)
        return false;
    if (!plain->inflater)
        plain->inflater = libdeflate_alloc_decompressor();
    if (!plain->inflater ||
        !reserve(&plain->stored, &plain->stored_room, plain->row_bytes + wanted))
        return false;
    const uint8_t *packed = join(plain, file, bytes, size);
    memset(plain->stored, 0, plain->row_bytes);
    size_t got = 0;
    return packed &&
           libdeflate_zlib_decompress(plain->inflater, packed, file->packed,
                                      plain->stored + plain->row_bytes, wanted,
                                      &got) == LIBDEFLATE_SUCCESS &&
           got == wanted && filters_are_known(plain, height);
}

bool mh_png_plain_begin(mh_png_plain *plain, mh_png_rows *rows, const uint8_t *bytes, uint64_t size)
{
    const mh_picture *picture = &rows->picture;
    contents file;
    if (picture->bits != 8 || picture->progressive || !find_contents(bytes, size, &file))
        return false;
    const uint8_t *methods = file.header.data + 10; /* of compressing and filtering */
    if (file.header.size != 13 || !is_sound(&file.header) || methods[0] || methods[1])
        return false;
    plain->row_bytes = mh_png_row_bytes(picture);
    plain->pixel_bytes = picture->channels;
    plain->next = 0;
    return inflate_all(plain, &file, bytes, size, picture->height) && read_palette(&file, rows);
}

const uint8_t *mh_png_plain_row(mh_png_plain *plain)
{
    uint64_t number = plain->next++;
    uint8_t *row = stored_row(plain, number);
    const uint8_t *above = number ? stored_row(plain, number - 1) : plain->stored;
    (void)mh_png_unfilter(row[-1], row, above, plain->row_bytes, plain->pixel_bytes);
    return row;
}

void mh_png_plain_free(mh_png_plain *plain)
{
    libdeflate_free_decompressor(plain->inflater);
    mh_free(plain->packed);
    mh_free(plain->stored);
}

#else /* libpng does it all */

bool mh_png_plain_begin(mh_png_plain *plain, mh_png_rows *rows, const uint8_t *bytes, uint64_t size)
{
    (void)plain, (void)rows, (void)bytes, (void)size;
    return false;
}

const uint8_t *mh_png_plain_row(mh_png_plain *plain)
{
    (void)plain;
    return NULL;
}

void mh_png_plain_free(mh_png_plain *plain)
{
    (void)plain;
}
#endif
