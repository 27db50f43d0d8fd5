/* clock.h - the one clock: CLOCK_MONOTONIC in nanoseconds
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_CLOCK_H
#define MH_SYS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t mh_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
