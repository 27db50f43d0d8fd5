/* png_chunks.h - the chunks of a PNG file, one after the other
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_CODEC_PNG_CHUNKS_H
#define MH_CODEC_PNG_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MH_PNG_CHUNKS_AT 8 /* the first, behind the signature */

/* In the file: its length, four letters, its bytes, a checksum of letters and bytes. */
typedef struct mh_png_chunk {
    const uint8_t *name, *data;
    uint32_t size;
} mh_png_chunk;

static inline uint32_t mh_png_number(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

/* The chunk at *at, which moves behind it. False: no whole one is there. */
static inline bool mh_png_chunk_next(const uint8_t *bytes, uint64_t size, uint64_t *at,
                                     mh_png_chunk *out)
{
    if (*at > size || size - *at < 12)
        return false;
    const uint32_t length = mh_png_number(bytes + *at);
    if (length > size - *at - 12)
        return false;
    *out = (mh_png_chunk){.name = bytes + *at + 4, .data = bytes + *at + 8, .size = length};
    *at += UINT64_C(12) + length;
    return true;
}

static inline bool mh_png_chunk_is(const mh_png_chunk *chunk, const char *name)
{
    return memcmp(chunk->name, name, 4) == 0;
}

#endif
