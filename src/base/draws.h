/* draws.h - random numbers that belong to a sample's position: computed from it, in any order
 * SPDX-License-Identifier: Apache-2.0
 *
 * A draw is a function of (seed, epoch, position, who draws, its number): Philox4x32-10 with a key
 * made of seed, epoch and drawer, over a counter made of position and number. So the numbers are
 * the same for any number of threads, ranks and restarts. Pure functions, any thread.
 */
#ifndef MH_BASE_DRAWS_H
#define MH_BASE_DRAWS_H

#include <stdint.h>

/* One who draws, for one sample. */
typedef struct mh_drawer {
    uint32_t key[2];
    uint64_t position;
} mh_drawer;

/* One block of Philox4x32-10. */
void mh_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

/* A number for a name and its occurrence (0: the first of that name). */
uint64_t mh_drawer_name(const char *name, uint32_t occurrence);

/* `name` is from mh_drawer_name. */
mh_drawer mh_drawer_of(uint64_t seed, uint64_t epoch, uint64_t position, uint64_t name);

/* Draw number `draw`, all 64 bits. */
uint64_t mh_draw_bits(const mh_drawer *drawer, uint32_t draw);

/* In [0, 1), with 53 bits. */
double mh_draw_unit(const mh_drawer *drawer, uint32_t draw);

/* In [low, high). */
double mh_draw_between(const mh_drawer *drawer, uint32_t draw, double low, double high);

/* A whole number in [0, below); below >= 1. */
uint64_t mh_draw_below(const mh_drawer *drawer, uint32_t draw, uint64_t below);

#endif
