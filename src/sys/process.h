/* process.h - handles to processes, ending a worker with its trainer, counting threads
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_PROCESS_H
#define MH_SYS_PROCESS_H

#include <millhead/error.h>

/* A descriptor that becomes readable when `pid` ends (close-on-exec). Errors: MH_ERR_NOT_FOUND
 * when there is no such process, MH_ERR_IO. The caller closes it. */
MH_MUST_CHECK mh_status mh_process_open(int *out_fd, int pid, mh_error *err);

/* 1 when the process behind a descriptor of mh_process_open has ended. Any thread. */
int mh_process_ended(int pidfd);

/* Starts a detached thread, all signals blocked, that sleeps until the process behind `pidfd`
 * ends and then calls _exit(exit_code) at once. Takes its own duplicate of the descriptor.
 * Not prctl(PR_SET_PDEATHSIG): that fires when the creating *thread* ends, and under a fork server
 * the parent is not the trainer. `tick`: called by that thread five times a second; or NULL.
 * Errors: MH_ERR_IO, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_process_exit_with(int pidfd, int exit_code, void (*tick)(void),
                                             mh_error *err);

/* Threads of this process now, the calling one too; 0 where /proc does not tell. One system call.
 * Any thread. */
int mh_process_threads(void);

/* Bytes that this process has read from storage; 0 where the kernel does not tell. Any thread. */
uint64_t mh_storage_bytes(void);

#endif
