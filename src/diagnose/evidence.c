/* evidence.c - the lines of a verdict: what was measured, said in words
 * SPDX-License-Identifier: Apache-2.0
 */
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
    return inquiry->steady_ns > 0 ? inquiry->sums.read_bytes / inquiry->steady_ns * 1e9 : 0;
}

static double per_batch_ms(const mh_inquiry *inquiry, double ns)
{
    return inquiry->sums.batches > 0 ? ns / inquiry->sums.batches / 1e6 : 0;
}

static void say_fetch(const mh_inquiry *inquiry)
{
    const mh_costs *costs = &inquiry->sums.costs;
    double cpu = costs->fetch_cpu + costs->read_cpu;
    double fetch = cpu + costs->fetch_delay + costs->fetch_blocked;
    if (inquiry->sums.cpu_known * 2 < inquiry->sums.batches) {
        mh_evidence(inquiry->out,
                    "fetching a batch takes %.4g ms; whether on a CPU or blocked was not measured",
                    per_batch_ms(inquiry, fetch));
        return;
    }
    mh_evidence(inquiry->out,
                "fetching a batch takes %.4g ms: %.4g on a CPU, %.4g waiting for one, %.4g blocked",
                per_batch_ms(inquiry, fetch), per_batch_ms(inquiry, cpu),
                per_batch_ms(inquiry, costs->fetch_delay),
                per_batch_ms(inquiry, costs->fetch_blocked));
}

static void say_lock(const mh_inquiry *inquiry)
{
    double locked = inquiry->facts->usage.workers_locked;
    if (mh_lock_holds_up(inquiry))
        mh_evidence(inquiry->out,
                    "workers wait for each other: %.2g of %d at a time are found waiting for a "
                    "lock that processes share",
                    locked, inquiry->facts->workers);
}

static void say_storage(const mh_inquiry *inquiry)
{
    const mh_sums *sums = &inquiry->sums;
    double blocked_s = sums->costs.fetch_blocked / 1e9;
    if (blocked_s <= 0 || sums->cpu_known * 2 < sums->batches)
        return;
    mh_evidence(
        inquiry->out,
        "%.4g MB came from storage, %.3g MB for a second of being blocked; disk %.0f %% busy",
        sums->read_bytes / 1e6, sums->read_bytes / blocked_s / 1e6,
        100 * inquiry->facts->usage.disk_busy);
}

/* What a probe says beside what the run did. */
static void say_probe(const mh_inquiry *inquiry)
{
    const mh_storage *storage = &inquiry->facts->storage;
    char small[80] = "";
    if (!(storage->sequential_per_s > 0))
        return;
    if (storage->random_per_s > 0)
        (void)snprintf(small, sizeof small, ", %.3g MB/s in small reads anywhere (%.3g ms each)",
                       storage->random_per_s / 1e6, storage->random_s * 1e3);
    mh_evidence(inquiry->out,
                "the run read %.4g MB/s from storage; by the probe one reader gets %.4g MB/s in "
                "sequence%s",
                mh_read_per_s(inquiry) / 1e6, storage->sequential_per_s / 1e6, small);
}

static void say_cpus(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    if (facts->cpus > 0)
        mh_evidence(inquiry->out,
                    "%d worker%s on %d CPU%s: the run keeps %.2g busy, others %.2g; %.2g threads "
                    "of the run want one",
                    inquiry->base.workers, inquiry->base.workers == 1 ? "" : "s", facts->cpus,
                    facts->cpus == 1 ? "" : "s", inquiry->own_cpus, inquiry->other_cpus,
                    inquiry->runnable);
    if (facts->probes >= MH_PROBES_ENOUGH)
        mh_evidence(inquiry->out, "of %llu probes %llu met native code, the others Python",
                    (unsigned long long)facts->probes, (unsigned long long)facts->probes_native);
}

