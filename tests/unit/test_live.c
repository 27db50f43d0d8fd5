/* test_live.c - a running loop, looked at: real processes round a real control block
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/live.h"
#include "entries.h"
#include "sys/clock.h"

/* --- a loop --- */

/* Takes tasks for ever; each costs `fetch_ms` asleep, or the rest of its life. */
static void work(int fd, int fetch_ms)
{
    mh_control *worker = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mh_control_attach(&worker, fd, 0, NULL) != MH_OK)
        _exit(1);
    for (;;) {
        const mh_task *task = mh_control_task_wait(worker, PATIENCE_NS);
        if (!task)
            continue;
        uint64_t position = task->position;
        do
            (void)usleep((useconds_t)fetch_ms * 1000);
        while (fetch_ms >= 1000);
        mh_control_task_done(worker);
        mh_result *result = mh_control_result_begin(worker);
        result->position = position;
        result->kind = MH_RESULT_SLOT;
        result->samples = 8;
        result->fetch_ns = (uint64_t)fetch_ms * MS;
        result->collate_ns = 3;
        mh_control_result_publish(worker);
    }
}

/* A consumer with one worker and steps of `step_ms`; says a byte on `ready` after a few batches, or
 * at once when there will be none. */
static void train(int ready, int fetch_ms, int step_ms)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    mh_control *consumer = open_control(1, 2);
    if (fork() == 0)
        work(mh_control_fd(consumer), fetch_ms);
    for (uint64_t put = 0, got = 0;; got++) {
        for (mh_task *task; (task = mh_control_task_begin(consumer, 0)) && put < got + 2; put++) {
            task->position = put;
            mh_control_task_publish(consumer, 0);
        }
        if (got == (fetch_ms >= 1000 ? 0 : 3) && write(ready, "!", 1) != 1)
            _exit(1);
        while (!mh_control_result_wait(consumer, 0, PATIENCE_NS))
            continue;
        mh_control_result_done(consumer, 0);
        (void)usleep((useconds_t)step_ms * 1000);
    }
}

static pid_t loop_start(int fetch_ms, int step_ms)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        train(ready[1], fetch_ms, step_ms);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static void loop_end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(child_code(pid), 128 + SIGKILL);
}

/* Times of all batches that were seen, after what must hold for each. Who looks may come too late
 * for what a worker noted of a batch: the next one's is there by then. */
static void expect_batches(const mh_facts *facts, uint64_t fetch, double *wait, double *step)
{
    size_t known = 0;
    *wait = *step = 0;
    assert_true(facts->batch_count >= 5);
    for (size_t at = 0; at < facts->batch_count; at++) {
        const mh_batch_cost *batch = &facts->batches[at];
        *wait += (double)batch->wait;
        *step += (double)batch->step;
        if (batch->fetch == MH_NOT_MEASURED)
            continue;
        known++;
        assert_int_equal(batch->fetch, fetch);
        assert_int_equal(batch->collate, 3);
        assert_int_equal(batch->samples, 8);
        assert_int_equal(batch->worker, 0);
        assert_true(batch->fetch_cpu + batch->fetch_delay <= batch->fetch);
        assert_true(batch->step_cpu + batch->step_delay <= batch->step);
    }
    assert_true(known >= 3);
}

static void expect_inside(const mh_facts *facts)
{
    assert_int_equal(facts->vantage, MH_VANTAGE_INSIDE);
    assert_string_equal(facts->kind, "millhead");
    assert_int_equal(facts->workers, 1);
    assert_int_equal(facts->prefetch, 2);
    assert_int_equal(facts->batch_size, 8);
    assert_true(facts->cpus >= 1);
}

/* --- what is seen --- */

static void a_loop_that_waits_is_seen_waiting(void **state)
{
    (void)state;
    uint64_t live_blocks = mh_alloc_live();
    int open = open_descriptors();
    pid_t pid = loop_start(20, 0);
    mh_live *live = NULL;
    mh_error err;
    double wait, step;
    assert_int_equal(mh_live_look(&live, pid, 0.6, NULL, NULL, &err), MH_OK);
    loop_end(pid);
    const mh_facts *facts = mh_live_facts(live);
    expect_inside(facts);
    expect_batches(facts, 20 * MS, &wait, &step);
    assert_true(wait > step);
    assert_true(facts->usage.main_data > 0.5);
    assert_true(facts->usage.workers_idle < 0.5);
    mh_wait_stats waits = mh_live_waits(live);
    assert_int_equal(waits.count, facts->batch_count);
    assert_true(waits.mean > 0 && waits.p50 <= waits.p99 && waits.p99 <= waits.max);
    assert_non_null(strstr(mh_live_note(live, 0), "looked into process"));
    assert_null(mh_live_note(live, 99));
    mh_live_close(live);
    assert_int_equal(mh_alloc_live(), live_blocks);
    assert_int_equal(open_descriptors(), open);
}

