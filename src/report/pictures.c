/* pictures.c - the report's pictures as SVG files
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "report/html_page.h"
#include "report/svg.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define INK "#1b2430"
#define FAINT "#5d6b7c"
#define GRID "#e3e8ee"
#define EPOCH_STARTS                                                                               \
    0.02 /* of the run: what is lost at the starts of epochs is said from here on */
#define ONE_BATCH "the loop asked for one batch only"

/* The colours of the page, by kind of lane; people who see few colours tell them apart too. */
static const char *const colours[MH_LANE_KINDS] = {
    [MH_LANE_SETUP] = "#8f63c9",   [MH_LANE_FETCH] = "#6fb1e4",    [MH_LANE_SAMPLE] = "#2f7fc1",
    [MH_LANE_COLLATE] = "#e5a000", [MH_LANE_TRANSFER] = "#0f9b74", [MH_LANE_WAIT] = "#d5512a",
    [MH_LANE_TRAIN] = "#1f4e96",   [MH_LANE_EPOCH] = "#9aa7b5",    [MH_LANE_READ] = "#6fb1e4",
    [MH_LANE_DECODE] = "#2f7fc1",  [MH_LANE_PLACE] = "#e5a000",    [MH_LANE_STORAGE] = "#b07a95",
};

/* A part of the picture on which the run's time runs from left to right. */
typedef struct frame {
    mh_svg *svg;
    const mh_chapter *chapter;
    double x, y, width, height;
} frame;

static double frame_x(const frame *f, double t_ns)
{
    const mh_timeline *timeline = &f->chapter->timeline;
    double length = (double)(timeline->last - timeline->first);
    return f->x + (length > 0 ? (t_ns - (double)timeline->first) / length * f->width : 0);
}

/* --- numbers as people write them --- */

static void seconds_text(char *text, size_t room, double seconds)
{
    if (seconds >= 99.95) /* of three digits %g would make "1e+02" */
        (void)snprintf(text, room, "%.0f s", seconds);
    else if (seconds >= 0.9995)
        (void)snprintf(text, room, "%.3g s", seconds);
    else if (seconds >= 0.9995e-3)
        (void)snprintf(text, room, "%.3g ms", seconds * 1e3);
    else
        (void)snprintf(text, room, "%.3g µs", seconds * 1e6);
}

/* U+2068 and U+2069: what is between them is written in its own direction. As numbers, since an
 * editor would heed the characters. */
static const char isolate[] = {'\xe2', '\x81', '\xa8', '\0'};
static const char isolate_end[] = {'\xe2', '\x81', '\xa9', '\0'};
#define NAME_ROOM (MH_CHAPTER_NAME + 16) /* of a name with both and an ellipsis */

/* As much of a name as has the width of `most` letters, an ellipsis in place of the rest. */
static const char *name_cut(char *text, const char *name, size_t most)
{
    size_t wide = 0, keep = 0, next;
    bool from_right = false;
    for (size_t at = 0; name[at]; at = next) {
        for (next = at + 1; ((unsigned char)name[next] & 0xC0) == 0x80;) /* the same character */
            next++;
        unsigned char lead = (unsigned char)name[at];
        wide += lead >= 0xE3 ? 2 : 1;                             /* ideographs and emoji */
        from_right = from_right || (lead >= 0xD6 && lead < 0xE0); /* Hebrew, Arabic */
        if (wide < most)
            keep = next;
    }
    bool whole = wide <= most;
    (void)snprintf(text, NAME_ROOM, "%s%.*s%s%s", from_right ? isolate : "",
                   (int)(whole ? strlen(name) : keep), name, whole ? "" : "…",
                   from_right ? isolate_end : "");
    return text;
}

/* A step of 1, 2 or 5 times a power of ten that divides `range` into about `parts`. */
static double nice_step(double range, double parts)
{
    double raw = range / parts, power = pow(10, floor(log10(raw > 0 ? raw : 1)));
    double first = raw / power;
    return power * (first <= 1 ? 1 : first <= 2 ? 2 : first <= 5 ? 5 : 10);
}

static void time_axis(const frame *f, bool grid)
{
    const mh_timeline *timeline = &f->chapter->timeline;
    double length = (double)(timeline->last - timeline->first) / 1e9;
    double step = nice_step(length, 8);
    char text[32];
    for (double t = 0; length > 0 && t <= length * 1.0001; t += step) {
        double x = f->x + t / length * f->width;
        if (grid)
            mh_svg_line(f->svg, x, f->y, x, f->y + f->height, GRID, 1);
        (void)snprintf(text, sizeof text, "%.6g", t);
        mh_svg_text(f->svg, x, f->y + f->height + 18, 12, MH_ANCHOR_MIDDLE, false, FAINT, text);
    }
    mh_svg_text(f->svg, f->x + f->width / 2, f->y + f->height + 38, 13, MH_ANCHOR_MIDDLE, false,
                INK, "time (sec)");
}

