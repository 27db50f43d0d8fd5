/* run_chapter.c - what the report says about one run
 * SPDX-License-Identifier: Apache-2.0
 */
#include "report/run_chapter.h"

#include "base/alloc.h"
#include "base/error.h"
#include "report/timeline_events.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1e9
#define FIRST_WAIT_NS 1000.0
#define RATE_PARTS 10

/* --- the stage table --- */

/* Reads a stage's time of a batch; MH_NOT_MEASURED: it has none. */
typedef uint64_t (*stage_fn)(const mh_batch_cost *cost);

static uint64_t stage_wait(const mh_batch_cost *cost)
{
    return cost->wait;
}

static uint64_t stage_train(const mh_batch_cost *cost)
{
    return cost->step;
}

static uint64_t stage_fetch(const mh_batch_cost *cost)
{
    return cost->fetch;
}

static uint64_t stage_collate(const mh_batch_cost *cost)
{
    return cost->collate;
}

static uint64_t stage_transfer(const mh_batch_cost *cost)
{
    return cost->collate == MH_NOT_MEASURED || cost->worker < 0 ? MH_NOT_MEASURED : cost->transfer;
}

/* `times` is put in order. */
static void stage_add(mh_chapter *chapter, const char *name, bool of_workers, uint64_t *times,
                      size_t count)
{
    uint64_t total = 0;
    double whole = (double)chapter->facts.run_ns;
    if (!count)
        return;
    for (size_t at = 0; at < count; at++)
        total += times[at];
    mh_wait_stats stats = mh_waits_of(times, count);
    if (of_workers && chapter->facts.workers > 1)
        whole *= chapter->facts.workers;
    chapter->stages[chapter->stage_count++] = (mh_stage_line){
        .name = name,
        .count = count,
        .total = (double)total / NS_PER_S,
        .mean = stats.mean,
        .p50 = stats.p50,
        .p99 = stats.p99,
        .max = stats.max,
        .share = whole > 0 ? (double)total / whole : 0,
        .of_workers = of_workers,
    };
}

static void stage_of_batches(mh_chapter *chapter, const mh_facts *facts, const char *name,
                             bool of_workers, stage_fn get, uint64_t *times)
{
    size_t count = 0;
    for (size_t at = 0; at < facts->batch_count; at++) {
        uint64_t ns = get(&facts->batches[at]);
        if (ns != MH_NOT_MEASURED)
            times[count++] = ns;
    }
    stage_add(chapter, name, of_workers, times, count);
}

/* Single samples: those too short for an event are in the facts only, and where all are, how they
 * differ is not known. */
static void stage_of_samples(mh_chapter *chapter, const mh_facts *facts)
{
    double total = 0;
    for (size_t at = 0; at < chapter->stage_count; at++)
        if (strcmp(chapter->stages[at].name, "fetch") == 0)
            total = chapter->stages[at].total;
    if (!facts->samples_timed)
        return;
    for (size_t at = 0; at < chapter->timeline.lanes.count && !total; at++) {
        const mh_lane *lane = mh_timeline_lane(&chapter->timeline, at);
        if (mh_lane_kind_of(lane) == MH_LANE_SAMPLE)
            total += (double)lane->total / NS_PER_S;
    }
    double whole = (double)facts->run_ns / NS_PER_S * (facts->workers > 1 ? facts->workers : 1);
    chapter->average_sample = total / (double)facts->samples_timed;
    bool some = false;
    for (size_t at = 0; at < chapter->timeline.lanes.count && !some; at++)
        some = mh_lane_kind_of(mh_timeline_lane(&chapter->timeline, at)) == MH_LANE_SAMPLE;
    chapter->stages[chapter->stage_count++] = (mh_stage_line){
        .name = "sample",
        .count = facts->samples_timed,
        .total = total,
        .mean = chapter->average_sample,
        .p50 = some ? (double)facts->sample_median_ns / NS_PER_S : NAN,
        .p99 = some ? (double)facts->sample_p99_ns / NS_PER_S : NAN,
        .max = some ? (double)facts->sample_max_ns / NS_PER_S : NAN,
        .share = whole > 0 ? total / whole : 0,
        .of_workers = true,
    };
}

/* What threads of a native loader did: single tasks are not told apart. */
static void stage_of_tasks(mh_chapter *chapter, const mh_facts *facts, mh_lane_kind kind)
{
    uint64_t total = 0, tasks = 0;
    double whole = (double)facts->run_ns;
    bool of_threads = kind != MH_LANE_STORAGE;
    for (size_t at = 0; at < chapter->timeline.lanes.count; at++) {
        const mh_lane *lane = mh_timeline_lane(&chapter->timeline, at);
        if (mh_lane_kind_of(lane) != kind || lane->key.loader != chapter->loader)
            continue;
        total += lane->total;
        tasks += lane->tasks;
    }
    if (of_threads && facts->workers > 1)
        whole *= facts->workers;
    if (tasks)
        chapter->stages[chapter->stage_count++] = (mh_stage_line){
            .name = mh_lane_name(kind),
            .count = tasks,
            .total = (double)total / NS_PER_S,
            .mean = of_threads ? (double)total / NS_PER_S / (double)tasks : NAN,
            .p50 = NAN,
            .p99 = NAN,
            .max = NAN,
            .share = whole > 0 ? (double)total / whole : 0,
            .of_workers = of_threads,
        };
}

