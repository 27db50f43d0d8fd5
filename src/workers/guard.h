/* guard.h - ends a worker that has far too much memory in the middle of a batch
 * SPDX-License-Identifier: Apache-2.0
 *
 * A worker looks at its memory between batches and leaves in good order. One that grows within a
 * batch never gets there. The thread that watches the trainer then ends the process, but only while
 * a batch is in hand that nobody has seen: whoever takes its place makes that batch again.
 *
 *     main thread     enter ........................ leave, publish
 *     the watch                tick, tick, end            (too late: the batch counts)
 */
#ifndef MH_WORKERS_GUARD_H
#define MH_WORKERS_GUARD_H

#include "workers/control.h"

/* From now on this process may have `most` bytes of its own in a batch. Once per process; the
 * control block must live as long as batches are made. */
void mh_guard_arm(mh_control *control, uint64_t most);

/* A batch is in hand. Nothing without mh_guard_arm. */
void mh_guard_enter(void);

/* Its result is about to be published, or never will be. Does not return where the process is being
 * ended. */
void mh_guard_leave(void);

/* A look at the memory, now and then, by a thread of its own. */
void mh_guard_tick(void);

#endif
