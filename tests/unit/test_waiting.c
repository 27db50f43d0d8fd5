/* test_waiting.c - what a thread waits for: texts of the kernel, and real sleepers
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/waiting.h"
#include "sys/futex.h"
#include "unit.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static mh_thread_look parsed(const char *text)
{
    mh_thread_look look = {0};
    assert_int_equal(mh_parse_syscall(text, strlen(text), &look), 1);
    return look;
}

static void calls_are_told_apart(void **state)
{
    char text[100];
    (void)state;
    assert_int_equal(parsed("running\n").waiting, MH_WAITING_NOT);
    assert_int_equal(parsed("-1 0x7f 0x7e\n").waiting, MH_WAITING_OTHER);
    (void)snprintf(text, sizeof text, "%d 0x1 0x80 0x0\n", SYS_futex);
    assert_int_equal(parsed(text).waiting, MH_WAITING_FUTEX);
    (void)snprintf(text, sizeof text, "%d 0x1 0x1 0x0\n", SYS_clock_nanosleep);
    assert_int_equal(parsed(text).waiting, MH_WAITING_OTHER);
#ifdef SYS_poll
    (void)snprintf(text, sizeof text, "%d 0x7ffdc14b46f8 0x1 0x1388 0x1\n", SYS_poll);
    mh_thread_look look = parsed(text);
    assert_int_equal(look.waiting, MH_WAITING_POLL);
    assert_true(look.arguments);
    assert_int_equal(look.poll_fds, 1);
    assert_int_equal(look.poll_address, 0x7ffdc14b46f8);
    (void)snprintf(text, sizeof text, "%d 0xzz\n", SYS_poll);
    assert_false(parsed(text).arguments);
#endif
}

/* Locks of memory and of files that other processes may hold; not those within a process, nor the
 * sleep of a worker of ours that has nothing to do. */
static void locks_between_processes_are_told(void **state)
{
    char text[120];
    (void)state;
    const struct {
        long call;
        const char *arguments;
        bool shared;
    } rows[] = {
        {SYS_futex, "0x7f 0x109 0x0 0x0 0x0 0xffffffff 0x7f 0x7f", true},
        {SYS_futex, "0x7f 0x0 0x2 0x0 0x0 0x0 0x7f 0x7f", true},
        {SYS_futex, "0x7f 0x189 0x0 0x0 0x0 0xffffffff 0x7f 0x7f", false},
        {SYS_futex, "0x7f 0x0 0x2 0x7f 0x0 0x6d68 0x7f 0x7f", false},
        {SYS_futex, "0x7f 0x0 0x80000000 0x0 0x0 0x0 0x7f 0x7f", false}, /* a std::future */
        {SYS_futex, "0x7f 0x0 0x80000007 0x0 0x0 0x0 0x7f 0x7f", true},  /* a robust mutex */
        {SYS_futex, "0x7f 0x0", false},
        {SYS_flock, "0x3 0x2 0x0 0x0 0x0 0x0 0x7f 0x7f", true},
        {SYS_fcntl, "0x3 0x7 0x7f 0x0 0x0 0x0 0x7f 0x7f", true},
        {SYS_fcntl, "0x3 0x6 0x7f 0x0 0x0 0x0 0x7f 0x7f", false},
        {SYS_clock_nanosleep, "0x3 0x7 0x7f 0x0 0x0 0x0 0x7f 0x7f", false},
    };
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        (void)snprintf(text, sizeof text, "%ld %s\n", rows[at].call, rows[at].arguments);
        assert_int_equal(parsed(text).shared_lock, rows[at].shared);
    }
}

static void nonsense_tells_nothing(void **state)
{
    static const char *const texts[] = {"", "\n", "walking\n", "0x7 0x1\n"};
    mh_thread_look look;
    (void)state;
    for (size_t at = 0; at < sizeof texts / sizeof *texts; at++)
        assert_int_equal(mh_parse_syscall(texts[at], strlen(texts[at]), &look), 0);
    assert_int_equal(mh_parse_wchan("0", 1, &look), 0);
    assert_int_equal(mh_parse_wchan("", 0, &look), 0);
}

static void places_in_the_kernel_will_do(void **state)
{
    static const struct {
        const char *text;
        mh_waiting waiting;
    } cases[] = {{"poll_schedule_timeout.constprop.0", MH_WAITING_POLL},
                 {"do_sys_poll", MH_WAITING_POLL},
                 {"futex_do_wait", MH_WAITING_FUTEX},
                 {"unix_stream_read_generic", MH_WAITING_LOCAL},
                 {"hrtimer_nanosleep", MH_WAITING_OTHER}};
    (void)state;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        mh_thread_look look = {0};
        assert_int_equal(mh_parse_wchan(cases[at].text, strlen(cases[at].text), &look), 1);
        assert_int_equal(look.waiting, cases[at].waiting);
        assert_false(look.arguments);
    }
}

