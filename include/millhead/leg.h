/* leg.h - a stretch of an epoch under one number of ranks
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_LEG_H
#define MILLHEAD_LEG_H

#include <stdint.h>

/* So many ranks, and samples that each of them has had, padding among them. */
typedef struct mh_leg {
    uint64_t world, samples;
} mh_leg;

#endif
