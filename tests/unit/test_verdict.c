/* test_verdict.c - planted causes are named
 * SPDX-License-Identifier: Apache-2.0
 */
#include "planted.h"
#include "unit.h"

static void causes_have_names(void **state)
{
    (void)state;
    assert_string_equal(mh_cause_name(MH_CAUSE_CPU), "cpu-bound");
    assert_string_equal(mh_cause_name((mh_cause)1000), "unclear");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
