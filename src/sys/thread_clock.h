/* thread_clock.h - what a thread's time was spent on: a CPU, or waiting for one
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_THREAD_CLOCK_H
#define MH_SYS_THREAD_CLOCK_H

#include <pthread.h>
#include <stdint.h>

typedef struct mh_reading {
    uint64_t now;  /* CLOCK_MONOTONIC, ns */
    uint64_t cpu;  /* what the thread has spent on a CPU, ns */
    int64_t delay; /* and waiting for one, ns; -1: the kernel does not tell */
} mh_reading;

/* Keeps a file open for the thread that read last. All zero: none is open. One thread at a time. */
typedef struct mh_thread_clock {
    pthread_t thread;
    uint32_t forks; /* mh_fork_generation when it was opened */
    int schedstat;  /* -1: not there */
    int opened;
} mh_thread_clock;

mh_reading mh_clock_read(mh_thread_clock *clock); /* of the calling thread */

/* The same where something begins: cheaper, and its delay may be up to 100 ms old where the thread
 * had hardly waited for a CPU until then. The next mh_clock_read counts what was missed. */
mh_reading mh_clock_begin(mh_thread_clock *clock);

void mh_clock_close(mh_thread_clock *clock); /* the next reading opens it again */

/* What the calling thread has spent on a CPU, ns. Safe in a signal handler. */
uint64_t mh_thread_cpu_ns(void);

/* What all threads of the process have, ns. */
uint64_t mh_process_cpu_ns(void);

#endif
