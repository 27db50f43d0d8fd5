/* thread.h - starting and joining threads, with failure injection for tests
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_THREAD_H
#define MH_SYS_THREAD_H

#include "mh_config.h"
#include <millhead/error.h>
#include <pthread.h>

typedef struct mh_thread {
    pthread_t handle;
    int running;
} mh_thread;

/* Starts `run(argument)` on a thread called `name` (15 characters count) with every signal
 * blocked, so that the application's handlers never run on it. *out is untouched on failure.
 * Errors: MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_thread_start(mh_thread *out, const char *name, void *(*run)(void *),
                                        void *argument, mh_error *err);

/* The same for a thread that nobody joins, with a small stack; it names itself. On failure
 * `argument` stays the caller's. Errors: MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_thread_start_detached(void *(*run)(void *), void *argument,
                                                 mh_error *err);

/* Waits for the thread; accepts one that was never started or already joined. */
void mh_thread_join(mh_thread *thread);

#if MH_TEST_HOOKS

/* Makes start number `nth` (1 = the next one) fail; 0 switches injection off. Returns
 * the starts counted since the last call. */
uint64_t mh_thread_fail_at(uint64_t nth);

#endif

#endif
