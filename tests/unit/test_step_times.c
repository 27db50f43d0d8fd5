/* test_step_times.c - an epoch's events and sums
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/step_times.h"
#include "unit.h"

#include "metrics/log.h"
#include <time.h>

#define MS INT64_C(1000000)

static mh_steps steps;
static mh_histogram loaders_waits;

static void pause_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    assert_int_equal(nanosleep(&pause, NULL), 0);
}

/* Three batches, of which the second is not counted and the first is waited for longest. */
static void run_epoch(bool skip_first)
{
    static const long waits_ms[] = {20, 5, 5};
    memset(&steps, 0, sizeof steps);
    memset(&loaders_waits, 0, sizeof loaders_waits);
    mh_steps_begin(&steps, 7, 2, &loaders_waits, skip_first);
    mh_steps_ready(&steps, 11);
    for (int i = 0; i < 3; i++) {
        mh_step_batch batch = {.samples = i == 1 ? -1 : 8,
                               .worker = i % 2,
                               .nth = i / 2,
                               .bytes = 100 * i,
                               .texts = -1};
        mh_steps_ask(&steps, i == 2 ? 5 : -1, -1);
        pause_ms(waits_ms[i]);
        mh_steps_got(&steps, &batch);
        pause_ms(2);
    }
    mh_steps_ask(&steps, -1, -1);
}

static void sums_are_those_of_the_epoch(void **state)
{
    (void)state;
    run_epoch(false);
    assert_int_equal(steps.batch, 2);
    assert_int_equal(steps.samples, 16);
    assert_true(steps.first_ns >= 20 * MS && steps.wait_ns >= 10 * MS && steps.step_ns >= 6 * MS);
    assert_int_equal(steps.waits.count, 2);
    assert_true(steps.waits.total == steps.wait_ns);
    assert_int_equal(loaders_waits.count, 3);
    assert_true(loaders_waits.total == steps.first_ns + steps.wait_ns);
    mh_steps_end(&steps);
    run_epoch(true);
    assert_int_equal(loaders_waits.count, 2);
    mh_steps_end(&steps);
}

/* What the log's reader makes of the lines. */
typedef struct seen {
    int setups, waits, steps;
    int64_t wait_ns, step_ns;
} seen;

static mh_status look(void *argument, const mh_log_event *event, mh_error *err)
{
    (void)err;
    seen *all = argument;
    assert_int_equal(event->loader, 7);
    assert_int_equal(event->epoch, 2);
    if (event->is == MH_LOG_SETUP) {
        all->setups++;
        assert_int_equal(event->order, 11);
    } else if (event->is == MH_LOG_WAIT) {
        assert_int_equal(event->batch, all->waits);
        assert_int_equal(event->worker, all->waits % 2);
        assert_int_equal(event->nth, all->waits / 2);
        assert_int_equal(event->bytes, 100 * all->waits);
        all->waits++;
        all->wait_ns += event->ns;
    } else {
        assert_int_equal(event->is, MH_LOG_STEP);
        assert_int_equal(event->batch, all->steps);
        all->steps++;
        all->step_ns += event->ns;
    }
    return MH_OK;
}

static void lines_are_what_the_reader_of_logs_reads(void **state)
{
    (void)state;
    mh_error err;
    mh_log *log = NULL;
    seen all = {0};
    size_t bytes;
    run_epoch(false);
    const char *text = mh_lines_take_text(&steps.lines, &bytes);
    assert_int_equal(mh_log_open(&log, look, &all, &err), MH_OK);
    assert_int_equal(mh_log_feed(log, text, bytes, &err), MH_OK);
    assert_int_equal(mh_log_finish(log, &err), MH_OK);
    assert_int_equal(mh_log_counted(log)->bad_lines, 0);
    mh_log_close(log);
    assert_int_equal(all.setups, 1);
    assert_int_equal(all.waits, 3);
    assert_int_equal(all.steps, 3);
    assert_true((uint64_t)all.wait_ns == steps.first_ns + steps.wait_ns);
    assert_true((uint64_t)all.step_ns == steps.step_ns);
    mh_steps_end(&steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_epoch),
        cmocka_unit_test(lines_are_what_the_reader_of_logs_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
