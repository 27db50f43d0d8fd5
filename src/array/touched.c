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

static mh_touched of_cell(const mh_window_dim *dim, uint64_t chunk, uint64_t begin, uint64_t end)
{
    walk windows = {.dim = dim, .chunk = chunk, .origin = begin, .end = end};
    walk targets = windows;
    mh_touched sum = {0};
    uint64_t a = 0, b = 0;
    if (chunk == 0)
        return (mh_touched){1, 1, 1};
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

void mh_touched_sum(const mh_window_dim *dim, uint64_t chunk, uint64_t cell, mh_touched *sum,
                    mh_touched *most)
{
    *sum = *most = (mh_touched){0};
    for (uint64_t begin = 0, end; begin < dim->count; begin = end) {
        const uint64_t edge = ((dim->first + begin * dim->stride) / cell + 1) * cell;
        end = (edge - dim->first + dim->stride - 1) / dim->stride;
        end = end < dim->count ? end : dim->count;
        const mh_touched one = of_cell(dim, chunk, begin, end);
        sum->window += one.window;
        sum->target += one.target;
        sum->both += one.both;
        most->window = larger(most->window, one.window);
        most->target = larger(most->target, one.target);
        most->both = larger(most->both, one.both);
    }
}
