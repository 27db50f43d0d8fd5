/* fork.h - knowing that this process is a fork of the one that opened a handle
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BASE_FORK_H
#define MH_BASE_FORK_H

#include <millhead/error.h>

/* How many forks lie between the first process that asked and this one. A handle remembers the
 * number when it is opened and is inert wherever the number differs. One load, no system call.
 * Any thread. */
uint32_t mh_fork_generation(void);

#endif
