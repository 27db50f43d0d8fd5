/* guard.c - ends a worker that has far too much memory in the middle of a batch
 * SPDX-License-Identifier: Apache-2.0
 */
#include "workers/guard.h"

#include "sys/own_memory.h"

#include <stdatomic.h>
#include <unistd.h>

enum { OUTSIDE, INSIDE, ENDING };

#define EXIT_CODE 1

static struct {
    /* set before the first batch, then read-only */
    mh_control *control;
    uint64_t most;
    _Atomic int phase;
    /* the ticking thread's own */
    mh_own_memory look;
} guard;

void mh_guard_arm(mh_control *control, uint64_t most)
{
    guard.control = control;
    guard.most = most;
}

void mh_guard_enter(void)
{
    if (guard.control)
        atomic_store(&guard.phase, INSIDE);
}

void mh_guard_leave(void)
{
    int inside = INSIDE;
    if (atomic_load_explicit(&guard.phase, memory_order_relaxed) == OUTSIDE)
        return;
    if (!atomic_compare_exchange_strong(&guard.phase, &inside, OUTSIDE) && inside == ENDING)
        for (;;)
            (void)pause();
}

void mh_guard_tick(void)
{
    int inside = INSIDE;
    if (atomic_load(&guard.phase) != INSIDE)
        return;
    uint64_t bytes = mh_own_memory_over(&guard.look, guard.most, false, "");
    if (!bytes || !atomic_compare_exchange_strong(&guard.phase, &inside, ENDING))
        return;
    mh_control_set_over_limit(guard.control, MH_OVER_LIMIT_ENDED, bytes);
    _exit(EXIT_CODE); /* not exit: handlers may wait for locks that other threads hold */
}
