/* stopwatch.h - timing thousands of short laps, of which only the long ones matter
 * SPDX-License-Identifier: Apache-2.0
 *
 * Reading the clock costs as much as a cheap __getitem__. The CPU's tick counter costs a third of
 * it and is enough to see that a lap was short; ticks are turned into time only for laps that were
 * not, by the clock's own reading since the stopwatch started.
 */
#ifndef MH_SYS_STOPWATCH_H
#define MH_SYS_STOPWATCH_H

#include "sys/clock.h"

static inline uint64_t mh_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return mh_clock_ns();
#endif
}

/* Fewer ticks than this are less than 100 us on every CPU whose counter runs at 1 GHz or more, and
 * exactly that where ticks are nanoseconds. */
#define MH_LONG_LAP_TICKS UINT64_C(100000)

typedef struct mh_stopwatch {
    uint64_t began_ns;
    uint64_t began_ticks;
    uint64_t lap_ticks;
} mh_stopwatch;

static inline mh_stopwatch mh_stopwatch_start(void)
{
    mh_stopwatch watch = {.began_ns = mh_clock_ns(), .began_ticks = mh_ticks()};
    watch.lap_ticks = watch.began_ticks;
    return watch;
}

/* Ends a lap: its nanoseconds if it was long, else 0. */
static inline uint64_t mh_stopwatch_lap(mh_stopwatch *watch)
{
    uint64_t now = mh_ticks();
    uint64_t lap = now > watch->lap_ticks ? now - watch->lap_ticks : 0;
    watch->lap_ticks = now;
    if (__builtin_expect(lap < MH_LONG_LAP_TICKS, 1))
        return 0;
    double ns_per_tick =
        (double)(mh_clock_ns() - watch->began_ns) / (double)(now - watch->began_ticks);
    return (uint64_t)((double)lap * ns_per_tick);
}

#endif
