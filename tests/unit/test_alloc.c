/* test_alloc.c - the allocation seam
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

static void memory_is_zeroed_and_counted(void **state)
{
    (void)state;
    uint64_t before = mh_alloc_live();
    unsigned char *block = mh_calloc(100, 3);
    assert_non_null(block);
    for (int at = 0; at < 300; at++)
        assert_int_equal(block[at], 0);
    assert_int_equal(mh_alloc_live(), before + 1);
    mh_free(block);
    mh_free(NULL);
    assert_int_equal(mh_alloc_live(), before);
}

static void an_empty_request_gives_a_block(void **state)
{
    (void)state;
    uint64_t before = mh_alloc_live();
    void *one = mh_calloc(0, 8);
    void *two = mh_realloc(NULL, 8, 0);
    assert_non_null(one);
    assert_non_null(two);
    void *shrunk = mh_realloc(two, 0, 0);
    assert_non_null(shrunk);
    mh_free(one);
    mh_free(shrunk);
    assert_int_equal(mh_alloc_live(), before);
}

static void an_overflow_is_refused(void **state)
{
    (void)state;
    uint64_t before = mh_alloc_live();
    assert_null(mh_calloc(SIZE_MAX / 2, 3));
    char *block = mh_realloc(NULL, 10, 1);
    assert_non_null(block);
    strcpy(block, "kept");
    assert_null(mh_realloc(block, SIZE_MAX, 2));
    assert_string_equal(block, "kept");
    mh_free(block);
    assert_int_equal(mh_alloc_live(), before);
}

static void growing_keeps_contents(void **state)
{
    (void)state;
    uint64_t before = mh_alloc_live();
    char *block = mh_realloc(NULL, 8, 1);
    assert_non_null(block);
    strcpy(block, "content");
    char *grown = mh_realloc(block, 100000, 1);
    assert_non_null(grown);
    assert_string_equal(grown, "content");
    assert_int_equal(mh_alloc_live(), before + 1);
    mh_free(grown);
    assert_int_equal(mh_alloc_live(), before);
}

/* Which of five allocations come back, as bits. */
static unsigned pattern(void)
{
    unsigned bits = 0;
    for (int at = 0; at < 5; at++) {
        void *block = at % 2 ? mh_realloc(NULL, 8, 1) : mh_calloc(1, 8);
        bits |= (block ? 1u : 0u) << at;
        mh_free(block);
    }
    return bits;
}

static void the_chosen_one_fails(void **state)
{
    (void)state;
    (void)mh_alloc_fail_at(0, 0);
    assert_int_equal(pattern(), 0x1f);
    assert_int_equal(mh_alloc_fail_at(3, 0), 5);
    assert_int_equal(pattern(), 0x1b);
    assert_int_equal(mh_alloc_fail_at(2, 1), 5);
    assert_int_equal(pattern(), 0x01);
    assert_int_equal(mh_alloc_fail_at(0, 1), 5);
    assert_int_equal(pattern(), 0x1f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_counted),
        cmocka_unit_test(an_empty_request_gives_a_block),
        cmocka_unit_test(an_overflow_is_refused),
        cmocka_unit_test(growing_keeps_contents),
        cmocka_unit_test(the_chosen_one_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
