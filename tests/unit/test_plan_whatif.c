/* test_plan_whatif.c - a run under other settings: against closed forms and against replays
 * SPDX-License-Identifier: Apache-2.0
 */
#include "planted.h"
#include "unit.h"
#include <millhead/plan.h>

/* 400 batches of 8 samples: 30 ms blocked and 10 ms on a CPU to make, a step of 10 ms. */
static mh_facts slow_run(int workers, int cpus)
{
    mh_facts facts = planted_run(400, workers, cpus, 10 * MS);
    for (size_t at = 0; at < facts.batch_count; at++) {
        mh_batch_cost *batch = &planted_batches(&facts)[at];
        batch->fetch = 40 * MS;
        batch->fetch_cpu = 10 * MS;
        batch->read_bytes = 1000;
    }
    (void)planted_waits(&facts);
    return facts;
}

static mh_plan_whatif_options asked(void)
{
    mh_plan_whatif_options options;
    mh_plan_whatif_options_init(&options);
    return options;
}

static mh_plan_whatif plan_of(const mh_facts *facts, const mh_plan_whatif_options *options)
{
    mh_plan_whatif plan;
    mh_error err = {0};
    if (mh_plan_whatif_make(&plan, facts, options, &err) != MH_OK)
        fail_msg("no plan: %s", err.message);
    return plan;
}

static void near(double value, double wanted, double off)
{
    if (!(fabs(value - wanted) <= off * fabs(wanted) + 1e-9))
        fail_msg("%g, expected %g", value, wanted);
}

static void what_was_is_what_was_measured(void **state)
{
    (void)state;
    mh_facts facts = slow_run(2, 8);
    mh_plan_whatif_options options = asked();
    mh_plan_whatif plan = plan_of(&facts, &options);
    near(plan.measured.samples_per_s, 8 / 20e-3, 0.02); /* a batch each 40 / 2 ms */
    near(plan.measured.wait_share, 0.5, 0.02);
    near(plan.asked.samples_per_s, plan.measured.samples_per_s, 0.02);
    near(plan.making_cpu_s, 10e-3, 0.001);
    near(plan.making_blocked_s, 30e-3, 0.001);
    assert_true(plan.replay_off < 0.02);
    assert_int_equal(plan.batches, 399);
    free(planted_batches(&facts));
}

static void workers_needed_are_making_by_step(void **state)
{
    (void)state;
    mh_facts facts = slow_run(2, 64);
    mh_plan_whatif_options options = asked();
    static const double steps[] = {40e-3, 20e-3, 10e-3, 5e-3, 2.5e-3};
    for (size_t at = 0; at < sizeof steps / sizeof *steps; at++) {
        options.step_s = steps[at];
        mh_plan_whatif plan = plan_of(&facts, &options);
        assert_true(plan.enough);
        assert_true(plan.needed.wait_share <= MH_WHATIF_WAIT);
        assert_int_equal(plan.needed.workers, (int)(40e-3 / steps[at] + 0.5));
        near(plan.needed.step_s, steps[at], 0.001);
        near(plan.needed.read_bytes_per_s, 1000 / steps[at], 0.03);
        near(plan.needed.cpus_busy, 10e-3 / steps[at], 0.03);
    }
    free(planted_batches(&facts));
}

static void a_slow_step_needs_no_worker(void **state)
{
    (void)state;
    mh_facts facts = slow_run(2, 8);
    mh_plan_whatif_options options = asked();
    options.step_s = 4; /* 1 % of it is waiting without any */
    mh_plan_whatif plan = plan_of(&facts, &options);
    assert_int_equal(plan.needed.workers, 0);
    assert_true(plan.enough);
    free(planted_batches(&facts));
}

/* Two CPUs make a batch in 5 ms at most, whoever asks: four accelerators get one each 20 ms. */
static void accelerators_share_the_cpus(void **state)
{
    (void)state;
    mh_facts facts = slow_run(2, 2);
    mh_plan_whatif_options options = asked();
    options.gpus = 4;
    mh_plan_whatif plan = plan_of(&facts, &options);
    assert_false(plan.enough); /* of as many workers as are worth their memory */
    near(plan.needed.samples_per_s, 8 / 5e-3, 0.1);
    near(plan.needed.cpus_busy, 2, 0.1);
    options.cpus = 8; /* room for 4 x 10 ms each 10 ms */
    plan = plan_of(&facts, &options);
    assert_true(plan.enough);
    assert_int_equal(plan.cpus, 8);
    near(plan.needed.samples_per_s, 4 * 8 / 10e-3, 0.03);
    free(planted_batches(&facts));
}

