/* orientation.c - which way up a picture is, from the EXIF in its file
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/orientation.h"

#include <stdbool.h>
#include <string.h>

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define ENTRY_BYTES 12

typedef struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool little;
} tiff;

/* A number of two bytes; 0 beyond the end. */
static uint32_t two(const tiff *file, size_t at)
{
    if (file->size < 2 || at > file->size - 2)
        return 0;
    const uint8_t *p = file->bytes + at;
    return file->little ? p[0] | (uint32_t)p[1] << 8 : p[1] | (uint32_t)p[0] << 8;
}

static uint32_t four(const tiff *file, size_t at)
{
    uint32_t first = two(file, at), second = two(file, at + 2);
    return file->little ? first | second << 16 : second | first << 16;
}

uint8_t mh_orientation_read(const uint8_t *bytes, size_t size)
{
    tiff file = {bytes, size, size >= 8 && memcmp(bytes, "II*\0", 4) == 0};
    if (size < 8 || (!file.little && memcmp(bytes, "MM\0*", 4) != 0))
        return 1;
    size_t directory = four(&file, 4);
    uint32_t count = two(&file, directory);
    for (uint32_t entry = 0; entry < count; entry++) {
        size_t at = directory + 2 + (size_t)entry * ENTRY_BYTES;
        if (at + ENTRY_BYTES > size)
            return 1;
        if (two(&file, at) != TAG_ORIENTATION)
            continue;
        uint32_t value = two(&file, at + 8);
        bool sound = two(&file, at + 2) == TYPE_SHORT && four(&file, at + 4) == 1;
        return sound && value >= 1 && value <= 8 ? (uint8_t)value : 1;
    }
    return 1;
}
