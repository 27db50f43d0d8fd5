/* test_process.c - handles to processes, and workers that end with their trainer
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/process.h"
#include "sys/thread.h"
#include "unit.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

/* A child that is killed when this test program ends early. */
static pid_t fork_child(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

/* A child that does nothing until it is killed. */
static pid_t idle_child(void)
{
    pid_t child = fork_child();
    if (child == 0)
        for (;;)
            pause();
    return child;
}

static void a_handle_tells_when_its_process_ends(void **state)
{
    (void)state;
    int fd = -1;
    pid_t child = idle_child();
    assert_int_equal(mh_process_open(&fd, child, NULL), MH_OK);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(mh_process_ended(fd), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    struct pollfd ask = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&ask, 1, 30000), 1);
    assert_int_equal(mh_process_ended(fd), 1); /* before anybody has waited for it */
    assert_int_equal(child_code(child), 128 + SIGKILL);
    assert_int_equal(mh_process_ended(fd), 1);
    assert_int_equal(close(fd), 0);
}

static void a_process_that_is_not_there(void **state)
{
    (void)state;
    int fd = -7;
    mh_error err;
    pid_t child = idle_child();
    assert_int_equal(kill(child, SIGKILL), 0);
    (void)child_code(child);
    assert_int_equal(mh_process_open(&fd, child, &err), MH_ERR_NOT_FOUND);
    assert_int_equal(err.sys_errno, ESRCH);
    assert_int_equal(mh_process_open(&fd, 0, &err), MH_ERR_NOT_FOUND);
    assert_int_equal(mh_process_open(&fd, -1, &err), MH_ERR_NOT_FOUND);
    assert_int_equal(fd, -7);
}

static void a_bad_descriptor_has_not_ended(void **state)
{
    (void)state;
    mh_error err;
    int open = open_descriptors();
    uint64_t live = mh_alloc_live();
    assert_int_equal(mh_process_ended(-1), 0);
    assert_int_equal(mh_process_exit_with(-1, 5, NULL, &err), MH_ERR_IO);
    assert_int_equal(err.sys_errno, EBADF);
    assert_int_equal(open_descriptors(), open);
    assert_int_equal(mh_alloc_live(), live);
}

/* The worker watches `trainer`, says so on `ready` and then waits to be ended by its watcher. */
static pid_t watching_worker(pid_t trainer, int ready)
{
    pid_t worker = fork_child();
    if (worker > 0)
        return worker;
    int fd;
    if (mh_process_open(&fd, trainer, NULL) != MH_OK)
        _exit(1);
    int own = fcntl(fd, F_DUPFD, 3); /* the number that the watcher's will have */
    if (close(own) != 0 || mh_process_exit_with(fd, 42, NULL, NULL) != MH_OK || close(fd) != 0)
        _exit(1);
    if (fcntl(own, F_GETFD) != FD_CLOEXEC) /* not for the programs that a worker runs */
        _exit(3);
    if (write(ready, "x", 1) != 1)
        _exit(2);
    for (;;)
        pause();
}

static void a_worker_ends_with_its_trainer(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    pid_t trainer = idle_child(); /* before the pipe, which it must not hold open */
    assert_int_equal(pipe(ready), 0);
    pid_t worker = watching_worker(trainer, ready[1]);
    assert_int_equal(close(ready[1]), 0); /* so that a worker that fails ends the read */
    ssize_t said = read(ready[0], &byte, 1);
    usleep(20000);
    pid_t gone = waitpid(worker, NULL, WNOHANG);
    assert_int_equal(kill(trainer, SIGKILL), 0);
    (void)child_code(trainer);
    assert_int_equal(said, 1);
    assert_int_equal(gone, 0); /* still there while the trainer was */
    assert_int_equal(child_code(worker), 42);
    (void)close(ready[0]);
}

static void a_trainer_that_has_already_ended(void **state)
{
    (void)state;
    int fd;
    pid_t trainer = idle_child();
    assert_int_equal(mh_process_open(&fd, trainer, NULL), MH_OK);
    assert_int_equal(kill(trainer, SIGKILL), 0);
    (void)child_code(trainer);
    pid_t worker = fork_child();
    if (worker == 0) {
        if (mh_process_exit_with(fd, 43, NULL, NULL) != MH_OK)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(child_code(worker), 43);
    assert_int_equal(close(fd), 0);
}

static void watch_own_process(void *pidfd)
{
    /* Only failures are wanted here: a started watcher would own memory until it runs. */
    (void)mh_thread_fail_at(1);
    assert_int_equal(mh_process_exit_with(*(int *)pidfd, 1, NULL, NULL), MH_ERR_NOMEM);
    (void)mh_thread_fail_at(0);
}

static void a_watcher_that_cannot_start_leaves_nothing(void **state)
{
    (void)state;
    int fd, open = open_descriptors();
    assert_int_equal(mh_process_open(&fd, getpid(), NULL), MH_OK);
    each_allocation_fails(watch_own_process, &fd);
    assert_int_equal(close(fd), 0);
    assert_int_equal(open_descriptors(), open);
}

static void *at_once(void *nothing)
{
    return nothing;
}

static void *until_told(void *told)
{
    char byte;
    return read(*(int *)told, &byte, 1) == 0 ? NULL : told;
}

static void threads_are_counted_while_they_are_there(void **state)
{
    (void)state;
    enum { MORE = 3 };
    int told[2], before;
    mh_thread threads[MORE] = {0};
    /* ThreadSanitizer has a thread of its own, from the first that is started on. */
    assert_int_equal(mh_thread_start(&threads[0], "test", at_once, NULL, NULL), MH_OK);
    mh_thread_join(&threads[0]);
    usleep(100000); /* joined, and perhaps not yet gone from /proc */
    before = mh_process_threads();
    assert_true(before >= 1);
    assert_int_equal(pipe(told), 0);
    for (int i = 0; i < MORE; i++)
        assert_int_equal(mh_thread_start(&threads[i], "test", until_told, &told[0], NULL), MH_OK);
    assert_int_equal(mh_process_threads(), before + MORE);
    assert_int_equal(close(told[1]), 0);
    for (int i = 0; i < MORE; i++)
        mh_thread_join(&threads[i]);
    for (int i = 0; i < 5000 && mh_process_threads() != before; i++)
        usleep(1000); /* joined, and perhaps not yet gone from /proc */
    assert_int_equal(mh_process_threads(), before);
    assert_int_equal(close(told[0]), 0);
}

int main(void)
{
    int fd;
    mh_error err;
    if (mh_process_open(&fd, getpid(), &err) != MH_OK && err.sys_errno == ENOSYS)
        return 77; /* skipped: valgrind 3.19 does not know pidfd_open */
    (void)close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_tells_when_its_process_ends),
        cmocka_unit_test(a_process_that_is_not_there),
        cmocka_unit_test(a_bad_descriptor_has_not_ended),
        cmocka_unit_test(a_worker_ends_with_its_trainer),
        cmocka_unit_test(a_trainer_that_has_already_ended),
        cmocka_unit_test(a_watcher_that_cannot_start_leaves_nothing),
        cmocka_unit_test(threads_are_counted_while_they_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
