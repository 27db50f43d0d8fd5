/* draws.c - random numbers that belong to a sample's position: computed from it, in any order
 * SPDX-License-Identifier: Apache-2.0
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011):
 * ten rounds of two multiplications turn a counter of 128 bits into four words that pass every
 * test of TestU01's BigCrush. A block holds two draws.
 */
#include "base/draws.h"

/* 2^64 divided by the golden ratio */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

#define ROUNDS 10
#define FACTOR_0 UINT64_C(0xd2511f53)
#define FACTOR_1 UINT64_C(0xcd9e8d57)
#define STEP_0 UINT32_C(0x9e3779b9) /* the key changes by these from round to round */
#define STEP_1 UINT32_C(0xbb67ae85)

__extension__ typedef unsigned __int128 wide;

/* The output function of splitmix64. */
static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

uint64_t mh_drawer_name(const char *name, uint32_t occurrence)
{
    uint64_t bits = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *name; name++)
        bits = (bits ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    return bits + occurrence;
}

mh_drawer mh_drawer_of(uint64_t seed, uint64_t epoch, uint64_t position, uint64_t name)
{
    uint64_t key = mix(mix(mix(seed + GOLDEN) + epoch) + name);
    return (mh_drawer){{(uint32_t)key, (uint32_t)(key >> 32)}, position};
}

void mh_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t key_0 = key[0], key_1 = key[1];
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t left = FACTOR_0 * a, right = FACTOR_1 * c;
        a = (uint32_t)(right >> 32) ^ b ^ key_0;
        b = (uint32_t)right;
        c = (uint32_t)(left >> 32) ^ d ^ key_1;
        d = (uint32_t)left;
        key_0 += STEP_0;
        key_1 += STEP_1;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

uint64_t mh_draw_bits(const mh_drawer *drawer, uint32_t draw)
{
    const uint32_t counter[4] = {draw / 2, 0, (uint32_t)drawer->position,
                                 (uint32_t)(drawer->position >> 32)};
    uint32_t block[4];
    mh_philox(drawer->key, counter, block);
    unsigned first = draw % 2 * 2;
    return block[first] | (uint64_t)block[first + 1] << 32;
}

double mh_draw_unit(const mh_drawer *drawer, uint32_t draw)
{
    return (double)(mh_draw_bits(drawer, draw) >> 11) * 0x1p-53;
}

double mh_draw_between(const mh_drawer *drawer, uint32_t draw, double low, double high)
{
    return low + (high - low) * mh_draw_unit(drawer, draw);
}

uint64_t mh_draw_below(const mh_drawer *drawer, uint32_t draw, uint64_t below)
{
    return (uint64_t)(((wide)mh_draw_bits(drawer, draw) * below) >> 64);
}
