/* orientation.h - which way up a picture is, from the EXIF in its file
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_CODEC_ORIENTATION_H
#define MH_CODEC_ORIENTATION_H

#include <stddef.h>
#include <stdint.h>

/* The orientation (1 to 8) that a TIFF structure, which is what EXIF is, has in its first
 * directory; 1 where it has none or is broken, as viewers do. */
uint8_t mh_orientation_read(const uint8_t *tiff, size_t size);

/* Whether width and height change places: 5 to 8. */
static inline int mh_orientation_swaps(uint8_t orientation)
{
    return orientation >= 5;
}

#endif
