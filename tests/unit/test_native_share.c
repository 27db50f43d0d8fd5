/* test_native_share.c - code that answers a signal at once and code that does not, told apart
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/native_share.h"
#include "sys/thread_clock.h"
#include "unit.h"

#include <pthread.h>
#include <signal.h>

static volatile sig_atomic_t pending;

/* As an interpreter's: the handler only says that there is something to do. */
static void remember(int number)
{
    (void)number;
    pending = 1;
}

static void answer_pending(void)
{
    if (pending) {
        pending = 0;
        mh_native_share_answer();
    }
}

/* Spins for that much CPU time, with an answer every `between_ns` of it. */
static void work(uint64_t ns, uint64_t between_ns)
{
    uint64_t end = mh_thread_cpu_ns() + ns;
    while (mh_thread_cpu_ns() < end) {
        uint64_t next = mh_thread_cpu_ns() + between_ns;
        while (mh_thread_cpu_ns() < next)
            ;
        answer_pending();
    }
}

static int start(void **state)
{
    (void)state;
    (void)signal(mh_native_share_signal(), remember);
    pending = 0;
    return mh_native_share_start() ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    mh_native_share_stop();
    return 0;
}

static void code_that_answers_at_once_is_not_native(void **state)
{
    (void)state;
    uint64_t probes;
    uint64_t native;
    work(300000000, 0);
    mh_native_share_counts(&probes, &native);
    assert_true(probes >= 20 && probes <= 130); /* 60 of them, and clocks may be coarse */
    assert_true(native * 2 < probes);
    mh_native_share_counts(&probes, &native);
    assert_true(probes == 0 && native == 0);
}

static void code_that_answers_late_is_native(void **state)
{
    (void)state;
    uint64_t probes;
    uint64_t native;
    work(300000000, 20000000);
    mh_native_share_counts(&probes, &native);
    assert_true(probes >= 20 && probes <= 130);
    assert_true(native * 10 >= probes * 7);
}

static void a_pause_is_not_looked_at(void **state)
{
    (void)state;
    uint64_t probes;
    uint64_t native;
    mh_native_share_pause();
    mh_native_share_pause();
    work(50000000, 0);
    mh_native_share_counts(&probes, &native);
    assert_true(probes <= 1); /* one may have been under way */
    assert_true(mh_native_share_again());
    work(100000000, 0);
    mh_native_share_counts(&probes, &native);
    assert_true(probes >= 5);
}

static void *again_in_thread(void *argument)
{
    *(bool *)argument = mh_native_share_again();
    return NULL;
}

static void another_thread_is_refused(void **state)
{
    (void)state;
    pthread_t thread;
    bool accepted = true;
    assert_true(mh_native_share_runs());
    assert_int_equal(pthread_create(&thread, NULL, again_in_thread, &accepted), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(accepted);
}

static void a_forked_child_starts_anew(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        if (mh_native_share_runs())
            _exit(1);
        mh_native_share_resume(); /* nothing: the timer is the parent's */
        mh_native_share_stop();
        if (!mh_native_share_start() || !mh_native_share_runs())
            _exit(2);
        uint64_t probes;
        uint64_t native;
        work(100000000, 0);
        mh_native_share_counts(&probes, &native);
        _exit(probes >= 5 ? 0 : 3);
    }
    assert_int_equal(child_code(child), 0);
    assert_true(mh_native_share_runs());
}

static void after_the_end_a_signal_does_nothing(void **state)
{
    (void)state;
    mh_native_share_stop();
    mh_native_share_stop();
    assert_false(mh_native_share_runs());
    assert_int_equal(raise(mh_native_share_signal()), 0);
    uint64_t probes;
    uint64_t native;
    mh_native_share_counts(&probes, &native);
    pending = 1;
    answer_pending();
    mh_native_share_counts(&probes, &native);
    assert_true(probes == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(code_that_answers_at_once_is_not_native, start, stop),
        cmocka_unit_test_setup_teardown(code_that_answers_late_is_native, start, stop),
        cmocka_unit_test_setup_teardown(a_pause_is_not_looked_at, start, stop),
        cmocka_unit_test_setup_teardown(another_thread_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(a_forked_child_starts_anew, start, stop),
        cmocka_unit_test_setup_teardown(after_the_end_a_signal_does_nothing, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
