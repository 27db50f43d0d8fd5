/* timeline.c - when things happened in a run, in memory that does not grow with it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "report/timeline.h"

#include "base/alloc.h"
#include <math.h>
#include <string.h>

#define FIRST_WIDTH 1024 /* ns: the bins of a run of 4 ms */

const char *mh_lane_name(mh_lane_kind kind)
{
    static const char *const names[] = {
#define X(lane, name) name,
        MH_LANE_LIST(X)
#undef X
    };
    return names[kind];
}

const char *mh_series_name(mh_series series)
{
    static const char *const names[] = {
#define X(one, name) name,
        MH_SERIES_LIST(X)
#undef X
    };
    return names[series];
}

void mh_timeline_init(mh_timeline *timeline, size_t spans)
{
    *timeline = (mh_timeline){
        .width = FIRST_WIDTH,
        .first = UINT64_MAX,
        .lanes.size = sizeof(mh_lane),
        .work = {.most = spans, .until = UINT64_MAX},
        .loop = {.most = spans, .until = UINT64_MAX},
    };
}

void mh_timeline_deinit(mh_timeline *timeline)
{
    for (size_t at = 0; at < timeline->lanes.count; at++)
        mh_free(mh_timeline_lane(timeline, at)->bins);
    for (size_t at = 0; at < MH_SERIES_COUNT; at++)
        mh_free(timeline->series[at]);
    mh_records_deinit(&timeline->lanes);
    mh_free(timeline->work.items);
    mh_free(timeline->loop.items);
}

/* --- wider bins --- */

typedef struct rebin {
    size_t ahead;  /* old bins between the new base and the old one */
    size_t factor; /* old bins in a new one */
} rebin;

static void bins_widen(mh_bin *bins, rebin how)
{
    mh_bin wide[MH_TIMELINE_BINS] = {0};
    for (size_t at = 0; at < MH_TIMELINE_BINS; at++) {
        if (!bins[at].covered && !bins[at].count)
            continue;
        mh_bin *to = &wide[(at + how.ahead) / how.factor];
        to->covered += bins[at].covered;
        to->count += bins[at].count;
        to->longest = bins[at].longest > to->longest ? bins[at].longest : to->longest;
    }
    memcpy(bins, wide, sizeof wide);
}

static void series_widen(double *series, rebin how)
{
    double wide[MH_TIMELINE_BINS] = {0};
    for (size_t at = 0; at < MH_TIMELINE_BINS; at++)
        if (series[at] > 0)
            wide[(at + how.ahead) / how.factor] += series[at];
    memcpy(series, wide, sizeof wide);
}

/* Makes the bins reach from `first` to `last`, all that is in them included. */
static void timeline_reach(mh_timeline *timeline, uint64_t begin, uint64_t end)
{
    uint64_t first = begin < timeline->first ? begin : timeline->first;
    uint64_t last = end > timeline->last ? end : timeline->last;
    bool empty = timeline->first == UINT64_MAX;
    timeline->first = first;
    timeline->last = last;
    uint64_t width = timeline->width, base = empty ? first / width * width : timeline->base;
    if (!empty && first >= base && (last - base) / width < MH_TIMELINE_BINS)
        return;
    base = first < base ? first / width * width : base;
    while ((last - base) / width >= MH_TIMELINE_BINS) {
        width *= 2;
        base = base / width * width;
    }
    if (!empty) {
        rebin how = {(size_t)((timeline->base - base) / timeline->width),
                     (size_t)(width / timeline->width)};
        for (size_t at = 0; at < timeline->lanes.count; at++)
            bins_widen(mh_timeline_lane(timeline, at)->bins, how);
        for (size_t at = 0; at < MH_SERIES_COUNT; at++)
            if (timeline->series[at])
                series_widen(timeline->series[at], how);
    }
    timeline->base = base;
    timeline->width = width;
}

/* --- spans --- */

/* NULL: no memory, or no room for another lane, which *full tells. */
static mh_lane *lane_get(mh_timeline *timeline, mh_record_key key, bool *full)
{
    mh_lane *lane = mh_records_find(&timeline->lanes, key);
    *full = !lane && timeline->lanes.count == MH_TIMELINE_LANES;
    if (lane || *full)
        return lane;
    mh_bin *bins = mh_calloc(MH_TIMELINE_BINS, sizeof *bins);
    lane = bins ? mh_records_add(&timeline->lanes, key) : NULL;
    if (lane)
        lane->bins = bins;
    else
        mh_free(bins);
    return lane;
}

static void lane_cover(const mh_timeline *timeline, mh_lane *lane, uint64_t begin, uint64_t ns)
{
    uint64_t width = timeline->width, end = begin + ns;
    size_t at = (size_t)((begin - timeline->base) / width);
    lane->bins[at].count++;
    for (uint64_t from = begin; at < MH_TIMELINE_BINS; at++) {
        uint64_t next = timeline->base + (at + 1) * width;
        uint64_t to = end < next ? end : next;
        mh_bin *bin = &lane->bins[at];
        bin->covered += (double)(to - from);
        bin->longest = (float)ns > bin->longest ? (float)ns : bin->longest;
        if (to == end)
            break;
        from = to;
    }
}

