/* test_amplification.c - what windows cost, against counting chunks block by block
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/amplification.h"
#include "windows.h"

#include <math.h>

#define UNITS_MOST 40000

static double chunk_bytes(const window_case *self, uint32_t variable)
{
    double bytes = 2;
    for (uint32_t k = 0; k < self->variables[variable].dims; k++)
        bytes *= (double)self->variables[variable].chunk[k];
    return bytes;
}

/* Bytes of the chunks that samples [begin, end) of a list need, each once. */
static double bytes_of(const mh_windows *windows, const window_case *self, const mh_cells *cells,
                       uint64_t cell, uint8_t *seen)
{
    static uint64_t ids[UNITS_MOST];
    double bytes = 0;
    for (uint64_t member = 0; member < mh_cells_size(cells, cell); member++) {
        const uint32_t count =
            mh_windows_units_of(windows, mh_cells_sample(cells, cell, member), ids);
        for (uint32_t i = 0; i < count; i++)
            if (!seen[ids[i]]++)
                bytes += chunk_bytes(self, mh_windows_chunk(windows, ids[i]).variable);
    }
    return bytes;
}

static void check_cells(const mh_windows *windows, const window_case *self, const mh_cells *cells,
                        const mh_amplification *cost, uint64_t seed)
{
    static uint8_t seen[UNITS_MOST];
    double decoded = 0, largest = 0, unique = 0;
    for (uint64_t cell = 0; cell < mh_cells_count(cells); cell++) {
        memset(seen, 0, sizeof seen);
        const double bytes = bytes_of(windows, self, cells, cell, seen);
        decoded += bytes;
        largest = bytes > largest ? bytes : largest;
    }
    memset(seen, 0, sizeof seen);
    for (uint64_t cell = 0; cell < mh_cells_count(cells); cell++)
        unique += bytes_of(windows, self, cells, cell, seen);
    if (decoded != cost->decoded_bytes || unique != cost->unique_bytes ||
        largest > cost->block_bytes)
        fail_msg("seed %llu: decoded %g not %g, unique %g not %g, block %g above %g",
                 (unsigned long long)seed, cost->decoded_bytes, decoded, cost->unique_bytes, unique,
                 largest, cost->block_bytes);
}

static void the_cost_is_what_blocks_need(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        window_case self;
        mh_windows *windows;
        mh_cells cells;
        mh_amplification cost, again;
        uint32_t parts, dims;
        uint64_t cell[CASE_DIMS];
        case_make(&self, seed);
        if (mh_windows_new(&windows, self.variables, self.variable_count, &self.texts, NULL, NULL,
                           NULL) != MH_OK)
            continue;
        assert_int_equal(mh_blocks_choose(windows, 400000, &cells, &parts, &cost, NULL), MH_OK);
        assert_int_equal(mh_cells_samples(&cells), mh_windows_count(windows));
        check_cells(windows, &self, &cells, &cost, seed);
        (void)mh_windows_dims(windows, &dims);
        for (uint32_t d = 0; d < dims; d++)
            cell[d] = cells.dim[d].cell = case_drawn(&self, 1, 9);
        assert_int_equal(mh_amplification_of(windows, cell, &again, NULL), MH_OK);
        check_cells(windows, &self, &cells, &again, seed);
        mh_windows_free(windows);
    }
}

static void check_choice(const char *window, const char *stride, uint64_t pool, uint64_t cell_time,
                         uint32_t parts, double factor)
{
    mh_variable cube = {.name = "t2m",
                        .dims = 2,
                        .dim_names = {"time", "x"},
                        .shape = {1000, 1000},
                        .chunk = {10, 1000},
                        .dtype = {2, 32}};
    mh_windows *windows;
    mh_cells cells;
    mh_amplification cost;
    uint32_t chosen;
    mh_variable_steps_c(&cube);
    mh_window_texts texts = {.window = window, .stride = stride};
    assert_int_equal(mh_windows_new(&windows, &cube, 1, &texts, NULL, NULL, NULL), MH_OK);
    assert_int_equal(mh_blocks_choose(windows, pool, &cells, &chosen, &cost, NULL), MH_OK);
    assert_int_equal(cells.dim[0].cell, cell_time);
    assert_int_equal(chosen, parts);
    assert_true(fabs(cost.factor - factor) < 0.005);
    mh_windows_free(windows);
}

static void cells_are_as_small_as_the_cost_allows(void **state)
{
    const uint64_t megabytes = 1000000;
    (void)state;
    /* windows that tile chunks cost nothing */
    check_choice("time=5", NULL, 64 * megabytes, 10, MH_PARTS_MOST, 1);
    /* each block of m chunks needs one more: 12 of them are the first with (m + 1) / m below 1.1 */
    check_choice("time=4", "time=1", 64 * megabytes, 120, MH_PARTS_MOST, 1.08);
    /* where memory allows no more than 4 blocks of 2 chunks and the one beyond */
    check_choice("time=4", "time=1", 4 * 120000, 20, MH_PARTS_LEAST, 1.49);
}

/* 1.7 million chunks, 2.5 million windows: counted by what repeats. */
static void long_dimensions_are_counted_by_their_period(void **state)
{
    const uint64_t length = 10000000;
    mh_variable line = {.name = "t2m",
                        .dims = 1,
                        .dim_names = {"time"},
                        .shape = {length},
                        .chunk = {6},
                        .dtype = {2, 32}};
    mh_windows *windows;
    mh_amplification cost;
    const uint64_t cell = 12;
    (void)state;
    mh_variable_steps_c(&line);
    mh_window_texts texts = {.window = "time=3", .stride = "time=4"};
    assert_int_equal(mh_windows_new(&windows, &line, 1, &texts, NULL, NULL, NULL), MH_OK);
    assert_int_equal(mh_amplification_of(windows, &cell, &cost, NULL), MH_OK);
    /* windows begin at 0, 4, 8 of each cell: chunks 0, 0 to 1 and 1 */
    const double chunks = 1666667;
    assert_true(cost.unique_bytes == chunks * 24);
    assert_true(cost.decoded_bytes == cost.unique_bytes);
    assert_true(fabs(cost.sample_chunks - 4.0 / 3) < 1e-6);
    mh_windows_free(windows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cost_is_what_blocks_need),
        cmocka_unit_test(cells_are_as_small_as_the_cost_allows),
        cmocka_unit_test(long_dimensions_are_counted_by_their_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
