/* verdict_outside.c - a verdict from what /proc says about a run's processes
 * SPDX-License-Identifier: Apache-2.0
 *
 * No batch was seen, only what threads did each time they were looked at. The consumer's share of
 * looks in the loader's queue is the share of time the device waits; what the workers did meanwhile
 * names the cause. Gains are bounds, not replays.
 */
#include "diagnose/judging.h"

/* Looks are few: a share below this is within what chance does to them. */
#define SEEN_WAITING 0.1
/* Workers that wait for orders in half of the looks keep up; such that hardly do, do not. */
#define IDLE_OFTEN 0.5
#define IDLE_SELDOM 0.1

static int all_busy(const mh_facts *facts)
{
    const mh_usage_sum *usage = &facts->usage;
    double busy = usage->busy_cpus > usage->loader_cpus ? usage->busy_cpus : usage->loader_cpus;
    return facts->cpus > 0 && busy >= MH_SATURATED * facts->cpus;
}

static void judge_no_workers(const mh_facts *facts, mh_verdict *out)
{
    const mh_usage_sum *usage = &facts->usage;
    if (usage->main_disk >= 0.3) {
        out->cause = MH_CAUSE_DISK;
        mh_evidence(out,
                    "there are no workers, and the process waits for disks in %.0f %% of the "
                    "looks",
                    100 * usage->main_disk);
        mh_say_fix(out, "num_workers of 1 or more: reading then overlaps with training");
        return;
    }
    mh_evidence(out,
                "no worker process is there: loading and training take turns in one process, "
                "which keeps %.2g CPUs busy",
                usage->main_cpus);
    mh_say_fix(out, "from outside loading cannot be told from training here: run millhead doctor "
                    "-- python train.py, or iterate millhead.watch(loader)");
}

/* What more workers could win: the waiting, and no more than their number and the CPUs allow. */
static double gain_of_workers(const mh_facts *facts, double waited, int workers)
{
    double most = mh_gain(1, 1 - waited);
    double more = facts->workers > 0 ? (double)workers / facts->workers : most;
    return more < most ? more : most;
}

static void judge_cpu(const mh_facts *facts, mh_verdict *out, double waited)
{
    const mh_usage_sum *usage = &facts->usage;
    out->cause = MH_CAUSE_CPU;
    mh_evidence(
        out, "%d worker%s ran or wanted to in %.0f %% of the looks and kept %.2g of %d CPUs busy",
        facts->workers, facts->workers == 1 ? "" : "s", 100 * usage->workers_run,
        usage->workers_cpus, facts->cpus);
    if (all_busy(facts) || facts->cpus <= 0 || facts->workers >= facts->cpus) {
        out->fix_settings.cost = 0.5;
        out->predicted_gain = mh_gain(1, 1 - waited / 2);
        mh_say_fix(out, "make a sample cheaper (smaller or pre-decoded files, a faster decoder), "
                        "or give the run more CPUs");
        return;
    }
    out->fix_settings.workers = facts->cpus;
    out->predicted_gain = gain_of_workers(facts, waited, facts->cpus);
    mh_say_fix(out, "num_workers=%d (now %d): CPUs are idle", facts->cpus, facts->workers);
}

/* The one that has the lock may compute or read behind it: what the others do tells. */
static int lock_holds_up(const mh_facts *facts)
{
    const mh_usage_sum *usage = &facts->usage;
    double fetching = (usage->workers_run + usage->workers_blocked) * facts->workers;
    return facts->workers > 1 && usage->workers_disk < usage->workers_blocked &&
           usage->workers_locked >= MH_LOCK_QUEUE &&
           usage->workers_locked >= MH_LOCK_SHARE * fetching;
}

static void judge_lock(const mh_facts *facts, mh_verdict *out, double waited)
{
    out->cause = MH_CAUSE_LATENCY;
    out->fix_settings.cost = 0.5;
    out->predicted_gain = mh_gain(1, 1 - waited / 2);
    mh_evidence(out,
                "workers wait for each other: on average %.2g of %d are waiting for a lock that "
                "processes share",
                facts->usage.workers_locked, facts->workers);
    mh_say_fix(
        out, "do less while holding the lock that workers share, or give each worker its own file "
             "or connection; more workers gain nothing");
}

