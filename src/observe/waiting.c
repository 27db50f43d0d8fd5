/* waiting.c - what a thread of another process is doing at this moment
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/waiting.h"

#include "base/alloc.h"
#include "observe/usage.h"
#include "sys/file.h"
#include "sys/futex.h"
#include "sys/parse.h"
#include "sys/span.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The kernel writes arguments as 0x1388. */
static bool hex_number(mh_span word, uint64_t *out)
{
    uint64_t value = 0;
    if (word.size < 3 || word.size > 18 || word.data[0] != '0' || word.data[1] != 'x')
        return false;
    for (size_t at = 2; at < word.size; at++) {
        char digit = word.data[at];
        if (digit >= '0' && digit <= '9')
            value = value << 4 | (uint64_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f')
            value = value << 4 | (uint64_t)(digit - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}

static mh_waiting kind_of_call(uint64_t number)
{
    switch (number) {
#ifdef SYS_poll
    case SYS_poll:
#endif
#ifdef SYS_select
    case SYS_select:
#endif
    case SYS_ppoll:
    case SYS_pselect6:
        return MH_WAITING_POLL;
    case SYS_futex:
        return MH_WAITING_FUTEX;
    default:
        return MH_WAITING_OTHER;
    }
}

#define CALL_ARGUMENTS 6

/* A std::future of libstdc++ waits within its process and does not tell the kernel so. This value
 * of its word has no lock: one of glibc that has waiters names its owner beside them. */
#define VALUE_OF_FUTURE FUTEX_WAITERS

/* A lock between threads of one process is private to it. A queue or a pool within a process uses
 * those; multiprocessing's locks and those of files are for others to hold. */
static bool is_shared_lock(uint64_t number, const uint64_t *arguments, size_t count)
{
    if (number == SYS_futex)
        return count >= CALL_ARGUMENTS && !(arguments[1] & FUTEX_PRIVATE_FLAG) &&
               (uint32_t)arguments[2] != VALUE_OF_FUTURE && (uint32_t)arguments[5] != MH_FUTEX_OURS;
    if (number == SYS_fcntl)
        return count >= 2 && (arguments[1] == F_SETLKW || arguments[1] == F_OFD_SETLKW);
    return number == SYS_flock;
}

int mh_parse_syscall(const char *text, size_t length, mh_thread_look *out)
{
    mh_span rest = {text, length}, word;
    uint64_t number;
    if (!mh_span_word(&rest, &word))
        return 0;
    mh_thread_look look = {.waiting = MH_WAITING_NOT};
    if (mh_span_is(word, "running")) {
        *out = look;
        return 1;
    }
    if (mh_span_is(word, "-1")) { /* it sleeps outside any call: a page fault */
        look.waiting = MH_WAITING_OTHER;
        *out = look;
        return 1;
    }
    if (!mh_span_number(word, &number))
        return 0;
    uint64_t arguments[CALL_ARGUMENTS] = {0};
    size_t count = 0;
    while (count < CALL_ARGUMENTS && mh_span_word(&rest, &word) &&
           hex_number(word, &arguments[count]))
        count++;
    look.waiting = kind_of_call(number);
    look.shared_lock = is_shared_lock(number, arguments, count);
    look.futex_value = number == SYS_futex ? (uint32_t)arguments[2] : 0;
#ifdef SYS_poll
    look.arguments = number == SYS_poll && count >= 2;
    look.poll_address = look.arguments ? arguments[0] : 0;
    look.poll_fds = look.arguments ? arguments[1] : 0;
#endif
    *out = look;
    return 1;
}

int mh_parse_wchan(const char *text, size_t length, mh_thread_look *out)
{
    static const struct {
        const char *begin;
        mh_waiting waiting;
    } places[] = {
        {"poll_", MH_WAITING_POLL},       {"do_poll", MH_WAITING_POLL},
        {"do_sys_poll", MH_WAITING_POLL}, {"do_select", MH_WAITING_POLL},
        {"futex_", MH_WAITING_FUTEX},     {"unix_", MH_WAITING_LOCAL},
    };
    if (length == 0 || *text == '0')
        return 0;
    *out = (mh_thread_look){.waiting = MH_WAITING_OTHER};
    for (size_t at = 0; at < sizeof places / sizeof *places; at++) {
        size_t size = strlen(places[at].begin);
        if (length >= size && memcmp(text, places[at].begin, size) == 0)
            out->waiting = places[at].waiting;
    }
    return 1;
}

static char *thread_text(int pid, int thread, const char *file, const char *root, size_t *length)
{
    char path[MH_PARSE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/proc/%d/task/%d/%s", root, pid, thread, file) >=
        (int)sizeof path)
        return NULL;
    return mh_file_read_text(path, length);
}

/* Whether the one descriptor that is polled is a pipe's. Its number is in the process's memory. */
static bool polls_pipe(const mh_thread_look *look, int pid)
{
    struct pollfd entry;
    struct iovec here = {&entry, sizeof entry};
    struct iovec there = {(void *)(uintptr_t)look->poll_address, sizeof entry};
    char path[64], target[64];
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)sizeof entry)
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, entry.fd);
    ssize_t length = readlink(path, target, sizeof target);
    return length > 5 && memcmp(target, "pipe:", 5) == 0;
}

