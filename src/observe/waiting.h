/* waiting.h - what a thread of another process is doing at this moment
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OBSERVE_WAITING_H
#define MH_OBSERVE_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mh_waiting {
    MH_WAITING_GONE,  /* there is no such thread, or it is ending */
    MH_WAITING_NOT,   /* it runs, or would if it had a CPU */
    MH_WAITING_DISK,  /* uninterruptible sleep (state D) */
    MH_WAITING_POLL,  /* poll or select; see poll_ms */
    MH_WAITING_FUTEX, /* a lock, a condition, another thread */
    MH_WAITING_LOCAL, /* a local socket: another process of this machine */
    MH_WAITING_OTHER, /* a timer, the network, a pipe */
    MH_WAITING_HIDDEN /* it sleeps, and we may not see in what */
} mh_waiting;

/* What a look at a thread told. */
typedef struct mh_thread_look {
    mh_waiting waiting;
    /* of poll(2), where we may see its arguments; 0 otherwise */
    uint64_t poll_fds;     /* how many descriptors */
    uint64_t poll_address; /* where they are listed, in the process's memory */
    bool poll_pipe;        /* it is one, a pipe: as multiprocessing's queues wait */
    bool arguments;        /* whether they were seen */
    bool shared_lock;      /* a lock that processes share, of memory or of a file, none of ours */
    uint32_t futex_value;  /* what the word of a lock held when it went to sleep */
} mh_thread_look;

/* Looks at thread `thread` of process `pid`. A few small reads, no stop: the process does not
 * notice. `root` as in mh_cgroup_read. Any thread. */
mh_thread_look mh_thread_look_at(int pid, int thread, const char *root);

/* The first thread of a process that has this name (15 bytes count); 0: none. */
int mh_thread_named(int pid, const char *name, const char *root);

/* proc/PID/task/TID/syscall as a pure function over bytes: "running", or a number and its
 * arguments. 1 when it made sense, else 0 with *out untouched. */
int mh_parse_syscall(const char *text, size_t length, mh_thread_look *out);

/* Whether a parsed look shows a lock that processes share: not where it is a thread of
 * its own that process `pid` waits for the end of. */
bool mh_look_is_locked(const mh_thread_look *look, int pid, const char *root);

/* proc/PID/task/TID/wchan: where in the kernel it sleeps. It tells local sockets from others, and
 * has to do where we may not see the call. */
int mh_parse_wchan(const char *text, size_t length, mh_thread_look *out);

#endif
