/* test_plan_threads.c - threads of workers, pools and clusters, and the advice
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"
#include <limits.h>
#include <millhead/plan.h>

static mh_plan_threads_options options_of(int cpus, int ranks, int workers, mh_plan_mode mode)
{
    mh_plan_threads_options options;
    mh_plan_threads_options_init(&options);
    options.cpus = cpus;
    options.ranks = ranks;
    options.workers = workers;
    options.mode = mode;
    return options;
}

static mh_plan_threads plan_of(const mh_plan_threads_options *options)
{
    mh_plan_threads plan;
    assert_int_equal(mh_plan_threads_make(&plan, options, NULL), MH_OK);
    return plan;
}

static void threads_multiply(void **state)
{
    (void)state;
    mh_plan_threads_options options = options_of(20, 8, 0, MH_PLAN_THREADS);
    options.threads = 4;
    mh_plan_threads plan = plan_of(&options);
    assert_int_equal(plan.total, 32);
    assert_true(plan.crowded && !plan.nested);
    options.ranks = 1;
    options.workers = 8;
    plan = plan_of(&options);
    assert_int_equal(plan.total, 32);
    assert_true(plan.crowded && plan.nested);
    assert_int_equal(plan.most_workers, 4); /* 4 x 4 beside 2 reserved */
    options.mode = MH_PLAN_SINGLE;
    plan = plan_of(&options);
    assert_int_equal(plan.total, 8);
    assert_true(!plan.crowded && !plan.nested);
    assert_int_equal(plan.threads, 1);
}

static void clusters_come_on_top_of_workers(void **state)
{
    (void)state;
    mh_plan_threads_options options = options_of(10, 1, 8, MH_PLAN_CLUSTER);
    options.cluster_workers = 5;
    options.threads = 1;
    mh_plan_threads plan = plan_of(&options);
    assert_int_equal(plan.total, 13);
    assert_int_equal(plan.most_workers, 3);
    assert_true(plan.crowded && plan.nested);
    options.ranks = 3;
    assert_int_equal(plan_of(&options).streaming, 15);
    options.shared = 1;
    assert_int_equal(plan_of(&options).streaming, 5);
    options.workers = 0; /* who waits for a cluster wants no CPU */
    assert_int_equal(plan_of(&options).total, 5);
}

static void one_gpu_with_twenty_cpus(void **state)
{
    (void)state;
    mh_plan_threads_options options = options_of(20, 1, 0, MH_PLAN_SINGLE);
    mh_plan_threads_advice advice = plan_of(&options).advice;
    assert_int_equal(advice.threads_least, 4);
    assert_int_equal(advice.threads_most, 8);
    assert_int_equal(advice.cluster_workers, 2);
    assert_int_equal(advice.cluster_threads, 4);
}

static void eight_gpus_with_twenty_cpus(void **state)
{
    (void)state;
    mh_plan_threads_options options = options_of(20, 8, 0, MH_PLAN_CLUSTER);
    mh_plan_threads plan = plan_of(&options);
    assert_int_equal(plan.advice.cluster_workers, 1);
    assert_int_equal(plan.advice.cluster_threads, 2);
    assert_int_equal(plan.total, 16);
    options.shared = 1;
    plan = plan_of(&options);
    assert_int_equal(plan.cluster_workers, 3);
    assert_int_equal(plan.threads, 4);
    assert_int_equal(plan.total, 12);
}

/* What is advised fits wherever every rank has a CPU. */
static void advice_is_never_crowded(void **state)
{
    (void)state;
    for (int cpus = 1; cpus <= 128; cpus++) {
        for (int ranks = 1; ranks <= cpus && ranks <= 16; ranks++) {
            for (int shared = 0; shared <= 1; shared++) {
                mh_plan_threads_options options = options_of(cpus, ranks, 0, MH_PLAN_CLUSTER);
                options.shared = shared;
                assert_false(plan_of(&options).crowded);
                options.mode = MH_PLAN_THREADS;
                options.threads = plan_of(&options).advice.threads_most;
                assert_false(plan_of(&options).crowded);
            }
        }
    }
}

static void most_workers_fit(void **state)
{
    (void)state;
    for (int mode = 0; mode < MH_PLAN_MODE_COUNT; mode++) {
        for (int cpus = 2; cpus <= 64; cpus++) {
            mh_plan_threads_options options = options_of(cpus, 2, 1, (mh_plan_mode)mode);
            options.threads = options.cluster_workers = 2;
            options.workers = plan_of(&options).most_workers;
            mh_plan_threads plan = plan_of(&options);
            if (options.workers)
                assert_true(plan.total + plan.reserved <= plan.cpus);
            options.workers++;
            plan = plan_of(&options);
            assert_true(plan.total + plan.reserved > plan.cpus);
        }
    }
}

static void bad_numbers_are_named(void **state)
{
    (void)state;
    static const struct {
        int cpus, ranks, workers, mode;
        const char *why;
    } rows[] = {
        {-1, 1, 0, 0, "CPUs"},
        {1, 0, 0, 0, "ranks"},
        {1, 1, INT_MAX, 0, "workers"},
        {1, 1, 0, MH_PLAN_MODE_COUNT, "mode"},
    };
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        mh_plan_threads_options options = options_of(rows[at].cpus, rows[at].ranks,
                                                     rows[at].workers, (mh_plan_mode)rows[at].mode);
        mh_plan_threads plan = {.cpus = 77};
        mh_error err = {0};
        assert_int_equal(mh_plan_threads_make(&plan, &options, &err), MH_ERR_INVALID);
        assert_non_null(strstr(err.message, rows[at].why));
        assert_int_equal(plan.cpus, 77);
    }
    mh_plan_threads_options old = options_of(1, 1, 1, MH_PLAN_SINGLE);
    old.struct_size--;
    mh_plan_threads plan;
    assert_int_equal(mh_plan_threads_make(&plan, &old, NULL), MH_ERR_INVALID);
    assert_int_equal(mh_plan_threads_make(NULL, NULL, NULL), MH_ERR_INVALID);
    assert_string_equal(mh_plan_mode_name(MH_PLAN_CLUSTER), "cluster");
    assert_string_equal(mh_plan_mode_name(MH_PLAN_MODE_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_multiply),
        cmocka_unit_test(clusters_come_on_top_of_workers),
        cmocka_unit_test(one_gpu_with_twenty_cpus),
        cmocka_unit_test(eight_gpus_with_twenty_cpus),
        cmocka_unit_test(advice_is_never_crowded),
        cmocka_unit_test(most_workers_fit),
        cmocka_unit_test(bad_numbers_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
