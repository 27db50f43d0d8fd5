/* test_pace.c - when a request is made a second time beside the first
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include "source/pace.h"

#define MS UINT64_C(1000000)

/* 1 000 answers; every `each`th takes `slow_ms`, the others 30 ms. */
static void answer(mh_pace *pace, unsigned each, uint64_t slow_ms)
{
    mh_pace_init(pace, 64, 1);
    pace->begun = 1000;
    for (unsigned i = 0; i < 1000; i++)
        mh_pace_success(pace, (i % each == 0 ? slow_ms : 30) * MS);
}

static void answers_that_are_alike_are_not_asked_for_twice(void **state)
{
    mh_pace pace;
    (void)state;
    answer(&pace, 10, 31);
    assert_false(mh_pace_hedge(&pace, 32 * MS));
    assert_false(mh_pace_hedge(&pace, 44 * MS));
    assert_true(mh_pace_hedge(&pace, 46 * MS));
}

static void one_that_is_later_than_nearly_all_is(void **state)
{
    mh_pace pace;
    (void)state;
    answer(&pace, 10, 200); /* a tenth: 95 % of the answers come within 200 ms */
    assert_false(mh_pace_hedge(&pace, 199 * MS));
    assert_true(mh_pace_hedge(&pace, 201 * MS));
}

static void at_most_one_in_fifty_is(void **state)
{
    mh_pace pace;
    unsigned hedged = 0;
    (void)state;
    answer(&pace, 10, 31);
    for (unsigned i = 0; i < 100; i++)
        hedged += mh_pace_hedge(&pace, 1000 * MS);
    assert_int_equal(hedged, 20);
}

static void none_is_while_the_server_asks_for_less(void **state)
{
    mh_pace pace;
    (void)state;
    answer(&pace, 10, 31);
    mh_pace_throttled(&pace, 1, 2);
    assert_false(mh_pace_hedge(&pace, 1000 * MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_that_are_alike_are_not_asked_for_twice),
        cmocka_unit_test(one_that_is_later_than_nearly_all_is),
        cmocka_unit_test(at_most_one_in_fifty_is),
        cmocka_unit_test(none_is_while_the_server_asks_for_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