/* --- lanes --- */

#define SPANS_FEW 3000
#define MERGED ((size_t)2) /* bins drawn as one, still less than a pixel wide */

/* Covered, in eighths, and below a sixteenth one shade more: a rare thing does not colour what lies
 * under it. Neighbours of equal shade become one shape. */
static int shade(const mh_timeline *timeline, const mh_bin *bins)
{
    double sum = 0;
    uint64_t count = 0;
    for (size_t at = 0; at < MERGED; at++) {
        sum += bins[at].covered;
        count += bins[at].count;
    }
    double covered = sum / ((double)timeline->width * (double)MERGED);
    if (!count && !(sum > 0))
        return 0;
    if (covered < 1.0 / 16)
        return 1;
    return covered >= 1 ? 9 : 2 + (int)(covered * 8);
}

static double opacity_of(int dark)
{
    return dark == 1 ? 0.04 : (dark - 1) / 8.0;
}

static void draw_span(const frame *f, const mh_span *span, double y, double height,
                      const char *colour, double least)
{
    double from = frame_x(f, (double)span->begin),
           to = frame_x(f, (double)(span->begin + span->ns));
    mh_svg_rect(f->svg, from, y, to - from > least ? to - from : least, height, colour, 1);
}

/* One by one, where all are known and they are few. False: they are not. */
static bool draw_spans(const frame *f, const mh_lane *lane, double y, double height,
                       const char *colour)
{
    const mh_timeline *timeline = &f->chapter->timeline;
    const mh_spans *spans = mh_lane_spans(timeline, lane);
    uint32_t number = (uint32_t)mh_records_number(&timeline->lanes, lane);
    if (spans->until != UINT64_MAX || spans->count > SPANS_FEW)
        return false;
    for (size_t at = 0; at < spans->count; at++)
        if (spans->items[at].lane == number)
            draw_span(f, &spans->items[at], y, height, colour, 0.3);
    return true;
}

static void draw_bins(const frame *f, const mh_lane *lane, double y, double height,
                      const char *colour)
{
    const mh_timeline *timeline = &f->chapter->timeline;
    size_t next;
    for (size_t at = 0; at < MH_TIMELINE_BINS; at = next) {
        int dark = shade(timeline, &lane->bins[at]);
        for (next = at + MERGED; next < MH_TIMELINE_BINS; next += MERGED)
            if (shade(timeline, &lane->bins[next]) != dark)
                break;
        if (!dark)
            continue;
        double from = frame_x(f, (double)timeline->base + (double)at * (double)timeline->width);
        double to = frame_x(f, (double)timeline->base + (double)next * (double)timeline->width);
        from = from < f->x ? f->x : from;
        to = to > f->x + f->width ? f->x + f->width : to;
        mh_svg_rect(f->svg, from, y, to - from > 0.3 ? to - from : 0.3, height, colour,
                    opacity_of(dark));
    }
}

static void draw_lane(const frame *f, const mh_lane *lane, double y, double height,
                      const char *colour)
{
    if (!draw_spans(f, lane, y, height, colour))
        draw_bins(f, lane, y, height, colour);
    for (size_t at = 0; at < lane->longest_count; at++) /* never thinner than can be seen */
        if ((double)lane->longest[at].ns * (double)lane->count > 10 * (double)lane->total)
            draw_span(f, &lane->longest[at], y, height, colour, 1.2);
}

/* Every lane of the kind; of one worker, or of all (-2). */
static void draw_kind(const frame *f, mh_lane_kind kind, int worker, double y, double height,
                      const char *colour)
{
    for (size_t at = 0; at < f->chapter->timeline.lanes.count; at++) {
        const mh_lane *lane = mh_timeline_lane(&f->chapter->timeline, at);
        if (mh_lane_kind_of(lane) == kind && mh_lane_drawn(f->chapter, lane) &&
            (worker == -2 || lane->key.worker == worker))
            draw_lane(f, lane, y, height, colour);
    }
}

