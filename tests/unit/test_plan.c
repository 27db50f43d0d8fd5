/* test_plan.c - CPUs between training processes and workers
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/cpu.h"
#include "unit.h"
#include <limits.h>
#include <millhead/plan.h>

static mh_plan_cpus plan_of(int cpus, int gpus, int ranks)
{
    mh_plan_cpus plan;
    mh_plan_cpus_options options;
    mh_plan_cpus_options_init(&options);
    options.cpus = cpus;
    options.gpus = gpus;
    options.ranks = ranks;
    assert_int_equal(mh_plan_cpus_make(&plan, &options, NULL), MH_OK);
    return plan;
}

static void the_table(void **state)
{
    (void)state;
    static const struct {
        int cpus, gpus, ranks, shown, reserved, each, total;
    } rows[] = {
        {20, 1, 0, 1, 2, 18, 18},   {60, 3, 0, 3, 6, 18, 54}, {160, 8, 0, 8, 16, 18, 144},
        {4, 1, 0, 1, 2, 2, 2},      {3, 1, 0, 1, 1, 2, 2},    {2, 1, 0, 1, 1, 1, 1},
        {1, 1, 0, 1, 1, 1, 1},      {8, 0, 0, 1, 2, 6, 6},    {8, 2, 0, 2, 4, 2, 4},
        {7, 2, 0, 2, 2, 2, 4},      {2, 4, 0, 4, 4, 1, 4},    {61, 3, 0, 3, 6, 18, 54},
        {20, 1, 1, 1, 2, 18, 18},   {20, 1, 2, 2, 4, 16, 16}, {64, 2, 4, 4, 8, 28, 56},
        {8, 2, 5, 5, 5, 3, 6},      {16, 0, 4, 4, 8, 8, 8},   {160, 8, 1, 1, 16, 18, 144},
        {1, 1, 10, 10, 10, 10, 10},
    };
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        mh_plan_cpus plan = plan_of(rows[at].cpus, rows[at].gpus, rows[at].ranks);
        assert_int_equal(plan.cpus, rows[at].cpus);
        assert_int_equal(plan.gpus, rows[at].gpus);
        assert_int_equal(plan.ranks, rows[at].shown);
        assert_int_equal(plan.reserved, rows[at].reserved);
        assert_int_equal(plan.workers_per_gpu, rows[at].each);
        assert_int_equal(plan.total, rows[at].total);
    }
}

static void every_plan_adds_up(void **state)
{
    (void)state;
    for (int cpus = 1; cpus <= 200; cpus++) {
        for (int gpus = 0; gpus <= 16; gpus++) {
            for (int ranks = 0; ranks <= 20; ranks++) {
                mh_plan_cpus plan = plan_of(cpus, gpus, ranks);
                int shares = gpus ? gpus : 1;
                assert_true(plan.workers_per_gpu >= 1);
                assert_int_equal(plan.total, plan.workers_per_gpu * shares);
                assert_true(plan.total >= plan.ranks);
                /* more than the machine has only where the minimum asks for it */
                assert_true(plan.total + plan.reserved <= cpus ||
                            plan.workers_per_gpu == (plan.ranks + shares - 1) / shares);
            }
        }
    }
}

static void the_largest_numbers_do_not_overflow(void **state)
{
    (void)state;
    mh_plan_cpus plan = plan_of(MH_PLAN_MOST, MH_PLAN_MOST, MH_PLAN_MOST);
    assert_int_equal(plan.total, MH_PLAN_MOST);
    plan = plan_of(1, MH_PLAN_MOST - 1, MH_PLAN_MOST);
    assert_int_equal(plan.total, 2 * (MH_PLAN_MOST - 1));
}

static void without_cpus_it_is_this_process(void **state)
{
    (void)state;
    assert_int_equal(plan_of(0, 1, 0).cpus, mh_cpu_allowed(""));
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    static const int bad[] = {-1, INT_MIN, MH_PLAN_MOST + 1, INT_MAX};
    mh_plan_cpus plan = {.total = 77};
    mh_plan_cpus_options options;
    mh_error err;
    for (size_t at = 0; at < sizeof bad / sizeof *bad; at++) {
        for (int field = 0; field < 3; field++) {
            mh_plan_cpus_options_init(&options);
            *(field == 0 ? &options.cpus : field == 1 ? &options.gpus : &options.ranks) = bad[at];
            assert_int_equal(mh_plan_cpus_make(&plan, &options, &err), MH_ERR_INVALID);
            assert_non_null(strstr(err.message, "must be 0 to 1000000"));
        }
    }
    mh_plan_cpus_options_init(&options);
    options.struct_size--;
    assert_int_equal(mh_plan_cpus_make(&plan, &options, &err), MH_ERR_INVALID);
    assert_int_equal(mh_plan_cpus_make(&plan, NULL, &err), MH_ERR_INVALID);
    assert_int_equal(mh_plan_cpus_make(NULL, &options, NULL), MH_ERR_INVALID);
    assert_int_equal(plan.total, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(every_plan_adds_up),
        cmocka_unit_test(the_largest_numbers_do_not_overflow),
        cmocka_unit_test(without_cpus_it_is_this_process),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