/* On one CPU that a thread of another process wants all the time, 10 ms of work take 20. */
static void other_processes_count_on(void **state)
{
    (void)state;
    mh_facts facts = planted_run(400, 1, 1, 1 * MS);
    for (size_t at = 0; at < facts.batch_count; at++) {
        mh_batch_cost *batch = &planted_batches(&facts)[at];
        batch->fetch = 20 * MS;
        batch->fetch_cpu = batch->fetch_delay = 10 * MS;
    }
    (void)planted_waits(&facts);
    mh_plan_whatif_options options = asked();
    mh_plan_whatif plan = plan_of(&facts, &options);
    near(plan.others, 1, 0.05);
    near(plan.asked.samples_per_s, 8 / 20e-3, 0.05);
    assert_true(plan.replay_off < 0.05);
    options.cpus = 1;
    plan = plan_of(&facts, &options);
    near(plan.others, 0, 0);
    near(plan.asked.samples_per_s, 8 / 10e-3, 0.05);
    free(planted_batches(&facts));
}

static mh_verdict verdict_of(const mh_facts *facts)
{
    mh_verdict verdict;
    mh_verdict_init(&verdict);
    assert_int_equal(mh_verdict_make(&verdict, facts, NULL), MH_OK);
    return verdict;
}

/* A loop without workers on two CPUs that others keep busy: more workers would only take the
 * others' share of them. */
static void the_doctor_gives_the_same_answer(void **state)
{
    (void)state;
    mh_facts facts = planted_run(300, 0, 2, 30 * MS);
    for (size_t at = 0; at < facts.batch_count; at++) {
        mh_batch_cost *batch = &planted_batches(&facts)[at];
        batch->fetch = 80 * MS;
        batch->fetch_cpu = 40 * MS;
        batch->fetch_delay = 40 * MS;
        batch->wait_cpu = batch->fetch_cpu;
        batch->wait_delay = batch->fetch_delay;
    }
    (void)planted_waits(&facts);
    facts.usage.wall_ns = 30000 * MS;
    facts.usage.machine_cpus = 2;
    facts.usage.busy_cpus = 2;
    facts.usage.loader_cpus = 0.4;
    mh_plan_whatif_options options = asked();
    mh_plan_whatif plan = plan_of(&facts, &options);
    assert_true(plan.others > 1);
    assert_int_equal(verdict_of(&facts).fix_settings.workers, 1);
    assert_int_equal(plan.needed.workers, 1);
    free(planted_batches(&facts));
}

static void the_doctor_gives_the_same_answer_everywhere(void **state)
{
    (void)state;
    uint64_t seed = 19;
    int advised = 0;
    for (int round = 0; round < 200; round++) {
        int workers = (int)(planted_next(&seed) % 3), cpus = 1 + (int)(planted_next(&seed) % 8);
        mh_facts facts = planted_run(400, workers, cpus, 10 * MS);
        double cpu = planted_between(&seed, 1e6, 60e6), blocked = planted_between(&seed, 0, 60e6);
        for (size_t at = 0; at < facts.batch_count; at++) {
            mh_batch_cost *batch = &planted_batches(&facts)[at];
            batch->fetch_cpu = (uint64_t)planted_between(&seed, 0.5 * cpu, 1.5 * cpu);
            batch->fetch = batch->fetch_cpu + (uint64_t)blocked;
        }
        (void)planted_waits(&facts);
        mh_plan_whatif_options options = asked();
        int needed = plan_of(&facts, &options).needed.workers;
        int fix = verdict_of(&facts).fix_settings.workers;
        advised += fix >= 0;
        if (fix >= 0 && fix != needed)
            fail_msg("round %d: the doctor says %d workers, the plan %d", round, fix, needed);
        free(planted_batches(&facts));
    }
    assert_true(advised > 50);
}

static void batches_grow(void **state)
{
    (void)state;
    mh_facts facts = slow_run(4, 64);
    mh_plan_whatif_options options = asked();
    options.batch_size = 16;
    mh_plan_whatif plan = plan_of(&facts, &options); /* 80 ms to make, a step of 20 ms */
    near(plan.asked.step_s, 20e-3, 0.001);
    near(plan.asked.batch_size, 16, 0);
    assert_int_equal(plan.needed.workers, 4);
    options.step_s = 10e-3;
    assert_int_equal(plan_of(&facts, &options).needed.workers, 8);
    free(planted_batches(&facts));
}

/* One batch of fifty takes as long as fifteen steps: there must be enough ahead of it. */
static void uneven_batches_need_prefetch(void **state)
{
    (void)state;
    mh_facts facts = planted_run(1000, 4, 64, 10 * MS);
    for (size_t at = 0; at < facts.batch_count; at++)
        planted_batches(&facts)[at].fetch = at % 50 ? 5 * MS : 150 * MS;
    (void)planted_waits(&facts);
    mh_plan_whatif_options options = asked();
    mh_plan_whatif plan = plan_of(&facts, &options);
    assert_true(plan.enough);
    /* all that is ahead has to last for a long one */
    assert_true(plan.needed.workers * plan.needed.prefetch >= 14);
    options.prefetch = 1;
    assert_int_equal(plan_of(&facts, &options).needed.prefetch, 1);
    free(planted_batches(&facts));
}