/* Where each begins and ends: epochs follow one another without a gap. */
static void draw_edges(const frame *f, mh_lane_kind kind, double y, double height)
{
    for (size_t at = 0; at < f->chapter->timeline.lanes.count; at++) {
        const mh_lane *lane = mh_timeline_lane(&f->chapter->timeline, at);
        if (mh_lane_kind_of(lane) != kind || !mh_lane_drawn(f->chapter, lane))
            continue;
        for (size_t one = 0; one < lane->longest_count; one++) {
            const mh_span *span = &lane->longest[one];
            double from = frame_x(f, (double)span->begin);
            double to = frame_x(f, (double)(span->begin + span->ns));
            mh_svg_line(f->svg, from, y, from, y + height, INK, 1);
            mh_svg_line(f->svg, to, y, to, y + height, INK, 1);
        }
    }
}

static bool has_kind(const mh_chapter *chapter, mh_lane_kind kind)
{
    for (size_t at = 0; at < chapter->timeline.lanes.count; at++) {
        const mh_lane *lane = mh_timeline_lane(&chapter->timeline, at);
        if (mh_lane_kind_of(lane) == kind && mh_lane_drawn(chapter, lane))
            return true;
    }
    return false;
}

/* --- the guides' picture: four rows, and beside them the waits --- */

typedef struct parameter_box {
    mh_svg *svg;
    double x, y, width;
    double at_x, at_y;
} parameter_box;

static void box_put(void *argument, const char *key, const char *value)
{
    parameter_box *box = argument;
    char text[200];
    (void)snprintf(text, sizeof text, "%s: %s", key, value);
    double wide = 7.2 * (double)strlen(text) + 28;
    if (box->at_x + wide > box->width && box->at_x > 0) {
        box->at_x = 0;
        box->at_y += 20;
    }
    if (box->svg)
        mh_svg_text(box->svg, box->x + 18 + box->at_x, box->y + 26 + box->at_y, 13, MH_ANCHOR_START,
                    false, INK, text);
    box->at_x += wide;
}

static void box_fill(parameter_box *box, const mh_chapter *chapter)
{
    char text[64];
    const mh_facts *facts = &chapter->facts;
    const struct {
        const char *key;
        int value;
    } settings[] = {{"workers", facts->workers},
                    {"prefetch", facts->prefetch},
                    {"batch size", facts->batch_size},
                    {"CPUs", facts->cpus}};
    seconds_text(text, sizeof text, chapter->average_sample);
    if (chapter->average_sample > 0)
        box_put(box, "average sample", text);
    seconds_text(text, sizeof text, chapter->waits.mean);
    if (chapter->waits.count)
        box_put(box, "average wait", text);
    (void)snprintf(text, sizeof text, "%.1f %%", 100 * chapter->verdict.device_wait_share);
    box_put(box, "idle", text);
    (void)snprintf(text, sizeof text, "%.0f %%", 100 * chapter->verdict.epoch_start_share);
    if (chapter->verdict.epoch_start_share >= EPOCH_STARTS)
        box_put(box, "at epoch starts", text);
    for (size_t at = 0; at < sizeof settings / sizeof *settings; at++) {
        (void)snprintf(text, sizeof text, "%d", settings[at].value);
        if (settings[at].value >= 0)
            box_put(box, settings[at].key, text);
    }
    mh_page_each_setting(chapter->path, box_put, box);
}

static void gantt_rows(const frame *f)
{
    static const char *const names[] = {"setup", "get-batch", "train", "epoch"};
    double row = f->height / 4;
    for (int at = 0; at < 4; at++)
        mh_svg_text(f->svg, f->x - 12, f->y + row * (at + 0.5) + 5, 15, MH_ANCHOR_END, false, INK,
                    names[at]);
    bool fetches = has_kind(f->chapter, MH_LANE_FETCH);
    draw_kind(f, MH_LANE_SETUP, -2, f->y + row * 0.1, row * 0.8, "#6D0EDB");
    draw_kind(f, fetches ? MH_LANE_FETCH : MH_LANE_SAMPLE, -2, f->y + row * 1.1, row * 0.8,
              "#C396F9");
    draw_kind(f, MH_LANE_TRAIN, -1, f->y + row * 2.1, row * 0.8, "#FF6554");
    draw_kind(f, MH_LANE_EPOCH, -2, f->y + row * 3.1, row * 0.8, "#FF9E0D");
    draw_edges(f, MH_LANE_SETUP, f->y + row * 0.1, row * 0.8);
    draw_edges(f, MH_LANE_EPOCH, f->y + row * 3.1, row * 0.8);
}

