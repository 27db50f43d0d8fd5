/* png_filter.h - the filters of PNG's rows, undone
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_CODEC_PNG_FILTER_H
#define MH_CODEC_PNG_FILTER_H

#include <stdbool.h>
#include <stdint.h>

/* Undoes filter number `filter` of a row in place, and says whether there is such a filter. `above`
 * is the row before it, zeros before the first. A pixel has 1 to 4 bytes. */
bool mh_png_unfilter(unsigned filter, uint8_t *row, const uint8_t *above, uint64_t bytes,
                     uint32_t pixel_bytes);

#endif
