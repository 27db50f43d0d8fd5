/* clock.h - seconds on the clock and of processor time, for the programs that measure
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BENCH_CLOCK_H
#define MH_BENCH_CLOCK_H

#include <time.h>

static inline double clock_seconds(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline double now_s(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

/* Of all threads of this process, in user space and in the kernel. */
static inline double cpu_s(void)
{
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
