/* warnings.c - warning signs that are no cause by themselves, and memory that grows
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/units.h"
#include "diagnose/judging.h"

#include <string.h>

/* --- memory ---------------------------------------------------------------------------------- */

/* Growth that counts: more than allocators and caches add while they settle. */
#define GROWTH_LEAST 32e6
#define GROWTH_SHARE 0.05
/* Grew in more than this share of the looks taken, and in every quarter of the time by at least
 * this much of what it did in another. */
#define GROWTH_STEADY 0.6
#define GROWTH_EVEN 0.5
/* For a minute; or over several epochs, as what a first epoch fills is full in the next. */
#define GROWTH_SECONDS 60.0
#define GROWTH_EPOCHS 3.0
#define GROWTH_EPOCHS_SECONDS 8.0
/* Memory that lasts for longer than this is no threat to a run. */
#define GROWTH_THREAT_S (24 * 3600.0)

static double grown_bytes(const mh_usage_sum *usage)
{
    return usage->memory_per_s * mh_ns(usage->memory_ns) / 1e9;
}

static int seen_for_long(const mh_facts *facts)
{
    double seconds = mh_ns(facts->usage.memory_ns) / 1e9, run = mh_ns(facts->run_ns) / 1e9;
    double epochs = run > 0 ? mh_ns(facts->epochs) * seconds / run : 0;
    return seconds >= GROWTH_SECONDS ||
           (seconds >= GROWTH_EPOCHS_SECONDS && epochs >= GROWTH_EPOCHS);
}

/* By the slope: a last look may come when the run has ended and its memory is free again. */
int mh_memory_grows(const mh_facts *facts)
{
    const mh_usage_sum *usage = &facts->usage;
    double growth = grown_bytes(usage);
    int threat = usage->memory_available_bytes > 0 &&
                 usage->memory_available_bytes < GROWTH_THREAT_S * usage->memory_per_s;
    int steady = usage->memory_share_up >= GROWTH_STEADY && usage->memory_even >= GROWTH_EVEN;
    return threat && steady && seen_for_long(facts) && growth >= GROWTH_LEAST &&
           growth >= GROWTH_SHARE * usage->memory_first_bytes;
}

static const char *memory_hint(const mh_facts *facts)
{
    if (facts->workers > 0 && strcmp(facts->start, "fork") == 0)
        return "many Python objects in the dataset are copied as forked workers touch them: keep "
               "them in one numpy array or file; else a cache without limit";
    if (facts->workers > 0)
        return "a cache without limit in the dataset, or a leak in what workers call";
    return "batches or losses kept by the loop (loss.item() and not loss), or a cache without "
           "limit";
}

void mh_memory_say(mh_verdict *out, const mh_facts *facts, int is_cause)
{
    const mh_usage_sum *usage = &facts->usage;
    double per_s = usage->memory_per_s;
    double left_s = per_s > 0 ? usage->memory_available_bytes / per_s : 0;
    if (is_cause) {
        mh_evidence(
            out, "memory grew by %s per second: %s on top of %s in %s, in %.0f %% of the looks",
            MH_BYTES(per_s), MH_BYTES(grown_bytes(usage)), MH_BYTES(usage->memory_first_bytes),
            MH_NS_TEXT(mh_ns(usage->memory_ns)), 100 * usage->memory_share_up);
        mh_say_fix(out, "find what grows: %s", memory_hint(facts));
    } else {
        mh_warning(out, "memory grows by %s per second: %s", MH_BYTES(per_s), memory_hint(facts));
    }
    if (usage->memory_available_bytes > 0 && left_s > 0)
        mh_warning(out, "at this pace memory is used up in %s (%s are available)",
                   MH_SECONDS(left_s), MH_BYTES(usage->memory_available_bytes));
}

/* --- waits that come in bursts --------------------------------------------------------------- */

