/* synthetic.h - bytes that nobody has stored: computed from a seed and their place
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_SYNTHETIC_H
#define MH_SOURCE_SYNTHETIC_H

#include "source/source.h"

/* Objects are called "SEED:BYTES". Byte b of one is byte b % 8, the lowest first, of
 * mh_synthetic_word(seed, b / 8). */
extern const mh_source_type mh_source_synthetic;

/* Word number `at` of what a seed stands for: splitmix64's. Pure. */
uint64_t mh_synthetic_word(uint64_t seed, uint64_t at);

#endif
