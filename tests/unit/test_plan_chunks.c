/* test_plan_chunks.c - chunks a sample touches, against counting them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"
#include <millhead/plan.h>

static mh_plan_chunks plan_of(const uint64_t *sample, const uint64_t *chunk, size_t dimensions,
                              uint64_t item)
{
    mh_plan_chunks plan;
    assert_int_equal(mh_plan_chunks_make(&plan, sample, chunk, dimensions, item, NULL), MH_OK);
    return plan;
}

/* Every place a sample can begin at, along one dimension. */
static void one_dimension_is_counted(void **state)
{
    (void)state;
    for (uint64_t size = 1; size <= 40; size++) {
        for (uint64_t edge = 1; edge <= 45; edge++) {
            uint64_t least = UINT64_MAX, most = 0;
            for (uint64_t begin = 0; begin < edge; begin++) {
                uint64_t touched = (begin + size - 1) / edge + 1;
                least = touched < least ? touched : least;
                most = touched > most ? touched : most;
            }
            mh_plan_chunks plan = plan_of(&size, &edge, 1, 3);
            assert_int_equal(plan.min_chunks, least);
            assert_int_equal(plan.max_chunks, most);
            assert_int_equal(plan.min_bytes, least * edge * 3);
            assert_int_equal(plan.max_bytes, most * edge * 3);
        }
    }
}

static void dimensions_multiply(void **state)
{
    (void)state;
    const uint64_t sample[] = {5, 64, 1}, chunk[] = {2, 64, 7};
    mh_plan_chunks plan = plan_of(sample, chunk, 3, 2);
    assert_int_equal(plan.min_chunks, 3 * 1 * 1);
    assert_int_equal(plan.max_chunks, 3 * 2 * 1);
    assert_int_equal(plan.min_bytes, UINT64_C(3) * 2 * 64 * 7 * 2);
    assert_int_equal(plan.max_bytes, UINT64_C(6) * 2 * 64 * 7 * 2);
}

static void the_largest_numbers(void **state)
{
    (void)state;
    const uint64_t all = UINT64_MAX, one = 1;
    mh_plan_chunks plan = plan_of(&all, &one, 1, 1);
    assert_true(plan.max_chunks == UINT64_MAX && plan.max_bytes == UINT64_MAX);
    plan = plan_of(&one, &all, 1, 1);
    assert_true(plan.max_chunks == 1 && plan.max_bytes == UINT64_MAX);
}

static void refuses(const uint64_t *sample, const uint64_t *chunk, size_t dimensions, uint64_t item,
                    const char *why)
{
    mh_plan_chunks plan = {.min_chunks = 77};
    mh_error err = {0};
    assert_int_equal(mh_plan_chunks_make(&plan, sample, chunk, dimensions, item, &err),
                     MH_ERR_INVALID);
    if (!strstr(err.message, why))
        fail_msg("'%s' does not say '%s'", err.message, why);
    assert_int_equal(plan.min_chunks, 77);
}

static void bad_shapes_are_named(void **state)
{
    (void)state;
    const uint64_t shape[] = {8, 8}, nothing[] = {8, 0}, huge[] = {UINT64_C(1) << 40, 1 << 25};
    const uint64_t ones[] = {1, 1};
    refuses(NULL, shape, 2, 1, "two shapes");
    refuses(shape, shape, 0, 1, "0 dimensions");
    refuses(shape, shape, MH_PLAN_DIMENSIONS + 1, 1, "dimensions");
    refuses(shape, shape, 2, 0, "0 bytes");
    refuses(nothing, shape, 2, 1, "the sample has size 0 in dimension 1");
    refuses(shape, nothing, 2, 1, "the chunk has size 0 in dimension 1");
    refuses(shape, huge, 2, 1, "bytes in a chunk");
    refuses(huge, ones, 2, 1, "number of chunks");
    refuses(huge, shape, 2, 1 << 10, "number of bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_dimension_is_counted),
        cmocka_unit_test(dimensions_multiply),
        cmocka_unit_test(the_largest_numbers),
        cmocka_unit_test(bad_shapes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