static void stage_of_rare(mh_chapter *chapter, const mh_gather *gather, const char *name,
                          mh_lane_kind kind, uint64_t *times)
{
    size_t count = 0;
    for (size_t at = 0; at < gather->rare_count; at++)
        if (gather->rare[at].kind == kind && gather->rare[at].loader == chapter->loader)
            times[count++] = gather->rare[at].ns;
    stage_add(chapter, name, false, times, count);
}

static mh_status chapter_stages(mh_chapter *chapter, const mh_gather *gather, const mh_facts *facts,
                                mh_error *err)
{
    size_t most = facts->batch_count > gather->rare_count ? facts->batch_count : gather->rare_count;
    uint64_t *times = mh_calloc(most + 1, sizeof *times);
    if (!times)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the times of %zu batches", most);
    stage_of_rare(chapter, gather, "setup", MH_LANE_SETUP, times);
    stage_of_batches(chapter, facts, "fetch", true, stage_fetch, times);
    stage_of_samples(chapter, facts);
    stage_of_batches(chapter, facts, "collate", true, stage_collate, times);
    stage_of_tasks(chapter, facts, MH_LANE_STORAGE);
    stage_of_tasks(chapter, facts, MH_LANE_READ);
    stage_of_tasks(chapter, facts, MH_LANE_DECODE);
    stage_of_tasks(chapter, facts, MH_LANE_PLACE);
    stage_of_batches(chapter, facts, "transfer", false, stage_transfer, times);
    stage_of_batches(chapter, facts, "wait", false, stage_wait, times);
    stage_of_batches(chapter, facts, "train", false, stage_train, times);
    stage_of_rare(chapter, gather, "epoch", MH_LANE_EPOCH, times);
    mh_free(times);
    return MH_OK;
}

/* --- waits --- */

double mh_wait_bin_begin(size_t at)
{
    return at ? FIRST_WAIT_NS * exp2((double)at / 4) / NS_PER_S : 0;
}

static size_t wait_bin(uint64_t ns)
{
    double octaves = ns ? log2((double)ns / FIRST_WAIT_NS) : 0;
    size_t at = octaves > 0 ? (size_t)(octaves * 4) : 0;
    return at < MH_WAIT_BINS ? at : MH_WAIT_BINS - 1;
}

/* Nearest rank, as the other quantiles. */
static double quantile_s(const uint64_t *sorted, size_t count, double fraction)
{
    size_t rank = (size_t)ceil(fraction * (double)count);
    return count ? (double)sorted[rank ? rank - 1 : 0] / NS_PER_S : 0;
}

static void chapter_waits(mh_chapter *chapter, const uint64_t *sorted, size_t count)
{
    mh_wait_picture *picture = &chapter->wait_picture;
    double mean = chapter->waits.mean, squares = 0;
    const size_t bins = sizeof picture->linear / sizeof *picture->linear;
    for (size_t at = 0; at < count; at++) {
        double apart = (double)sorted[at] / NS_PER_S - mean;
        squares += apart * apart;
        picture->bins[wait_bin(sorted[at])]++;
    }
    picture->p90 = quantile_s(sorted, count, 0.9);
    picture->p95 = quantile_s(sorted, count, 0.95);
    picture->p999 = quantile_s(sorted, count, 0.999);
    picture->std = count ? sqrt(squares / (double)count) : 0;
    picture->linear_end = mean + 3 * picture->std;
    for (size_t at = 0; at < count && picture->linear_end > 0; at++) {
        double place = (double)sorted[at] / NS_PER_S / picture->linear_end * (double)bins;
        if (place <= (double)bins)
            picture->linear[place < (double)bins ? (size_t)place : bins - 1]++;
    }
}

/* --- the rate, and how much it differs --- */

/* Samples per second of some batches; NAN where their number is not told. */
static double rate_of(const mh_batch_cost *batches, size_t count)
{
    double samples = 0, time = 0;
    for (size_t at = 0; at < count; at++) {
        samples += batches[at].samples;
        time += (double)batches[at].wait + (double)batches[at].step;
    }
    return time > 0 && samples > 0 ? samples / time * NS_PER_S : NAN;
}

static void rate_add(double *rates, unsigned *count, double rate)
{
    rates[(*count)++] = rate;
}

