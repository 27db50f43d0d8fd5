/* futex.h - sleeping on a word of shared memory until another process changes it
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_FUTEX_H
#define MH_SYS_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* What the calls of millhead's own sleepers carry where the kernel does not look, so that who looks
 * at a process from outside can tell them from the locks of the program. */
#define MH_FUTEX_OURS 0x6d68

/* Sleeps while *word equals `seen`, at most timeout_ns. Returns on a wake, a change, a signal or
 * the time-out alike: the caller looks again. Works between processes. Any thread. */
void mh_futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns);

/* Wakes every sleeper on *word. Any thread. */
void mh_futex_wake(const _Atomic uint32_t *word);

#endif
