/* test_fork_chain.c - children that fork one another and are all the caller's own
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/fork_chain.h"
#include "unit.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define CHILDREN 5

/* Whether what the C library and the kernel share about this thread is as after a fork(). */
static int thread_is_whole(void)
{
    int *tid = NULL;
    void *robust_list = NULL;
    size_t robust_bytes = 0;
    return prctl(PR_GET_TID_ADDRESS, &tid, 0, 0, 0) == 0 && *tid == getpid() &&
           syscall(SYS_get_robust_list, 0, &robust_list, &robust_bytes) == 0 && robust_list;
}

/* The process of a child, or why there is none. */
static int settled(const mh_chain *chain, int number)
{
    int pid;
    while ((pid = mh_chain_pid(chain, number)) == 0)
        usleep(100);
    return pid;
}

static mh_chain *new_chain(int children)
{
    mh_chain *chain = NULL;
    assert_int_equal(mh_chain_new(&chain, children, NULL), MH_OK);
    return chain;
}

static int forked(mh_chain *chain)
{
    int number = -2;
    assert_int_equal(mh_chain_fork(chain, &number, NULL), MH_OK);
    return number;
}

static void every_child_is_the_callers_own(void **state)
{
    (void)state;
    pid_t caller = getpid();
    mh_chain *chain = new_chain(CHILDREN);
    int number = forked(chain);
    if (number >= 0)
        _exit(getppid() == caller && thread_is_whole() ? 10 + number : 1);
    assert_int_equal(number, -1);
    mh_chain_hurry(chain);
    for (int i = 0; i < CHILDREN; i++)
        assert_int_equal(child_code(settled(chain, i)), 10 + i);
    assert_true(mh_chain_proven(chain));
    mh_chain_free(chain);
}

static void every_child_sees_the_caller_as_it_was(void **state)
{
    (void)state;
    volatile int value = 7;
    mh_chain *chain = new_chain(CHILDREN);
    if (forked(chain) >= 0) {
        int seen = value;
        value = 9; /* in one child only */
        _exit(seen);
    }
    value = 8;
    for (int i = 0; i < CHILDREN; i++)
        assert_int_equal(child_code(settled(chain, i)), 7);
    mh_chain_free(chain);
}

static void signals_are_blocked_only_meanwhile(void **state)
{
    (void)state;
    sigset_t mine, before, now;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &mine, &before);
    mh_chain *chain = new_chain(2);
    int number = forked(chain);
    pthread_sigmask(SIG_SETMASK, &before, &now);
    int right = sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGUSR1) == 0;
    if (number >= 0)
        _exit(right ? 3 : 1);
    assert_true(right);
    for (int i = 0; i < 2; i++)
        assert_int_equal(child_code(settled(chain, i)), 3);
    mh_chain_free(chain);
}

static void a_stopped_chain_forks_no_more(void **state)
{
    (void)state;
    enum { MANY = 500 };
    mh_chain *chain = new_chain(MANY);
    if (forked(chain) >= 0)
        _exit(4);
    mh_chain_stop(chain);
    mh_chain_hurry(chain); /* too late */
    int i = 0;
    for (int pid; i < MANY && (pid = settled(chain, i)) > 0; i++) {
        int code = child_code(pid);
        assert_true(code == 0 || code == 4); /* 4: it was forked and on its way before */
    }
    assert_in_range(i, 1, MANY - 1);
    for (; i < MANY; i++)
        assert_int_equal(settled(chain, i), -ECANCELED);
    mh_chain_free(chain);
}

static void a_killed_child_ends_the_chain(void **state)
{
    (void)state;
    mh_chain *chain = new_chain(3);
    if (forked(chain) >= 0)
        for (;;)
            pause();
    int first = settled(chain, 0), second = settled(chain, 1);
    assert_int_equal(kill(second, SIGSTOP), 0); /* most likely in the first one's head start */
    usleep(20000);
    assert_int_equal(kill(second, SIGKILL), 0);
    assert_int_equal(child_code(second), 128 + SIGKILL);
    int third = mh_chain_pid(chain, 2);
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(child_code(first), 128 + SIGKILL);
    assert_true(third >= 0);
    if (third > 0) {
        assert_int_equal(kill(third, SIGKILL), 0);
        assert_int_equal(child_code(third), 128 + SIGKILL);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody else is there */
    mh_chain_free(chain);
}

static void open_and_free(void *unused)
{
    (void)unused;
    mh_chain *chain = NULL;
    if (mh_chain_new(&chain, CHILDREN, NULL) == MH_OK)
        mh_chain_free(chain);
    else
        assert_null(chain);
}

static void without_memory_there_is_no_chain(void **state)
{
    (void)state;
    each_allocation_fails(open_and_free, NULL);
}

int main(void)
{
    int number;
    mh_chain *chain = new_chain(1);
    mh_status status = mh_chain_fork(chain, &number, NULL);
    if (status == MH_ERR_UNSUPPORTED)
        return 77; /* skipped: a kernel or sandbox without what it takes */
    if (status == MH_OK && number == 0)
        _exit(0);
    (void)child_code(mh_chain_pid(chain, 0));
    mh_chain_free(chain);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_child_is_the_callers_own),
        cmocka_unit_test(every_child_sees_the_caller_as_it_was),
        cmocka_unit_test(signals_are_blocked_only_meanwhile),
        cmocka_unit_test(a_stopped_chain_forks_no_more),
        cmocka_unit_test(a_killed_child_ends_the_chain),
        cmocka_unit_test(without_memory_there_is_no_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
