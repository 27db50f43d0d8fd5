/* touched.c - how many chunks windows reach into, along one dimension
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/touched.h"

/* The chunks that windows number `origin` to `end` (not part of it) reach into, one by one and none
 * twice: both ends of windows only rise. */
typedef struct walk {
    const mh_window_dim *dim;
    int64_t offset;
    uint64_t chunk, origin, end;
    uint64_t next; /* the least chunk that was not given */
} walk;

static int walk_on(walk *self, uint64_t *out)
{
    while (self->origin < self->end) {
        const mh_window_dim *dim = self->dim;
        const uint64_t begin =
            (uint64_t)((int64_t)(dim->first + self->origin * dim->stride) + self->offset);
        const uint64_t first = begin / self->chunk;
        const uint64_t last = (begin + dim->window - 1) / self->chunk;
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

/* The same where no chunk lies between two windows: from the first one's to the last one's. */
static mh_touched of_row(const mh_window_dim *dim, uint64_t chunk, uint64_t begin, uint64_t end)
{
    const uint64_t first = dim->first + begin * dim->stride;
    const uint64_t last = dim->first + (end - 1) * dim->stride + dim->window - 1;
    const uint64_t low = first / chunk, high = last / chunk;
    const uint64_t target_low = (uint64_t)((int64_t)first + dim->target) / chunk;
    const uint64_t target_high = (uint64_t)((int64_t)last + dim->target) / chunk;
    const uint64_t both_low = low > target_low ? low : target_low;
    const uint64_t both_high = high < target_high ? high : target_high;
    return (mh_touched){.window = (double)(high - low + 1),
                        .target = (double)(target_high - target_low + 1),
                        .both = both_high >= both_low ? (double)(both_high - both_low + 1) : 0};
}

static mh_touched of_cell(const mh_window_dim *dim, uint64_t chunk, uint64_t begin, uint64_t end)
{
    walk windows = {.dim = dim, .chunk = chunk, .origin = begin, .end = end};
    walk targets = windows;
    mh_touched sum = {0};
    uint64_t a = 0, b = 0;
    if (chunk == 0)
        return (mh_touched){1, 1, 1};
    if (dim->window && dim->stride < dim->window + chunk)
        return of_row(dim, chunk, begin, end);
    targets.offset = dim->target;
    int more_a = walk_on(&windows, &a), more_b = walk_on(&targets, &b);
    while (more_a || more_b) {
        const int of_window = more_a && (!more_b || a <= b),
                  of_target = more_b && (!more_a || b <= a);
        sum.window += of_window;
        sum.target += of_target;
        sum.both += of_window && of_target;
        if (of_window)
            more_a = walk_on(&windows, &a);
        if (of_target)
            more_b = walk_on(&targets, &b);
    }
    return sum;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
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
static uint64_t period_of(const mh_window_dim *dim, uint64_t chunk, uint64_t cell)
{
    uint64_t length = dim->stride;
    if (__builtin_mul_overflow(length, cell / common_divisor(length, cell), &length) ||
        (chunk && __builtin_mul_overflow(length, chunk / common_divisor(length, chunk), &length)))
        return 0;
    return length / dim->stride;
}

static void add_times(mh_touched *sum, const mh_touched *one, double times)
{
    sum->window += one->window * times;
    sum->target += one->target * times;
    sum->both += one->both * times;
}

/* Cells from window `begin` to `end`. */
static void add_cells(const mh_window_dim *dim, uint64_t chunk, uint64_t cell, uint64_t begin,
                      uint64_t end, mh_touched *sum, mh_touched *most)
{
    for (uint64_t next; begin < end; begin = next) {
        const uint64_t edge = ((dim->first + begin * dim->stride) / cell + 1) * cell;
        next = (edge - dim->first + dim->stride - 1) / dim->stride;
        next = next < end ? next : end;
        const mh_touched one = of_cell(dim, chunk, begin, next);
        add_times(sum, &one, 1);
        most->window = larger(most->window, one.window);
        most->target = larger(most->target, one.target);
        most->both = larger(most->both, one.both);
    }
}

void mh_touched_sum(const mh_window_dim *dim, uint64_t chunk, uint64_t cell, mh_touched *sum,
                    mh_touched *most)
{
    const uint64_t period = period_of(dim, chunk, cell);
    const uint64_t edge = (dim->first / cell + 1) * cell;
    uint64_t begin = (edge - dim->first + dim->stride - 1) / dim->stride; /* of the second cell */
    *sum = *most = (mh_touched){0};
    begin = begin < dim->count ? begin : dim->count;
    add_cells(dim, chunk, cell, 0, begin, sum, most);
    const uint64_t times = period ? (dim->count - begin) / period : 0;
    if (times > 1) {
        mh_touched one = {0};
        add_cells(dim, chunk, cell, begin, begin + period, &one, most);
        add_times(sum, &one, (double)times);
        begin += times * period;
    }
    add_cells(dim, chunk, cell, begin, dim->count, sum, most);
}