static void judge_blocked(const mh_facts *facts, mh_verdict *out, double waited)
{
    const mh_usage_sum *usage = &facts->usage;
    int disk = usage->workers_disk >= usage->workers_blocked;
    mh_evidence(out,
                "workers wait for disks in %.0f %% of the looks, for something else (network, "
                "timer, lock) in %.0f %%",
                100 * usage->workers_disk, 100 * usage->workers_blocked);
    if (disk) {
        out->cause = MH_CAUSE_DISK;
        out->fix_settings.cost = 0.5;
        out->predicted_gain = mh_gain(1, 1 - waited / 2);
        mh_say_fix(out, "read less from this disk, in larger pieces, or use a faster one");
        return;
    }
    out->cause = MH_CAUSE_LATENCY;
    int workers = facts->workers < 1000 ? 2 * facts->workers : facts->workers;
    out->fix_settings.workers = workers;
    out->possible_gain = gain_of_workers(facts, waited, workers);
    mh_say_fix(out,
               "try num_workers=%d (now %d) and measure: up to %.1f times as fast if the source "
               "answers as many requests at once, no gain if it does not",
               workers, facts->workers, out->possible_gain);
}

static void judge_waiting(const mh_facts *facts, mh_verdict *out, double waited)
{
    const mh_usage_sum *usage = &facts->usage;
    double stuck = usage->workers_disk + usage->workers_blocked;
    if (usage->workers_idle > usage->workers_run + stuck) {
        out->cause = MH_CAUSE_MAIN;
        mh_evidence(out,
                    "the loop waits although workers are idle in %.0f %% of the looks: batches "
                    "are held up on their way",
                    100 * usage->workers_idle);
        mh_say_fix(out, "use millhead.torch.DataLoader, which passes batches in shared memory");
    } else if (facts->cpus > 0 && facts->workers > facts->cpus &&
               usage->loader_cpus + usage->loader_delay >= MH_CROWDED * facts->cpus &&
               all_busy(facts)) {
        judge_cpu(facts, out, waited);
        mh_warning(out,
                   "%d workers on %d CPUs: %.2g threads want one at a time; %d workers would "
                   "do the same",
                   facts->workers, facts->cpus, usage->loader_cpus + usage->loader_delay,
                   facts->cpus);
    } else if (lock_holds_up(facts)) {
        judge_lock(facts, out, waited);
    } else if (usage->workers_run >= stuck) {
        judge_cpu(facts, out, waited);
    } else {
        judge_blocked(facts, out, waited);
    }
}

static void say_healthy(mh_verdict *out)
{
    out->cause = MH_CAUSE_DEVICE;
    mh_say_fix(out, "nothing in the loader: it keeps up; only a faster step would help");
}

/* The consumer's waits could not be seen: whether workers have nothing to do tells as much. */
static void judge_by_workers(const mh_facts *facts, mh_verdict *out)
{
    double idle = facts->usage.workers_idle;
    mh_evidence(out,
                "what the training process waits for cannot be seen; workers wait for orders "
                "in %.0f %% of the looks",
                100 * idle);
    if (idle >= IDLE_OFTEN)
        say_healthy(out);
    else if (idle <= IDLE_SELDOM)
        judge_waiting(facts, out, 0);
}

void mh_outside_judge(const mh_facts *facts, mh_verdict *out)
{
    const mh_usage_sum *usage = &facts->usage;
    double seconds = mh_ns(usage->wall_ns) / 1e9;
    double waited = usage->main_data < 0 ? 0 : usage->main_data < 1 ? usage->main_data : 0.999;
    out->device_wait_share = waited;
    out->idle_device_s = waited * seconds;
    out->stages.wait_other = waited;
    out->stages.train = 1 - waited;
    mh_evidence(out, "seen from outside for %.3g s; batches and samples were not measured",
                seconds);
    if (mh_memory_grows(facts) && waited < SEEN_WAITING) {
        out->cause = MH_CAUSE_MEMORY;
        mh_memory_say(out, facts, 1);
        return;
    }
    if (facts->workers <= 0) {
        judge_no_workers(facts, out);
    } else if (usage->main_data < 0) {
        judge_by_workers(facts, out);
    } else {
        mh_evidence(out, "the training process waits for the loader in %.0f %% of the looks",
                    100 * waited);
        if (waited >= SEEN_WAITING)
            judge_waiting(facts, out, waited);
        else
            say_healthy(out);
    }
    if (mh_memory_grows(facts)) {
        out->others[out->other_count++] = (mh_suspect){MH_CAUSE_MEMORY, 1};
        mh_memory_say(out, facts, 0);
    }
}
