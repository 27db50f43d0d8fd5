/* test_times.c - what the native loader says its threads did, and what next() waited for
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include "pipeline/times.h"
#include "sys/clock.h"

#include <millhead/loader.h>

typedef struct seen {
    uint64_t tasks[MH_EVENT_KINDS], ns[MH_EVENT_KINDS], events;
    uint64_t first, last; /* ns */
    uint32_t threads;     /* highest number of one, and 1 */
    mh_loader_stats stats;
} seen;

static mh_loader *open_synthetic(const char *text, const mh_loader_options *options)
{
    mh_dataset *dataset = NULL;
    mh_loader *loader = NULL;
    mh_error err = {0};
    if (mh_dataset_open(&dataset, &text, 1, NULL, &err) != MH_OK ||
        mh_loader_open(&loader, dataset, options, &err) != MH_OK)
        fail_msg("%s", err.message);
    mh_dataset_unref(dataset);
    return loader;
}

static void add_events(mh_loader *loader, seen *out)
{
    mh_event events[64];
    uint64_t lost;
    uint32_t count;
    while ((count = mh_loader_events(loader, events, 64, &lost)) > 0) {
        assert_int_equal(lost, 0);
        for (uint32_t i = 0; i < count; i++) {
            const mh_event *event = &events[i];
            out->events++;
            out->tasks[event->kind] += event->batch;
            out->ns[event->kind] += event->duration_ns;
            if (event->value >= out->threads)
                out->threads = event->value + 1;
            if (event->start_ns < out->first)
                out->first = event->start_ns;
            if (event->start_ns + event->duration_ns > out->last)
                out->last = event->start_ns + event->duration_ns;
        }
    }
}

static seen run(const char *text, int threads, const char *link)
{
    mh_loader_options options;
    mh_batch *batch;
    mh_error err = {0};
    mh_status status;
    seen out = {.first = UINT64_MAX};
    mh_loader_options_init(&options);
    options.batch_size = 16;
    options.threads = threads;
    options.simulate = link;
    mh_loader *loader = open_synthetic(text, &options);
    if (mh_loader_watch(loader, &err) != MH_OK)
        fail_msg("%s", err.message);
    while ((status = mh_loader_next(loader, &batch, &err)) == MH_OK)
        mh_batch_unref(batch);
    assert_int_equal(status, MH_END);
    add_events(loader, &out);
    mh_loader_stats_init(&out.stats);
    mh_loader_stats_read(loader, &out.stats);
    mh_loader_close(loader);
    return out;
}

/* Decodes are 1 ms each, so that all of them are seen. */
static void events_add_up_to_what_was_counted(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 2; threads++) {
        uint64_t began = mh_clock_ns();
        const seen out = run("synthetic:count=320,shape=100,chunk=4,burn=1ms", threads, NULL);
        assert_true(out.tasks[MH_EVENT_DECODE] >= 60 && out.tasks[MH_EVENT_DECODE] <= 80);
        assert_true(out.ns[MH_EVENT_DECODE] <= out.stats.decode_ns);
        assert_true(2 * out.ns[MH_EVENT_DECODE] > out.stats.decode_ns);
        assert_int_equal(out.tasks[MH_EVENT_STORAGE], 0);
        assert_true(out.threads <= (uint32_t)threads + 1); /* and the loop's own */
        assert_true(out.first >= began && out.last <= mh_clock_ns());
        assert_int_equal(out.stats.cpu_ns > 0, threads > 0);
    }
}

/* Tasks of a few microseconds are put together. */
static void many_short_tasks_are_few_events(void **state)
{
    (void)state;
    const seen out = run("synthetic:count=50000,shape=100,chunk=4,burn=1us", 1, NULL);
    uint64_t tasks = out.tasks[MH_EVENT_READ] + out.tasks[MH_EVENT_DECODE];
    assert_true(tasks > 10000);
    assert_true(out.events < tasks / 20);
}

/* What it waits for is only a copy, so the loop makes some of the copies: its number is that of the
 * threads. */
static void a_loop_that_waits_places_samples(void **state)
{
    (void)state;
    const seen out = run("synthetic:count=100000,shape=1000,chunk=100000", 1, NULL);
    assert_int_equal(out.threads, 2);
}

static void a_loop_waits_for_the_stage_that_is_slow(void **state)
{
    (void)state;
    const seen burn = run("synthetic:count=640,shape=100,chunk=4,burn=1ms", 1, NULL);
    assert_true(2 * burn.stats.wait_decode_ns > burn.stats.wait_ns);
    assert_true(burn.stats.wait_decode_ns > 4 * burn.stats.wait_read_ns);
    const seen link = run("synthetic:count=640,shape=100,chunk=4", 1, "latency=20ms");
    assert_true(2 * link.stats.wait_read_ns > link.stats.wait_ns);
    assert_true(link.stats.wait_read_ns > 4 * link.stats.wait_decode_ns);
    assert_true(link.tasks[MH_EVENT_STORAGE] >= 100); /* of 160 units */
    assert_true(link.tasks[MH_EVENT_STORAGE] <= link.stats.reads_waited);
}

/* The first batch of an epoch is start-up. */
static void the_first_wait_is_not_shared_out(void **state)
{
    (void)state;
    const seen out = run("synthetic:count=16,shape=100,burn=2ms", 1, NULL);
    assert_true(out.stats.wait_ns > 0);
    assert_int_equal(out.stats.wait_read_ns + out.stats.wait_decode_ns + out.stats.wait_place_ns,
                     0);
}

static void nothing_is_kept_for_nobody(void **state)
{
    (void)state;
    mh_loader_options options;
    mh_event event;
    uint64_t lost = 1;
    mh_loader_options_init(&options);
    mh_loader *loader = open_synthetic("synthetic:count=64", &options);
    assert_int_equal(mh_loader_events(loader, &event, 1, &lost), 0);
    assert_int_equal(lost, 0);
    mh_loader_close(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_add_up_to_what_was_counted),
        cmocka_unit_test(many_short_tasks_are_few_events),
        cmocka_unit_test(a_loop_that_waits_places_samples),
        cmocka_unit_test(a_loop_waits_for_the_stage_that_is_slow),
        cmocka_unit_test(the_first_wait_is_not_shared_out),
        cmocka_unit_test(nothing_is_kept_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
