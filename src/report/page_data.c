/* page_data.c - the page's data as JSON
 * SPDX-License-Identifier: Apache-2.0
 *
 * Long lists of numbers are texts of whole numbers, which is a third of the size and quick to take
 * apart. Times in them are counted in units of timeline.unit_s from the run's first event on.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "report/html_page.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_RUN_NS UINT64_C(1000000000000) /* up to 1000 s: units of 100 ns, else of 1 us */
#define BINS_MOST ((size_t)400000)           /* of all lanes together */
#define SERIES_MOST ((size_t)480)            /* points of a series */

static void put_text(mh_jsonout *out, const char *key, const char *value)
{
    mh_jsonout_key(out, key);
    mh_jsonout_string(out, value);
}

static void put_whole(mh_jsonout *out, const char *key, uint64_t value)
{
    mh_jsonout_key(out, key);
    mh_jsonout_uint(out, value);
}

static void put_real(mh_jsonout *out, const char *key, double value)
{
    mh_jsonout_key(out, key);
    mh_jsonout_double(out, value);
}

/* --- lists of numbers --- */

typedef struct numbers {
    char *text;
    size_t length, room;
    bool failed;
} numbers;

static void numbers_add(numbers *list, int64_t value)
{
    char text[24];
    int length = snprintf(text, sizeof text, list->length ? " %" PRId64 : "%" PRId64, value);
    if (list->failed)
        return;
    if (list->length + (size_t)length + 1 > list->room) {
        size_t room = list->room ? list->room * 2 : 4096;
        char *grown = mh_realloc(list->text, room, 1);
        list->failed = !grown;
        if (!grown)
            return;
        list->text = grown;
        list->room = room;
    }
    memcpy(list->text + list->length, text, (size_t)length + 1);
    list->length += (size_t)length;
}

static void put_numbers(mh_jsonout *out, const char *key, numbers *list)
{
    if (list->failed)
        out->failed = MH_ERR_NOMEM;
    if (list->length)
        put_text(out, key, list->text);
    mh_free(list->text);
}

/* --- the timeline --- */

typedef struct drawing {
    const mh_chapter *chapter;
    const mh_timeline *timeline;
    uint64_t unit; /* ns */
    size_t merge;  /* bins written as one */
} drawing;

bool mh_lane_drawn(const mh_chapter *chapter, const mh_lane *lane)
{
    mh_lane_kind kind = mh_lane_kind_of(lane);
    return kind == MH_LANE_WAIT || kind == MH_LANE_TRAIN || kind == MH_LANE_TRANSFER ||
           lane->key.loader == chapter->loader;
}

size_t mh_chapter_rows(const mh_chapter *chapter)
{
    int rows = chapter->facts.workers > 0 ? chapter->facts.workers : 0;
    for (size_t at = 0; at < chapter->timeline.lanes.count; at++) {
        const mh_lane *lane = mh_timeline_lane(&chapter->timeline, at);
        if (mh_lane_drawn(chapter, lane) && lane->key.worker >= rows)
            rows = lane->key.worker + 1;
    }
    return rows < MH_TIMELINE_ROWS ? (size_t)rows : MH_TIMELINE_ROWS;
}

