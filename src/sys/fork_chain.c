/* fork_chain.c - children that fork one another from one snapshot
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/fork_chain.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sys/futex.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long child 1 waits before it forks child 2. Long enough for child 0 to do something quick;
 * whatever takes longer is not much slower for it. */
#define HEAD_START_NS UINT64_C(8000000)

enum chain_order { NO_ORDER, HURRY, STOP };

/* What caller and children share. */
typedef struct chain_board {
    _Atomic uint32_t order;
    _Atomic bool proven;
    _Atomic int pids[]; /* as mh_chain_pid */
} chain_board;

struct mh_chain {
    chain_board *board;
    size_t board_bytes;
    int children;
};

/* What the C library keeps per thread and the kernel writes or reads: fork() passes these on, and
 * so does a system call that stands for it. */
typedef struct chain_thread {
    int *tid; /* the library's copy of the thread's number */
    void *robust_list;
    size_t robust_bytes;
} chain_thread;

mh_status mh_chain_new(mh_chain **out, int children, mh_error *err)
{
    mh_chain *chain = mh_calloc(1, sizeof *chain);
    if (!chain)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a chain of %d processes", children);
    chain->children = children;
    chain->board_bytes = sizeof *chain->board + (size_t)children * sizeof chain->board->pids[0];
    void *board =
        mmap(NULL, chain->board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        mh_free(chain);
        return mh_fail_sys(err, MH_ERR_NOMEM, errno, "no memory for a chain of %d processes",
                           children);
    }
    chain->board = board;
    *out = chain;
    return MH_OK;
}

void mh_chain_free(mh_chain *chain)
{
    if (!chain)
        return;
    (void)munmap(chain->board, chain->board_bytes);
    mh_free(chain);
}

int mh_chain_pid(const mh_chain *chain, int number)
{
    return atomic_load_explicit(&chain->board->pids[number], memory_order_acquire);
}

bool mh_chain_proven(const mh_chain *chain)
{
    return atomic_load_explicit(&chain->board->proven, memory_order_acquire);
}

static void chain_order(chain_board *board, uint32_t order)
{
    uint32_t before = NO_ORDER;
    if (order == STOP)
        atomic_store_explicit(&board->order, STOP, memory_order_release);
    else if (!atomic_compare_exchange_strong_explicit(&board->order, &before, order,
                                                      memory_order_release, memory_order_relaxed))
        return;
    mh_futex_wake(&board->order);
}

void mh_chain_hurry(mh_chain *chain)
{
    chain_order(chain->board, HURRY);
}

void mh_chain_stop(mh_chain *chain)
{
    chain_order(chain->board, STOP);
}

static bool chain_stopped(const chain_board *board)
{
    return atomic_load_explicit(&board->order, memory_order_acquire) == STOP;
}

/* Says why the children from `first` on will not be. */
static void chain_break(chain_board *board, int first, int children, int why)
{
    for (int number = first; number < children; number++)
        atomic_store_explicit(&board->pids[number], -why, memory_order_release);
}

/* False where the kernel does not tell: without these a child could not stand for fork()'s. */
static bool chain_thread_read(chain_thread *out)
{
    if (prctl(PR_GET_TID_ADDRESS, &out->tid, 0, 0, 0) != 0 || !out->tid ||
        *out->tid != (int)syscall(SYS_gettid))
        return false;
    return syscall(SYS_get_robust_list, 0, &out->robust_list, &out->robust_bytes) == 0;
}

/* fork() of a process with one thread whose locks nobody holds, but for CLONE_PARENT, which the C
 * library has no call for. The kernel writes *out_pid before the child runs. */
static long chain_clone(const chain_thread *thread, _Atomic int *out_pid)
{
    long flags =
        CLONE_PARENT | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
#if defined(__x86_64__)
    long pid = syscall(SYS_clone, flags, 0, out_pid, thread->tid, 0);
#elif defined(__aarch64__) || defined(__riscv)
    long pid = syscall(SYS_clone, flags, 0, out_pid, 0, thread->tid);
#else
    (void)flags, (void)out_pid;
    long pid = -1;
    errno = ENOSYS;
#endif
    if (pid == 0)
        (void)syscall(SYS_set_robust_list, thread->robust_list, thread->robust_bytes);
    return pid;
}

/* In child 1: fork the others. Returns in each of them, with its number. */
static int chain_run(chain_board *board, int children, const chain_thread *thread, pid_t caller)
{
    int number = 1;
    mh_futex_wait(&board->order, NO_ORDER, HEAD_START_NS);
    while (number + 1 < children) {
        if (chain_stopped(board)) {
            chain_break(board, number + 1, children, ECANCELED);
            break;
        }
        long pid = chain_clone(thread, &board->pids[number + 1]);
        if (pid < 0)
            chain_break(board, number + 1, children, errno);
        if (pid != 0)
            break;
        number++;
        if (getppid() != caller) { /* it is gone, or this kernel ignores CLONE_PARENT */
            chain_break(board, number, children, ENOSYS);
            _exit(0);
        }
        atomic_store_explicit(&board->proven, true, memory_order_release);
    }
    if (chain_stopped(board))
        _exit(0);
    return number;
}

/* Forks child 0, and child 1 for all others. As mh_chain_fork, with signals blocked. */
static int chain_begin(const mh_chain *chain, const chain_thread *thread)
{
    chain_board *board = chain->board;
    pid_t caller = getpid();
    for (int number = 0; number < 2 && number < chain->children; number++) {
        pid_t pid = fork();
        if (pid == 0)
            return number == 0 ? 0 : chain_run(board, chain->children, thread, caller);
        if (pid < 0) {
            chain_break(board, number, chain->children, errno);
            break;
        }
        atomic_store_explicit(&board->pids[number], pid, memory_order_release);
    }
    return -1;
}

mh_status mh_chain_fork(mh_chain *chain, int *out_number, mh_error *err)
{
    chain_thread thread = {0};
    sigset_t all, before;
    if (!chain_thread_read(&thread))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "this kernel does not tell what fork() passes on");
    /* Signals wait until a child is what it is to be: a handler would run in a mere link. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    *out_number = chain_begin(chain, &thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    int first = mh_chain_pid(chain, 0);
    if (*out_number < 0 && first < 0)
        return mh_fail_sys(err, MH_ERR_IO, -first, "cannot fork");
    return MH_OK;
}