static void gantt_waits(mh_svg *svg, const mh_chapter *chapter, double x, double y, double width,
                        double height)
{
    const mh_wait_picture *picture = &chapter->wait_picture;
    uint64_t most = 1;
    char text[64];
    if (!chapter->waits.count) {
        mh_svg_text(svg, x + width / 2, y + height / 2, 13, MH_ANCHOR_MIDDLE, false, FAINT,
                    ONE_BATCH);
        return;
    }
    for (size_t at = 0; at < 100; at++)
        most = picture->linear[at] > most ? picture->linear[at] : most;
    for (size_t at = 0; at < 100; at++) {
        double high = (double)picture->linear[at] / (double)most * height;
        if (picture->linear[at])
            mh_svg_rect(svg, x + width * (double)at / 100, y + height - high, width / 100 + 0.1,
                        high, "#6D0EDB", 1);
    }
    mh_svg_line(svg, x, y + height, x + width, y + height, FAINT, 1);
    double step = nice_step(picture->linear_end, 4);
    for (double t = 0; picture->linear_end > 0 && t <= picture->linear_end; t += step) {
        (void)snprintf(text, sizeof text, "%.3g", t);
        mh_svg_text(svg, x + t / picture->linear_end * width, y + height + 18, 12, MH_ANCHOR_MIDDLE,
                    false, FAINT, text);
    }
    mh_svg_text(svg, x + width / 2, y + height + 38, 13, MH_ANCHOR_MIDDLE, false, INK,
                "wait time (sec)");
    (void)snprintf(text, sizeof text, "%" PRIu64, most);
    mh_svg_text(svg, x - 8, y + 10, 12, MH_ANCHOR_END, false, FAINT, text);
}

static void picture_gantt(mh_svg *svg, const mh_chapter *chapter)
{
    parameter_box measure = {.width = 1500}, box = {svg, 60, 400, 1500, 0, 0};
    box_fill(&measure, chapter);
    double box_height = measure.at_y + 42;
    mh_svg_begin(svg, 1600, 420 + box_height, "set-up, samples, training and epochs over time");
    frame left = {svg, chapter, 110, 30, 1030, 310};
    time_axis(&left, true);
    gantt_rows(&left);
    mh_svg_line(svg, 110, 340, 1140, 340, FAINT, 1);
    gantt_waits(svg, chapter, 1220, 30, 340, 310);
    mh_svg_box(svg, 50, 400, 1510, box_height, "#f1f2f4", "#c9cdd3");
    box_fill(&box, chapter);
    mh_svg_end(svg);
}

/* --- a row per worker --- */

/* What is drawn, and no more. */
static void legend(mh_svg *svg, const mh_chapter *chapter, double x, double y)
{
    static const struct {
        mh_lane_kind kind;
        const char *name;
    } items[] = {{MH_LANE_SETUP, "set-up"},    {MH_LANE_FETCH, "get samples"},
                 {MH_LANE_COLLATE, "collate"}, {MH_LANE_TRANSFER, "transfer"},
                 {MH_LANE_STORAGE, "storage"}, {MH_LANE_READ, "read"},
                 {MH_LANE_DECODE, "decode"},   {MH_LANE_PLACE, "place"},
                 {MH_LANE_TRAIN, "train"},     {MH_LANE_WAIT, "wait"}};
    for (size_t at = 0; at < sizeof items / sizeof *items; at++) {
        bool samples = items[at].kind == MH_LANE_FETCH && has_kind(chapter, MH_LANE_SAMPLE);
        if (!samples && !has_kind(chapter, items[at].kind))
            continue;
        mh_svg_rect(svg, x, y - 10, 12, 12, colours[items[at].kind], 1);
        mh_svg_text(svg, x + 18, y, 13, MH_ANCHOR_START, false, INK, items[at].name);
        x += 34 + 8.0 * (double)strlen(items[at].name);
    }
}

#define ROW 22.0 /* a row and the gap below it */

static void row_name(mh_svg *svg, double y, double row, bool bold, const char *name)
{
    double size = row < ROW ? 9 : 12;
    mh_svg_text(svg, 100, y + row / 2 + size * 0.36, size, MH_ANCHOR_END, bold, INK, name);
}

/* What a worker, or the loop itself (-1), did for batches. */
static void worker_row(const frame *f, int worker, double y, double height)
{
    bool fetches = has_kind(f->chapter, MH_LANE_FETCH);
    draw_kind(f, fetches ? MH_LANE_FETCH : MH_LANE_SAMPLE, worker, y, height,
              colours[MH_LANE_FETCH]);
    draw_kind(f, MH_LANE_COLLATE, worker, y, height, colours[MH_LANE_COLLATE]);
    draw_kind(f, MH_LANE_TRANSFER, worker, y, height, colours[MH_LANE_TRANSFER]);
    for (mh_lane_kind kind = MH_LANE_READ; kind <= MH_LANE_PLACE; kind++)
        draw_kind(f, kind, worker, y, height, colours[kind]);
}

