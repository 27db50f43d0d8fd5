/* test_keyed.c - the computed shuffle: a bijection for every count, and a good shuffle
 * SPDX-License-Identifier: Apache-2.0
 *
 * Keys are fixed, so the statistics are the same in every run; their limits are six standard
 * deviations wide, which an even distribution exceeds once in a billion.
 */
#include "order/keyed.h"
#include "unit.h"

#define LIMIT 6.0

static double squared(double value)
{
    return value * value;
}

/* Fails where counts[] are less even (or more) than chance makes them. */
static void check_even(const uint32_t *counts, size_t size, double expected, double scale,
                       double freedom, const char *what)
{
    double chi = 0;
    for (size_t at = 0; at < size; at++)
        chi += squared(counts[at] - expected) / expected;
    chi *= scale;
    if (squared(chi - freedom) > squared(LIMIT) * 2 * freedom)
        fail_msg("%s: chi-square %g with %g degrees of freedom", what, chi, freedom);
}

/* Several at once are what each is alone; not only in fours. */
static void check_several(const mh_keyed *keyed, uint64_t first, uint64_t count)
{
    uint64_t found[7];
    count = count < 7 ? count : 7;
    for (uint64_t i = 0; i < count; i++)
        found[i] = first + i;
    mh_keyed_several(keyed, found, count);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(found[i], mh_keyed_at(keyed, first + i));
}

/* Marks what comes and fails on what comes twice; the inverse leads back. */
static void check_bijection(uint64_t count, uint64_t seed, uint64_t epoch)
{
    mh_keyed keyed;
    uint8_t *seen = calloc(count + 1, 1);
    assert_non_null(seen);
    mh_keyed_init(&keyed, count, seed, epoch);
    for (uint64_t position = 0; position < count; position++) {
        uint64_t value = mh_keyed_at(&keyed, position);
        assert_true(value < count);
        assert_int_equal(seen[value]++, 0);
        assert_int_equal(mh_keyed_find(&keyed, value), position);
        if (position % 5 == 0)
            check_several(&keyed, position, count - position);
    }
    free(seen);
}

static void every_count_is_a_bijection(void **state)
{
    (void)state;
    for (uint64_t count = 0; count <= 700; count++)
        for (uint64_t seed = 0; seed < 3; seed++)
            check_bijection(count, seed, count);
    static const uint64_t larger[] = {4095, 4096, 4097, 65535, 65536, 65537, 99991, 131072};
    for (size_t at = 0; at < sizeof larger / sizeof *larger; at++)
        check_bijection(larger[at], at, 1);
}

static void the_largest_counts_work_too(void **state)
{
    (void)state;
    static const uint64_t counts[] = {
        UINT64_C(1) << 31,       UINT64_C(1) << 32,         (UINT64_C(1) << 32) + 1,
        (UINT64_C(1) << 53) - 1, (UINT64_C(1) << 62) + 123, MH_ORDER_MOST - 1,
        MH_ORDER_MOST,
    };
    for (size_t at = 0; at < sizeof counts / sizeof *counts; at++) {
        mh_keyed keyed;
        uint64_t count = counts[at], upper = 0;
        mh_keyed_init(&keyed, count, 9, at);
        for (uint64_t nth = 0; nth < 2000; nth++) {
            uint64_t position = nth < 1000 ? nth : count - 1 - (nth - 1000) * (count / 1001);
            uint64_t value = mh_keyed_at(&keyed, position);
            assert_true(value < count);
            assert_true(mh_keyed_find(&keyed, value) == position);
            upper += value >= count / 2;
        }
        assert_in_range(upper, 850, 1150);
    }
}

/* A checkpoint's position means something only while this holds: never change these figures. */
static void the_order_never_changes(void **state)
{
    (void)state;
    static const struct {
        uint64_t count, seed, epoch, position, value;
    } rows[] = {
        {1, 0, 0, 0, 0},
        {10, 0, 0, 0, 6},
        {10, 0, 0, 9, 2},
        {10, 0, 1, 0, 9},
        {1000, 42, 3, 999, 771},
        {1281167, 42, 3, 0, 689974},
        {1281167, 42, 3, 1281166, 689386},
        {MH_ORDER_MOST, UINT64_MAX, 7, 12345, UINT64_C(1789547294166738194)},
    };
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        mh_keyed keyed;
        mh_keyed_init(&keyed, rows[at].count, rows[at].seed, rows[at].epoch);
        uint64_t value = mh_keyed_at(&keyed, rows[at].position);
        if (value != rows[at].value)
            fail_msg("row %zu: %llu", at, (unsigned long long)value);
    }
}

/* The number of a permutation among all of its length. */
static uint32_t number_of(const uint64_t *values, uint32_t count)
{
    uint32_t number = 0;
    for (uint32_t at = 0; at < count; at++) {
        uint32_t smaller = 0;
        for (uint32_t later = at + 1; later < count; later++)
            smaller += values[later] < values[at];
        number = number * (count - at) + smaller;
    }
    return number;
}

