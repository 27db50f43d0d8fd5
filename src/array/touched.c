/* touched.c - how many chunks windows reach into, along one dimension
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/touched.h"

/* --- chunks of a dimension --- */

static const mh_cut *cut_at(mh_cuts cuts, uint64_t place)
{
    size_t low = 0, high = cuts.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(cuts.list[middle].begin <= place ? &low : &high) = middle;
    }
    return &cuts.list[low];
}

static uint64_t number_at(mh_cuts cuts, uint64_t place)
{
    const mh_cut *cut = cut_at(cuts, place);
    return cut->number + (place - cut->begin) / cut->chunk;
}

/* The lengths of all chunks before that one. */
static double values_before(mh_cuts cuts, uint64_t number)
{
    size_t low = 0, high = cuts.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(cuts.list[middle].number <= number ? &low : &high) = middle;
    }
    const mh_cut *cut = &cuts.list[low];
    return (double)cut->values + (double)(number - cut->number) * (double)cut->chunk;
}

/* --- one cell --- */

/* The chunks that windows number `origin` to `end` (not part of it) reach into, one by one and none
 * twice: both ends of windows only rise. */
typedef struct walk {
    const mh_window_dim *dim;
    mh_cuts cuts;
    int64_t offset;
    uint64_t origin, end;
    uint64_t next; /* the least chunk that was not given */
} walk;

static int walk_on(walk *self, uint64_t *out)
{
    while (self->origin < self->end) {
        const mh_window_dim *dim = self->dim;
        const uint64_t begin =
            (uint64_t)((int64_t)(dim->first + self->origin * dim->stride) + self->offset);
        const uint64_t first = number_at(self->cuts, begin);
        const uint64_t last = number_at(self->cuts, begin + dim->window - 1);
        if (self->next < first)
            self->next = first;
        if (self->next <= last) {
            *out = self->next++;
            return 1;
        }
        self->origin++;
    }
    return 0;
}

/* From chunk `low` to `high`: how many, and their lengths. */
static void count_run(mh_cuts cuts, uint64_t low, uint64_t high, double *chunks, double *values)
{
    if (low > high)
        return;
    *chunks += (double)(high - low + 1);
    *values += values_before(cuts, high + 1) - values_before(cuts, low);
}

/* Where no chunk lies between two windows: from the first one's to the last one's. */
static mh_touched of_row(const mh_window_dim *dim, mh_cuts cuts, uint64_t begin, uint64_t end)
{
    mh_touched sum = {0};
    const uint64_t first = dim->first + begin * dim->stride;
    const uint64_t last = dim->first + (end - 1) * dim->stride + dim->window - 1;
    const uint64_t low = number_at(cuts, first), high = number_at(cuts, last);
    const uint64_t target_low = number_at(cuts, (uint64_t)((int64_t)first + dim->target));
    const uint64_t target_high = number_at(cuts, (uint64_t)((int64_t)last + dim->target));
    count_run(cuts, low, high, &sum.chunks.window, &sum.values.window);
    count_run(cuts, target_low, target_high, &sum.chunks.target, &sum.values.target);
    count_run(cuts, low > target_low ? low : target_low, high < target_high ? high : target_high,
              &sum.chunks.both, &sum.values.both);
    return sum;
}

static mh_touched of_cell(const mh_window_dim *dim, mh_cuts cuts, uint64_t begin, uint64_t end)
{
    walk windows = {.dim = dim, .cuts = cuts, .origin = begin, .end = end};
    walk targets = windows;
    mh_touched sum = {0};
    uint64_t a = 0, b = 0;
    if (cuts.count == 0)
        return (mh_touched){{1, 1, 1}, {1, 1, 1}};
    /* The last chunk of a part may be as short as one value. */
    if (dim->window && dim->stride < dim->window + (cuts.count == 1 ? cuts.list->chunk : 1))
        return of_row(dim, cuts, begin, end);
    targets.offset = dim->target;
    int more_a = walk_on(&windows, &a), more_b = walk_on(&targets, &b);
    while (more_a || more_b) {
        const int of_window = more_a && (!more_b || a <= b),
                  of_target = more_b && (!more_a || b <= a);
        if (of_window)
            count_run(cuts, a, a, &sum.chunks.window, &sum.values.window);
        if (of_target)
            count_run(cuts, b, b, &sum.chunks.target, &sum.values.target);
        if (of_window && of_target)
            count_run(cuts, a, a, &sum.chunks.both, &sum.values.both);
        if (of_window)
            more_a = walk_on(&windows, &a);
        if (of_target)
            more_b = walk_on(&targets, &b);
    }
    return sum;
}

/* --- all cells --- */

static void raise_to(mh_reach *most, const mh_reach *one)
{
    most->window = one->window > most->window ? one->window : most->window;
    most->target = one->target > most->target ? one->target : most->target;
    most->both = one->both > most->both ? one->both : most->both;
}

static void add_times(mh_reach *sum, const mh_reach *one, double times)
{
    sum->window += one->window * times;
    sum->target += one->target * times;
    sum->both += one->both * times;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* After so many windows chunks, cells and windows lie to each other as before; 0: never soon. */
static uint64_t period_of(const mh_window_dim *dim, mh_cuts cuts, uint64_t cell)
{
    uint64_t length = dim->stride;
    const uint64_t chunk = cuts.count ? cuts.list->chunk : 0;
    if (cuts.count > 1 ||
        __builtin_mul_overflow(length, cell / common_divisor(length, cell), &length) ||
        (chunk && __builtin_mul_overflow(length, chunk / common_divisor(length, chunk), &length)))
        return 0;
    return length / dim->stride;
}

/* Cells from window `begin` to `end`. */
static void add_cells(const mh_window_dim *dim, mh_cuts cuts, uint64_t cell, uint64_t begin,
                      uint64_t end, mh_touched *sum, mh_touched *most)
{
    for (uint64_t next; begin < end; begin = next) {
        const uint64_t edge = ((dim->first + begin * dim->stride) / cell + 1) * cell;
        next = (edge - dim->first + dim->stride - 1) / dim->stride;
        next = next < end ? next : end;
        const mh_touched one = of_cell(dim, cuts, begin, next);
        add_times(&sum->chunks, &one.chunks, 1);
        add_times(&sum->values, &one.values, 1);
        raise_to(&most->chunks, &one.chunks);
        raise_to(&most->values, &one.values);
    }
}

void mh_touched_sum(const mh_window_dim *dim, mh_cuts cuts, uint64_t cell, mh_touched *sum,
                    mh_touched *most)
{
    const uint64_t period = period_of(dim, cuts, cell);
    const uint64_t edge = (dim->first / cell + 1) * cell;
    uint64_t begin = (edge - dim->first + dim->stride - 1) / dim->stride; /* of the second cell */
    *sum = *most = (mh_touched){0};
    begin = begin < dim->count ? begin : dim->count;
    add_cells(dim, cuts, cell, 0, begin, sum, most);
    const uint64_t times = period ? (dim->count - begin) / period : 0;
    if (times > 1) {
        mh_touched one = {0};
        add_cells(dim, cuts, cell, begin, begin + period, &one, most);
        add_times(&sum->chunks, &one.chunks, (double)times);
        add_times(&sum->values, &one.values, (double)times);
        begin += times * period;
    }
    add_cells(dim, cuts, cell, begin, dim->count, sum, most);
}
