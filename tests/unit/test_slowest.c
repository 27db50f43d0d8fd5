/* test_slowest.c - which samples are kept, and whose keys are given back
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/slowest.h"
#include "unit.h"

static int keys[64];

static void the_slowest_are_kept_in_order(void **state)
{
    (void)state;
    mh_slowest slowest = {0};
    int kept = 0;
    for (int i = 0; i < 64; i++) {
        uint64_t ns = (uint64_t)i * 37 % 64; /* each once, in no order */
        keys[i] = 1;
        kept++;
        int *dropped = mh_slowest_offer(&slowest, ns, &keys[i], i % 3 - 1);
        if (dropped) {
            assert_int_equal(*dropped, 1); /* once only */
            *dropped = 0;
            kept--;
        }
        assert_int_equal(kept, slowest.count);
    }
    assert_int_equal(slowest.count, MH_SLOWEST);
    for (int at = 0; at < MH_SLOWEST; at++) {
        const mh_slow_sample *sample = &slowest.samples[at];
        int offered = (int)((const int *)sample->key - keys);
        assert_int_equal(sample->ns, 63 - at);
        assert_int_equal(offered * 37 % 64, 63 - at);
        assert_int_equal(sample->worker, offered % 3 - 1);
        assert_int_equal(keys[offered], 1);
    }
}

static void of_equal_ones_the_first_stay(void **state)
{
    (void)state;
    mh_slowest slowest = {0};
    for (int i = 0; i < MH_SLOWEST; i++)
        assert_null(mh_slowest_offer(&slowest, 5, &keys[i], 0));
    assert_ptr_equal(mh_slowest_offer(&slowest, 5, &keys[20], 0), &keys[20]);
    assert_ptr_equal(mh_slowest_offer(&slowest, 6, &keys[21], 0), &keys[MH_SLOWEST - 1]);
    assert_ptr_equal(slowest.samples[0].key, &keys[21]);
    for (int i = 1; i < MH_SLOWEST; i++)
        assert_ptr_equal(slowest.samples[i].key, &keys[i - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slowest_are_kept_in_order),
        cmocka_unit_test(of_equal_ones_the_first_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