/* Without the call, the place in the kernel; without both, hidden. */
static void a_sleeper_is_read_from_its_files(void **state)
{
    static const char stat[] =
        "7 (x) S 1 1 1 0 -1 4194304 10 0 0 0 1 5 7 8 20 0 3 0 4242 1000000 25 184467 1\n";
    assert_int_equal(mh_thread_look_at(7, 7, *state).waiting, MH_WAITING_GONE);
    tree_write(*state, "proc/7/task/7/stat", stat);
    tree_write(*state, "proc/7/task/7/comm", "pt_data_pin\n");
    assert_int_equal(mh_thread_look_at(7, 7, *state).waiting, MH_WAITING_HIDDEN);
    tree_write(*state, "proc/7/task/7/wchan", "futex_do_wait");
    assert_int_equal(mh_thread_look_at(7, 7, *state).waiting, MH_WAITING_FUTEX);
    tree_write(*state, "proc/7/task/7/syscall", "running\n");
    assert_int_equal(mh_thread_look_at(7, 7, *state).waiting, MH_WAITING_NOT);
    assert_int_equal(mh_thread_named(7, "pt_data_pin", *state), 7);
    assert_int_equal(mh_thread_named(7, "pt_data_pi", *state), 0);
    assert_int_equal(mh_thread_named(8, "pt_data_pin", *state), 0);
}

typedef void (*occupation)(void);

static int pipe_ends[2], socket_ends[2];

static void poll_one(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    for (;;)
        (void)poll(&one, 1, 5000);
}

static void polls_a_pipe(void)
{
    poll_one(pipe_ends[0]);
}

static void polls_a_socket(void)
{
    poll_one(socket_ends[0]);
}

static void reads_a_local_socket(void)
{
    char byte;
    for (;;)
        (void)!read(socket_ends[0], &byte, 1);
}

static void works(void)
{
    for (volatile uint64_t turn = 0;; turn++)
        continue;
}

static void sleeps(void)
{
    for (;;)
        (void)sleep(10);
}

static sem_t between_processes;

static void waits_for_a_lock(void)
{
    (void)sem_init(&between_processes, 1, 0);
    for (;;)
        (void)sem_wait(&between_processes);
}

static void *rests(void *unused)
{
    (void)unused;
    sleeps();
    return NULL;
}

static void waits_for_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, rests, NULL) == 0)
        (void)pthread_join(thread, NULL);
}

static void waits_for_an_order(void)
{
    static _Atomic uint32_t word;
    for (;;)
        mh_futex_wait(&word, 0, UINT64_C(10000000000));
}

/* What a child with that occupation is seen doing, once it does it. */
static mh_thread_look look_at_child(occupation what, mh_waiting expected)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        what();
        _exit(0);
    }
    mh_thread_look look = {0};
    for (int turn = 0; turn < 2000; turn++) {
        look = mh_thread_look_at(pid, pid, "");
        if (look.waiting == expected)
            break;
        (void)usleep(1000);
    }
    (void)kill(pid, SIGKILL);
    assert_int_equal(child_code(pid), 128 + SIGKILL);
    return look;
}

static void real_threads_are_seen(void **state)
{
    (void)state;
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, socket_ends), 0);
    assert_int_equal(look_at_child(works, MH_WAITING_NOT).waiting, MH_WAITING_NOT);
    assert_int_equal(look_at_child(sleeps, MH_WAITING_OTHER).waiting, MH_WAITING_OTHER);
    mh_thread_look look = look_at_child(polls_a_pipe, MH_WAITING_POLL);
    assert_int_equal(look.waiting, MH_WAITING_POLL);
    /* where the kernel lets us see arguments, a socket is not taken for a queue */
    assert_int_equal(look.poll_pipe, look.arguments);
    assert_false(look_at_child(polls_a_socket, MH_WAITING_POLL).poll_pipe);
    assert_int_equal(look_at_child(reads_a_local_socket, MH_WAITING_LOCAL).waiting,
                     MH_WAITING_LOCAL);
    assert_true(look_at_child(waits_for_a_lock, MH_WAITING_FUTEX).shared_lock);
    look = look_at_child(waits_for_an_order, MH_WAITING_FUTEX);
    assert_int_equal(look.waiting, MH_WAITING_FUTEX);
    assert_false(look.shared_lock);
    look = look_at_child(waits_for_a_thread, MH_WAITING_FUTEX);
    assert_int_equal(look.waiting, MH_WAITING_FUTEX);
    assert_false(look.shared_lock);
    for (int end = 0; end < 2; end++) {
        (void)close(pipe_ends[end]);
        (void)close(socket_ends[end]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_told_apart),
        cmocka_unit_test(locks_between_processes_are_told),
        cmocka_unit_test(nonsense_tells_nothing),
        cmocka_unit_test(places_in_the_kernel_will_do),
        cmocka_unit_test_setup_teardown(a_sleeper_is_read_from_its_files, make_tree, remove_tree),
        cmocka_unit_test(real_threads_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
