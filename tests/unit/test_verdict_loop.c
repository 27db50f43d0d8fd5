/* test_verdict_loop.c - what the loop itself does: sleep, the device, other processes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plants.h"

/* On a busy machine whoever sleeps waits for a CPU each time it wakes: that is the sleep's. */
static void waking_up_belongs_to_the_sleep(void **state)
{
    (void)state;
    mh_facts facts = planted_run(150, 0, 2, 6 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 150; at++) {
        batches[at].fetch_cpu = 1 * MS;
        batches[at].fetch_delay = 6 * MS; /* eight sleeps, eight times waking up */
        batches[at].fetch = (9 + 1 + 6) * MS;
        batches[at].collate_cpu = 5 * MS;
        batches[at].collate_delay = 5 * MS;
        batches[at].collate = 10 * MS;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(lists(&verdict, MH_CAUSE_COLLATE));
    assert_true(verdict.replay_off < 0.05);
    free(planted_batches(&facts));
}

/* Threads of other processes stretch all that is done on a CPU; a replay finds how many. */
static void others_on_the_machine_are_counted(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 1, 2, 5 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch_cpu = 10 * MS;
        batches[at].fetch_delay = 15 * MS; /* 1 of ours and 4 of theirs on 2 CPUs */
        batches[at].fetch = 25 * MS;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_true(verdict.replay_off < 0.05);
    /* half the CPU time halves the waiting for a CPU too: 12.5 ms a batch in place of 25 */
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    mh_replay_options options;
    mh_replay_result result;
    mh_replay_options_init(&options, &facts);
    options.others = 4;
    assert_int_equal(mh_replay(&result, &facts, &options, NULL), MH_OK);
    assert_true(fabs((double)result.total_ns / (200 * 25e6) - 1) < 0.02);
    assert_true(fabs((double)result.delay_ns / (200 * 15e6) - 1) < 0.02);
    free(planted_batches(&facts));
}

/* A little work of the process's own, kept from the CPU for long by other processes: without it
 * that waiting would go, but it is not the work's fault. */
static void waiting_for_others_is_no_work_of_the_process(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 2, 2, 30 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch = batches[at].fetch_cpu = MS / 10;
        batches[at].step_cpu = MS / 2;
        batches[at].step_delay = 3 * MS;
        batches[at].step += 3 * MS;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_DEVICE);
    assert_false(lists(&verdict, MH_CAUSE_MAIN));
    free(planted_batches(&facts));
}

/* Launches, then a wait for the device in .item(): by the hooks all but the CPU time beside the
 * launches is training. */
static void waiting_for_the_device_is_training(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 2, 2, 30 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch = batches[at].fetch_cpu = MS / 10;
        batches[at].step_cpu = 10 * MS;
        batches[at].step_train = 30 * MS - MS / 10;
    }
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_DEVICE);
    assert_false(lists(&verdict, MH_CAUSE_MAIN));
    assert_true(verdict.stages.main < 0.01);
    for (size_t at = 0; at < 200; at++) /* of the CPU time only the launches are training */
        batches[at].step_train = 22 * MS;
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
    assert_true(fabs(verdict.stages.main - 8.0 / 30) < 0.01);
    for (size_t at = 0; at < 200; at++) { /* the same on a busy machine */
        batches[at].step += 30 * MS;
        batches[at].step_delay = 30 * MS;
        batches[at].step_train = 44 * MS;
    }
    verdict = judged(&facts);
    assert_true(fabs(verdict.stages.main - 8.0 / 60) < 0.01);
    free(batches);
}

/* The loop says that its training takes 5 ms of 30, and sleeps for the rest: a request for every
 * step. A device that works all the while says that this was it. */
static void a_busy_device_is_what_was_waited_for(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 2, 2, 30 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch = batches[at].fetch_cpu = MS / 10;
        batches[at].step_cpu = MS;
        batches[at].step_train = 5 * MS;
    }
    assert_int_equal(judged(&facts).cause, MH_CAUSE_MAIN);
    facts.usage.wall_ns = 6000 * MS;
    facts.usage.gpu_util = 0.95;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    free(batches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waking_up_belongs_to_the_sleep),
        cmocka_unit_test(others_on_the_machine_are_counted),
        cmocka_unit_test(waiting_for_others_is_no_work_of_the_process),
        cmocka_unit_test(waiting_for_the_device_is_training),
        cmocka_unit_test(a_busy_device_is_what_was_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