/* Of at most so many epochs, evenly taken; of a single one its tenths. */
static void chapter_rate(mh_chapter *chapter, const mh_facts *facts)
{
    double rates[64], sum = 0, squares = 0;
    unsigned parts = 0;
    mh_rate *rate = &chapter->rate;
    rate->epochs = facts->epochs > 1;
    for (size_t at = 0, next; at < facts->batch_count && rate->epochs && parts < 64; at = next) {
        for (next = at + 1; next < facts->batch_count && !facts->batches[next].first;)
            next++;
        rate_add(rates, &parts, rate_of(facts->batches + at, next - at));
    }
    for (size_t part = 0; part < RATE_PARTS && !rate->epochs; part++) {
        size_t begin = facts->batch_count * part / RATE_PARTS;
        size_t end = facts->batch_count * (part + 1) / RATE_PARTS;
        if (end > begin)
            rate_add(rates, &parts, rate_of(facts->batches + begin, end - begin));
    }
    rate->parts = parts;
    rate->mean = rate_of(facts->batches, facts->batch_count);
    for (unsigned at = 0; at < parts; at++)
        sum += rates[at];
    for (unsigned at = 0; at < parts; at++)
        squares += (rates[at] - sum / parts) * (rates[at] - sum / parts);
    rate->std = parts > 1 ? sqrt(squares / (parts - 1)) : NAN;
}

/* --- reading --- */

/* A log without its beginning names processes; that the only one is the loop itself shows in the
 * end. Lanes are not looked up any more then. */
static void lanes_to_loop(mh_timeline *timeline)
{
    for (size_t at = 0; at < timeline->lanes.count; at++)
        mh_timeline_lane(timeline, at)->key.worker = -1;
}

static mh_status chapter_fill(mh_chapter *chapter, mh_gather *gather, mh_run *run, mh_error *err)
{
    const mh_facts *facts = &run->facts;
    mh_verdict_init(&chapter->verdict);
    MH_TRY(mh_run_judge(&chapter->verdict, run, err));
    chapter->facts = *facts;
    chapter->waits = run->waits;
    chapter->bad_lines = run->bad_lines;
    chapter->events = run->events;
    chapter->setup_s = run->setup_s;
    chapter->loader = run->loader;
    if (facts->workers == 0)
        lanes_to_loop(&chapter->timeline);
    MH_TRY(chapter_stages(chapter, gather, facts, err));
    chapter_waits(chapter, run->sorted_waits, run->waits.count);
    chapter_rate(chapter, facts);
    chapter->ranks = run->ranks; /* the run's no more */
    chapter->facts.ranks = run->ranks;
    run->ranks = NULL;
    chapter->facts.batches = NULL;
    return MH_OK;
}

/* The last parts of the path that say something: one of "runs/a/events.jsonl" is a, two are
 * runs/a. */
void mh_chapter_name(char *name, const char *path, unsigned parts)
{
    char text[PATH_MAX];
    if (!realpath(path, text)) /* "." is no name */
        (void)snprintf(text, sizeof text, "%s", path);
    char *last = text + strlen(text);
    while (last > text && parts) {
        char *slash = memrchr(text, '/', (size_t)(last - text));
        char *part = slash ? slash + 1 : text;
        if (!*part || strcmp(part, "events.jsonl") == 0)
            *(slash ? slash : part) = '\0';
        else
            parts--;
        last = slash ? slash : text;
    }
    (void)snprintf(name, MH_CHAPTER_NAME, "%.*s", MH_CHAPTER_NAME - 1,
                   *last == '/' ? last + 1 : last);
}

mh_status mh_chapter_read(mh_chapter **out, const char *path, size_t spans,
                          int (*progress)(void *, uint64_t, uint64_t), void *progress_argument,
                          mh_error *err)
{
    mh_run *run = NULL;
    mh_chapter *chapter = mh_calloc(1, sizeof *chapter);
    mh_gather *gather = mh_calloc(1, sizeof *gather);
    size_t length = strlen(path) + 1;
    char *copy = mh_calloc(length, 1);
    mh_status status = MH_OK;
    if (chapter && gather && copy) {
        memcpy(copy, path, length);
        chapter->path = copy;
        mh_chapter_name(chapter->name, path, 1);
        mh_gather_init(gather, &chapter->timeline, spans);
        mh_run_observer observer = mh_gather_observer(gather);
        status = mh_run_read_observed(&run, path, &observer, progress, progress_argument, err);
        if (status == MH_OK)
            status = chapter_fill(chapter, gather, run, err);
        mh_run_close(run);
        mh_gather_deinit(gather);
    } else {
        status = mh_fail(err, MH_ERR_NOMEM, "no memory to read %s", path);
        mh_free(copy);
    }
    mh_free(gather);
    if (status == MH_OK)
        *out = chapter;
    else
        mh_chapter_free(chapter);
    return status;
}

void mh_chapter_free(mh_chapter *chapter)
{
    if (!chapter)
        return;
    mh_timeline_deinit(&chapter->timeline);
    mh_free(chapter->ranks);
    mh_free(chapter->path);
    mh_free(chapter);
}
