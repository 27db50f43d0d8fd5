/* process.c - handles to processes, ending a worker with its trainer, counting threads
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/process.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sys/thread.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The same number on every architecture; older C libraries have no wrapper. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define TICK_MS 200

typedef struct watch {
    int fd;
    int exit_code;
    void (*tick)(void);
} watch;

mh_status mh_process_open(int *out_fd, int pid, mh_error *err)
{
    if (pid <= 0)
        return mh_fail(err, MH_ERR_NOT_FOUND, "there is no process %d", pid);
    long fd = syscall(SYS_pidfd_open, pid, 0); /* always close-on-exec */
    if (fd < 0) {
        mh_status code = errno == ESRCH ? MH_ERR_NOT_FOUND : MH_ERR_IO;
        return mh_fail_sys(err, code, errno, "cannot open a handle to process %d", pid);
    }
    *out_fd = (int)fd;
    return MH_OK;
}

typedef enum answer { TIMED_OUT, ENDED, GONE_BAD } answer;

/* Waits for the end of the process. */
static answer process_poll(int pidfd, int timeout_ms)
{
    struct pollfd ask = {.fd = pidfd, .events = POLLIN};
    int ready;
    do
        ready = poll(&ask, 1, timeout_ms);
    while (ready < 0 && errno == EINTR);
    if (ready == 0)
        return TIMED_OUT;
    return ready > 0 && (ask.revents & POLLIN) ? ENDED : GONE_BAD;
}

int mh_process_ended(int pidfd)
{
    return process_poll(pidfd, 0) == ENDED;
}

static void *process_watch(void *argument)
{
    watch mine = *(watch *)argument;
    mh_free(argument);
    (void)pthread_setname_np(pthread_self(), "mh-watch");
    answer now;
    while ((now = process_poll(mine.fd, mine.tick ? TICK_MS : -1)) == TIMED_OUT)
        mine.tick();
    /* _exit, not exit: handlers and destructors may wait for locks that other threads hold. */
    if (now == ENDED)
        _exit(mine.exit_code);
    return NULL;
}

mh_status mh_process_exit_with(int pidfd, int exit_code, void (*tick)(void), mh_error *err)
{
    watch *mine = mh_calloc(1, sizeof *mine);
    if (!mine)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the watcher of the training process");
    mine->exit_code = exit_code;
    mine->tick = tick;
    /* Not below 3: user code may close or reopen the standard descriptors. */
    mine->fd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
    if (mine->fd < 0) {
        int failed = errno;
        mh_free(mine);
        return mh_fail_sys(err, MH_ERR_IO, failed, "cannot duplicate a process handle");
    }
    mh_status status = mh_thread_start_detached(process_watch, mine, err);
    if (status != MH_OK) {
        (void)close(mine->fd);
        mh_free(mine);
    }
    return status;
}

/* Links of a directory: itself, its parent's entry for it, and one for each directory in it. */
#define LINKS_OF_AN_EMPTY_DIRECTORY 2

int mh_process_threads(void)
{
    struct stat status;
    if (stat("/proc/self/task", &status) != 0 || status.st_nlink <= LINKS_OF_AN_EMPTY_DIRECTORY)
        return 0;
    return (int)status.st_nlink - LINKS_OF_AN_EMPTY_DIRECTORY;
}

uint64_t mh_storage_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_inblock * 512 : 0;
}
