/* fork.c - a counter that grows in every forked child
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t generation;
static int unregistered; /* written inside pthread_once, read-only afterwards */

static void fork_in_child(void)
{
    /* Only the forking thread exists here and a store is async-signal-safe. */
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void fork_register(void)
{
    unregistered = pthread_atfork(NULL, NULL, fork_in_child) != 0;
}

uint32_t mh_fork_generation(void)
{
    pthread_once(&once, fork_register);
    /* No memory for the handler: the pid tells a child from its parent as well, at the price of a
     * system call. Callers only compare for equality. */
    if (unregistered)
        return (uint32_t)getpid();
    return atomic_load_explicit(&generation, memory_order_relaxed);
}
