/* test_blocks.c - blocks shuffled: each sample once, few blocks in use, and any world goes on
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/blocks.h"
#include "unit.h"

#define SAMPLES_MOST 2000
#define WORLDS 8

static uint64_t random_state;

static uint64_t drawn(uint64_t least, uint64_t most)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return least + (random_state >> 33) % (most - least + 1);
}

/* Some blocks: equal ones, ones of a list, cells of a grid. */
static mh_blocks *some_blocks(uint64_t seed, uint32_t parts)
{
    static uint64_t firsts[64];
    mh_block_spec spec = {.parts = parts};
    mh_blocks *blocks = NULL;
    random_state = seed;
    switch (seed % 3) {
    case 0:
        spec.cells = mh_cells_of_runs(drawn(0, 12) * 7, 7);
        break;
    case 1:
        spec.firsts = firsts;
        spec.block_count = drawn(1, 60);
        for (uint64_t i = 0; i < spec.block_count; i++)
            firsts[i + 1] = firsts[i] + drawn(0, 1) * drawn(0, 9);
        break;
    default:
        spec.cells = (mh_cells){.dims = 2,
                                .dim = {{drawn(1, 12), drawn(0, 3), drawn(1, 3), drawn(1, 6)},
                                        {drawn(1, 9), drawn(0, 3), drawn(1, 3), drawn(1, 6)}}};
    }
    assert_int_equal(mh_blocks_new(&blocks, &spec, 5, seed, NULL), MH_OK);
    assert_true(mh_blocks_samples(blocks) <= SAMPLES_MOST);
    return blocks;
}

static mh_block_share share_of(const mh_blocks *blocks, const mh_leg *legs, uint32_t leg_count,
                               uint64_t world, uint64_t rank, mh_share_mode mode)
{
    mh_block_share share;
    assert_int_equal(mh_block_share_init(&share, mh_blocks_samples(blocks), legs, leg_count, world,
                                         rank, mode, NULL),
                     MH_OK);
    return share;
}

/* Counts what all ranks of a leg deliver: up to `most` samples each. */
static void deliver(const mh_blocks *blocks, const mh_leg *legs, uint32_t leg_count, uint64_t world,
                    mh_share_mode mode, uint64_t most, uint32_t *times)
{
    for (uint64_t rank = 0; rank < world; rank++) {
        const mh_block_share share = share_of(blocks, legs, leg_count, world, rank, mode);
        for (uint64_t nth = 0; nth < share.length && nth < most; nth++) {
            uint64_t position, sample = mh_blocks_at(blocks, &share, nth, &position);
            assert_true(sample < mh_blocks_samples(blocks));
            assert_true(position < mh_blocks_samples(blocks));
            times[sample]++;
        }
    }
}

static void check_once(const mh_blocks *blocks, const uint32_t *times, const char *what,
                       uint64_t seed)
{
    for (uint64_t sample = 0; sample < mh_blocks_samples(blocks); sample++)
        if (times[sample] != 1)
            fail_msg("%s, seed %llu: sample %llu came %u times", what, (unsigned long long)seed,
                     (unsigned long long)sample, times[sample]);
}

static void every_sample_comes_once_in_every_world(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 150; seed++) {
        mh_blocks *blocks = some_blocks(seed, (uint32_t)(1 + seed % 5));
        for (uint64_t world = 1; world <= WORLDS; world++) {
            uint32_t times[SAMPLES_MOST] = {0};
            deliver(blocks, NULL, 0, world, MH_SHARE_UNEVEN, UINT64_MAX, times);
            check_once(blocks, times, "world", seed);
        }
        mh_blocks_free(blocks);
    }
}

static void all_ranks_have_equally_many_when_padded_or_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        mh_blocks *blocks = some_blocks(seed, 3);
        const uint64_t samples = mh_blocks_samples(blocks);
        for (uint64_t world = 1; world <= WORLDS; world++) {
            uint32_t padded[SAMPLES_MOST] = {0}, cut[SAMPLES_MOST] = {0};
            uint64_t total = 0;
            deliver(blocks, NULL, 0, world, MH_SHARE_PAD, UINT64_MAX, padded);
            deliver(blocks, NULL, 0, world, MH_SHARE_CUT, UINT64_MAX, cut);
            for (uint64_t sample = 0; sample < samples; sample++) {
                assert_true(padded[sample] >= 1 && cut[sample] <= 1);
                total += padded[sample];
            }
            assert_int_equal(total, (samples + world - 1) / world * world);
        }
        mh_blocks_free(blocks);
    }
}

