/* test_randperm.c - torch's shuffle (test_order.py compares it with torch itself)
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/mersenne.h"
#include "order/randperm.h"
#include "unit.h"

static mh_randperm *new_perm(uint64_t count, uint64_t seed, mh_randperm_way way)
{
    mh_randperm *perm = NULL;
    assert_int_equal(mh_randperm_new_in_way(&perm, count, seed, way, NULL), MH_OK);
    return perm;
}

/* torch.randperm(10, generator=torch.Generator().manual_seed(0)) of torch 2.13 */
static void ten_samples_are_torchs(void **state)
{
    (void)state;
    static const uint64_t torchs[] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    mh_randperm *perm = new_perm(10, 0, MH_RANDPERM_SMALL);
    for (int position = 0; position < 10; position++)
        assert_int_equal(mh_randperm_at(perm, (uint64_t)position), torchs[position]);
    mh_randperm_free(perm);
}

static void every_count_is_a_permutation_in_both_ways(void **state)
{
    (void)state;
    uint8_t seen[300];
    for (uint64_t count = 0; count < 300; count++) {
        for (int way = MH_RANDPERM_SMALL; way <= MH_RANDPERM_LARGE; way++) {
            mh_randperm *perm = new_perm(count, count + 7, (mh_randperm_way)way);
            memset(seen, 0, sizeof seen);
            for (uint64_t position = 0; position < count; position++) {
                uint64_t value = mh_randperm_at(perm, position);
                assert_true(value < count);
                assert_int_equal(seen[value]++, 0);
            }
            mh_randperm_free(perm);
        }
    }
}

/* The large way as plainly as it can be written. */
static void the_large_way_grows_the_order(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static uint32_t plain[COUNT];
    static mh_mersenne random;
    mh_mersenne_seed(&random, 77);
    for (uint32_t at = 0; at < COUNT; at++) {
        uint64_t place = mh_mersenne_next64(&random) % (at + 1);
        plain[at] = plain[place];
        plain[place] = at;
    }
    mh_randperm *perm = new_perm(COUNT, 77, MH_RANDPERM_LARGE);
    for (uint64_t position = 0; position < COUNT; position++)
        assert_int_equal(mh_randperm_at(perm, position), plain[position]);
    mh_randperm_free(perm);
}

static void positions_may_be_asked_in_any_order(void **state)
{
    (void)state;
    mh_randperm *forward = new_perm(500, 3, MH_RANDPERM_SMALL);
    mh_randperm *backward = new_perm(500, 3, MH_RANDPERM_SMALL);
    for (uint64_t position = 500; position-- > 0;)
        assert_true(mh_randperm_at(backward, position) < 500);
    for (uint64_t position = 0; position < 500; position++)
        assert_int_equal(mh_randperm_at(forward, position), mh_randperm_at(backward, position));
    mh_randperm_free(forward);
    mh_randperm_free(backward);
}

static void only_what_is_needed_is_drawn(void **state)
{
    (void)state;
    mh_randperm *small = new_perm(1000, 1, MH_RANDPERM_SMALL);
    assert_false(mh_randperm_draw(small, 99, 99));
    assert_true(mh_randperm_draw(small, 99, 1));
    assert_true(mh_randperm_draw(small, 50, 0));
    assert_false(mh_randperm_draw(small, 999, 899));
    assert_true(mh_randperm_draw(small, 999, 1));
    mh_randperm_free(small);
    mh_randperm *large = new_perm(1000, 1, MH_RANDPERM_LARGE);
    assert_false(mh_randperm_draw(large, 0, 999));
    assert_true(mh_randperm_draw(large, 0, 1));
    mh_randperm_free(large);
}

/* 0.9 GB that are asked for and hardly touched. */
static void the_way_changes_where_torchs_does(void **state)
{
    (void)state;
    mh_randperm *perm = NULL;
    assert_int_equal(mh_randperm_new(&perm, MH_RANDPERM_LARGE_FROM - 1, 77, NULL), MH_OK);
    assert_int_equal(mh_randperm_at(perm, 0), 82072721); /* torch 2.13's */
    assert_int_equal(mh_randperm_at(perm, 3), 14503519);
    mh_randperm_free(perm);
    assert_int_equal(mh_randperm_new(&perm, MH_RANDPERM_LARGE_FROM, 77, NULL), MH_OK);
    assert_false(mh_randperm_draw(perm, 0, 1000));
    mh_randperm_free(perm);
}

static void only_the_lower_half_of_the_seed_counts(void **state)
{
    (void)state;
    mh_randperm *one = new_perm(100, 5, MH_RANDPERM_SMALL);
    mh_randperm *other = new_perm(100, 5 | UINT64_C(9) << 32, MH_RANDPERM_SMALL);
    for (uint64_t position = 0; position < 100; position++)
        assert_int_equal(mh_randperm_at(one, position), mh_randperm_at(other, position));
    mh_randperm_free(one);
    mh_randperm_free(other);
}

static void too_many_are_refused(void **state)
{
    (void)state;
    mh_randperm *perm = NULL;
    mh_error err;
    assert_int_equal(mh_randperm_new(&perm, MH_RANDPERM_MOST + 1, 0, &err), MH_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "4294967297 samples"));
    assert_null(perm);
    mh_randperm_free(NULL);
}

static void make_and_use(void *unused)
{
    (void)unused;
    mh_randperm *perm = NULL;
    mh_error err;
    mh_status status = mh_randperm_new(&perm, 100, 1, &err);
    if (status == MH_OK)
        assert_true(mh_randperm_at(perm, 99) < 100);
    else
        assert_int_equal(status, MH_ERR_NOMEM);
    mh_randperm_free(perm);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    each_allocation_fails(make_and_use, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_samples_are_torchs),
        cmocka_unit_test(every_count_is_a_permutation_in_both_ways),
        cmocka_unit_test(the_large_way_grows_the_order),
        cmocka_unit_test(positions_may_be_asked_in_any_order),
        cmocka_unit_test(only_what_is_needed_is_drawn),
        cmocka_unit_test(the_way_changes_where_torchs_does),
        cmocka_unit_test(only_the_lower_half_of_the_seed_counts),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