static void a_loop_that_trains_is_seen_training(void **state)
{
    (void)state;
    pid_t pid = loop_start(1, 20);
    mh_live *live = NULL;
    mh_error err;
    double wait, step;
    assert_int_equal(mh_live_look(&live, pid, 0.6, NULL, NULL, &err), MH_OK);
    loop_end(pid);
    const mh_facts *facts = mh_live_facts(live);
    expect_inside(facts);
    expect_batches(facts, 1 * MS, &wait, &step);
    assert_true(step > wait);
    assert_true(facts->usage.workers_idle > 0.5);
    mh_live_close(live);
}

static void a_loop_that_hangs_is_seen_from_outside(void **state)
{
    (void)state;
    pid_t pid = loop_start(100000, 0);
    mh_live *live = NULL;
    mh_error err;
    assert_int_equal(mh_live_look(&live, pid, 0.4, NULL, NULL, &err), MH_OK);
    loop_end(pid);
    const mh_facts *facts = mh_live_facts(live);
    assert_int_equal(facts->vantage, MH_VANTAGE_OUTSIDE);
    assert_int_equal(facts->batch_count, 0);
    assert_true(facts->usage.main_data > 0.9);
    assert_true(facts->usage.workers_idle < 0.1);
    assert_int_equal(mh_live_waits(live).count, 0);
    mh_live_close(live);
}

/* --- what cannot be looked at --- */

static void there_must_be_a_process_with_a_loader(void **state)
{
    (void)state;
    mh_live *live = NULL;
    mh_error err;
    assert_int_equal(mh_live_look(&live, 0, 1, NULL, NULL, &err), MH_ERR_NOT_FOUND);
    assert_int_equal(mh_live_look(&live, 1 << 22 | 1, 1, NULL, NULL, &err), MH_ERR_NOT_FOUND);
    assert_int_equal(mh_live_look(&live, getpid(), 0.05, NULL, NULL, &err), MH_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "has no loader with workers"));
    assert_int_equal(mh_live_look(&live, getpid(), 0, NULL, NULL, &err), MH_ERR_INVALID);
    assert_int_equal(mh_live_look(&live, getpid(), 1e9, NULL, NULL, &err), MH_ERR_INVALID);
    assert_null(live);
    mh_live_close(NULL);
}

static int stop_at_once(void *calls, double share)
{
    assert_true(share >= 0 && share <= 1);
    ++*(int *)calls;
    return 1;
}

static void looking_can_be_stopped(void **state)
{
    (void)state;
    int calls = 0;
    pid_t pid = loop_start(1, 1);
    mh_live *live = NULL;
    mh_error err;
    uint64_t live_blocks = mh_alloc_live();
    assert_int_equal(mh_live_look(&live, pid, 60, stop_at_once, &calls, &err), MH_ERR_CLOSED);
    loop_end(pid);
    assert_int_equal(calls, 1);
    assert_null(live);
    assert_int_equal(mh_alloc_live(), live_blocks);
}

static void open_own_block(void *unused)
{
    mh_inside *inside = NULL;
    mh_error err;
    (void)unused;
    mh_status status = mh_inside_open(&inside, getpid(), &err);
    assert_true(status == MH_OK || status == MH_ERR_NOMEM);
    if (status == MH_OK)
        assert_non_null(inside);
    mh_inside_close(inside);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    mh_control *consumer = open_control(2, 2);
    int open = open_descriptors();
    each_allocation_fails(open_own_block, NULL);
    assert_int_equal(open_descriptors(), open);
    mh_control_close(consumer);
}

static void a_stopped_loader_is_not_looked_at(void **state)
{
    (void)state;
    mh_control *consumer = open_control(1, 1);
    mh_inside *inside = NULL;
    mh_error err;
    mh_control_stop(consumer);
    assert_int_equal(mh_inside_open(&inside, getpid(), &err), MH_OK);
    assert_null(inside);
    mh_control_close(consumer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_that_waits_is_seen_waiting),
        cmocka_unit_test(a_loop_that_trains_is_seen_training),
        cmocka_unit_test(a_loop_that_hangs_is_seen_from_outside),
        cmocka_unit_test(there_must_be_a_process_with_a_loader),
        cmocka_unit_test(looking_can_be_stopped),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_stopped_loader_is_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