static void few_samples_come_in_all_orders_equally_often(void **state)
{
    (void)state;
    static uint32_t counts[40320];
    uint32_t orders = 1;
    for (uint32_t count = 2; count <= 8; count++) {
        orders *= count;
        uint32_t keys = orders * 10 < 60000 ? 60000 : orders * 10;
        memset(counts, 0, sizeof counts);
        for (uint32_t key = 0; key < keys; key++) {
            mh_keyed keyed;
            uint64_t values[8];
            mh_keyed_init(&keyed, count, key, 5);
            for (uint32_t at = 0; at < count; at++)
                values[at] = mh_keyed_at(&keyed, at);
            counts[number_of(values, count)]++;
        }
        check_even(counts, orders, (double)keys / orders, 1, orders - 1, "orders");
    }
}

static void every_sample_comes_everywhere_equally_often(void **state)
{
    (void)state;
    static uint32_t counts[300 * 300];
    static const uint64_t sizes[] = {10, 16, 17, 64, 100, 300};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        uint64_t count = sizes[at];
        uint32_t keys = 4000;
        memset(counts, 0, sizeof counts);
        for (uint32_t key = 0; key < keys; key++) {
            mh_keyed keyed;
            mh_keyed_init(&keyed, count, 11, key); /* as epochs of one run */
            for (uint64_t position = 0; position < count; position++)
                counts[position * count + mh_keyed_at(&keyed, position)]++;
        }
        /* Each row and each column of the counts adds up to `keys`. */
        double size = (double)count;
        check_even(counts, count * count, keys / size, (size - 1) / size, squared(size - 1),
                   "places");
    }
}

/* What follows a sample tells nothing: the steps from each sample to the next are even. */
static void check_steps(uint64_t count, uint32_t keys)
{
    enum { BINS = 64 };
    uint32_t bins[BINS] = {0};
    uint64_t steps = 0;
    for (uint32_t key = 0; key < keys; key++) {
        mh_keyed keyed;
        mh_keyed_init(&keyed, count, key, 0);
        uint64_t before = mh_keyed_at(&keyed, 0);
        for (uint64_t position = 1; position < count && position < 20000; position++) {
            uint64_t value = mh_keyed_at(&keyed, position);
            uint64_t step = value > before ? value - before : value + count - before;
            bins[(step - 1) * BINS / (count - 1)]++;
            before = value;
            steps++;
        }
    }
    check_even(bins, BINS, (double)steps / BINS, 1, BINS - 1, "steps");
}

static void neighbours_tell_nothing_about_each_other(void **state)
{
    (void)state;
    check_steps(65, 5000);
    check_steps(1025, 300);
    check_steps(65 * 1024, 20);
    check_steps(1024 * 1024 + 1, 20);
    check_steps((UINT64_C(1) << 40) + 1, 20);
}

/* Equal samples at equal positions of two unrelated orders: one on average, as for any two. */
static uint64_t equal_places(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t other_seed,
                             uint64_t other_epoch)
{
    mh_keyed one, other;
    uint64_t equal = 0;
    mh_keyed_init(&one, count, seed, epoch);
    mh_keyed_init(&other, count, other_seed, other_epoch);
    for (uint64_t position = 0; position < count; position++)
        equal += mh_keyed_at(&one, position) == mh_keyed_at(&other, position);
    return equal;
}

static void one_bit_of_the_key_changes_everything(void **state)
{
    (void)state;
    uint64_t equal = 0;
    for (int bit = 0; bit < 64; bit++) {
        uint64_t flipped = UINT64_C(1) << bit;
        equal += equal_places(1000, 42, 3, 42 ^ flipped, 3);
        equal += equal_places(1000, 42, 3, 42, 3 ^ flipped);
    }
    assert_in_range(equal, 128 - 68, 128 + 68); /* Poisson: the deviation is the root */
    assert_in_range(equal_places(1000, 1, 0, 0, 1), 0, 7);
}

static void one_bit_of_the_position_changes_half_of_the_value(void **state)
{
    (void)state;
    enum { BITS = 40, POSITIONS = 1000 };
    mh_keyed keyed;
    mh_keyed_init(&keyed, UINT64_C(1) << BITS, 1, 2);
    for (int bit = 0; bit < BITS; bit++) {
        uint64_t changed = 0;
        for (uint64_t position = 0; position < POSITIONS; position++) {
            uint64_t other = position ^ (UINT64_C(1) << bit);
            changed += (uint64_t)__builtin_popcountll(mh_keyed_at(&keyed, position) ^
                                                      mh_keyed_at(&keyed, other));
        }
        double deviation = (double)changed - POSITIONS * BITS / 2.0;
        assert_true(squared(deviation) < squared(LIMIT) * POSITIONS * BITS / 2.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_count_is_a_bijection),
        cmocka_unit_test(the_largest_counts_work_too),
        cmocka_unit_test(the_order_never_changes),
        cmocka_unit_test(few_samples_come_in_all_orders_equally_often),
        cmocka_unit_test(every_sample_comes_everywhere_equally_often),
        cmocka_unit_test(neighbours_tell_nothing_about_each_other),
        cmocka_unit_test(one_bit_of_the_key_changes_everything),
        cmocka_unit_test(one_bit_of_the_position_changes_half_of_the_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
