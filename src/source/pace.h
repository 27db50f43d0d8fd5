/* pace.h - how many requests at a time, when to ask again, when to ask twice
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic only: no clock, no thread. One thread at a time.
 */
#ifndef MH_SOURCE_PACE_H
#define MH_SOURCE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define MH_PACE_TIMES 256

typedef struct mh_pace {
    uint32_t most;      /* requests at a time that the user allows */
    double window;      /* requests at a time now: grows slowly, halves when the server says so */
    uint64_t shrunk_ns; /* when it was halved last */
    double budget;      /* repeats that may still be made; every success adds a part of one */
    uint64_t begun, retried, hedged;
    uint64_t random;
    uint64_t times[MH_PACE_TIMES]; /* ns that the last successes took, in a ring */
    uint64_t time_count;
    uint64_t slow_ns; /* 95 % of them were faster, half of them much; 0: too few to know */
} mh_pace;

void mh_pace_init(mh_pace *pace, uint32_t most, uint64_t seed);

/* Raises or lowers what the user allows. */
void mh_pace_allow(mh_pace *pace, uint32_t most);

/* Requests that may be under way: at least 1. */
uint32_t mh_pace_window(const mh_pace *pace);

/* An answer came in `took_ns`. */
void mh_pace_success(mh_pace *pace, uint64_t took_ns);

/* The server refused a request that began at `began_ns`: too many at a time. Halves the window, but
 * not for a request that is older than the last halving and knows nothing of it. */
void mh_pace_throttled(mh_pace *pace, uint64_t began_ns, uint64_t now_ns);

/* Takes one repeat out of the budget; false: it is used up, and the server is really broken. */
bool mh_pace_retry(mh_pace *pace);

/* How long to wait before attempt number `attempt` (1: the first repeat): anything up to a limit
 * that doubles, so that many clients do not come back at the same time; never less than the server
 * asks for. */
uint64_t mh_pace_delay_ns(mh_pace *pace, uint32_t attempt, uint32_t retry_after_s);

/* Whether to send a second request for one that began `age_ns` ago. Counts it. */
bool mh_pace_hedge(mh_pace *pace, uint64_t age_ns);

#endif