void mh_say_loss(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    const mh_costs *costs = &inquiry->sums.costs;
    mh_verdict *out = inquiry->out;
    switch (inquiry->loss) {
    case MH_LOSS_FETCH_CPU:
    case MH_LOSS_CROWD:
        say_fetch(inquiry);
        say_cpus(inquiry);
        say_lock(inquiry);
        break;
    case MH_LOSS_FETCH_BLOCKED:
        say_fetch(inquiry);
        say_lock(inquiry);
        say_storage(inquiry);
        say_probe(inquiry);
        break;
    case MH_LOSS_COLLATE:
        mh_evidence(
            out, "collating a batch takes %.4g ms, fetching its samples %.4g ms",
            per_batch_ms(inquiry,
                         costs->collate_cpu + costs->collate_blocked + costs->collate_delay),
            per_batch_ms(inquiry, costs->fetch_cpu + costs->fetch_blocked + costs->fetch_delay));
        break;
    case MH_LOSS_TRANSFER:
        if (mh_drawing_is_most(costs))
            mh_evidence(out,
                        "%.4g ms of each wait go to drawing the order of a batch: the sampler "
                        "works in the training process",
                        per_batch_ms(inquiry, costs->drawing));
        else
            mh_evidence(out, "%.4g ms pass from the end of collating until the loop has the batch",
                        per_batch_ms(inquiry, costs->transfer + costs->passing));
        break;
    case MH_LOSS_MAIN:
        mh_evidence(out, "of a step of %.4g ms the training process's own work takes %.4g ms%s",
                    per_batch_ms(inquiry, inquiry->sums.step),
                    per_batch_ms(inquiry, costs->main_cpu + costs->main_blocked),
                    inquiry->sums.train_known > 0 ? "" : " (its CPU time: the rest is blocked)");
        break;
    case MH_LOSS_TAIL:
        mh_evidence(out,
                    "%llu of %llu samples take more than 5 medians (median %.3g ms, longest %.4g "
                    "ms)",
                    (unsigned long long)facts->samples_slow,
                    (unsigned long long)facts->samples_timed, mh_ns(facts->sample_median_ns) / 1e6,
                    mh_ns(facts->sample_max_ns) / 1e6);
        break;
    case MH_LOSS_STARTUP:
        mh_evidence(out,
                    "start-up takes %.4g s of %.4g s: %.4g s making iterators, %.4g s until "
                    "workers deliver",
                    inquiry->sums.startup / 1e9, inquiry->measured_ns / 1e9,
                    mh_ns(facts->setup_ns) / 1e9,
                    (inquiry->sums.startup - mh_ns(facts->setup_ns)) / 1e9);
        if (mh_ns(facts->setup_order_ns) > 0.01 * inquiry->measured_ns)
            mh_evidence(out,
                        "%.4g s of making iterators go to the sampler: it draws the first orders "
                        "of an epoch in the training process",
                        mh_ns(facts->setup_order_ns) / 1e9);
        if (inquiry->gap_ns > 0.01 * inquiry->base_ns)
            mh_evidence(out, "between epochs the loop waits %.4g s more for first batches",
                        inquiry->gap_ns / 1e9);
        break;
    case MH_LOSS_COUNT:
        break;
    }
    if (inquiry->loss != MH_LOSS_COUNT)
        mh_evidence(out, "without it the run would take %.4g s in place of %.4g s, by replay",
                    inquiry->measured_ns / inquiry->gain[inquiry->loss] / 1e9,
                    inquiry->measured_ns / 1e9);
}

void mh_say_crowd_first(const mh_inquiry *inquiry)
{
    double most = 0;
    for (int loss = 0; loss < MH_LOSS_COUNT; loss++)
        most = inquiry->fix_gain[loss] > most ? inquiry->fix_gain[loss] : most;
    if (inquiry->loss == MH_LOSS_CROWD && most > inquiry->out->predicted_gain)
        mh_evidence(
            inquiry->out,
            "another fix promises more (%.2f), but by times taken in this crowd: first fewer "
            "workers, then measure again",
            most);
}

void mh_say_waiting(const mh_inquiry *inquiry)
{
    mh_verdict *out = inquiry->out;
    mh_evidence(out, "the loop waited %.4g s of %.4g s (%.1f %%) for data after the first batches",
                inquiry->sums.wait / 1e9, inquiry->steady_ns / 1e9, 100 * out->device_wait_share);
}

void mh_say_trust(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    mh_evidence(inquiry->out, "replay within %.1f %% of the measured run",
                100 * inquiry->out->replay_off);
    int main_unknown = !inquiry->costing.main_known && inquiry->sums.train_known == 0;
    double step_cpu = inquiry->sums.costs.train_cpu;
    double step = inquiry->sums.step - inquiry->sums.costs.step_delay; /* others' doing */
    if (main_unknown && step_cpu > 0.5 * step && facts->vantage != MH_VANTAGE_LOG)
        mh_evidence(inquiry->out, "the step's CPU time may be training or other work of the "
                                  "process: millhead.StepTimer tells them apart");
}
