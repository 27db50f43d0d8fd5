/* test_thread.c - starting and joining threads
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/thread.h"
#include "unit.h"
#include <signal.h>

static void *look_around(void *argument)
{
    sigset_t *mask = argument;
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    return NULL;
}

static void a_thread_has_every_signal_blocked(void **state)
{
    (void)state;
    sigset_t mask, before, after;
    mh_thread thread;
    sigemptyset(&mask);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(mh_thread_start(&thread, "look", look_around, &mask, NULL), MH_OK);
    mh_thread_join(&thread);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++) {
        if (number != SIGKILL && number != SIGSTOP)
            assert_int_equal(sigismember(&mask, number), 1);
        assert_int_equal(sigismember(&after, number), sigismember(&before, number));
    }
}

static void *wait_for_go(void *argument)
{
    pthread_mutex_t *go = argument;
    pthread_mutex_lock(go);
    pthread_mutex_unlock(go);
    return NULL;
}

static void a_long_name_is_cut(void **state)
{
    (void)state;
    char name[32] = "";
    pthread_mutex_t go = PTHREAD_MUTEX_INITIALIZER;
    mh_thread thread;
    pthread_mutex_lock(&go);
    assert_int_equal(mh_thread_start(&thread, "a name of many characters", wait_for_go, &go, NULL),
                     MH_OK);
    assert_int_equal(pthread_getname_np(thread.handle, name, sizeof name), 0);
    pthread_mutex_unlock(&go);
    mh_thread_join(&thread);
    assert_string_equal(name, "a name of many ");
}

static void joining_is_always_allowed(void **state)
{
    (void)state;
    sigset_t mask;
    mh_thread thread = {0};
    mh_thread_join(NULL);
    mh_thread_join(&thread);
    assert_int_equal(mh_thread_start(&thread, "x", look_around, &mask, NULL), MH_OK);
    mh_thread_join(&thread);
    mh_thread_join(&thread);
    assert_int_equal(thread.running, 0);
}

static void the_chosen_start_fails(void **state)
{
    (void)state;
    sigset_t mask;
    mh_thread one = {0}, two = {0};
    mh_error err;
    (void)mh_thread_fail_at(2);
    assert_int_equal(mh_thread_start(&one, "one", look_around, &mask, &err), MH_OK);
    mh_thread_join(&one);
    assert_int_equal(mh_thread_start(&two, "two", look_around, &mask, &err), MH_ERR_NOMEM);
    assert_int_equal(err.sys_errno, EAGAIN);
    assert_non_null(strstr(err.message, "two"));
    assert_int_equal(two.running, 0);
    assert_int_equal(mh_thread_start(&two, "two", look_around, &mask, &err), MH_OK);
    mh_thread_join(&two);
    assert_int_equal(mh_thread_fail_at(1), 3);
    assert_int_equal(mh_thread_start_detached(look_around, &mask, &err), MH_ERR_NOMEM);
    assert_int_equal(mh_thread_fail_at(0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_every_signal_blocked),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(joining_is_always_allowed),
        cmocka_unit_test(the_chosen_start_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
