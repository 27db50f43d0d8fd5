/* memory_growth.c - whether memory grows steadily, from looks at it
 * SPDX-License-Identifier: Apache-2.0
 *
 * A leak grows all the time. A cache that fills, workers that are forked anew and an allocator that
 * settles make steps and plateaus, and what an epoch keeps until its end makes a saw-tooth.
 */
#include "diagnose/run_reader.h"

#include <stdlib.h>

#define SLOPE_POINTS 100 /* their pairs are all compared */
#define PARTS 4          /* of the time, whose levels are compared */
#define PART_POINTS 128  /* of a part, for its level */
#define POINTS_LEAST 8   /* before parts have a level */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    if (!count)
        return 0;
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static size_t stride_for(size_t count, size_t most)
{
    return (count + most - 1) / most;
}

/* Theil and Sen: the median of the slopes of all pairs. A few odd points do not move it. */
static double robust_slope(const mh_memory_point *points, size_t count)
{
    double slopes[SLOPE_POINTS * SLOPE_POINTS / 2];
    size_t stride = stride_for(count, SLOPE_POINTS), found = 0;
    for (size_t a = 0; a < count; a += stride)
        for (size_t b = a + stride; b < count; b += stride)
            if (points[b].t > points[a].t)
                slopes[found++] = (points[b].bytes - points[a].bytes) / (points[b].t - points[a].t);
    return median(slopes, found);
}

/* The share of the intervals that are part of the growth: one that has less than a tenth of what
 * the slope would have it gain is not, so that one jump among looks that are all alike is not
 * growth all the time. */
static double share_up(const mh_memory_point *points, size_t count, double slope)
{
    size_t up = 0;
    for (size_t at = 1; at < count; at++) {
        double bytes = points[at].bytes - points[at - 1].bytes;
        double seconds = points[at].t - points[at - 1].t;
        up += bytes > (slope > 0 ? 0.1 * slope * seconds : 0);
    }
    return count > 1 ? (double)up / (double)(count - 1) : 0;
}

/* The median of the points from `from` up to `to` seconds; negative where there are none. */
static double level(const mh_memory_point *points, size_t count, double from, double to)
{
    double values[PART_POINTS];
    size_t found = 0, stride = stride_for(count, PART_POINTS);
    for (size_t at = 0; at < count; at += stride)
        if (points[at].t >= from && points[at].t <= to)
            values[found++] = points[at].bytes;
    return found ? median(values, found) : -1;
}

/* The least gain from one part of the time to the next over the largest: 1 where memory grows by
 * the same all the time, near 0 after a step, on a plateau and in a saw-tooth. */
static double evenness(const mh_memory_point *points, size_t count)
{
    if (count < POINTS_LEAST)
        return 0;
    double begin = points[0].t, part = (points[count - 1].t - begin) / PARTS;
    double before = level(points, count, begin, begin + part), least = 0, most = 0;
    for (int at = 1; at < PARTS; at++) {
        double now = level(points, count, begin + at * part, begin + (at + 1) * part);
        if (before < 0 || now <= before)
            return 0;
        least = at == 1 || now - before < least ? now - before : least;
        most = now - before > most ? now - before : most;
        before = now;
    }
    return least / most;
}

uint64_t mh_process_mark(uint32_t pid)
{
    uint64_t mark = (pid + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
    return mark ^ mark >> 29;
}

/* The set of processes that was there in most of the looks. One that came and went in between, a
 * program that was called, does not end it. */
static uint64_t main_set(const mh_memory_point *points, size_t count)
{
    uint64_t chosen = 0;
    size_t most = 0;
    for (size_t at = 0, next; at < count; at = next) {
        size_t same = 0;
        for (next = at + 1; next < count && points[next].set == points[at].set;)
            next++;
        for (size_t other = at; other < count; other++)
            same += points[other].set == points[at].set;
        if (same > most) {
            most = same;
            chosen = points[at].set;
        }
    }
    return chosen;
}

static double span(const mh_memory_point *points, size_t count)
{
    return count ? points[count - 1].t - points[0].t : 0;
}

/* Leaves the points that can be compared: all of one set of processes where that was there for half
 * of the time, else what the training process alone had. Workers that are forked anew for an epoch
 * hold what they need when they begin, and give it back with its end. How many there are. */
static size_t comparable(mh_memory_point *points, size_t count)
{
    uint64_t set = main_set(points, count);
    size_t first = 0, last = count, kept = 0;
    while (first < count && points[first].set != set)
        first++;
    while (last > first && points[last - 1].set != set)
        last--;
    int stays = 2 * span(points + first, last - first) >= span(points, count);
    for (size_t at = 0; at < count; at++) {
        if (stays ? points[at].set != set : !(points[at].main_bytes > 0))
            continue;
        points[kept] = points[at];
        points[kept].bytes = stays ? points[at].bytes : points[at].main_bytes;
        kept++;
    }
    return kept;
}

void mh_memory_growth(mh_memory_point *points, size_t count, mh_usage_sum *out)
{
    count = comparable(points, count);
    if (!count)
        return;
    out->memory_first_bytes = points[0].bytes;
    out->memory_last_bytes = points[count - 1].bytes;
    out->memory_ns = (uint64_t)(span(points, count) * 1e9);
    out->memory_per_s = robust_slope(points, count);
    out->memory_share_up = share_up(points, count, out->memory_per_s);
    out->memory_even = evenness(points, count);
}
