/* futex.c - sleeping on a word of shared memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Without FUTEX_PRIVATE_FLAG: the sleeper and the waker are different processes. Both calls leave
 * errno alone, because they sit between a caller's own system call and its look at errno. */

void mh_futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    const struct timespec timeout = {
        .tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
        .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000)),
    };
    int kept = errno;
    /* the kernel does not look at the last argument of this call: who looks at us from outside does
     */
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, MH_FUTEX_OURS);
    errno = kept;
}

void mh_futex_wake(const _Atomic uint32_t *word)
{
    int kept = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = kept;
}
