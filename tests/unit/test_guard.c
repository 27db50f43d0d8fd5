/* test_guard.c - a worker is ended within a batch, and only there
 * SPDX-License-Identifier: Apache-2.0
 */
#include "entries.h"
#include "unit.h"
#include "workers/guard.h"
#include <pthread.h>

static mh_control *attach(const mh_control *to)
{
    mh_control *control = NULL;
    if (mh_control_attach(&control, mh_control_fd(to), 0, NULL) != MH_OK)
        _exit(9);
    return control;
}

/* What a worker does with its guard; it exits with 0 if it was not ended. */
typedef void (*life)(mh_control *control);

static int code_of(const mh_control *consumer, life live)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        live(attach(consumer));
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void too_much_within_a_batch(mh_control *control)
{
    mh_guard_arm(control, 1);
    mh_guard_enter();
    mh_guard_tick();
}

static void too_much_between_batches(mh_control *control)
{
    mh_guard_arm(control, 1);
    mh_guard_tick();
    mh_guard_enter();
    mh_guard_leave();
    mh_guard_tick();
}

static void enough_within_a_batch(mh_control *control)
{
    mh_guard_arm(control, UINT64_MAX);
    mh_guard_enter();
    mh_guard_tick();
    mh_guard_leave();
}

static void no_guard_at_all(mh_control *control)
{
    (void)control;
    mh_guard_enter();
    mh_guard_tick();
    mh_guard_leave();
}

static void it_ends_a_worker_within_a_batch_and_only_there(void **state)
{
    (void)state;
    mh_over_limit_view view;
    mh_control *consumer = open_control(1, 2);
    assert_int_equal(code_of(consumer, too_much_between_batches), 0);
    assert_int_equal(code_of(consumer, enough_within_a_batch), 0);
    assert_int_equal(code_of(consumer, no_guard_at_all), 0);
    assert_false(mh_control_over_limit(consumer, 0, &view));
    assert_int_equal(code_of(consumer, too_much_within_a_batch), 1);
    assert_true(mh_control_over_limit(consumer, 0, &view));
    assert_int_equal(view.over_limit, MH_OVER_LIMIT_ENDED);
    assert_true(view.bytes > 1);
    mh_control_close(consumer);
}

static void *tick_for_ever(void *nothing)
{
    while (!nothing)
        mh_guard_tick();
    return NULL;
}

/* Makes all batches that it is asked for, or is ended in one; in the end it has one for ever. */
static void batches_beside_a_tick(mh_control *control)
{
    pthread_t ticking;
    mh_guard_arm(control, 1);
    if (pthread_create(&ticking, NULL, tick_for_ever, NULL) != 0)
        _exit(9);
    for (const mh_task *task; (task = mh_control_task_wait(control, MS));) {
        uint64_t number = task->position;
        mh_control_task_done(control);
        mh_guard_enter();
        (void)usleep((useconds_t)(number * 200));
        mh_control_result_begin(control)->position = number;
        mh_guard_leave();
        mh_control_result_publish(control);
    }
    mh_guard_enter();
    for (;;)
        (void)pause();
}

static void a_batch_is_published_or_made_again(void **state)
{
    (void)state;
    enum { BATCHES = 8, MOST_ROUNDS = 40 };
    mh_over_limit_view view;
    mh_ring_counts counts = {0};
    mh_control *consumer = open_control(1, BATCHES);
    for (uint64_t n = 0; n < BATCHES; n++) {
        mh_control_task_begin(consumer, 0)->position = n;
        mh_control_task_publish(consumer, 0);
    }
    for (int round = 0; round < MOST_ROUNDS && counts.results_put < BATCHES; round++) {
        assert_int_equal(code_of(consumer, batches_beside_a_tick), 1);
        assert_true(mh_control_over_limit(consumer, 0, &view));
        mh_control_counts(consumer, 0, &counts);
        assert_true(counts.tasks_read <= counts.results_put + 1);
        mh_control_replace_worker(consumer, 0);
        mh_control_counts(consumer, 0, &counts);
        assert_int_equal(counts.tasks_read, counts.results_put);
    }
    for (uint64_t n = 0; n < counts.results_put; n++) {
        assert_int_equal(mh_control_result_peek(consumer, 0)->position, n);
        mh_control_result_done(consumer, 0);
    }
    mh_control_close(consumer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_ends_a_worker_within_a_batch_and_only_there),
        cmocka_unit_test(a_batch_is_published_or_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
