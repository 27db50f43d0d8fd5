/* test_choice.c - subsets and weights: what is chosen, and what is refused
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/choice.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>

static void all_samples_are_themselves(void **state)
{
    (void)state;
    mh_choice choice;
    assert_int_equal(mh_choice_init(&choice, 5, NULL, 0, NULL, 0, NULL), MH_OK);
    assert_int_equal(choice.count, 5);
    for (uint64_t place = 0; place < 5; place++)
        assert_int_equal(mh_choice_at(&choice, 1, 2, place, 0), place);
    mh_choice_deinit(&choice);
}

static void a_subset_is_copied_and_may_repeat(void **state)
{
    (void)state;
    uint64_t subset[] = {4, 0, 4};
    mh_choice choice;
    assert_int_equal(mh_choice_init(&choice, 5, subset, 3, NULL, 0, NULL), MH_OK);
    subset[0] = 99;
    assert_int_equal(choice.count, 3);
    assert_int_equal(mh_choice_at(&choice, 0, 0, 0, 0), 4);
    assert_int_equal(mh_choice_at(&choice, 0, 0, 1, 0), 0);
    assert_int_equal(mh_choice_at(&choice, 0, 0, 2, 0), 4);
    mh_choice_deinit(&choice);
}

/* The first, the last and one in the middle have no weight; the rest come in proportion. */
static void draws_follow_the_weights(void **state)
{
    (void)state;
    const double weights[] = {0, 1, 0, 3, 0};
    const uint64_t subset[] = {10, 11, 12, 13, 14};
    uint64_t drawn[15] = {0};
    mh_choice choice;
    assert_int_equal(mh_choice_init(&choice, 20, subset, 5, weights, 5, NULL), MH_OK);
    assert_true(mh_choice_draws(&choice));
    for (uint64_t epoch = 0; epoch < 2000; epoch++)
        for (uint64_t place = 0; place < 5; place++)
            drawn[mh_choice_at(&choice, 7, epoch, place, 0)]++;
    assert_int_equal(drawn[10] + drawn[12] + drawn[14], 0);
    assert_int_equal(drawn[11] + drawn[13], 10000);
    assert_true(drawn[11] > 2300 && drawn[11] < 2700); /* 2500 wanted, five times the deviation */
    mh_choice_deinit(&choice);
}

/* Weights that vanish beside the first one: each draw must still be of one that has weight. */
static void rounding_never_leaves_the_weights(void **state)
{
    (void)state;
    const double weights[] = {1e300, 1e-300, 0, 0};
    mh_choice choice;
    assert_int_equal(mh_choice_init(&choice, 4, NULL, 0, weights, 4, NULL), MH_OK);
    for (uint64_t place = 0; place < 1000; place++)
        assert_int_equal(mh_choice_at(&choice, 3, 0, place % 4, (uint32_t)place), 0);
    mh_choice_deinit(&choice);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    const uint64_t beyond[] = {0, 5};
    const double negative[] = {1, -1}, missing[] = {NAN, 1}, none[] = {0, 0},
                 huge[] = {1e308, 1e308};
    uint64_t live = mh_alloc_live();
    mh_choice choice;
    mh_error err;
    assert_int_equal(mh_choice_init(&choice, 5, beyond, 2, NULL, 0, &err), MH_ERR_INVALID);
    assert_string_equal(err.message, "the subset has number 5, and there are 5");
    assert_int_equal(mh_choice_init(&choice, 5, beyond, 0, NULL, 0, NULL), MH_ERR_INVALID);
    const double *const bad[] = {negative, missing, none, huge};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mh_choice_init(&choice, 2, NULL, 0, bad[i], 2, NULL), MH_ERR_INVALID);
    assert_int_equal(mh_choice_init(&choice, 3, NULL, 0, negative, 2, &err), MH_ERR_INVALID);
    assert_string_equal(err.message, "2 weights for 3 samples");
    assert_int_equal(mh_alloc_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_samples_are_themselves),
        cmocka_unit_test(a_subset_is_copied_and_may_repeat),
        cmocka_unit_test(draws_follow_the_weights),
        cmocka_unit_test(rounding_never_leaves_the_weights),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
