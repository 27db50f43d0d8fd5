/* test_thread_clock.c - what a thread's time is spent on, in threads and forked children
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/thread_clock.h"
#include "unit.h"

#include <time.h>

static mh_thread_clock thread_clock;

static void spin(uint64_t ns)
{
    uint64_t end = mh_thread_cpu_ns() + ns;
    while (mh_thread_cpu_ns() < end)
        ;
}

static void check_later(mh_reading before, mh_reading after)
{
    assert_true(after.now >= before.now && after.cpu >= before.cpu);
    assert_true(after.delay >= before.delay && before.delay >= -1);
}

static void time_on_a_cpu_and_off_it_are_told_apart(void **state)
{
    (void)state;
    const struct timespec pause = {.tv_nsec = 20000000};
    mh_reading first = mh_clock_read(&thread_clock);
    spin(5000000);
    mh_reading spun = mh_clock_read(&thread_clock);
    check_later(first, spun);
    assert_true(spun.cpu - first.cpu >= 5000000);
    assert_true(nanosleep(&pause, NULL) == 0);
    mh_reading slept = mh_clock_read(&thread_clock);
    check_later(spun, slept);
    assert_true(slept.now - spun.now >= 20000000);
    assert_true(slept.now - spun.now - (slept.cpu - spun.cpu) >= 10000000);
    mh_clock_close(&thread_clock);
}

static void a_cheap_reading_is_never_ahead_of_a_full_one(void **state)
{
    (void)state;
    mh_reading before = mh_clock_read(&thread_clock);
    for (int i = 0; i < 50; i++) {
        mh_reading cheap = mh_clock_begin(&thread_clock);
        check_later(before, cheap);
        before = mh_clock_read(&thread_clock);
        check_later(cheap, before);
        spin(100000);
    }
    mh_clock_close(&thread_clock);
}

static void *read_in_thread(void *argument)
{
    mh_reading *out = argument;
    *out = mh_clock_read(&thread_clock);
    return NULL;
}

static void each_thread_reads_its_own(void **state)
{
    (void)state;
    pthread_t thread;
    mh_reading other;
    spin(5000000);
    mh_reading own = mh_clock_read(&thread_clock);
    int before = open_descriptors();
    assert_int_equal(pthread_create(&thread, NULL, read_in_thread, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(other.cpu < own.cpu);
    assert_true(open_descriptors() <= before + 1); /* it may not have been open before */
    check_later(own, mh_clock_read(&thread_clock));
    mh_clock_close(&thread_clock);
}

static void a_forked_child_reads_its_own(void **state)
{
    (void)state;
    spin(5000000);
    mh_reading own = mh_clock_read(&thread_clock);
    pid_t child = fork();
    if (child == 0) {
        mh_reading childs = mh_clock_read(&thread_clock);
        _exit(childs.cpu < own.cpu && childs.now >= own.now ? 0 : 1);
    }
    assert_int_equal(child_code(child), 0);
    mh_clock_close(&thread_clock);
}

static void closing_leaves_nothing_open(void **state)
{
    (void)state;
    const struct timespec pause = {.tv_nsec = 1000000};
    mh_clock_close(&thread_clock);
    int before = open_descriptors();
    for (int i = 0; i < 5; i++) {
        assert_true(nanosleep(&pause, NULL) == 0); /* long enough to read the file again */
        (void)mh_clock_read(&thread_clock);
        assert_true(open_descriptors() <= before + 1);
    }
    mh_clock_close(&thread_clock);
    mh_clock_close(&thread_clock);
    assert_int_equal(open_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_on_a_cpu_and_off_it_are_told_apart),
        cmocka_unit_test(a_cheap_reading_is_never_ahead_of_a_full_one),
        cmocka_unit_test(each_thread_reads_its_own),
        cmocka_unit_test(a_forked_child_reads_its_own),
        cmocka_unit_test(closing_leaves_nothing_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
