/* evidence.c - the lines of a verdict: what was measured, said in words
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/units.h"
#include "diagnose/judging.h"

#include <stdarg.h>
#include <stdio.h>

static void add_line(char lines[][MH_VERDICT_LINE], size_t *count, const char *format, va_list args)
{
    if (*count < MH_VERDICT_LINES)
        (void)vsnprintf(lines[(*count)++], MH_VERDICT_LINE, format, args);
}

void mh_evidence(mh_verdict *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(out->evidence, &out->evidence_count, format, args);
    va_end(args);
}

void mh_warning(mh_verdict *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(out->warnings, &out->warning_count, format, args);
    va_end(args);
}

void mh_say_fix(mh_verdict *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(out->fix, sizeof out->fix, format, args);
    va_end(args);
}

double mh_read_per_s(const mh_inquiry *inquiry)
{
    return inquiry->steady_ns > 0 ? inquiry->load.read_bytes / inquiry->steady_ns * 1e9 : 0;
}

/* A mean over the steady batches, in seconds. */
static double per_batch(const mh_inquiry *inquiry, double ns)
{
    return inquiry->sums.batches > 0 ? ns / inquiry->sums.batches / 1e9 : 0;
}

#define PER_BATCH(inquiry, ns) MH_SECONDS(per_batch(inquiry, ns))

static void say_fetch(const mh_inquiry *inquiry)
{
    const mh_costs *costs = &inquiry->load.costs;
    double cpu = costs->fetch_cpu + costs->read_cpu;
    double fetch = cpu + costs->fetch_delay + costs->fetch_blocked;
    if (inquiry->sums.cpu_known * 2 < inquiry->sums.batches) {
        mh_evidence(inquiry->out,
                    "fetching a batch takes %s; whether computing or waiting was not measured",
                    PER_BATCH(inquiry, fetch));
        return;
    }
    mh_evidence(inquiry->out,
                "fetching a batch takes %s: %s computing, %s waiting for a free CPU, %s on I/O "
                "or asleep",
                PER_BATCH(inquiry, fetch), PER_BATCH(inquiry, cpu),
                PER_BATCH(inquiry, costs->fetch_delay), PER_BATCH(inquiry, costs->fetch_blocked));
}

static void say_lock(const mh_inquiry *inquiry)
{
    double locked = inquiry->facts->usage.workers_locked;
    if (mh_lock_is_shared(&inquiry->load))
        mh_evidence(inquiry->out,
                    "workers wait for each other: on average %.2g of %d are waiting for a lock "
                    "that processes share",
                    locked, inquiry->facts->workers);
}

static void say_storage(const mh_inquiry *inquiry)
{
    const mh_sums *sums = &inquiry->sums;
    double blocked_s = inquiry->load.costs.fetch_blocked / 1e9;
    if (blocked_s <= 0 || sums->cpu_known * 2 < sums->batches)
        return;
    if (inquiry->load.read_bytes < 1)
        mh_evidence(inquiry->out, "nothing came from storage; the disk was %.0f %% busy",
                    100 * inquiry->facts->usage.disk_busy);
    else
        mh_evidence(
            inquiry->out, "%s came from storage, %s per second blocked; the disk was %.0f %% busy",
            MH_BYTES(inquiry->load.read_bytes), MH_BYTES(inquiry->load.read_bytes / blocked_s),
            100 * inquiry->facts->usage.disk_busy);
}

/* What a probe says beside what the run did. */
static void say_probe(const mh_inquiry *inquiry)
{
    const mh_storage *storage = &inquiry->facts->storage;
    char small[120] = "";
    if (!(storage->sequential_per_s > 0))
        return;
    if (storage->random_per_s > 0)
        (void)snprintf(small, sizeof small, ", %s/s in small random reads (%s each)",
                       MH_BYTES(storage->random_per_s), MH_SECONDS(storage->random_s));
    mh_evidence(inquiry->out,
                "the run read %s/s from storage; the probe measured %s/s for one sequential "
                "reader%s",
                MH_BYTES(mh_read_per_s(inquiry)), MH_BYTES(storage->sequential_per_s), small);
}