/* After every number of steps, in every other world; and then once more in a third. */
static void another_world_takes_up_the_rest(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        mh_blocks *blocks = some_blocks(seed, (uint32_t)(1 + seed % 4));
        for (uint64_t world = 1; world <= WORLDS; world++) {
            const uint64_t longest = mh_blocks_samples(blocks) / world;
            for (uint64_t steps = 0; steps <= longest; steps += 1 + longest / 9) {
                const uint64_t next = drawn(1, WORLDS), last = drawn(1, WORLDS);
                const uint64_t left = (mh_blocks_samples(blocks) - steps * world) / next;
                const mh_leg legs[] = {{world, steps}, {next, drawn(0, left)}};
                uint32_t times[SAMPLES_MOST] = {0};
                deliver(blocks, NULL, 0, world, MH_SHARE_CUT, steps, times);
                deliver(blocks, legs, 1, next, MH_SHARE_CUT, legs[1].samples, times);
                deliver(blocks, legs, 2, last, MH_SHARE_UNEVEN, UINT64_MAX, times);
                check_once(blocks, times, "legs", seed);
            }
        }
        mh_blocks_free(blocks);
    }
}

static void the_same_world_goes_on_where_it_was(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        mh_blocks *blocks = some_blocks(seed, 4);
        for (uint64_t world = 1; world <= 5; world++)
            for (uint64_t rank = 0; rank < world; rank++) {
                const mh_block_share whole =
                    share_of(blocks, NULL, 0, world, rank, MH_SHARE_UNEVEN);
                const uint64_t done = mh_blocks_samples(blocks) / world / 2;
                const mh_leg legs[] = {{world, done / 2}, {world, done - done / 2}};
                const mh_block_share rest = share_of(blocks, legs, 2, world, rank, MH_SHARE_UNEVEN);
                assert_int_equal(rest.length, whole.length - done);
                for (uint64_t nth = 0; nth < rest.length; nth++) {
                    uint64_t a, b;
                    assert_int_equal(mh_blocks_at(blocks, &rest, nth, &a),
                                     mh_blocks_at(blocks, &whole, done + nth, &b));
                    assert_int_equal(a, b);
                }
            }
        mh_blocks_free(blocks);
    }
}

static void a_position_belongs_to_the_sample_in_every_world(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        uint64_t positions[SAMPLES_MOST], seen[SAMPLES_MOST] = {0};
        mh_blocks *blocks = some_blocks(seed, 3);
        const uint64_t samples = mh_blocks_samples(blocks);
        for (uint64_t world = 1; world <= WORLDS; world++)
            for (uint64_t rank = 0; rank < world; rank++) {
                const mh_block_share share =
                    share_of(blocks, NULL, 0, world, rank, MH_SHARE_UNEVEN);
                for (uint64_t nth = 0; nth < share.length; nth++) {
                    uint64_t position, of_rank;
                    const uint64_t sample = mh_blocks_at(blocks, &share, nth, &position);
                    if (world == 1)
                        positions[sample] = position;
                    assert_int_equal(positions[sample], position);
                    seen[position]++;
                    assert_int_equal(mh_blocks_find(blocks, world, sample, &of_rank), nth);
                    assert_int_equal(of_rank, rank);
                }
            }
        for (uint64_t position = 0; position < samples; position++)
            assert_int_equal(seen[position], WORLDS);
        mh_blocks_free(blocks);
    }
}