/* Who joins a thread sleeps on a word that holds its number, until the kernel clears it. */
bool mh_look_is_locked(const mh_thread_look *look, int pid, const char *root)
{
    char path[MH_PARSE_PATH_BYTES];
    if (!look->shared_lock || !look->futex_value)
        return look->shared_lock;
    int length =
        snprintf(path, sizeof path, "%s/proc/%d/task/%" PRIu32, root, pid, look->futex_value);
    return length < 0 || length >= (int)sizeof path || access(path, F_OK) != 0;
}

/* What it sleeps in: the call where we may see it, else the place in the kernel. */
static void look_asleep(mh_thread_look *look, int pid, int thread, const char *root)
{
    size_t length;
    char *text = thread_text(pid, thread, "syscall", root, &length);
    bool seen = text && mh_parse_syscall(text, length, look);
    mh_free(text);
    look->shared_lock = seen && mh_look_is_locked(look, pid, root);
    if (seen && look->waiting != MH_WAITING_OTHER) {
        look->poll_pipe = look->arguments && look->poll_fds == 1 && polls_pipe(look, pid);
        return;
    }
    bool shared_lock = look->shared_lock;
    text = thread_text(pid, thread, "wchan", root, &length);
    if (text)
        (void)mh_parse_wchan(text, length, look);
    look->shared_lock = shared_lock;
    mh_free(text);
}

mh_thread_look mh_thread_look_at(int pid, int thread, const char *root)
{
    mh_thread_look look = {.waiting = MH_WAITING_GONE};
    size_t length;
    mh_process_stat stat;
    char *text = thread_text(pid, thread, "stat", root, &length);
    bool there = text && mh_parse_process_stat(text, length, &stat);
    mh_free(text);
    if (!there || stat.state == 'Z' || stat.state == 'X')
        return look;
    if (stat.state == 'R') {
        look.waiting = MH_WAITING_NOT;
    } else if (stat.state == 'D') {
        look.waiting = MH_WAITING_DISK;
    } else {
        look.waiting = MH_WAITING_HIDDEN;
        look_asleep(&look, pid, thread, root);
    }
    return look;
}

int mh_thread_named(int pid, const char *name, const char *root)
{
    char path[MH_PARSE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/proc/%d/task", root, pid) >= (int)sizeof path)
        return 0;
    DIR *tasks = opendir(path);
    int found = 0;
    for (struct dirent *entry; tasks && !found && (entry = readdir(tasks));) {
        size_t length;
        int thread = atoi(entry->d_name);
        char *text = thread > 0 ? thread_text(pid, thread, "comm", root, &length) : NULL;
        if (text && strncmp(text, name, strcspn(text, "\n")) == 0 &&
            strlen(name) == strcspn(text, "\n"))
            found = thread;
        mh_free(text);
    }
    if (tasks)
        (void)closedir(tasks);
    return found;
}