/* The device at 100 % and at 0 % in turn: few waits hold nearly all the waiting. */
static void warn_saw_tooth(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    const mh_sums *sums = &inquiry->sums;
    if (inquiry->out->device_wait_share < 0.05 || sums->batches < 20)
        return;
    double mean_wait = sums->wait / sums->batches, mean_step = sums->step / sums->batches;
    double limit = 2 * mean_wait > mean_step / 2 ? 2 * mean_wait : mean_step / 2;
    double count = 0, held = 0, bursts = 0;
    int in_burst = 0;
    for (size_t at = 0; at < facts->batch_count; at++) {
        double wait = mh_ns(facts->batches[at].wait);
        int is_long = !facts->batches[at].first && wait > limit;
        count += is_long;
        held += is_long ? wait : 0;
        bursts += is_long && !in_burst;
        in_burst = is_long;
    }
    if (bursts < 3 || count > sums->batches / 2 || held < 0.8 * sums->wait)
        return;
    mh_warning(
        inquiry->out,
        "the device works and idles in turn: %.0f of %.0f waits make up %.0f %% of the waiting, "
        "one stop every %.0f batches (%d workers, prefetch_factor %d)",
        count, sums->batches, 100 * held / sums->wait, sums->batches / bursts,
        inquiry->base.workers, inquiry->base.workers ? inquiry->base.prefetch : 0);
}

/* --- one worker unlike the others, epochs unlike each other ---------------------------------- */

static void warn_slow_worker(const mh_inquiry *inquiry)
{
    const mh_slow_worker *slow = &inquiry->slow;
    if (slow->worker < 0 || inquiry->out->device_wait_share < 0.05)
        return;
    mh_warning(inquiry->out,
               "worker %d takes %s to fetch a batch, the others %s: look at its part of the data "
               "(its shards)",
               slow->worker, MH_NS_TEXT(slow->fetch_ns), MH_NS_TEXT(slow->others_ns));
}

/* A first epoch that takes so many times as long to fetch a batch: something is kept then. */
#define WARMING_UP 3

static void warn_first_epoch(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    double sums[2] = {0}, counts[2] = {0};
    if (facts->epochs < 2 || inquiry->out->device_wait_share < 0.05)
        return;
    for (size_t at = 0; at < facts->batch_count; at++) {
        const mh_batch_cost *batch = &facts->batches[at];
        if (batch->first || batch->fetch == MH_NOT_MEASURED)
            continue;
        int later = batch->epoch != facts->batches[0].epoch;
        sums[later] += mh_ns(batch->fetch);
        counts[later]++;
    }
    if (!counts[0] || !counts[1] || sums[0] / counts[0] < WARMING_UP * sums[1] / counts[1])
        return;
    mh_warning(
        inquiry->out,
        "fetching a batch takes %s in the first epoch and %s later: later epochs hit a warm cache, "
        "so expect less gain on a longer run",
        MH_NS_TEXT(sums[0] / counts[0]), MH_NS_TEXT(sums[1] / counts[1]));
}

/* Validation, checkpoints: no loader makes them shorter. The loops of other loaders lie there too.
 */
static void warn_between_epochs(const mh_inquiry *inquiry)
{
    double others = mh_ns(inquiry->facts->other_ns), loop = inquiry->measured_ns + others;
    double between = mh_ns(inquiry->facts->between_ns) - others;
    if (between < 0.1 * (between + loop))
        return;
    mh_warning(
        inquiry->out,
        "%s pass between epochs, outside the loop (validation, checkpoints), beside %s in it: no "
        "setting of the loader makes them shorter",
        MH_NS_TEXT(between), MH_NS_TEXT(loop));
}

/* --- the machine ----------------------------------------------------------------------------- */