static int by_lane_then_time(const void *a, const void *b)
{
    const mh_span *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int64_t units(const drawing *d, uint64_t t)
{
    return (int64_t)((t - d->timeline->first) / d->unit);
}

/* Begin (from the one before), length, what it is about, of every span before `until`. */
static void put_spans(mh_jsonout *out, const drawing *d, const mh_spans *spans, uint32_t lane)
{
    numbers list = {0};
    int64_t before = 0;
    size_t low = 0, high = spans->count;
    while (low < high) { /* the first of the lane */
        size_t middle = (low + high) / 2;
        if (spans->items[middle].lane < lane)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < spans->count && spans->items[low].lane == lane; low++) {
        const mh_span *span = &spans->items[low];
        if (span->begin >= spans->until)
            break;
        int64_t begin = units(d, span->begin);
        numbers_add(&list, begin - before);
        numbers_add(&list, (int64_t)(span->ns / d->unit));
        numbers_add(&list, span->about);
        before = begin;
    }
    put_numbers(out, "spans", &list);
}

static void put_longest(mh_jsonout *out, const drawing *d, const mh_lane *lane)
{
    numbers list = {0};
    for (size_t at = 0; at < lane->longest_count; at++) {
        numbers_add(&list, units(d, lane->longest[at].begin));
        numbers_add(&list, (int64_t)(lane->longest[at].ns / d->unit));
        numbers_add(&list, lane->longest[at].about);
    }
    put_numbers(out, "longest", &list);
}

/* How far it is from the last bin that held something, permille covered, longest span, spans. */
static void put_bins(mh_jsonout *out, const drawing *d, const mh_lane *lane)
{
    numbers list = {0};
    size_t before = 0;
    double width = (double)d->timeline->width * (double)d->merge;
    for (size_t at = 0; at < MH_TIMELINE_BINS; at += d->merge) {
        mh_bin sum = {0};
        for (size_t one = at; one < at + d->merge; one++) {
            sum.covered += lane->bins[one].covered;
            sum.count += lane->bins[one].count;
            sum.longest =
                lane->bins[one].longest > sum.longest ? lane->bins[one].longest : sum.longest;
        }
        if (!sum.count && !(sum.covered > 0))
            continue;
        double covered = sum.covered / width * 1000;
        numbers_add(&list, (int64_t)(at / d->merge - before));
        /* a bin that holds anything is not empty */
        numbers_add(&list, covered >= 999.5 ? 1000 : covered < 1 ? 1 : (int64_t)(covered + 0.5));
        numbers_add(&list, (int64_t)((double)sum.longest / (double)d->unit));
        numbers_add(&list, sum.count);
        before = at / d->merge;
    }
    put_numbers(out, "bins", &list);
}

static void put_lane(mh_jsonout *out, const drawing *d, size_t number)
{
    const mh_lane *lane = mh_timeline_lane(d->timeline, number);
    const mh_spans *spans = mh_lane_spans(d->timeline, lane);
    if (!mh_lane_drawn(d->chapter, lane))
        return;
    mh_jsonout_object(out);
    put_text(out, "kind", mh_lane_name(mh_lane_kind_of(lane)));
    mh_jsonout_key(out, "worker");
    mh_jsonout_int(out, lane->key.worker);
    put_whole(out, "count", lane->count);
    put_real(out, "total_s", (double)lane->total / 1e9);
    put_real(out, "max_s", (double)lane->max / 1e9);
    put_longest(out, d, lane);
    put_spans(out, d, spans, (uint32_t)number);
    if (spans->until != UINT64_MAX)
        put_bins(out, d, lane);
    mh_jsonout_object_end(out);
}

static void put_until(mh_jsonout *out, const char *key, const drawing *d, uint64_t until)
{
    mh_jsonout_key(out, key);
    if (until == UINT64_MAX)
        mh_jsonout_null(out);
    else
        mh_jsonout_int(out, units(d, until));
}

static void put_timeline(mh_jsonout *out, const mh_chapter *chapter)
{
    const mh_timeline *timeline = &chapter->timeline;
    uint64_t length = timeline->last > timeline->first ? timeline->last - timeline->first : 0;
    drawing d = {.chapter = chapter,
                 .timeline = timeline,
                 .unit = length < SHORT_RUN_NS ? 100 : 1000,
                 .merge = 1};
    while (timeline->lanes.count * (MH_TIMELINE_BINS / d.merge) > BINS_MOST)
        d.merge *= 2;
    const mh_spans *both[] = {&timeline->work, &timeline->loop};
    for (size_t at = 0; at < 2; at++)
        if (both[at]->count)
            qsort(both[at]->items, both[at]->count, sizeof *both[at]->items, by_lane_then_time);
    mh_jsonout_key(out, "timeline");
    mh_jsonout_object(out);
    put_real(out, "unit_s", (double)d.unit / 1e9);
    mh_jsonout_key(out, "length");
    mh_jsonout_uint(out, length / d.unit);
    put_real(out, "bin_begin", ((double)timeline->base - (double)timeline->first) / (double)d.unit);
    put_real(out, "bin", (double)timeline->width * (double)d.merge / (double)d.unit);
    put_until(out, "work_until", &d, timeline->work.until);
    put_until(out, "loop_until", &d, timeline->loop.until);
    put_whole(out, "left_out", timeline->left_out);
    put_whole(out, "rows", mh_chapter_rows(chapter));
    mh_jsonout_key(out, "lanes");
    mh_jsonout_array(out);
    for (size_t at = 0; at < timeline->lanes.count; at++)
        put_lane(out, &d, at);
    mh_jsonout_array_end(out);
    mh_jsonout_object_end(out);
}

/* --- what was used --- */

/* Four digits are more than a picture shows. */
static double rounded(double value)
{
    if (!(fabs(value) > 0) || !isfinite(value))
        return value;
    double scale = pow(10, 3 - floor(log10(fabs(value))));
    return round(value * scale) / scale;
}

static void put_series(mh_jsonout *out, const mh_chapter *chapter)
{
    const mh_timeline *timeline = &chapter->timeline;
    size_t used = timeline->first > timeline->last
                      ? 0
                      : (size_t)((timeline->last - timeline->base) / timeline->width) + 1;
    size_t many = (used + SERIES_MOST - 1) / SERIES_MOST;
    mh_jsonout_key(out, "usage");
    mh_jsonout_object(out);
    put_real(out, "begin_s", ((double)timeline->base - (double)timeline->first) / 1e9);
    put_real(out, "step_s", (double)timeline->width * (double)many / 1e9);
    for (size_t series = 0; series < MH_SERIES_COUNT; series++) {
        if (!timeline->series[series])
            continue;
        mh_jsonout_key(out, mh_series_name((mh_series)series));
        mh_jsonout_array(out);
        for (size_t at = 0; at < used; at += many)
            mh_jsonout_double(out,
                              rounded(mh_timeline_mean(timeline, (mh_series)series, at, many)));
        mh_jsonout_array_end(out);
    }
    mh_jsonout_object_end(out);
}

/* --- tables --- */

static void put_stages(mh_jsonout *out, const mh_chapter *chapter)
{
    mh_jsonout_key(out, "stages");
    mh_jsonout_array(out);
    for (size_t at = 0; at < chapter->stage_count; at++) {
        const mh_stage_line *line = &chapter->stages[at];
        mh_jsonout_object(out);
        put_text(out, "name", line->name);
        put_whole(out, "count", line->count);
        put_real(out, "total_s", line->total);
        put_real(out, "mean_s", line->mean);
        put_real(out, "p50_s", line->p50);
        put_real(out, "p99_s", line->p99);
        put_real(out, "max_s", line->max);
        put_real(out, "share", line->share);
        mh_jsonout_key(out, "of_workers");
        mh_jsonout_bool(out, line->of_workers);
        mh_jsonout_object_end(out);
    }
    mh_jsonout_array_end(out);
}

static void put_waits(mh_jsonout *out, const mh_chapter *chapter)
{
    const mh_wait_picture *picture = &chapter->wait_picture;
    mh_jsonout_key(out, "waits");
    mh_jsonout_object(out);
    put_whole(out, "count", chapter->waits.count);
    put_real(out, "mean", chapter->waits.mean);
    put_real(out, "std", picture->std);
    put_real(out, "p50", chapter->waits.p50);
    put_real(out, "p90", picture->p90);
    put_real(out, "p95", picture->p95);
    put_real(out, "p99", chapter->waits.p99);
    put_real(out, "p999", picture->p999);
    put_real(out, "max", chapter->waits.max);
    mh_jsonout_key(out, "bins"); /* where it begins, where it ends, how many */
    mh_jsonout_array(out);
    for (size_t at = 0; at < MH_WAIT_BINS; at++) {
        if (!picture->bins[at])
            continue;
        mh_jsonout_array(out);
        mh_jsonout_double(out, rounded(mh_wait_bin_begin(at)));
        mh_jsonout_double(out, rounded(mh_wait_bin_begin(at + 1)));
        mh_jsonout_uint(out, picture->bins[at]);
        mh_jsonout_array_end(out);
    }
    mh_jsonout_array_end(out);
    mh_jsonout_object_end(out);
}

static void put_setting(mh_jsonout *out, const char *key, int value)
{
    if (value >= 0) {
        mh_jsonout_key(out, key);
        mh_jsonout_int(out, value);
    }
}

static void put_loader(mh_jsonout *out, const mh_facts *facts)
{
    mh_jsonout_key(out, "loader");
    mh_jsonout_object(out);
    put_text(out, "kind", facts->kind);
    put_setting(out, "workers", facts->workers);
    put_setting(out, "prefetch", facts->prefetch);
    put_setting(out, "batch_size", facts->batch_size);
    put_setting(out, "in_order", facts->in_order);
    put_setting(out, "persistent", facts->persistent);
    put_setting(out, "pin_memory", facts->pin_memory);
    put_setting(out, "cpus", facts->cpus);
    if (facts->start[0])
        put_text(out, "start", facts->start);
    mh_jsonout_object_end(out);
}

static void put_ranks(mh_jsonout *out, const mh_facts *facts)
{
    mh_jsonout_key(out, "ranks");
    mh_jsonout_array(out);
    for (size_t at = 0; at < facts->rank_count; at++) {
        const mh_rank_cost *rank = &facts->ranks[at];
        mh_jsonout_object(out);
        put_whole(out, "rank", rank->rank);
        put_text(out, "host", rank->host);
        put_whole(out, "steps", rank->steps);
        put_real(out, "data_s", (double)rank->data / 1e9);
        put_real(out, "own_s", (double)rank->own / 1e9);
        put_real(out, "waiting_s", (double)rank->waiting / 1e9);
        put_real(out, "total_s", (double)rank->total / 1e9);
        mh_jsonout_object_end(out);
    }
    mh_jsonout_array_end(out);
}

static void put_diagnosis(mh_jsonout *out, const mh_chapter *chapter)
{
    char *text = NULL;
    mh_status status = mh_diagnosis_json(&text, &chapter->verdict, &chapter->facts, &chapter->waits,
                                         chapter->bad_lines, chapter->setup_s, NULL);
    mh_jsonout_key(out, "diagnosis");
    if (status == MH_OK)
        mh_page_copy(out, text, strlen(text));
    else
        out->failed = status;
    mh_text_free(text);
}

static void put_chapter(mh_jsonout *out, const mh_chapter *chapter)
{
    mh_jsonout_newline(out);
    mh_jsonout_object(out);
    put_text(out, "name", chapter->name);
    put_text(out, "path", chapter->path);
    put_whole(out, "events", chapter->events);
    put_diagnosis(out, chapter);
    put_loader(out, &chapter->facts);
    put_stages(out, chapter);
    put_waits(out, chapter);
    put_ranks(out, &chapter->facts);
    put_series(out, chapter);
    mh_page_settings(out, chapter->path);
    put_timeline(out, chapter);
    mh_jsonout_object_end(out);
}

/* What the error bars are of. */
static const char *bars_of(const mh_page *page)
{
    size_t epochs = 0;
    for (size_t at = 0; at < page->count; at++)
        epochs += page->chapters[at]->rate.epochs;
    if (page->from_bench)
        return "repeats";
    if (epochs == page->count)
        return "epochs";
    return epochs ? "epochs, or tenths of a run with one" : "tenths of the run";
}

static void put_compared(mh_jsonout *out, const mh_page *page)
{
    mh_jsonout_key(out, "compared");
    mh_jsonout_object(out);
    put_text(out, "error_bars", bars_of(page));
    mh_jsonout_key(out, "configs");
    mh_jsonout_array(out);
    for (size_t at = 0; at < page->compared.count; at++) {
        const mh_compared *config = &page->compared.items[at];
        mh_jsonout_object(out);
        put_text(out, "name", config->name);
        put_text(out, "cause", config->cause);
        put_real(out, "samples_per_s", config->rate);
        put_real(out, "samples_per_s_std", config->rate_std);
        put_real(out, "total_s", config->total);
        put_real(out, "total_std_s", config->total_std);
        put_real(out, "wait_mean_s", config->wait_mean);
        put_real(out, "wait_p99_s", config->wait_p99);
        mh_jsonout_object_end(out);
    }
    mh_jsonout_array_end(out);
    if (page->recommended) {
        mh_jsonout_key(out, "recommended");
        mh_page_copy(out, page->recommended, strlen(page->recommended));
    }
    mh_jsonout_object_end(out);
}

void mh_page_data(mh_jsonout *out, const mh_page *page)
{
    mh_jsonout_object(out);
    put_whole(out, "version", 1);
    put_text(out, "millhead", MH_VERSION);
    put_compared(out, page);
    mh_jsonout_key(out, "runs");
    mh_jsonout_array(out);
    for (size_t at = 0; at < page->count; at++)
        put_chapter(out, page->chapters[at]);
    mh_jsonout_array_end(out);
    mh_jsonout_object_end(out);
}