static void memory_is_that_of_plan_memory(void **state)
{
    (void)state;
    mh_facts facts = slow_run(2, 64);
    mh_plan_whatif_options options = asked();
    options.gpus = 2;
    options.workers = 5;
    options.batch_bytes = 100;
    mh_plan_whatif plan = plan_of(&facts, &options);
    assert_int_equal(plan.asked.memory_bytes, (5 * 2 + 3) * 100 * 2);
    near(plan.asked.delivered_bytes_per_s, 2 * 100 / 10e-3, 0.03);
    options.batch_bytes = 0;
    assert_int_equal(plan_of(&facts, &options).asked.memory_bytes, 0);
    facts.batch_bytes = 1000; /* the run tells it, of its own batch size */
    options.batch_size = facts.batch_size * 3;
    plan = plan_of(&facts, &options);
    assert_int_equal(plan.measured.memory_bytes, (2 * 2 + 3) * 1000);
    assert_int_equal(plan.asked.memory_bytes, (5 * 2 + 3) * 3000 * 2);
    free(planted_batches(&facts));
}

/* What is asked for is what a replay of a long run gives. */
static void points_are_replays(void **state)
{
    (void)state;
    uint64_t seed = 20260416;
    for (int round = 0; round < 20; round++) {
        int workers = 1 + (int)(planted_next(&seed) % 6);
        mh_facts facts = planted_run(3000, workers, 4, 10 * MS);
        for (size_t at = 0; at < facts.batch_count; at++) {
            mh_batch_cost *batch = &planted_batches(&facts)[at];
            batch->fetch_cpu = (uint64_t)planted_between(&seed, 1e6, 30e6);
            batch->fetch = batch->fetch_cpu + (uint64_t)planted_between(&seed, 0, 30e6);
        }
        (void)planted_waits(&facts);
        mh_plan_whatif_options options = asked();
        options.workers = 1 + (int)(planted_next(&seed) % 6);
        options.prefetch = 1 + (int)(planted_next(&seed) % 4);
        mh_replay_options again;
        mh_replay_result result;
        mh_replay_options_init(&again, &facts);
        again.workers = options.workers;
        again.prefetch = options.prefetch;
        assert_int_equal(mh_replay(&result, &facts, &again, NULL), MH_OK);
        mh_plan_whatif plan = plan_of(&facts, &options);
        near(plan.asked.samples_per_s,
             8.0 * 3000 / ((double)(result.wait_ns + result.step_ns) * 1e-9), 0.01);
        free(planted_batches(&facts));
    }
}

static void refuses(const mh_facts *facts, mh_plan_whatif_options options, mh_status status,
                    const char *why)
{
    mh_plan_whatif plan = {.cpus = 77};
    mh_error err = {0};
    assert_int_equal(mh_plan_whatif_make(&plan, facts, &options, &err), status);
    if (!strstr(err.message, why))
        fail_msg("'%s' does not say '%s'", err.message, why);
    assert_int_equal(plan.cpus, 77);
}

static void what_cannot_be_told_is_refused(void **state)
{
    (void)state;
    mh_facts facts = slow_run(2, 2), none = facts;
    mh_plan_whatif_options options = asked();
    options.gpus = 0;
    refuses(&facts, options, MH_ERR_INVALID, "accelerators");
    options = asked();
    options.step_s = -1;
    refuses(&facts, options, MH_ERR_INVALID, "a step");
    options.step_s = NAN;
    refuses(&facts, options, MH_ERR_INVALID, "a step");
    options = asked();
    options.batch_bytes = UINT64_MAX / 2;
    refuses(&facts, options, MH_ERR_INVALID, "64 bits");
    options = asked();
    options.struct_size--;
    refuses(&facts, options, MH_ERR_INVALID, "mh_plan_whatif_options_init");
    none.batch_count = 0;
    refuses(&none, asked(), MH_ERR_UNSUPPORTED, "no batch");
    for (size_t at = 0; at < facts.batch_count; at++)
        planted_batches(&facts)[at].fetch = MH_NOT_MEASURED;
    refuses(&facts, asked(), MH_ERR_UNSUPPORTED, "only how long the loop waited");
    free(planted_batches(&facts));
}

static void plan_once(void *facts)
{
    mh_plan_whatif plan;
    mh_plan_whatif_options options = asked();
    mh_status status = mh_plan_whatif_make(&plan, facts, &options, NULL);
    assert_true(status == MH_OK || status == MH_ERR_NOMEM);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    mh_facts facts = slow_run(2, 2);
    each_allocation_fails(plan_once, &facts);
    free(planted_batches(&facts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_is_what_was_measured),
        cmocka_unit_test(workers_needed_are_making_by_step),
        cmocka_unit_test(a_slow_step_needs_no_worker),
        cmocka_unit_test(accelerators_share_the_cpus),
        cmocka_unit_test(other_processes_count_on),
        cmocka_unit_test(the_doctor_gives_the_same_answer),
        cmocka_unit_test(the_doctor_gives_the_same_answer_everywhere),
        cmocka_unit_test(batches_grow),
        cmocka_unit_test(uneven_batches_need_prefetch),
        cmocka_unit_test(memory_is_that_of_plan_memory),
        cmocka_unit_test(points_are_replays),
        cmocka_unit_test(what_cannot_be_told_is_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