/* A block is in use from its first sample to its last. */
static void few_blocks_are_in_use_at_a_time(void **state)
{
    enum { COUNT = 50, SIZE = 24, PARTS = 6 };
    const mh_block_spec spec = {.cells = mh_cells_of_runs(COUNT * SIZE, SIZE), .parts = PARTS};
    mh_blocks *blocks;
    (void)state;
    assert_int_equal(mh_blocks_new(&blocks, &spec, 1, 2, NULL), MH_OK);
    for (uint64_t world = 1; world <= WORLDS; world++)
        for (uint64_t rank = 0; rank < world; rank++) {
            const mh_block_share share = share_of(blocks, NULL, 0, world, rank, MH_SHARE_UNEVEN);
            uint64_t first[COUNT], last[COUNT] = {0}, position;
            memset(first, 0xff, sizeof first);
            for (uint64_t nth = 0; nth < share.length; nth++) {
                const uint64_t block = mh_blocks_at(blocks, &share, nth, &position) / SIZE;
                first[block] = first[block] < nth ? first[block] : nth;
                last[block] = nth;
            }
            for (uint64_t nth = 0; nth < share.length; nth++) {
                uint32_t used = 0;
                for (int block = 0; block < COUNT; block++)
                    used += first[block] <= nth && nth <= last[block];
                assert_true(used <= PARTS);
            }
        }
    mh_blocks_free(blocks);
}

static void seeds_and_epochs_give_other_orders(void **state)
{
    const mh_block_spec spec = {.cells = mh_cells_of_runs(1000, 10), .parts = 8};
    uint64_t orders[3][1000], position;
    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        mh_blocks *blocks;
        assert_int_equal(mh_blocks_new(&blocks, &spec, i == 1, i == 2, NULL), MH_OK);
        const mh_block_share share = share_of(blocks, NULL, 0, 1, 0, MH_SHARE_PAD);
        for (uint64_t nth = 0; nth < 1000; nth++)
            orders[i][nth] = mh_blocks_at(blocks, &share, nth, &position);
        mh_blocks_free(blocks);
    }
    for (int i = 0; i < 3; i++) {
        int same = 0;
        for (int nth = 0; nth < 1000; nth++)
            same += orders[i][nth] == orders[(i + 1) % 3][nth];
        assert_true(same < 20);
    }
}

static void a_hundred_billion_samples_cost_nothing(void **state)
{
    const uint64_t count = UINT64_C(100000000000);
    const mh_block_spec spec = {.cells = mh_cells_of_runs(count, 1000), .parts = 32};
    mh_blocks *blocks;
    (void)state;
    assert_int_equal(mh_blocks_new(&blocks, &spec, 1, 2, NULL), MH_OK);
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t position, rank;
        const mh_block_share share = share_of(blocks, NULL, 0, 7, i % 7, MH_SHARE_UNEVEN);
        const uint64_t nth = drawn(0, UINT32_MAX) * 3;
        const uint64_t sample = mh_blocks_at(blocks, &share, nth, &position);
        assert_int_equal(mh_blocks_find(blocks, 7, sample, &rank), nth);
        assert_int_equal(rank, i % 7);
    }
    mh_blocks_free(blocks);
}

static void nonsense_is_refused(void **state)
{
    const uint64_t firsts[] = {0, 5, 3};
    mh_block_spec spec = {.firsts = firsts, .block_count = 2, .parts = 1};
    mh_blocks *blocks;
    mh_block_share share;
    mh_error err;
    (void)state;
    assert_int_equal(mh_blocks_new(&blocks, &spec, 0, 0, &err), MH_ERR_INVALID);
    spec.parts = 0;
    assert_int_equal(mh_blocks_new(&blocks, &spec, 0, 0, &err), MH_ERR_INVALID);
    const mh_leg far = {2, 6}, none = {0, 1};
    assert_int_equal(mh_block_share_init(&share, 10, &far, 1, 1, 0, MH_SHARE_PAD, &err),
                     MH_ERR_INVALID);
    assert_int_equal(mh_block_share_init(&share, 10, &none, 1, 1, 0, MH_SHARE_PAD, &err),
                     MH_ERR_INVALID);
    assert_int_equal(mh_block_share_init(&share, 10, NULL, 0, 2, 2, MH_SHARE_PAD, &err),
                     MH_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_comes_once_in_every_world),
        cmocka_unit_test(all_ranks_have_equally_many_when_padded_or_cut),
        cmocka_unit_test(another_world_takes_up_the_rest),
        cmocka_unit_test(the_same_world_goes_on_where_it_was),
        cmocka_unit_test(a_position_belongs_to_the_sample_in_every_world),
        cmocka_unit_test(few_blocks_are_in_use_at_a_time),
        cmocka_unit_test(seeds_and_epochs_give_other_orders),
        cmocka_unit_test(a_hundred_billion_samples_cost_nothing),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
