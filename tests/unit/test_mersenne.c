/* test_mersenne.c - the generator against its published figures
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/mersenne.h"
#include "unit.h"

static mh_mersenne mersenne;

/* The C++ standard asks this of std::mt19937, whose default seed is 5489. */
static void the_ten_thousandth_number_is_the_standards(void **state)
{
    (void)state;
    mh_mersenne_seed(&mersenne, 5489);
    for (int nth = 1; nth < 10000; nth++)
        (void)mh_mersenne_next(&mersenne);
    assert_true(mh_mersenne_next(&mersenne) == UINT32_C(4123659995));
}

static void sixty_four_bits_are_two_draws_the_first_on_top(void **state)
{
    (void)state;
    static mh_mersenne other;
    mh_mersenne_seed(&mersenne, 7);
    mh_mersenne_seed(&other, 7);
    for (int nth = 0; nth < 1000; nth++) {
        uint64_t upper = mh_mersenne_next(&other);
        uint64_t lower = mh_mersenne_next(&other);
        assert_true(mh_mersenne_next64(&mersenne) == (upper << 32 | lower));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ten_thousandth_number_is_the_standards),
        cmocka_unit_test(sixty_four_bits_are_two_draws_the_first_on_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
