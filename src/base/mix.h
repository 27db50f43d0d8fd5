/* mix.h - bits made of bits: keys of what is drawn from seeds and numbers
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BASE_MIX_H
#define MH_BASE_MIX_H

#include <stdint.h>

/* The output function of splitmix64: every input bit changes every output bit with probability one
 * half, to within what tests can tell. */
static inline uint64_t mh_mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

#endif
