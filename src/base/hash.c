/* hash.c - 64 bits that tell damaged bytes from sound ones
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/hash.h"

#include <endian.h>
#include <string.h>

#define LANES 4u
#define BLOCK (LANES * sizeof(uint64_t))
#define GOLDEN UINT64_C(0x9E3779B97F4A7C15) /* 2^64 divided by the golden ratio */

static uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return le64toh(word);
}

static uint64_t added(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * GOLDEN;
    return lane ^ (lane >> 32);
}

/* The output function of splitmix64: every bit of the input reaches every bit of the output. */
static uint64_t mixed(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94D049BB133111EB);
    return bits ^ (bits >> 31);
}

/* Four lanes, because a processor multiplies several numbers at a time and one lane would wait. */
uint64_t mh_hash64(const void *data, size_t size, uint64_t seed)
{
    const uint8_t *bytes = data;
    uint64_t lanes[LANES], state = mixed(seed + GOLDEN);
    size_t at = 0;
    for (size_t lane = 0; lane < LANES; lane++)
        lanes[lane] = state + lane * GOLDEN;
    for (; size - at >= BLOCK; at += BLOCK)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] = added(lanes[lane], word_at(bytes + at + lane * sizeof(uint64_t)));
    uint8_t rest[BLOCK] = {0};
    if (size > at)
        memcpy(rest, bytes + at, size - at);
    for (size_t lane = 0; lane < LANES; lane++)
        state = mixed(added(state ^ lanes[lane], word_at(rest + lane * sizeof(uint64_t))));
    return mixed(state ^ size);
}