static void say_cpus(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    if (facts->cpus > 0)
        mh_evidence(inquiry->out,
                    "%d worker%s on %d CPU%s: the run keeps %.2g CPUs busy, other processes %.2g; "
                    "%.2g threads of the run want a CPU",
                    inquiry->base.workers, inquiry->base.workers == 1 ? "" : "s", facts->cpus,
                    facts->cpus == 1 ? "" : "s", inquiry->own_cpus, inquiry->other_cpus,
                    inquiry->runnable);
    double probes = mh_ns(facts->probes), native = mh_ns(facts->probes_native);
    if (probes >= MH_PROBES_ENOUGH)
        mh_evidence(inquiry->out, "%.0f %% of CPU samples were in native code, %.0f %% in Python",
                    100 * native / probes, 100 - 100 * native / probes);
}

/* The functions that the time of a stage goes to: "66 % PIL.ImageFile.load, 20 % ...". */
static void say_hot(const mh_inquiry *inquiry, const char *stage, const char *of_what)
{
    enum { MOST = 3 };
    char text[MH_VERDICT_LINE / 2] = "";
    size_t used = 0;
    const mh_hot *hot = mh_hot_next(inquiry->facts, stage, NULL);
    for (int at = 0; hot && at < MOST && used < sizeof text; at++) {
        int more = snprintf(text + used, sizeof text - used, "%s%.0f %% %s", at ? ", " : "",
                            100 * hot->share, hot->function);
        used += more > 0 ? (size_t)more : 0;
        hot = mh_hot_next(inquiry->facts, stage, hot);
    }
    if (used)
        mh_evidence(inquiry->out, "%s: %s", of_what, text);
}

/* The numbers of a loss. */
static void say_numbers(const mh_inquiry *inquiry, mh_loss loss)
{
    const mh_facts *facts = inquiry->facts;
    const mh_costs *costs = &inquiry->load.costs;
    mh_verdict *out = inquiry->out;
    switch (loss) {
    case MH_LOSS_FETCH_CPU:
    case MH_LOSS_CROWD:
        say_fetch(inquiry);
        say_hot(inquiry, "fetch", "where a sample's time goes");
        say_cpus(inquiry);
        say_lock(inquiry);
        break;
    case MH_LOSS_FETCH_BLOCKED:
        say_fetch(inquiry);
        say_hot(inquiry, "fetch", "where a sample's time goes");
        say_lock(inquiry);
        say_storage(inquiry);
        say_probe(inquiry);
        break;
    case MH_LOSS_COLLATE:
        mh_evidence(
            out, "collating a batch takes %s, fetching its samples %s",
            PER_BATCH(inquiry, costs->collate_cpu + costs->collate_blocked + costs->collate_delay),
            PER_BATCH(inquiry, costs->fetch_cpu + costs->fetch_blocked + costs->fetch_delay));
        say_hot(inquiry, "collate", "where collate's time goes");
        break;
    case MH_LOSS_TRANSFER:
        if (mh_drawing_is_most(costs))
            mh_evidence(out, "the sampler takes %s of each wait: it runs in the training process",
                        PER_BATCH(inquiry, costs->drawing));
        else
            mh_evidence(out, "a finished batch takes %s to reach the loop",
                        PER_BATCH(inquiry, costs->transfer + costs->passing));
        break;
    case MH_LOSS_MAIN:
        mh_evidence(out, "the loop's own work takes %s of each step of %s%s",
                    PER_BATCH(inquiry, costs->main_cpu + costs->main_blocked),
                    PER_BATCH(inquiry, inquiry->sums.step),
                    inquiry->sums.train_known > 0 ? "" : " (its CPU time; it sleeps for the rest)");
        say_hot(inquiry, "loop", "where the loop's own time goes");
        break;
    case MH_LOSS_TAIL:
        mh_evidence(
            out, "%llu of %llu samples take more than 5 times the median (median %s, longest %s)",
            (unsigned long long)facts->samples_slow, (unsigned long long)facts->samples_timed,
            MH_NS_TEXT(mh_ns(facts->sample_median_ns)), MH_NS_TEXT(mh_ns(facts->sample_max_ns)));
        break;
    case MH_LOSS_STARTUP:
        mh_evidence(out, "start-up takes %s of %s: %s to make iterators, %s until workers deliver",
                    MH_NS_TEXT(inquiry->sums.startup), MH_NS_TEXT(inquiry->measured_ns),
                    MH_NS_TEXT(mh_ns(facts->setup_ns)),
                    MH_NS_TEXT(inquiry->sums.startup - mh_ns(facts->setup_ns)));
        if (facts->remade)
            mh_evidence(out, "%.0f more loaders were made like it: %s until their first batches",
                        (double)facts->remade, MH_NS_TEXT(mh_ns(facts->remade_start_ns)));
        if (mh_ns(facts->setup_order_ns) > 0.01 * inquiry->measured_ns)
            mh_evidence(
                out,
                "the sampler takes %s of that: it draws the first indices of an epoch in the "
                "training process",
                MH_NS_TEXT(mh_ns(facts->setup_order_ns)));
        if (inquiry->gap_ns > 0.01 * inquiry->base_ns)
            mh_evidence(out, "the loop waits %s more for the first batches of later epochs",
                        MH_NS_TEXT(inquiry->gap_ns));
        break;
    case MH_LOSS_COUNT:
        break;
    }
}

