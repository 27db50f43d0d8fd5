/* kernels_avx2.c - the loops that touch every pixel, for x86 with AVX2
 * SPDX-License-Identifier: Apache-2.0
 *
 * Weights have 22 bits behind the point, too many for the fast multiplication of 16-bit pairs
 * (pmaddwd). So each is divided into a high and a low part of at most 16 bits (weights.h), and two
 * multiplications give the same sum of 32 bits as one wide one would.
 */
#include "op/x86/kernels_avx2.h"

#if MH_X86

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

/* Sums of low and of high parts, as bytes: the lowest four of each half. */
AVX2 static inline __m256i sum_bytes(__m256i low, __m256i high)
{
    __m256i sum = _mm256_add_epi32(low, _mm256_slli_epi32(high, MH_WEIGHT_LOW_BITS));
    sum = _mm256_srai_epi32(sum, MH_WEIGHT_BITS);
    sum = _mm256_packs_epi32(sum, sum);
    return _mm256_packus_epi16(sum, sum);
}

/* Four bytes of which the next pixel overwrites the last, or three. */
AVX2 static inline void put_pixel(uint8_t *to, __m128i pixel, size_t bytes)
{
    int32_t word = _mm_cvtsi128_si32(pixel);
    if (bytes == 4)
        memcpy(to, &word, 4);
    else
        memcpy(to, &word, 3);
}

/* Sums for one pixel of four rows: rows 0 and 1 in the halves of a, 2 and 3 in those of b. */
typedef struct four_sums {
    __m256i low_a, high_a, low_b, high_b;
} four_sums;

/* Five pixels of each of two rows, a row in each half. */
AVX2 static inline __m256i five_pixels(const uint8_t *one, const uint8_t *other)
{
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)one);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)other);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* Adds two pixels of each row, which `order` makes pairs of 16-bit numbers (r r g g b b - -). */
AVX2 static inline void add_two(four_sums *sums, __m256i a, __m256i b, __m256i order,
                                const uint32_t *pairs)
{
    __m256i low = _mm256_set1_epi32((int32_t)pairs[0]);
    __m256i high = _mm256_set1_epi32((int32_t)pairs[1]);
    a = _mm256_shuffle_epi8(a, order);
    b = _mm256_shuffle_epi8(b, order);
    sums->low_a = _mm256_add_epi32(sums->low_a, _mm256_madd_epi16(a, low));
    sums->high_a = _mm256_add_epi32(sums->high_a, _mm256_madd_epi16(a, high));
    sums->low_b = _mm256_add_epi32(sums->low_b, _mm256_madd_epi16(b, low));
    sums->high_b = _mm256_add_epi32(sums->high_b, _mm256_madd_epi16(b, high));
}

/* Four rows of three channels. `pixels` is 2, 4 or 8 where no result needs more: then the loop is
 * the same for all, and the CPU's guesses are right; 0: as many as each needs. */
AVX2 static inline __attribute__((always_inline)) void across_rgb(const mh_weights *weights,
                                                                  const uint8_t *const *from,
                                                                  uint8_t *const *to,
                                                                  uint32_t pixels)
{
    const __m256i half = _mm256_set1_epi32(1 << (MH_WEIGHT_BITS - 1));
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i second = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    for (uint32_t i = 0; i < weights->count; i++) {
        const uint32_t *pairs = weights->pairs + (size_t)i * weights->stride;
        size_t at = (size_t)weights->starts[i] * 3, place = (size_t)i * 3;
        uint32_t count = pixels ? pixels : weights->lengths[i];
        four_sums sums = {half, _mm256_setzero_si256(), half, _mm256_setzero_si256()};
        for (uint32_t k = 0; k < count; k += 4, at += 12) {
            __m256i a = five_pixels(from[0] + at, from[1] + at);
            __m256i b = five_pixels(from[2] + at, from[3] + at);
            add_two(&sums, a, b, first, pairs + k);
            if (pixels != 2)
                add_two(&sums, a, b, second, pairs + k + 2);
        }
        __m256i a = sum_bytes(sums.low_a, sums.high_a), b = sum_bytes(sums.low_b, sums.high_b);
        size_t bytes = i + 1 < weights->count ? 4 : 3;
        put_pixel(to[0] + place, _mm256_castsi256_si128(a), bytes);
        put_pixel(to[1] + place, _mm256_extracti128_si256(a, 1), bytes);
        put_pixel(to[2] + place, _mm256_castsi256_si128(b), bytes);
        put_pixel(to[3] + place, _mm256_extracti128_si256(b, 1), bytes);
    }
}

