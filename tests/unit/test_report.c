/* test_report.c - the report's reduction: exact sums, bounded pictures, nothing rare lost
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include "base/alloc.h"
#include "base/jsonout.h"
#include "report/run_chapter.h"
#include "report/timeline.h"
#include <math.h>
#include <millhead/millhead.h>
#include <string.h>

#define MANY 300000u
#define OUTLIER_NS UINT64_C(5000000000)

static double covered(const mh_lane *lane)
{
    double sum = 0;
    for (size_t at = 0; at < MH_TIMELINE_BINS; at++)
        sum += lane->bins[at].covered;
    return sum;
}

static uint64_t counted(const mh_lane *lane)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < MH_TIMELINE_BINS; at++)
        sum += lane->bins[at].count;
    return sum;
}

static void add(mh_timeline *timeline, int64_t worker, uint64_t begin, uint64_t ns)
{
    assert_int_equal(mh_timeline_add(timeline, 0, MH_LANE_FETCH, worker, begin, ns, 7), 1);
}

/* Whatever comes first and however long the run becomes, nothing is lost or counted twice. */
static void test_sums_are_exact(void **state)
{
    mh_timeline timeline;
    uint64_t total = 0, seed = 1;
    (void)state;
    mh_timeline_init(&timeline, 100);
    for (unsigned at = 0; at < MANY; at++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t ns = seed >> 44; /* up to 1 ms */
        uint64_t begin = UINT64_C(1000000000000) + (uint64_t)at * 3000000;
        add(&timeline, 0, begin - (at % 3 ? 0 : UINT64_C(7000000) * at / MANY), ns);
        total += ns;
    }
    const mh_lane *lane = mh_timeline_lane(&timeline, 0);
    assert_int_equal(lane->count, MANY);
    assert_int_equal(lane->total, total);
    assert_int_equal(counted(lane), MANY);
    assert_true(fabs(covered(lane) / (double)total - 1) < 1e-9);
    assert_int_equal(timeline.base % timeline.width, 0);
    assert_true(timeline.last - timeline.base < timeline.width * MH_TIMELINE_BINS);
    /* no more than twice as wide as they must be */
    assert_true((timeline.last - timeline.first) / timeline.width >= MH_TIMELINE_BINS / 2 - 2);
    mh_timeline_deinit(&timeline);
}

static void test_earlier_events_move_the_bins(void **state)
{
    mh_timeline timeline;
    (void)state;
    mh_timeline_init(&timeline, 100);
    add(&timeline, 0, UINT64_C(900000000000), 50000);
    add(&timeline, 1, 1000, 70000);
    add(&timeline, 0, UINT64_C(500000000000), 10000);
    assert_int_equal(timeline.first, 1000);
    assert_true(timeline.base <= 1000);
    assert_true(fabs(covered(mh_timeline_lane(&timeline, 0)) - 60000) < 1e-3);
    assert_true(fabs(covered(mh_timeline_lane(&timeline, 1)) - 70000) < 1e-3);
    mh_timeline_deinit(&timeline);
}

/* One long fetch among very many, after the room for single ones is used up. */
static void test_an_outlier_is_kept(void **state)
{
    mh_timeline timeline;
    uint64_t at_outlier = 0;
    (void)state;
    mh_timeline_init(&timeline, 1000);
    for (unsigned at = 0; at < MANY; at++) {
        uint64_t begin = (uint64_t)at * 10000000;
        if (at == MANY / 2)
            at_outlier = begin;
        add(&timeline, 3, begin, at == MANY / 2 ? OUTLIER_NS : 1000 + at % 100);
    }
    const mh_lane *lane = mh_timeline_lane(&timeline, 0);
    assert_int_equal(lane->max, OUTLIER_NS);
    const mh_span *longest = &lane->longest[0];
    for (size_t at = 1; at < lane->longest_count; at++)
        longest = lane->longest[at].ns > longest->ns ? &lane->longest[at] : longest;
    assert_int_equal(longest->ns, OUTLIER_NS);
    assert_int_equal(longest->begin, at_outlier);
    assert_int_equal(longest->about, 7);
    const mh_bin *bin = &lane->bins[(at_outlier - timeline.base) / timeline.width];
    assert_true(fabs((double)bin->longest / (double)OUTLIER_NS - 1) < 1e-6);
    /* and of the first ones exactly so many, with where they end */
    assert_int_equal(timeline.work.count, 1000);
    assert_int_equal(timeline.work.until, UINT64_C(1000) * 10000000);
    mh_timeline_deinit(&timeline);
}

static void test_lanes_are_bounded(void **state)
{
    mh_timeline timeline;
    (void)state;
    mh_timeline_init(&timeline, 10);
    for (uint32_t loader = 0; loader < MH_TIMELINE_LANES + 5; loader++)
        assert_int_equal(mh_timeline_add(&timeline, loader, MH_LANE_FETCH, 0, 100, 5, -1), 1);
    assert_int_equal(timeline.lanes.count, MH_TIMELINE_LANES);
    assert_int_equal(timeline.left_out, 5);
    add(&timeline, MH_TIMELINE_ROWS + 100, UINT64_MAX / 2, 5); /* no clock says this */
    assert_int_equal(timeline.left_out, 6);
    mh_timeline_deinit(&timeline);
}

