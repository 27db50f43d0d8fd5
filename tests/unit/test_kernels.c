/* test_kernels.c - every version of a kernel gives the same bytes, and writes no more than them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/draws.h"
#include "op/kernels.h"
#include "unit.h"

#define ROW_MOST (600 * 3 + MH_ROW_SLACK)
#define GUARD 0xa5

static uint8_t rows[64][ROW_MOST];

static void fill(uint64_t seed)
{
    mh_drawer drawer = mh_drawer_of(seed, 0, 0, 0);
    for (uint32_t row = 0; row < 64; row++)
        for (uint32_t i = 0; i < ROW_MOST; i += 8) {
            uint64_t bits = mh_draw_bits(&drawer, row * ROW_MOST + i);
            /* Many values at the ends of the range: sums then leave it */
            bits |= bits & 1 ? UINT64_C(0xff00ff00ff00ff00) : 0;
            memcpy(rows[row] + i, &bits, i + 8 <= ROW_MOST ? 8 : ROW_MOST - i);
        }
}

static mh_side side_drawn(const mh_drawer *drawer, uint32_t most_in)
{
    mh_side side = {.filter = (mh_filter)mh_draw_below(drawer, 0, MH_FILTER_NEAREST)};
    side.in = 1 + (uint32_t)mh_draw_below(drawer, 1, most_in);
    side.out = 1 + (uint32_t)mh_draw_below(drawer, 2, 300);
    if (side.in == side.out)
        side.out++;
    side.to = side.in;
    side.first = (uint32_t)mh_draw_below(drawer, 3, side.out);
    side.count = 1 + (uint32_t)mh_draw_below(drawer, 4, side.out - side.first);
    side.flip = mh_draw_below(drawer, 5, 2);
    return side;
}

static void across_is_the_same(void **state)
{
    (void)state;
    static uint8_t made[2][MH_ACROSS_ROWS][ROW_MOST];
    mh_weights weights = {0};
    for (uint64_t trial = 0; trial < 300; trial++) {
        mh_drawer drawer = mh_drawer_of(1, 0, trial, 0);
        mh_side side = side_drawn(&drawer, 600);
        uint32_t count = 1 + (uint32_t)(trial % MH_ACROSS_ROWS), channels = trial % 3 ? 3 : 1;
        const uint8_t *from[MH_ACROSS_ROWS];
        uint8_t *to[2][MH_ACROSS_ROWS];
        fill(trial);
        memset(made, GUARD, sizeof made);
        for (uint32_t i = 0; i < MH_ACROSS_ROWS; i++) {
            from[i] = rows[i];
            to[0][i] = made[0][i];
            to[1][i] = made[1][i];
        }
        assert_int_equal(mh_weights_make(&weights, &side, NULL), MH_OK);
        mh_kernels_plain.across(&weights, from, to[0], count, channels);
        mh_kernels_best()->across(&weights, from, to[1], count, channels);
        assert_memory_equal(made[0], made[1], sizeof made[0]); /* the guard behind rows too */
        assert_int_equal(made[1][0][side.count * channels], GUARD);
    }
    mh_weights_deinit(&weights);
}

static void down_is_the_same(void **state)
{
    (void)state;
    static uint8_t made[2][ROW_MOST];
    mh_weights weights = {0};
    for (uint64_t trial = 0; trial < 300; trial++) {
        mh_drawer drawer = mh_drawer_of(2, 0, trial, 0);
        mh_side side = side_drawn(&drawer, 64);
        uint32_t bytes = 1 + (uint32_t)mh_draw_below(&drawer, 6, trial % 2 ? 40 : 1800);
        const uint8_t *from[64];
        fill(trial);
        assert_int_equal(mh_weights_make(&weights, &side, NULL), MH_OK);
        for (uint32_t at = 0; at < weights.count; at += 7) {
            for (uint32_t i = 0; i < weights.lengths[at]; i++)
                from[i] = rows[weights.starts[at] + i];
            memset(made, GUARD, sizeof made);
            mh_kernels_plain.down(&weights, at, from, made[0], bytes);
            mh_kernels_best()->down(&weights, at, from, made[1], bytes);
            assert_memory_equal(made[0], made[1], sizeof made[0]);
        }
    }
    mh_weights_deinit(&weights);
}

/* Rounding alone keeps the sum of weights from being exactly one. */
static void weights_add_up_to_one(void **state)
{
    (void)state;
    mh_weights weights = {0};
    for (uint64_t trial = 0; trial < 200; trial++) {
        mh_drawer drawer = mh_drawer_of(3, 0, trial, 0);
        mh_side side = side_drawn(&drawer, 2000);
        assert_int_equal(mh_weights_make(&weights, &side, NULL), MH_OK);
        assert_true(weights.end <= side.in);
        for (uint32_t at = 0; at < weights.count; at++) {
            int64_t sum = 0;
            for (uint32_t i = 0; i < weights.lengths[at]; i++)
                sum += weights.values[(size_t)at * weights.stride + i];
            assert_true(weights.first + weights.starts[at] + weights.lengths[at] <= side.in);
            assert_true(llabs(sum - (1 << MH_WEIGHT_BITS)) <= weights.lengths[at]);
        }
    }
    mh_weights_deinit(&weights);
}

static void out_of_memory_is_an_error(void **state)
{
    (void)state;
    mh_weights weights = {0};
    mh_side side = {.in = 50, .to = 50, .out = 20, .count = 20};
    mh_error err = {0};
    (void)mh_alloc_fail_at(1, 0);
    assert_int_equal(mh_weights_make(&weights, &side, &err), MH_ERR_NOMEM);
    (void)mh_alloc_fail_at(0, 0);
    assert_int_equal(mh_weights_make(&weights, &side, &err), MH_OK);
    mh_weights_deinit(&weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(across_is_the_same),
        cmocka_unit_test(down_is_the_same),
        cmocka_unit_test(weights_add_up_to_one),
        cmocka_unit_test(out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
