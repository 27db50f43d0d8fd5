/* keyed.h - a shuffle that is computed, not stored: any position in constant time and memory
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ORDER_KEYED_H
#define MH_ORDER_KEYED_H

#include <millhead/error.h>

/* The most samples an epoch may have: 2^63. */
#define MH_ORDER_MOST (UINT64_C(1) << 63)

#define MH_KEYED_ROUNDS_MOST 24

/* A permutation of [0, count). Plain memory of the caller's, copied by value, nothing to free.
 * Read-only after init: any number of threads. */
typedef struct mh_keyed {
    uint64_t count;
    uint64_t rows; /* positions as a table of rows x columns cells, at least `count` of them */
    uint64_t columns;
    int rounds;
    uint64_t keys[MH_KEYED_ROUNDS_MOST];
} mh_keyed;

/* The permutation that (seed, epoch) stand for: equal on every machine, and unrelated for pairs
 * that differ in one bit. count is at most MH_ORDER_MOST. */
void mh_keyed_init(mh_keyed *keyed, uint64_t count, uint64_t seed, uint64_t epoch);

/* What is at `position`, which is below count. */
uint64_t mh_keyed_at(const mh_keyed *keyed, uint64_t position);

/* The same of several positions, each of which becomes what is there. A round waits for the one
 * before, but not for that of another position: together they take a fraction of the time. */
void mh_keyed_several(const mh_keyed *keyed, uint64_t *positions, uint64_t count);

/* The inverse: the position `value`, which is below count, is at. */
uint64_t mh_keyed_find(const mh_keyed *keyed, uint64_t value);

#endif