AVX2 static void across(const mh_weights *weights, const uint8_t *const *from, uint8_t *const *to,
                        uint32_t rows, uint32_t channels)
{
    if (channels != 3) {
        mh_kernels_plain.across(weights, from, to, rows, channels);
        return;
    }
    const uint8_t *sources[MH_ACROSS_ROWS];
    uint8_t *results[MH_ACROSS_ROWS];
    for (uint32_t row = 0; row < MH_ACROSS_ROWS; row++) { /* fewer rows: the last one again */
        sources[row] = from[row < rows ? row : rows - 1];
        results[row] = to[row < rows ? row : rows - 1];
    }
    if (weights->longest <= 2)
        across_rgb(weights, sources, results, 2);
    else if (weights->longest <= 4)
        across_rgb(weights, sources, results, 4);
    else if (weights->longest <= 8)
        across_rgb(weights, sources, results, 8);
    else
        across_rgb(weights, sources, results, 0);
}

/* Sixteen bytes of the result from byte `at` on. */
AVX2 static inline __m128i down_16(const uint32_t *pairs, uint32_t count,
                                   const uint8_t *const *rows, size_t at)
{
    const __m256i half = _mm256_set1_epi32(1 << (MH_WEIGHT_BITS - 1));
    __m256i low_a = half, low_b = half;
    __m256i high_a = _mm256_setzero_si256(), high_b = high_a;
    for (uint32_t k = 0; k < count; k += 2) {
        const uint8_t *next = rows[k + 1 < count ? k + 1 : k]; /* beyond the last its weight is 0 */
        __m128i one = _mm_loadu_si128((const __m128i *)(const void *)(rows[k] + at));
        __m128i other = _mm_loadu_si128((const __m128i *)(const void *)(next + at));
        __m256i low = _mm256_set1_epi32((int32_t)pairs[k]);
        __m256i high = _mm256_set1_epi32((int32_t)pairs[k + 1]);
        __m256i a = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(one, other));
        __m256i b = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(one, other));
        low_a = _mm256_add_epi32(low_a, _mm256_madd_epi16(a, low));
        high_a = _mm256_add_epi32(high_a, _mm256_madd_epi16(a, high));
        low_b = _mm256_add_epi32(low_b, _mm256_madd_epi16(b, low));
        high_b = _mm256_add_epi32(high_b, _mm256_madd_epi16(b, high));
    }
    __m256i a = _mm256_add_epi32(low_a, _mm256_slli_epi32(high_a, MH_WEIGHT_LOW_BITS));
    __m256i b = _mm256_add_epi32(low_b, _mm256_slli_epi32(high_b, MH_WEIGHT_LOW_BITS));
    __m256i both = _mm256_packs_epi32(_mm256_srai_epi32(a, MH_WEIGHT_BITS),
                                      _mm256_srai_epi32(b, MH_WEIGHT_BITS));
    both = _mm256_permute4x64_epi64(both, 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

AVX2 static void down(const mh_weights *weights, uint32_t at, const uint8_t *const *rows,
                      uint8_t *to, uint32_t bytes)
{
    const uint32_t *pairs = weights->pairs + (size_t)at * weights->stride;
    uint32_t count = weights->lengths[at];
    if (bytes < 16) {
        mh_kernels_plain.down(weights, at, rows, to, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += 16) {
        size_t place = i + 16 <= bytes ? i : bytes - 16; /* the last ones may come twice */
        _mm_storeu_si128((__m128i *)(void *)(to + place), down_16(pairs, count, rows, place));
    }
}

const mh_kernels mh_kernels_avx2 = {"avx2", across, down};

#else

typedef int mh_kernels_avx2_is_not_for_this_cpu; /* a file must declare something */

#endif
