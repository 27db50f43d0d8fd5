/* test_draws.c - draws are Philox's, and belong to seed, epoch, position and drawer
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/draws.h"
#include "unit.h"

static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    /* The known answers that come with the paper's own library (Random123) */
    static const struct {
        uint32_t key[2], counter[4], out[4];
    } known[] = {
        {{0, 0}, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0xa4093822, 0x299f31d0},
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        mh_philox(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void every_part_of_the_place_matters(void **state)
{
    (void)state;
    uint64_t crop = mh_drawer_name("random_crop", 0);
    mh_drawer base = mh_drawer_of(1, 2, 3, crop);
    const mh_drawer others[] = {
        mh_drawer_of(2, 2, 3, crop),
        mh_drawer_of(1, 3, 3, crop),
        mh_drawer_of(1, 2, 4, crop),
        mh_drawer_of(1, 2, 3 + (UINT64_C(1) << 32), crop),
        mh_drawer_of(1, 2, 3, mh_drawer_name("random_crop", 1)),
        mh_drawer_of(1, 2, 3, mh_drawer_name("flip", 0)),
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_not_equal(mh_draw_bits(&base, 0), mh_draw_bits(&others[i], 0));
    for (uint32_t draw = 1; draw < 8; draw++)
        assert_int_not_equal(mh_draw_bits(&base, 0), mh_draw_bits(&base, draw));
    mh_drawer again = mh_drawer_of(1, 2, 3, crop);
    assert_int_equal(mh_draw_bits(&base, 5), mh_draw_bits(&again, 5));
}

static void draws_stay_in_their_range_and_fill_it(void **state)
{
    (void)state;
    uint32_t counts[7] = {0};
    double sum = 0;
    for (uint64_t position = 0; position < 7000; position++) {
        mh_drawer drawer = mh_drawer_of(0, 0, position, 9);
        uint64_t number = mh_draw_below(&drawer, 0, 7);
        double between = mh_draw_between(&drawer, 1, -2, 4);
        assert_true(number < 7);
        assert_true(between >= -2 && between < 4);
        counts[number]++;
        sum += between;
        assert_int_equal(mh_draw_below(&drawer, 3, 1), 0);
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(counts[i], 850, 1150); /* 5 standard deviations */
    assert_true(sum / 7000 > 0.9 && sum / 7000 < 1.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(every_part_of_the_place_matters),
        cmocka_unit_test(draws_stay_in_their_range_and_fill_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