static void test_series_are_means(void **state)
{
    mh_timeline timeline;
    (void)state;
    mh_timeline_init(&timeline, 10);
    /* two CPUs for 3 s, then half a one for 1 s, seen at odd moments */
    assert_int_equal(mh_timeline_weigh(&timeline, MH_SERIES_CPU_MAIN, 1000000123, 4000000123, 6e9),
                     1);
    assert_int_equal(
        mh_timeline_weigh(&timeline, MH_SERIES_CPU_MAIN, 4000000123, 5000000123, 0.5e9), 1);
    double whole = mh_timeline_mean(&timeline, MH_SERIES_CPU_MAIN, 0, MH_TIMELINE_BINS);
    timeline.cpus = 1; /* never more than there are, whatever ticks say */
    assert_true(mh_timeline_mean(&timeline, MH_SERIES_CPU_MAIN, 0, MH_TIMELINE_BINS) == 1);
    timeline.cpus = 2;
    assert_true(fabs(whole - 6.5 / 4) < 1e-6);
    assert_true(isnan(mh_timeline_mean(&timeline, MH_SERIES_GPU, 0, MH_TIMELINE_BINS)));
    mh_timeline_deinit(&timeline);
}

#define USAGE(second, pid, role, memory)                                                           \
    "{\"event\":\"usage\",\"t\":" second "000000000,\"pid\":" pid ",\"role\":\"" role              \
    "\",\"cpu\":" second "0000000," memory "}\n"

/* What a worker shares with others is counted once, also where a look does not tell its share; and
 * one that comes later is there from the look before. */
static void test_memory_of_workers(void **state)
{
    mh_error err;
    mh_chapter *chapter = NULL;
    static const char events[] =
        "{\"event\":\"header\",\"t\":100,\"schema\":\"millhead-events\",\"version\":1}\n"
        "{\"event\":\"wait\",\"t\":1000000000,\"ns\":500,\"loader\":0,\"epoch\":0,\"batch\":0}\n"
        "{\"event\":\"step\",\"t\":1000000500,\"ns\":2000000000,\"loader\":0,\"epoch\":0,"
        "\"batch\":0}\n" /* one worker, then both, then the second alone */
        USAGE("1", "1", "main", "\"rss\":100,\"pss\":60")
            USAGE("1", "2", "worker", "\"rss\":90,\"pss\":20")
                USAGE("2", "1", "main", "\"rss\":100") USAGE("2", "2", "worker", "\"rss\":92")
                    USAGE("2", "3", "worker", "\"rss\":90") USAGE("3", "1", "main", "\"rss\":100")
                        USAGE("3", "3", "worker", "\"rss\":90");
    tree_write(*state, "events.jsonl", events);
    assert_int_equal(mh_chapter_read(&chapter, *state, 10, NULL, NULL, &err), MH_OK);
    mh_timeline *timeline = &chapter->timeline;
    double main_process = mh_timeline_mean(timeline, MH_SERIES_MEMORY_MAIN, 0, MH_TIMELINE_BINS);
    double workers = mh_timeline_mean(timeline, MH_SERIES_MEMORY_WORKERS, 0, MH_TIMELINE_BINS);
    assert_true(fabs(main_process - 60) < 0.01);
    assert_true(fabs(workers - (21 + 20 + 20) / 2.0) < 0.01);
    mh_chapter_free(chapter);
}

#define READING(role, pid, t, cpu)                                                                 \
    "{\"event\":\"usage\",\"t\":" #t "000000,\"pid\":" #pid ",\"role\":\"" role "\",\"cpu\":" #cpu \
    "000000,\"rss\":1000}\n"
#define MACHINE(t, busy)                                                                           \
    "{\"event\":\"system\",\"t\":" #t "000000,\"cpus\":2,\"busy\":" #busy "000000}\n"

/* Two readings 2 ms apart, a tick of 10 ms between them, and a worker that is new at the second:
 * nobody ever had more than one CPU. */
static void test_readings_close_to_each_other_are_one(void **state)
{
    static const char events[] =
        "{\"event\":\"wait\",\"t\":1000000000,\"ns\":10}\n" READING("main", 1, 1000, 10)
            MACHINE(1000, 1000) READING("main", 1, 2000, 500) MACHINE(2000, 1900)
                READING("main", 1, 2002, 510) READING("worker", 2, 2002, 400) MACHINE(2002, 1910)
                    READING("main", 1, 3000, 1000) READING("worker", 2, 3000, 900)
                        MACHINE(3000, 2800);
    static const mh_series series[] = {MH_SERIES_CPU_MAIN, MH_SERIES_CPU_WORKERS,
                                       MH_SERIES_CPU_MACHINE};
    mh_chapter *chapter = NULL;
    tree_write(*state, "events.jsonl", events);
    assert_int_equal(mh_chapter_read(&chapter, *state, 10, NULL, NULL, NULL), MH_OK);
    for (size_t nth = 0; nth < sizeof series / sizeof *series; nth++)
        for (size_t bin = 0; bin < MH_TIMELINE_BINS; bin++)
            assert_false(mh_timeline_mean(&chapter->timeline, series[nth], bin, bin + 1) > 1.01);
    mh_chapter_free(chapter);
}