static void lane_longest(mh_lane *lane, const mh_span *span)
{
    if (lane->longest_count < MH_TIMELINE_LONGEST) {
        lane->longest[lane->longest_count++] = *span;
        return;
    }
    mh_span *least = lane->longest;
    for (size_t at = 1; at < MH_TIMELINE_LONGEST; at++)
        if (lane->longest[at].ns < least->ns)
            least = &lane->longest[at];
    if (span->ns > least->ns)
        *least = *span;
}

static int spans_keep(mh_spans *spans, const mh_span *span)
{
    if (spans->count == spans->most) {
        spans->until = span->begin < spans->until ? span->begin : spans->until;
        return 1;
    }
    void *items = spans->items;
    if (!mh_array_reserve(&items, &spans->room, spans->count, sizeof *spans->items))
        return 0;
    spans->items = items;
    spans->items[spans->count++] = *span;
    return 1;
}

static bool of_worker(mh_lane_kind kind)
{
    return kind == MH_LANE_FETCH || kind == MH_LANE_SAMPLE || kind == MH_LANE_COLLATE ||
           mh_lane_has_tasks(kind);
}

const mh_spans *mh_lane_spans(const mh_timeline *timeline, const mh_lane *lane)
{
    return of_worker(mh_lane_kind_of(lane)) ? &timeline->work : &timeline->loop;
}

int mh_timeline_add(mh_timeline *timeline, uint32_t loader, mh_lane_kind kind, int64_t worker,
                    uint64_t begin, uint64_t ns, int64_t about)
{
    int32_t row =
        worker < 0 ? -1 : (int32_t)(worker < MH_TIMELINE_ROWS ? worker : MH_TIMELINE_ROWS - 1);
    mh_record_key key = {loader, (uint32_t)kind, row, 0};
    bool full;
    if (ns > UINT64_MAX / 4 || begin > UINT64_MAX / 4) { /* no clock: centuries */
        timeline->left_out++;
        return 1;
    }
    mh_lane *lane = lane_get(timeline, key, &full);
    if (!lane) {
        timeline->left_out += full;
        return full;
    }
    timeline_reach(timeline, begin, begin + ns);
    lane->count++;
    lane->tasks += mh_lane_has_tasks(kind) && about > 0 ? (uint64_t)about : 1;
    lane->total += ns;
    lane->max = ns > lane->max ? ns : lane->max;
    lane_cover(timeline, lane, begin, ns);
    mh_span span = {begin, ns, about, (uint32_t)mh_records_number(&timeline->lanes, lane)};
    lane_longest(lane, &span);
    return spans_keep(of_worker(kind) ? &timeline->work : &timeline->loop, &span);
}

/* --- series --- */

int mh_timeline_weigh(mh_timeline *timeline, mh_series series, uint64_t begin, uint64_t end,
                      double amount)
{
    if (end <= begin || end > UINT64_MAX / 4 || !(amount >= 0))
        return 1;
    double **bins = &timeline->series[series];
    if (!*bins) {
        *bins = mh_calloc(MH_TIMELINE_BINS, sizeof **bins);
        if (!*bins)
            return 0;
        timeline->series_first[series] = begin;
    }
    timeline_reach(timeline, begin, end);
    if (begin < timeline->series_first[series])
        timeline->series_first[series] = begin;
    if (end > timeline->series_last[series])
        timeline->series_last[series] = end;
    double per_ns = amount / (double)(end - begin);
    uint64_t from = begin;
    for (size_t at = (size_t)((begin - timeline->base) / timeline->width); from < end; at++) {
        uint64_t next = timeline->base + (at + 1) * timeline->width;
        uint64_t to = end < next ? end : next;
        (*bins)[at] += per_ns * (double)(to - from);
        from = to;
    }
    return 1;
}

double mh_timeline_mean(const mh_timeline *timeline, mh_series series, size_t bin, size_t many)
{
    uint64_t begin = timeline->base + bin * timeline->width;
    uint64_t end = begin + many * timeline->width;
    const uint64_t first = timeline->series_first[series], last = timeline->series_last[series];
    double sum = 0;
    if (!timeline->series[series] || begin >= last || end <= first)
        return NAN;
    begin = begin < first ? first : begin;
    end = end > last ? last : end;
    for (size_t at = bin; at < bin + many && at < MH_TIMELINE_BINS; at++)
        sum += timeline->series[series][at];
    double mean = sum / (double)(end - begin);
    int of_cpus = series == MH_SERIES_CPU_MAIN || series == MH_SERIES_CPU_WORKERS ||
                  series == MH_SERIES_CPU_MACHINE;
    return of_cpus && timeline->cpus && mean > timeline->cpus ? timeline->cpus : mean;
}