static void warn_cpus(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    double cpus = facts->cpus;
    if (facts->cpus <= 0)
        return;
    if (inquiry->other_cpus >= 0.25 * cpus)
        mh_warning(
            inquiry->out,
            "other processes use %.2g CPUs: the run is slower than it could be, and gains may be "
            "off",
            inquiry->other_cpus);
    int more_workers = inquiry->out->fix_settings.workers > facts->workers; /* they only wait */
    if (inquiry->own_cpus + inquiry->other_cpus >= MH_SATURATED * cpus)
        mh_warning(inquiry->out, "all %d CPUs are busy: more workers gain %s", facts->cpus,
                   more_workers ? "only where they wait" : "nothing");
    if (facts->workers > 0 && facts->workers <= facts->cpus &&
        inquiry->own_cpus + inquiry->other_cpus >= MH_SATURATED * cpus &&
        facts->usage.loader_cpus + facts->usage.loader_delay >= 2 * MH_CROWDED * cpus)
        mh_warning(
            inquiry->out,
            "%.2g threads of the run compete for %d CPUs: thread pools in workers crowd them "
            "(OMP_NUM_THREADS=1, or worker_threads=1 of millhead.torch.DataLoader)",
            facts->usage.loader_cpus + facts->usage.loader_delay, facts->cpus);
    if (facts->workers > 2 * facts->cpus && inquiry->out->cause != MH_CAUSE_OVERSUBSCRIBED &&
        inquiry->runnable >= MH_CROWDED * cpus)
        mh_warning(inquiry->out, "%d workers on %d CPUs: %d would do the same with less memory",
                   facts->workers, facts->cpus, facts->cpus);
}

static void warn_memory(const mh_inquiry *inquiry)
{
    const mh_usage_sum *usage = &inquiry->facts->usage;
    if (inquiry->out->cause != MH_CAUSE_MEMORY && mh_memory_grows(inquiry->facts))
        mh_memory_say(inquiry->out, inquiry->facts, 0);
    if (usage->memory_available_bytes > 0 &&
        usage->memory_last_bytes > 4 * usage->memory_available_bytes)
        mh_warning(inquiry->out,
                   "only %s of memory are left beside the run's %s: use fewer workers, a smaller "
                   "prefetch_factor or a smaller cache",
                   MH_BYTES(usage->memory_available_bytes), MH_BYTES(usage->memory_last_bytes));
}

static void warn_short(const mh_inquiry *inquiry)
{
    const mh_replay_options *base = &inquiry->base;
    double under_way = base->workers ? (double)base->workers * base->prefetch : 1;
    double needed = 3 * under_way > MH_BATCHES_ENOUGH ? 3 * under_way : MH_BATCHES_ENOUGH;
    if (inquiry->sums.batches < needed)
        mh_warning(inquiry->out,
                   "the run is short: %.0f batches after the first ones; %.0f %s a steady pace",
                   inquiry->sums.batches, needed,
                   mh_too_short(inquiry) ? "are needed to see" : "would show");
}

/* Worth a word though it is no cause: with torch it is there in every run. */
static void warn_handover(const mh_inquiry *inquiry)
{
    double gain = inquiry->gain[MH_LOSS_TRANSFER], batches = inquiry->sums.batches;
    if (gain < MH_GAIN_MATTERS || gain >= mh_handover_matters(inquiry) || !(batches > 0))
        return;
    const mh_costs *costs = &inquiry->load.costs;
    if (mh_drawing_is_most(costs))
        mh_warning(inquiry->out,
                   "the sampler takes %s per batch, %.0f %% of the run: make it cheaper",
                   MH_NS_TEXT(costs->drawing / batches), 100 * (1 - 1 / gain));
    else
        mh_warning(inquiry->out, "passing a batch to the loop takes %s, %.0f %% of the run: %s",
                   MH_NS_TEXT((costs->transfer + costs->passing) / batches), 100 * (1 - 1 / gain),
                   strcmp(inquiry->facts->kind, "torch") == 0
                       ? "millhead.torch.DataLoader does it in shared memory"
                       : "smaller dtypes, no long strings or nested objects in a batch");
}

void mh_signs(const mh_inquiry *inquiry)
{
    warn_short(inquiry);
    warn_handover(inquiry);
    warn_saw_tooth(inquiry);
    warn_slow_worker(inquiry);
    warn_first_epoch(inquiry);
    warn_between_epochs(inquiry);
    warn_cpus(inquiry);
    warn_memory(inquiry);
    const mh_usage_sum *usage = &inquiry->facts->usage;
    if (usage->wall_ns && usage->iowait_cpus >= 0.5)
        mh_warning(inquiry->out, "%.2g CPUs were idle, waiting for disks", usage->iowait_cpus);
    if (inquiry->out->replay_off > 0.25)
        mh_warning(inquiry->out, "the simulated run is off by %.0f %%: take the gain as a hint",
                   100 * inquiry->out->replay_off);
}