/* Memory that gives out anywhere leaves nothing behind. */
static void test_out_of_memory(void **state)
{
    char path[256];
    mh_error err;
    static const char events[] =
        "{\"event\":\"header\",\"t\":100,\"schema\":\"millhead-events\",\"version\":1}\n"
        "{\"event\":\"fetch\",\"t\":1200,\"ns\":300,\"loader\":0,\"epoch\":0,\"worker\":0,\"nth\":"
        "0}\n"
        "{\"event\":\"wait\",\"t\":1200,\"ns\":500,\"loader\":0,\"epoch\":0,\"batch\":0,"
        "\"worker\":0,\"nth\":0,\"samples\":4}\n"
        "{\"event\":\"step\",\"t\":1700,\"ns\":2000,\"loader\":0,\"epoch\":0,\"batch\":0}\n"
        "{\"event\":\"usage\",\"t\":1700,\"pid\":1,\"role\":\"main\",\"cpu\":5,\"pss\":10}\n"
        "{\"event\":\"usage\",\"t\":2700,\"pid\":1,\"role\":\"main\",\"cpu\":9,\"pss\":10}\n";
    tree_write(*state, "events.jsonl", events);
    (void)snprintf(path, sizeof path, "%s/report.html", (const char *)*state);
    uint64_t live = mh_alloc_live();
    bool made = false;
    for (uint64_t nth = 1; nth < 500 && !made; nth++) {
        mh_page *page = NULL;
        (void)mh_alloc_fail_at(nth, 1);
        made = mh_page_new(&page, 1, &err) == MH_OK &&
               mh_page_add(page, *state, NULL, NULL, &err) == MH_OK &&
               mh_page_write(page, path, NULL, &err) == MH_OK;
        (void)mh_alloc_fail_at(0, 0);
        if (!made)
            assert_int_equal(err.code, MH_ERR_NOMEM);
        mh_page_free(page);
        assert_int_equal(mh_alloc_live(), live);
    }
    assert_true(made);
}

/* What a page could take for markup is written by number. */
static void test_html_escapes(void **state)
{
    mh_jsonout out;
    mh_error err;
    (void)state;
    mh_jsonout_init(&out, NULL);
    out.html = true;
    mh_jsonout_string(&out, "</script>&\xe2\x80\xa8\xe2\x80\xa9\xc3\xa9\"");
    assert_int_equal(mh_jsonout_finish(&out, &err), MH_OK);
    assert_string_equal(out.text, "\"\\u003c/script\\u003e\\u0026\\u2028\\u2029\xc3\xa9\\\"\"");
    mh_jsonout_deinit(&out);
}

/* The fix as settings: those that change, by the names of the DataLoader's arguments. */
static void test_fix_settings(void **state)
{
    static const struct {
        mh_fix fix;
        const char *json;
    } cases[] = {
        {{-1, -1, -1, -1, -1, 0.5, -1, -1, 0}, "\"fix_settings\": {}"},
        {{0, -1, -1, -1, -1, 1, -1, -1, 0}, "\"fix_settings\": {\"num_workers\": 0}"},
        {{-1, -1, -1, -1, -1, 1, 4, 64, 0},
         "\"fix_settings\": {\"threads\": 4, \"in_flight\": 64}"},
        {{-1, -1, -1, -1, -1, 1, -1, -1, 1}, "\"fix_settings\": {\"cache\": true}"},
        {{-1, 8, 0, 1, 1, 1, -1, -1, 0},
         "\"fix_settings\": {\"loader\": \"millhead\", \"prefetch_factor\": 8, "
         "\"in_order\": false, \"persistent_workers\": true}"},
    };
    (void)state;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        mh_verdict verdict;
        mh_facts facts;
        mh_verdict_init(&verdict);
        mh_facts_init(&facts);
        verdict.fix_settings = cases[at].fix;
        mh_wait_stats waits = {0};
        mh_error err;
        char *json = NULL;
        assert_int_equal(mh_diagnosis_json(&json, &verdict, &facts, &waits, 0, 0, &err), MH_OK);
        assert_non_null(strstr(json, cases[at].json));
        mh_text_free(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_exact),
        cmocka_unit_test(test_earlier_events_move_the_bins),
        cmocka_unit_test(test_an_outlier_is_kept),
        cmocka_unit_test(test_lanes_are_bounded),
        cmocka_unit_test(test_series_are_means),
        cmocka_unit_test_setup_teardown(test_memory_of_workers, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(test_readings_close_to_each_other_are_one, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(test_out_of_memory, make_tree, remove_tree),
        cmocka_unit_test(test_html_escapes),
        cmocka_unit_test(test_fix_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
