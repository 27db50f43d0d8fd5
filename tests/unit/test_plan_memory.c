/* test_plan_memory.c - what prefetched batches take, and the most that fit
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"
#include <limits.h>
#include <millhead/plan.h>

static mh_plan_memory_options options_of(int workers, int prefetch, int ranks, uint64_t available)
{
    mh_plan_memory_options options;
    mh_plan_memory_options_init(&options);
    options.batch_bytes = 10;
    options.workers = workers;
    options.prefetch = prefetch;
    options.ranks = ranks;
    options.available_bytes = available;
    return options;
}

static mh_plan_memory plan_of(const mh_plan_memory_options *options)
{
    mh_plan_memory plan;
    assert_int_equal(mh_plan_memory_make(&plan, options, NULL), MH_OK);
    return plan;
}

static void batches_are_counted(void **state)
{
    (void)state;
    mh_plan_memory_options options = options_of(4, 2, 3, 1000);
    mh_plan_memory plan = plan_of(&options);
    assert_int_equal(plan.batches, 4 * 2 + 3);
    assert_int_equal(plan.needed_bytes, 11 * 10 * 3);
    assert_int_equal(plan.available_bytes, 1000);
    options.workers = 0;
    plan = plan_of(&options);
    assert_int_equal(plan.batches, 1);
    assert_int_equal(plan.most_prefetch, 0);
}

/* The most of each is the most: it fits, and one more does not. */
static void the_most_is_the_most(void **state)
{
    (void)state;
    for (uint64_t available = 1; available < 900; available += 7) {
        for (int workers = 1; workers <= 6; workers++) {
            mh_plan_memory_options options = options_of(workers, 3, 2, available);
            mh_plan_memory plan = plan_of(&options);
            assert_int_equal(plan.fits, plan.needed_bytes <= available);
            mh_plan_memory_options other = options;
            for (int more = 0; more <= 1; more++) {
                other.prefetch = plan.most_prefetch + more;
                if (other.prefetch)
                    assert_int_equal(plan_of(&other).fits, !more);
                other.prefetch = options.prefetch;
                other.workers = plan.most_workers + more;
                if (other.workers)
                    assert_int_equal(plan_of(&other).fits, !more);
                other.workers = options.workers;
            }
        }
    }
}

static void what_there_is_is_read(void **state)
{
    (void)state;
    mh_plan_memory_options options = options_of(1, 2, 1, 0);
    mh_plan_memory plan = plan_of(&options);
    assert_true(plan.machine_bytes > 0);
    assert_true(plan.available_bytes < plan.machine_bytes);
    assert_true(plan.available_bytes < plan.cgroup_bytes);
    assert_true(plan.fits);
}

static void refuses(mh_plan_memory_options options, const char *why)
{
    mh_plan_memory plan = {.batches = 77};
    mh_error err = {0};
    assert_int_equal(mh_plan_memory_make(&plan, &options, &err), MH_ERR_INVALID);
    if (!strstr(err.message, why))
        fail_msg("'%s' does not say '%s'", err.message, why);
    assert_int_equal(plan.batches, 77);
}

static void bad_numbers_are_named(void **state)
{
    (void)state;
    mh_plan_memory_options none = options_of(1, 1, 1, 1), huge = none, old = none;
    mh_error err = {0};
    none.batch_bytes = 0;
    huge.batch_bytes = UINT64_MAX / 4 + 1; /* of 1 x 1 + 3 batches */
    old.struct_size = 4;
    refuses(none, "0 bytes");
    refuses(huge, "64 bits");
    refuses(old, "mh_plan_memory_options_init");
    refuses(options_of(-1, 1, 1, 1), "workers");
    refuses(options_of(1, 0, 1, 1), "prefetch");
    refuses(options_of(1, 1, 0, 1), "ranks");
    refuses(options_of(INT_MAX, 1, 1, 1), "workers");
    assert_int_equal(mh_plan_memory_make(NULL, &none, &err), MH_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_counted),
        cmocka_unit_test(the_most_is_the_most),
        cmocka_unit_test(what_there_is_is_read),
        cmocka_unit_test(bad_numbers_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
