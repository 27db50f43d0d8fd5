/* test_cells.c - samples in cells, against counting them one by one
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/cells.h"
#include "unit.h"

#define SAMPLES_MOST 4096

static uint64_t drawn(uint64_t *state, uint64_t most)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % (most + 1);
}

static mh_cells some_cells(uint64_t *state)
{
    mh_cells cells = {.dims = (uint32_t)(1 + drawn(state, 2))};
    for (uint32_t d = 0; d < cells.dims; d++)
        cells.dim[d] = (mh_cells_dim){.count = 1 + drawn(state, 12),
                                      .start = drawn(state, 9),
                                      .stride = 1 + drawn(state, 5),
                                      .cell = 1 + drawn(state, 9)};
    return cells;
}

/* Cells by what they are: origins of a sample, divided by the cells' lengths. */
static void cell_by_hand(const mh_cells *cells, uint64_t sample, uint64_t *out)
{
    for (uint32_t d = cells->dims; d-- > 0;) {
        const mh_cells_dim *dim = &cells->dim[d];
        out[d] = (dim->start + sample % dim->count * dim->stride) / dim->cell;
        sample /= dim->count;
    }
}

static void check(const mh_cells *cells, uint64_t seed)
{
    uint64_t sizes[SAMPLES_MOST] = {0}, samples = mh_cells_samples(cells), total = 0;
    uint64_t count = mh_cells_count(cells), first[3] = {0}, other[3] = {0};
    int equal = 1;
    assert_true(samples <= SAMPLES_MOST);
    for (uint64_t sample = 0; sample < samples; sample++) {
        uint64_t member;
        uint64_t cell = mh_cells_find(cells, sample, &member);
        if (cell >= count || member >= mh_cells_size(cells, cell) ||
            mh_cells_sample(cells, cell, member) != sample)
            fail_msg("seed %llu: sample %llu", (unsigned long long)seed,
                     (unsigned long long)sample);
        cell_by_hand(cells, sample, first);
        cell_by_hand(cells, mh_cells_sample(cells, cell, 0), other);
        assert_memory_equal(first, other, sizeof first);
        sizes[cell]++;
    }
    for (uint64_t cell = 0; cell < count; cell++) {
        assert_int_equal(sizes[cell], mh_cells_size(cells, cell));
        assert_true(sizes[cell] > 0);
        equal &= sizes[cell] == sizes[0];
        total += sizes[cell];
    }
    assert_int_equal(total, samples);
    if (mh_cells_equal_size(cells) && (!equal || mh_cells_equal_size(cells) != sizes[0]))
        fail_msg("seed %llu: equal size", (unsigned long long)seed);
}

static void every_sample_is_in_one_cell(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint64_t random = seed;
        mh_cells cells = some_cells(&random);
        check(&cells, seed);
    }
}

static void runs_are_cells_of_one_dimension(void **state)
{
    mh_cells cells = mh_cells_of_runs(10, 4);
    (void)state;
    check(&cells, 0);
    assert_int_equal(mh_cells_count(&cells), 3);
    assert_int_equal(mh_cells_size(&cells, 2), 2);
    assert_int_equal(mh_cells_equal_size(&cells), 0);
    cells = mh_cells_of_runs(12, 4);
    assert_int_equal(mh_cells_equal_size(&cells), 4);
    cells = mh_cells_of_runs(0, 4);
    assert_int_equal(mh_cells_count(&cells), 0);
    cells.dims = 0;
    assert_int_equal(mh_cells_count(&cells), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_in_one_cell),
        cmocka_unit_test(runs_are_cells_of_one_dimension),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