/* Whether the run says how batches were made. */
static bool has_work(const mh_chapter *chapter)
{
    return has_kind(chapter, MH_LANE_FETCH) || has_kind(chapter, MH_LANE_SAMPLE) ||
           has_kind(chapter, MH_LANE_COLLATE) || has_kind(chapter, MH_LANE_READ) ||
           has_kind(chapter, MH_LANE_DECODE) || has_kind(chapter, MH_LANE_PLACE);
}

static void timeline_title(mh_svg *svg, const mh_chapter *chapter)
{
    char text[NAME_ROOM + 64], name[NAME_ROOM], starts[40] = "";
    if (chapter->verdict.epoch_start_share >= EPOCH_STARTS)
        (void)snprintf(starts, sizeof starts, ", and %.0f %% at epoch starts",
                       100 * chapter->verdict.epoch_start_share);
    (void)snprintf(text, sizeof text, "%s: device idle %.1f %%%s",
                   name_cut(name, chapter->name, 72), 100 * chapter->verdict.device_wait_share,
                   starts);
    mh_svg_text(svg, 20, 28, 17, MH_ANCHOR_START, true, INK, text);
}

/* A run that tells only of steps has rows for these alone; workers are shown, idle or not. */
static void picture_timeline(mh_svg *svg, const mh_chapter *chapter)
{
    size_t workers = mh_chapter_rows(chapter), rows = workers ? workers : has_work(chapter);
    bool setup = has_kind(chapter, MH_LANE_SETUP), storage = has_kind(chapter, MH_LANE_STORAGE);
    const char *does = chapter->facts.native.samples ? "thread" : "worker";
    double row = rows > 32 ? 12 : ROW, top = 64;
    double height = row * (double)rows + (2 + setup + storage) * ROW + 8;
    char text[32];
    mh_svg_begin(svg, 1200, top + height + 52, "what every worker and the loop did, over time");
    timeline_title(svg, chapter);
    legend(svg, chapter, 20, 50);
    frame f = {svg, chapter, 110, top, 1070, height};
    time_axis(&f, true);
    double y = top;
    if (setup) {
        row_name(svg, y, ROW, false, "set-up");
        draw_kind(&f, MH_LANE_SETUP, -2, y + 1, ROW - 2, colours[MH_LANE_SETUP]);
        y += ROW;
    }
    if (storage) {
        row_name(svg, y, ROW, false, "storage");
        draw_kind(&f, MH_LANE_STORAGE, -1, y + 1, ROW - 2, colours[MH_LANE_STORAGE]);
        y += ROW;
    }
    for (size_t at = 0; at < rows; at++, y += row) {
        (void)snprintf(text, sizeof text, "%s %zu", does, at);
        row_name(svg, y, row, false, workers ? text : "loop");
        worker_row(&f, workers ? (int)at : -1, y + 1, row - 2);
    }
    y += 4;
    row_name(svg, y, ROW, true, "train");
    draw_kind(&f, MH_LANE_TRAIN, -1, y + 1, ROW - 2, colours[MH_LANE_TRAIN]);
    y += ROW;
    row_name(svg, y, ROW, false, "wait");
    draw_kind(&f, MH_LANE_WAIT, -1, y + 1, ROW - 2, colours[MH_LANE_WAIT]);
    mh_svg_end(svg);
}

/* --- waits, their time on a logarithmic scale --- */

static double log_place(double seconds, size_t first, size_t last)
{
    double octaves = log2((seconds > 1e-6 ? seconds : 1e-6) / 1e-6) * 4;
    return (octaves - (double)first) / (double)(last - first);
}

/* Powers of ten; between them 2 and 5 where a few of them would be all. */
static void waits_axis(mh_svg *svg, size_t first, size_t last)
{
    static const double steps[] = {1, 2, 5};
    bool few = last - first < 40; /* quarters of a doubling: less than three powers of ten */
    char text[32];
    mh_svg_line(svg, 70, 300, 770, 300, FAINT, 1);
    for (int power = -6; power < 4; power++)
        for (size_t at = 0; at < (few ? 3 : 1); at++) {
            double t = steps[at] * pow(10, power);
            double place = log_place(t, first, last);
            if (place < 0 || place > 1)
                continue;
            seconds_text(text, sizeof text, t);
            mh_svg_line(svg, 70 + 700 * place, 300, 70 + 700 * place, 305, FAINT, 1);
            mh_svg_text(svg, 70 + 700 * place, 321, 12, MH_ANCHOR_MIDDLE, false, FAINT, text);
        }
}