/* Three batches are no accident, twenty a pace. */
#define BATCHES_SEEN 3

void mh_say_seen(const mh_inquiry *inquiry)
{
    if (inquiry->seen == MH_LOSS_COUNT || inquiry->sums.batches < BATCHES_SEEN)
        return;
    mh_evidence(inquiry->out, "so far it looks %s, from %.0f batches",
                mh_cause_name(mh_cause_of(inquiry, inquiry->seen)), inquiry->sums.batches);
    say_numbers(inquiry, inquiry->seen);
}

void mh_say_loss(const mh_inquiry *inquiry)
{
    say_numbers(inquiry, inquiry->loss);
    double run = mh_run_ns(inquiry);
    if (inquiry->loss != MH_LOSS_COUNT && inquiry->gain[inquiry->loss] >= MH_GAIN_MATTERS)
        mh_evidence(inquiry->out,
                    "without this cost the run would take about %s instead of %s (simulated)",
                    MH_NS_TEXT(run / mh_gain_of_run(inquiry, inquiry->gain[inquiry->loss])),
                    MH_NS_TEXT(run));
}

void mh_say_crowd_first(const mh_inquiry *inquiry)
{
    double most = 0;
    for (int loss = 0; loss < MH_LOSS_COUNT; loss++)
        most = inquiry->fix_sure[loss] > most ? inquiry->fix_sure[loss] : most;
    if (inquiry->loss == MH_LOSS_CROWD && most > inquiry->out->predicted_gain)
        mh_evidence(
            inquiry->out,
            "another fix promises more (%.2f times as fast), but its times were measured in this "
            "crowd: end that first, then measure again",
            most);
}

void mh_say_waiting(const mh_inquiry *inquiry)
{
    mh_verdict *out = inquiry->out;
    if (inquiry->sums.batches == 0) {
        mh_evidence(out, "each of %llu iterators gave one batch",
                    (unsigned long long)inquiry->facts->epochs);
        return;
    }
    mh_evidence(out, "the loop waited %s of %s (%.1f %%) for data after the first batches",
                MH_NS_TEXT(inquiry->sums.wait), MH_NS_TEXT(inquiry->steady_ns),
                100 * out->device_wait_share);
}

void mh_say_trust(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    mh_evidence(inquiry->out, "the simulated run is within %.1f %% of the measured one",
                100 * inquiry->out->replay_off);
    int main_unknown = !inquiry->costing.main_known && inquiry->sums.train_known == 0;
    double step_cpu = inquiry->load.costs.train_cpu;
    double step = inquiry->sums.step - inquiry->load.costs.step_delay; /* others' doing */
    if (main_unknown && step_cpu > 0.5 * step && facts->vantage != MH_VANTAGE_LOG)
        mh_evidence(inquiry->out, "the step's CPU time may be training or other work: "
                                  "millhead.StepTimer tells them apart");
}
