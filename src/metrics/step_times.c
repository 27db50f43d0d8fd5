/* step_times.c - how long a loop waited for its batches and worked on them, as events
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/step_times.h"

void mh_steps_begin(mh_steps *steps, int64_t loader, int64_t epoch, mh_histogram *loaders_waits,
                    bool skip_first)
{
    steps->loader = loader;
    steps->epoch = epoch;
    steps->batch = -1;
    steps->loaders_waits = loaders_waits;
    steps->skip_first = skip_first;
    steps->began = steps->at = mh_clock_read(&steps->clock);
}

static void begin_line(mh_steps *steps, const char *event, mh_reading began, mh_reading ended)
{
    mh_lines_begin(&steps->lines, event, began, ended);
    mh_lines_put(&steps->lines, "loader", steps->loader);
    mh_lines_put(&steps->lines, "epoch", steps->epoch);
}

static void put_known(mh_steps *steps, const char *key, int64_t value)
{
    if (value >= 0)
        mh_lines_put(&steps->lines, key, value);
}

void mh_steps_ready(mh_steps *steps, int64_t order_ns)
{
    steps->at = mh_clock_read(&steps->clock);
    steps->setup_ns = steps->at.now - steps->began.now;
    begin_line(steps, "setup", steps->began, steps->at);
    if (order_ns > 0)
        mh_lines_put(&steps->lines, "order", order_ns);
    mh_lines_end(&steps->lines);
}

void mh_steps_ask(mh_steps *steps, int64_t train_ns, int64_t own_ns)
{
    mh_reading now = mh_clock_begin(&steps->clock);
    if (steps->batch >= 0) {
        steps->step_ns += now.now - steps->at.now;
        begin_line(steps, "step", steps->at, now);
        mh_lines_put(&steps->lines, "batch", steps->batch);
        put_known(steps, "train", train_ns);
        put_known(steps, "own", own_ns);
        mh_lines_end(&steps->lines);
    }
    steps->at = now;
}

static void count_wait(mh_steps *steps, uint64_t ns)
{
    if (steps->batch == 0) {
        steps->first_ns = ns;
    } else {
        steps->wait_ns += ns;
        mh_histogram_add(&steps->waits, ns);
    }
    if (steps->batch > 0 || !steps->skip_first)
        mh_histogram_add(steps->loaders_waits, ns);
}

void mh_steps_got(mh_steps *steps, const mh_step_batch *batch)
{
    mh_reading now = mh_clock_read(&steps->clock);
    steps->batch++;
    count_wait(steps, now.now - steps->at.now);
    begin_line(steps, "wait", steps->at, now);
    mh_lines_put(&steps->lines, "batch", steps->batch);
    mh_lines_put(&steps->lines, "worker", batch->worker);
    mh_lines_put(&steps->lines, "nth", batch->nth);
    put_known(steps, "samples", batch->samples);
    put_known(steps, "bytes", batch->bytes);
    put_known(steps, "texts", batch->texts);
    mh_lines_end(&steps->lines);
    steps->samples += batch->samples > 0 ? batch->samples : 0;
    steps->at = now;
}

void mh_steps_end(mh_steps *steps)
{
    mh_clock_close(&steps->clock);
    mh_lines_free(&steps->lines);
}
