/* waits.h - percentiles of durations, in memory that does not grow with their number
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_WAITS_H
#define MILLHEAD_CLI_WAITS_H

#include <stdint.h>

/* 32 buckets to each power of two: what is read from one is at most 3 % too large. */
typedef struct mh_waits {
    uint64_t count, most;
    uint64_t buckets[64 * 32];
} mh_waits;

/* All zero is empty. */
void mh_waits_add(mh_waits *waits, uint64_t ns);

/* Milliseconds that `fraction` (0..1) of them do not exceed; 0 when empty. */
double mh_waits_ms(const mh_waits *waits, double fraction);

#endif
