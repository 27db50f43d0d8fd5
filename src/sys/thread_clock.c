/* thread_clock.c - what a thread's time was spent on: a CPU, or waiting for one
 * SPDX-License-Identifier: Apache-2.0
 *
 * The kernel tells the time a thread waited for a CPU only through /proc. Opening that file costs
 * more than reading it, so an mh_thread_clock keeps it open, for the thread that read last.
 */
#include "sys/thread_clock.h"

#include "base/fork.h"
#include "sys/clock.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A thread that was off the CPUs for less cannot have waited long for one: the file is not read
 * again then. Reading it is the dearest part of a reading, the more so where the caches are cold.
 */
#define SHORT_NS UINT64_C(200000)
/* How long a thread that hardly waited for a CPU counts as one that does not. */
#define CALM_NS UINT64_C(100000000)

/* What the file said last to the calling thread, through whichever clock. */
static _Thread_local struct {
    uint64_t read;  /* when; 0: not yet */
    uint32_t forks; /* mh_fork_generation */
    bool calm;      /* the delay had grown by less than SHORT_NS since the time before */
    int64_t delay;
    uint64_t now, cpu; /* since then it counts how long the thread was off the CPUs */
} last;

void mh_clock_close(mh_thread_clock *clock)
{
    if (!clock->opened)
        return;
    if (clock->schedstat >= 0)
        close(clock->schedstat);
    clock->opened = 0;
}

/* In a forked child the descriptor still shows the parent's thread, in another thread the first. */
static void open_file(mh_thread_clock *clock)
{
    uint32_t process = mh_fork_generation();
    if (clock->opened && clock->forks == process && pthread_equal(clock->thread, pthread_self()))
        return;
    mh_clock_close(clock);
    clock->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    clock->thread = pthread_self();
    clock->forks = process;
    clock->opened = 1;
}

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t mh_thread_cpu_ns(void)
{
    return cpu_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t mh_process_cpu_ns(void)
{
    return cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* -1: the kernel does not tell */
static int64_t read_delay(mh_thread_clock *clock)
{
    char text[96]; /* ns on a CPU, ns waiting, slices */
    open_file(clock);
    ssize_t got = clock->schedstat < 0 ? -1 : pread(clock->schedstat, text, sizeof text - 1, 0);
    if (got <= 0) {
        mh_clock_close(clock); /* of a thread that ended and had this one's name */
        return -1;
    }
    text[got] = '\0';
    const char *second = strchr(text, ' ');
    return second ? strtoll(second, NULL, 10) : -1;
}

/* All the time, so that many short ones do not add up unseen. */
static bool was_long_off_cpu(const mh_reading *reading)
{
    return reading->now - last.now >= SHORT_NS + (reading->cpu - last.cpu);
}

static bool has_read(void)
{
    return last.read && last.forks == mh_fork_generation();
}

static void read_file(mh_thread_clock *clock, const mh_reading *reading)
{
    bool again = has_read();
    int64_t delay = read_delay(clock);
    last.calm = again && delay - last.delay < (int64_t)SHORT_NS;
    last.delay = delay;
    last.read = last.now = reading->now;
    last.cpu = reading->cpu;
    last.forks = mh_fork_generation();
}

mh_reading mh_clock_read(mh_thread_clock *clock)
{
    mh_reading reading = {.now = mh_clock_ns(), .cpu = mh_thread_cpu_ns()};
    if (!has_read() || was_long_off_cpu(&reading))
        read_file(clock, &reading);
    reading.delay = last.delay;
    return reading;
}

mh_reading mh_clock_begin(mh_thread_clock *clock)
{
    mh_reading reading = {.now = mh_clock_ns(), .cpu = mh_thread_cpu_ns()};
    bool calm = has_read() && last.calm && reading.now - last.read < CALM_NS;
    if (!calm)
        return mh_clock_read(clock);
    if (was_long_off_cpu(&reading)) {
        last.now = reading.now;
        last.cpu = reading.cpu;
    }
    reading.delay = last.delay;
    return reading;
}