#define LETTER 6.5 /* the width of a letter of size 12, about */

/* A label stands to the left of its mark where the right edge or another mark is in the way. */
static void waits_marks(mh_svg *svg, const mh_chapter *chapter, size_t first, size_t last)
{
    static const char *const names[] = {"p50", "p99", "max"};
    const double times[] = {chapter->waits.p50, chapter->waits.p99, chapter->waits.max};
    double x[3];
    char text[64], value[32];
    for (size_t at = 0; at < 3; at++) {
        x[at] = 70 + 700 * log_place(times[at], first, last);
        mh_svg_line(svg, x[at], 78 - 18 * (double)at, x[at], 300, INK, 1);
    }
    for (size_t at = 0; at < 3; at++) {
        seconds_text(value, sizeof value, times[at]);
        (void)snprintf(text, sizeof text, "%s %s", names[at], value);
        double wide = LETTER * (double)strlen(text) + 8;
        bool left = x[at] > 640;
        for (size_t other = at + 1; other < 3; other++)
            left = left || (x[other] > x[at] + 2 && x[other] < x[at] + wide && x[at] > wide);
        mh_svg_text(svg, x[at] + (left ? -5 : 5), 87 - 18 * (double)at, 12,
                    left ? MH_ANCHOR_END : MH_ANCHOR_START, false, INK, text);
    }
}

static void picture_waits(mh_svg *svg, const mh_chapter *chapter)
{
    const mh_wait_picture *picture = &chapter->wait_picture;
    size_t first = MH_WAIT_BINS, last = 0;
    uint64_t most = 1;
    char text[NAME_ROOM + 64], name[NAME_ROOM];
    for (size_t at = 0; at < MH_WAIT_BINS; at++) {
        if (!picture->bins[at])
            continue;
        first = at < first ? at : first;
        last = at + 1;
        most = picture->bins[at] > most ? picture->bins[at] : most;
    }
    first = first >= last ? 0 : first > 2 ? first - 2 : 0;
    last = last + 2 > first + 8 ? last + 2 : first + 8;
    mh_svg_begin(svg, 800, 350, "how long the loop waited for batches");
    (void)snprintf(text, sizeof text, "waits of %s: %" PRIu64, name_cut(name, chapter->name, 52),
                   chapter->waits.count);
    mh_svg_text(svg, 20, 26, 17, MH_ANCHOR_START, true, INK, text);
    if (!chapter->waits.count) {
        mh_svg_text(svg, 400, 190, 13, MH_ANCHOR_MIDDLE, false, FAINT, ONE_BATCH);
        mh_svg_end(svg);
        return;
    }
    for (size_t at = first; at < last && at < MH_WAIT_BINS; at++) {
        double high = (double)picture->bins[at] / (double)most * 200;
        high = picture->bins[at] && high < 2 ? 2 : high;
        double x = 70 + 700 * (double)(at - first) / (double)(last - first);
        if (picture->bins[at])
            mh_svg_rect(svg, x + 0.5, 300 - high, 700 / (double)(last - first) - 1, high,
                        colours[MH_LANE_WAIT], 1);
    }
    waits_axis(svg, first, last);
    (void)snprintf(text, sizeof text, "%" PRIu64, most);
    mh_svg_text(svg, 62, 106, 12, MH_ANCHOR_END, false, FAINT, text);
    waits_marks(svg, chapter, first, last);
    mh_svg_end(svg);
}

/* --- CPU and memory --- */

#define USAGE_BINS ((size_t)8) /* bins of the timeline that make a point */

/* A line of a panel. */
typedef struct usage_line {
    mh_series series;
    const char *name, *colour;
} usage_line;

static double usage_most(const mh_timeline *timeline, const usage_line *lines, size_t count,
                         double scale)
{
    double most = 0;
    for (size_t one = 0; one < count; one++)
        for (size_t at = 0; at < MH_TIMELINE_BINS; at += USAGE_BINS) {
            double value = mh_timeline_mean(timeline, lines[one].series, at, USAGE_BINS) / scale;
            most = value > most ? value : most;
        }
    return most;
}

