/* test_histogram.c - quantiles against sorted arrays
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/histogram.h"
#include "unit.h"

#define COUNT 20000

static mh_histogram histogram;
static uint64_t values[COUNT];

/* splitmix64: the same numbers on every machine */
static uint64_t next_random(uint64_t *seed)
{
    uint64_t mixed = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

static uint64_t uniform(uint64_t bits)
{
    return bits % 1000000;
}

static uint64_t small(uint64_t bits)
{
    return bits % 40;
}

/* every power of two as likely as the others */
static uint64_t logarithmic(uint64_t bits)
{
    return bits >> (bits % 64);
}

/* mostly fast, one in a hundred slow: what loaders look like */
static uint64_t tailed(uint64_t bits)
{
    return bits % 100 == 0 ? 500000000 + (bits >> 8) % 500000000 : 1000000 + (bits >> 8) % 200000;
}

static uint64_t constant(uint64_t bits)
{
    (void)bits;
    return 123456789;
}

static uint64_t large(uint64_t bits)
{
    return bits | (UINT64_C(1) << 63);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void check_quantiles(uint64_t (*draw)(uint64_t))
{
    static const double fractions[] = {0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1};
    uint64_t seed = 1, total = 0;
    memset(&histogram, 0, sizeof histogram);
    for (int at = 0; at < COUNT; at++) {
        values[at] = draw(next_random(&seed));
        total += values[at];
        mh_histogram_add(&histogram, values[at]);
    }
    qsort(values, COUNT, sizeof *values, by_size);
    assert_int_equal(histogram.count, COUNT);
    assert_true(histogram.total == total);
    assert_true(histogram.max == values[COUNT - 1]);
    for (size_t at = 0; at < sizeof fractions / sizeof *fractions; at++) {
        double exact = fractions[at] * COUNT;
        int rank = (int)exact < exact ? (int)exact + 1 : (int)exact;
        double wanted = (double)values[rank > 0 ? rank - 1 : 0];
        double got = (double)mh_histogram_quantile(&histogram, fractions[at]);
        if (got < wanted * 0.97 || got > wanted * 1.03)
            fail_msg("quantile %g: %g, exactly %g", fractions[at], got, wanted);
    }
    assert_true(mh_histogram_quantile(&histogram, 1) == values[COUNT - 1]);
}

static void quantiles_are_within_three_percent(void **state)
{
    (void)state;
    check_quantiles(uniform);
    check_quantiles(small);
    check_quantiles(logarithmic);
    check_quantiles(tailed);
    check_quantiles(constant);
    check_quantiles(large);
}

static void an_empty_one_gives_nothing(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof histogram);
    assert_int_equal(mh_histogram_quantile(&histogram, 0.5), 0);
    assert_int_equal(mh_histogram_quantile(&histogram, 1), 0);
}

static void small_values_are_exact(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof histogram);
    for (uint64_t value = 0; value < 32; value++)
        mh_histogram_add(&histogram, value);
    for (int rank = 1; rank <= 32; rank++) {
        assert_int_equal(mh_histogram_quantile(&histogram, rank / 32.0), rank - 1);
        assert_int_equal(mh_histogram_quantile(&histogram, (rank - 0.5) / 32.0), rank - 1);
    }
}

static void what_came_later_is_told_from_what_was(void **state)
{
    (void)state;
    static mh_histogram before, later;
    memset(&histogram, 0, sizeof histogram);
    for (int at = 0; at < 100; at++)
        mh_histogram_add(&histogram, 1000000);
    before = histogram;
    for (uint64_t value = 1; value <= 20; value++)
        mh_histogram_add(&histogram, value);
    mh_histogram_since(&later, &histogram, &before);
    assert_int_equal(later.count, 20);
    assert_int_equal(later.total, 210);
    assert_int_equal(later.max, 20);
    assert_int_equal(mh_histogram_quantile(&later, 0.5), 10);
    mh_histogram_add(&histogram, 2000001);
    mh_histogram_since(&later, &histogram, &before);
    assert_int_equal(later.max, 2000001);
}

static void no_value_is_out_of_range(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof histogram);
    for (int bit = 0; bit < 64; bit++) {
        mh_histogram_add(&histogram, UINT64_C(1) << bit);
        mh_histogram_add(&histogram, (UINT64_C(1) << bit) - 1);
    }
    mh_histogram_add(&histogram, UINT64_MAX);
    assert_true(mh_histogram_quantile(&histogram, 1) == UINT64_MAX);
    uint64_t counted = 0;
    for (int bucket = 0; bucket < MH_HISTOGRAM_BUCKETS; bucket++)
        counted += histogram.buckets[bucket];
    assert_int_equal(counted, histogram.count);
}

static void the_end_of_a_bucket_is_no_further_off_than_its_beginning(void **state)
{
    (void)state;
    const uint64_t begin = UINT64_C(32) << 20, end = (UINT64_C(33) << 20) - 1;
    memset(&histogram, 0, sizeof histogram);
    mh_histogram_add(&histogram, begin);
    mh_histogram_add(&histogram, UINT64_MAX);
    uint64_t middle = mh_histogram_quantile(&histogram, 0.5);
    assert_true(middle > begin && middle < end);
    assert_true(middle - begin <= (UINT64_C(1) << 19) && end - middle <= (UINT64_C(1) << 19));
}

static void odd_fractions_are_clamped(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof histogram);
    mh_histogram_add(&histogram, 3);
    mh_histogram_add(&histogram, 9);
    assert_int_equal(mh_histogram_quantile(&histogram, -1), 3);
    assert_int_equal(mh_histogram_quantile(&histogram, 2), 9);
    assert_int_equal(mh_histogram_quantile(&histogram, __builtin_nan("")), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_within_three_percent),
        cmocka_unit_test(an_empty_one_gives_nothing),
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(what_came_later_is_told_from_what_was),
        cmocka_unit_test(no_value_is_out_of_range),
        cmocka_unit_test(the_end_of_a_bucket_is_no_further_off_than_its_beginning),
        cmocka_unit_test(odd_fractions_are_clamped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
