/* png_filter.c - Sub, Up, Average and Paeth, undone
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each byte of a row was stored as its difference to a guess from its neighbours: the byte one
 * pixel to the left, the one above, and the one above that to the left (the corner). Beyond the
 * picture they are 0. As a guess from the left needs the pixel before, it is only the bytes of one
 * pixel that can be done at a time.
 */
#include "codec/png_filter.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { NONE, SUB, UP, AVERAGE, PAETH };

/* --- one byte at a time --- */

/* The neighbour nearest to left + above - corner; of equally near ones the first in this order. */
static int nearest(int left, int above, int corner)
{
    int to_left = abs(above - corner), to_above = abs(left - corner);
    int to_corner = abs(left + above - 2 * corner);
    if (to_left <= to_above && to_left <= to_corner)
        return left;
    return to_above <= to_corner ? above : corner;
}

static void undo_bytes(unsigned filter, uint8_t *row, const uint8_t *above, uint64_t from,
                       uint64_t bytes, uint32_t pixel_bytes)
{
    for (uint64_t i = from; i < bytes; i++) {
        int left = i < pixel_bytes ? 0 : row[i - pixel_bytes];
        int corner = i < pixel_bytes ? 0 : above[i - pixel_bytes];
        int guess = filter == SUB       ? left
                    : filter == AVERAGE ? (left + above[i]) / 2
                                        : nearest(left, above[i], corner);
        row[i] = (uint8_t)(row[i] + guess);
    }
}

static void undo_up(uint8_t *row, const uint8_t *above, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        row[i] = (uint8_t)(row[i] + above[i]);
}

/* --- the bytes of a pixel side by side --- */

#ifdef __SSE2__
static inline __m128i load_words(const uint8_t *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), _mm_setzero_si128());
}

static inline void store_words(uint8_t *into, __m128i words, uint32_t bytes)
{
    int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(into, &four, bytes);
}

static inline __m128i absolute(__m128i words)
{
    return _mm_max_epi16(words, _mm_sub_epi16(_mm_setzero_si128(), words));
}

static inline __m128i choose(__m128i where, __m128i yes, __m128i no)
{
    return _mm_or_si128(_mm_and_si128(where, yes), _mm_andnot_si128(where, no));
}

static inline __m128i nearest_words(__m128i left, __m128i above, __m128i corner)
{
    __m128i across = _mm_sub_epi16(above, corner), down = _mm_sub_epi16(left, corner);
    __m128i to_left = absolute(across), to_above = absolute(down);
    __m128i to_corner = absolute(_mm_add_epi16(across, down));
    __m128i least = _mm_min_epi16(to_corner, _mm_min_epi16(to_left, to_above));
    __m128i other = choose(_mm_cmpeq_epi16(least, to_above), above, corner);
    return choose(_mm_cmpeq_epi16(least, to_left), left, other);
}

/* Four bytes are read where a pixel has three: the last pixel is left. Gives the bytes that are
 * done. `filter` and `pixel_bytes` are known to the compiler at each call. */
static inline uint64_t undo_pixels(unsigned filter, uint8_t *row, const uint8_t *above,
                                   uint64_t bytes, uint32_t pixel_bytes)
{
    const __m128i low = _mm_set1_epi16(255);
    __m128i left = _mm_setzero_si128(), corner = left;
    uint64_t i = 0;
    for (; i + 4 <= bytes; i += pixel_bytes) {
        __m128i up = load_words(above + i);
        __m128i guess = filter == SUB       ? left
                        : filter == AVERAGE ? _mm_srli_epi16(_mm_add_epi16(left, up), 1)
                                            : nearest_words(left, up, corner);
        left = _mm_and_si128(_mm_add_epi16(load_words(row + i), guess), low);
        corner = up;
        store_words(row + i, left, pixel_bytes);
    }
    return i;
}

static inline uint64_t undo_row(unsigned filter, uint8_t *row, const uint8_t *above, uint64_t bytes,
                                uint32_t pixel_bytes)
{
    if (pixel_bytes == 3)
        return undo_pixels(filter, row, above, bytes, 3);
    return pixel_bytes == 4 ? undo_pixels(filter, row, above, bytes, 4) : 0;
}
#else
static inline uint64_t undo_row(unsigned filter, uint8_t *row, const uint8_t *above, uint64_t bytes,
                                uint32_t pixel_bytes)
{
    (void)filter, (void)row, (void)above, (void)bytes, (void)pixel_bytes;
    return 0;
}
#endif

bool mh_png_unfilter(unsigned filter, uint8_t *row, const uint8_t *above, uint64_t bytes,
                     uint32_t pixel_bytes)
{
    uint64_t done = 0;
    switch (filter) {
    case NONE:
        return true;
    case UP:
        undo_up(row, above, bytes);
        return true;
    case SUB:
        done = undo_row(SUB, row, above, bytes, pixel_bytes);
        break;
    case AVERAGE:
        done = undo_row(AVERAGE, row, above, bytes, pixel_bytes);
        break;
    case PAETH:
        done = undo_row(PAETH, row, above, bytes, pixel_bytes);
        break;
    default:
        return false;
    }
    undo_bytes(filter, row, above, done, bytes, pixel_bytes);
    return true;
}