static void usage_path(const frame *f, const usage_line *line, double scale, double top)
{
    const mh_timeline *timeline = &f->chapter->timeline;
    bool first = true;
    if (!timeline->series[line->series])
        return;
    mh_svg_path_begin(f->svg);
    for (size_t at = 0; at < MH_TIMELINE_BINS; at += USAGE_BINS) {
        double value = mh_timeline_mean(timeline, line->series, at, USAGE_BINS) / scale;
        double t = (double)timeline->base +
                   ((double)at + (double)USAGE_BINS / 2) * (double)timeline->width;
        if (isnan(value))
            continue;
        mh_svg_path_to(f->svg, first, frame_x(f, t), f->y + f->height * (1 - value / top));
        first = false;
    }
    mh_svg_path_end(f->svg, line->colour, "none", 1);
}

static void usage_panel(const frame *f, const char *title, const usage_line *lines, size_t count,
                        double scale)
{
    double most = usage_most(&f->chapter->timeline, lines, count, scale);
    double step = nice_step(most > 0 ? most : 1, 3);
    double top = step * ceil((most > 0 ? most : 1) / step - 1e-9);
    double x = f->x + 20 + 8.5 * (double)strlen(title);
    char text[64];
    mh_svg_text(f->svg, f->x, f->y - 16, 13, MH_ANCHOR_START, true, INK, title);
    for (size_t one = 0; one < count; one++) {
        if (!f->chapter->timeline.series[lines[one].series])
            continue;
        mh_svg_rect(f->svg, x, f->y - 26, 12, 12, lines[one].colour, 1);
        mh_svg_text(f->svg, x + 18, f->y - 16, 13, MH_ANCHOR_START, false, INK, lines[one].name);
        x += 42 + 7.5 * (double)strlen(lines[one].name);
    }
    for (int at = 0; at * step <= top * 1.0001; at++) {
        double y = f->y + f->height * (1 - at * step / top);
        (void)snprintf(text, sizeof text, "%.3g", at * step);
        mh_svg_text(f->svg, f->x - 8, y + 4, 12, MH_ANCHOR_END, false, FAINT, text);
        mh_svg_line(f->svg, f->x, y, f->x + f->width, y, at ? GRID : FAINT, 1);
    }
    for (size_t one = 0; one < count && most > 0; one++)
        usage_path(f, &lines[one], scale, top);
}

static void picture_usage(mh_svg *svg, const mh_chapter *chapter)
{
    static const usage_line cpus[] = {
        {MH_SERIES_CPU_MACHINE, "machine", "#9aa7b5"},
        {MH_SERIES_CPU_WORKERS, "workers", "#2f7fc1"},
        {MH_SERIES_CPU_MAIN, "training process", "#1f4e96"},
    };
    static const usage_line memory[] = {
        {MH_SERIES_MEMORY_WORKERS, "workers", "#2f7fc1"},
        {MH_SERIES_MEMORY_MAIN, "training process", "#1f4e96"},
    };
    mh_svg_begin(svg, 900, 420, "CPUs and memory over time");
    frame top = {svg, chapter, 70, 50, 800, 120}, low = {svg, chapter, 70, 240, 800, 120};
    usage_panel(&top, "CPUs in use", cpus, sizeof cpus / sizeof *cpus, 1);
    usage_panel(&low, "Memory, GB", memory, sizeof memory / sizeof *memory, 1e9);
    time_axis(&low, false);
    mh_svg_end(svg);
}

/* --- configurations --- */

/* Whole numbers from 100 on: of two digits %g would make "1.1e+02". */
static void rate_text(char *text, size_t room, const mh_compared *config)
{
    const char *unknown = isnan(config->total) ? "failed" : "not known";
    if (!(config->rate > 0))
        (void)snprintf(text, room, "%s", unknown);
    else if (!(config->rate_std > 0))
        (void)snprintf(text, room, "%.*f", config->rate < 100 ? 1 : 0, config->rate);
    else
        (void)snprintf(text, room, "%.*f ± %.*f", config->rate_std < 10 ? 1 : 0, config->rate,
                       config->rate_std < 10 ? 1 : 0, config->rate_std);
}

static void compared_bar(mh_svg *svg, const mh_compared *config, double y, double scale)
{
    char text[NAME_ROOM];
    bool known = config->rate > 0, spread = known && config->rate_std > 0;
    double wide = known ? config->rate * scale : 0, reach = spread ? config->rate_std * scale : 0;
    double low = 200 + wide - reach, high = 200 + wide + reach;
    mh_svg_text(svg, 190, y + 15, 13, MH_ANCHOR_END, false, INK, name_cut(text, config->name, 22));
    if (known)
        mh_svg_rect(svg, 200, y, wide, 20, "#2f7fc1", 1);
    if (spread) {
        mh_svg_line(svg, low, y + 10, high, y + 10, INK, 1.5);
        mh_svg_line(svg, low, y + 5, low, y + 15, INK, 1.5);
        mh_svg_line(svg, high, y + 5, high, y + 15, INK, 1.5);
    }
    rate_text(text, sizeof text, config);
    mh_svg_text(svg, high + 8, y + 15, 12, MH_ANCHOR_START, false, FAINT, text);
}

