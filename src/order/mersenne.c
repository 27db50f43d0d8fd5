/* mersenne.c - the Mersenne Twister of Matsumoto and Nishimura (1998), 32 bits wide
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/mersenne.h"

#define SHIFT 397 /* the recurrence's middle term */

void mh_mersenne_seed(mh_mersenne *mersenne, uint32_t seed)
{
    uint32_t word = mersenne->words[0] = seed;
    for (uint32_t at = 1; at < MH_MERSENNE_WORDS; at++)
        word = mersenne->words[at] = UINT32_C(1812433253) * (word ^ (word >> 30)) + at;
    mersenne->used = MH_MERSENNE_WORDS;
}

/* One step of the recurrence: the top bit of one word, the others of the next. */
static uint32_t twisted(uint32_t top, uint32_t rest, uint32_t middle)
{
    uint32_t joined = (top & UINT32_C(0x80000000)) | (rest & UINT32_C(0x7fffffff));
    return middle ^ (joined >> 1) ^ (joined & 1 ? UINT32_C(0x9908b0df) : 0);
}

static void mersenne_twist(mh_mersenne *mersenne)
{
    uint32_t *words = mersenne->words;
    for (uint32_t at = 0; at < MH_MERSENNE_WORDS; at++) {
        uint32_t next = at + 1 < MH_MERSENNE_WORDS ? at + 1 : 0;
        uint32_t middle =
            at + SHIFT < MH_MERSENNE_WORDS ? at + SHIFT : at + SHIFT - MH_MERSENNE_WORDS;
        words[at] = twisted(words[at], words[next], words[middle]);
    }
    mersenne->used = 0;
}

uint32_t mh_mersenne_next(mh_mersenne *mersenne)
{
    if (mersenne->used == MH_MERSENNE_WORDS)
        mersenne_twist(mersenne);
    uint32_t bits = mersenne->words[mersenne->used++];
    bits ^= bits >> 11;
    bits ^= (bits << 7) & UINT32_C(0x9d2c5680);
    bits ^= (bits << 15) & UINT32_C(0xefc60000);
    return bits ^ (bits >> 18);
}

uint64_t mh_mersenne_next64(mh_mersenne *mersenne)
{
    uint64_t upper = mh_mersenne_next(mersenne);
    return upper << 32 | mh_mersenne_next(mersenne);
}