static void picture_compared(mh_svg *svg, const mh_page *page)
{
    double most = 0, row = 30, height = 70 + row * (double)page->compared.count;
    for (size_t at = 0; at < page->compared.count; at++) {
        const mh_compared *config = &page->compared.items[at];
        double end = config->rate + (isnan(config->rate_std) ? 0 : config->rate_std);
        most = end > most ? end : most;
    }
    mh_svg_begin(svg, 900, height + 20, "samples per second of the configurations");
    mh_svg_text(svg, 20, 28, 17, MH_ANCHOR_START, true, INK, "samples per second");
    for (size_t at = 0; at < page->compared.count; at++)
        compared_bar(svg, &page->compared.items[at], 56 + row * (double)at,
                     most > 0 ? 580 / most : 0);
    mh_svg_end(svg);
}

/* --- files --- */

#define PREFIX_ROOM (MH_CHAPTER_NAME + 32)

typedef struct album {
    const mh_page *page;
    const char *directory;
    void (*each)(void *argument, const char *path);
    void *argument;
} album;

static mh_status picture_write(const album *a, const char *prefix, const char *name,
                               void (*draw)(mh_svg *, const mh_chapter *),
                               const mh_chapter *chapter, mh_error *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s%s.svg", a->directory, prefix, name);
    mh_svg svg = {fopen(path, "we")};
    if (!svg.file)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %s", path);
    if (draw)
        draw(&svg, chapter);
    else
        picture_compared(&svg, a->page);
    int failed = ferror(svg.file);
    failed |= fclose(svg.file) != 0;
    if (failed)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %s", path);
    if (a->each)
        a->each(a->argument, path);
    return MH_OK;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* A run's name as the beginning of a file name; what is not plain becomes one dash in between. */
static void plain_prefix(char *prefix, const char *name)
{
    size_t length = 0;
    for (size_t at = 0; name[at]; at++) {
        bool dash = !is_plain(name[at]) || (!length && name[at] == '.');
        if (!dash)
            prefix[length++] = name[at];
        else if (length && prefix[length - 1] != '-')
            prefix[length++] = '-';
    }
    if (length && prefix[length - 1] == '-')
        length--;
    (void)snprintf(prefix + length, PREFIX_ROOM - length, "%s-", length ? "" : "run");
}

/* Names that differ may be alike as files: the later runs get their number, again where another
 * run is named so. */
static void file_prefix(char *prefix, const mh_page *page, size_t which)
{
    char other[PREFIX_ROOM];
    plain_prefix(prefix, page->chapters[which]->name);
    size_t plain = strlen(prefix), length = plain;
    for (size_t at = 0; at < (length > plain ? page->count : which); at++) {
        plain_prefix(other, page->chapters[at]->name);
        if (strcmp(other, prefix) != 0)
            continue;
        (void)snprintf(prefix + length, PREFIX_ROOM - length, "%zu-", which + 1);
        length = strlen(prefix);
        at = (size_t)-1;
    }
}

static bool has_usage(const mh_chapter *chapter)
{
    for (size_t at = 0; at < MH_SERIES_COUNT; at++)
        if (chapter->timeline.series[at])
            return true;
    return false;
}

mh_status mh_page_pictures(const mh_page *page, const char *directory,
                           void (*each)(void *argument, const char *path), void *argument,
                           mh_error *err)
{
    album a = {page, directory, each, argument};
    for (size_t at = 0; at < page->count; at++) {
        const mh_chapter *chapter = page->chapters[at];
        char prefix[PREFIX_ROOM] = "";
        if (page->count > 1)
            file_prefix(prefix, page, at);
        MH_TRY(picture_write(&a, prefix, "gantt", picture_gantt, chapter, err));
        MH_TRY(picture_write(&a, prefix, "timeline", picture_timeline, chapter, err));
        MH_TRY(picture_write(&a, prefix, "waits", picture_waits, chapter, err));
        if (has_usage(chapter))
            MH_TRY(picture_write(&a, prefix, "usage", picture_usage, chapter, err));
    }
    if (page->compared.count > 1)
        MH_TRY(picture_write(&a, "", "compared", NULL, NULL, err));
    return MH_OK;
}
