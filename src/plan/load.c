/* load.c - what a run's loading does to the machine
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/load.h"

#include "base/error.h"

/* Most threads of other processes for each CPU, and how finely their number is sought. */
#define OTHERS_MOST 8.0
#define OTHERS_STEPS 10
/* Bytes from storage per second of being blocked. Below the first even the slowest disk, reading
 * single pages at random, would have given more; above the second nothing else can have been going
 * on for most of the time. */
#define DISK_LEAST_PER_S 100e3
#define DISK_SURE_PER_S 50e6

static void add_costs(mh_costs *sum, const mh_costs *costs)
{
    sum->fetch_cpu += costs->fetch_cpu;
    sum->read_cpu += costs->read_cpu;
    sum->fetch_blocked += costs->fetch_blocked;
    sum->fetch_delay += costs->fetch_delay;
    sum->pool_cpu += costs->pool_cpu;
    sum->collate_cpu += costs->collate_cpu;
    sum->collate_blocked += costs->collate_blocked;
    sum->collate_delay += costs->collate_delay;
    sum->transfer += costs->transfer;
    sum->transfer_delay += costs->transfer_delay;
    sum->drawing += costs->drawing;
    sum->passing += costs->passing;
    sum->unknown += costs->unknown;
    sum->main_cpu += costs->main_cpu;
    sum->main_blocked += costs->main_blocked;
    sum->train_cpu += costs->train_cpu;
    sum->train_blocked += costs->train_blocked;
    sum->step_delay += costs->step_delay;
}

void mh_load_of(mh_load *out, const mh_facts *facts, const mh_costing *costing)
{
    *out = (mh_load){.facts = facts};
    for (size_t at = 0; at < facts->batch_count; at++) {
        const mh_batch_cost *batch = &facts->batches[at];
        mh_costs costs;
        if (batch->first)
            continue;
        mh_costs_of(&costs, costing, batch);
        add_costs(&out->costs, &costs);
        out->steady_ns += mh_ns(batch->wait) + mh_ns(batch->step);
        out->read_bytes += mh_ns(batch->read_bytes);
    }
}

double mh_cpu_of(const mh_costs *costs)
{
    return costs->fetch_cpu + costs->read_cpu + costs->collate_cpu + costs->main_cpu +
           costs->train_cpu;
}

double mh_delay_of(const mh_costs *costs)
{
    return costs->fetch_delay + costs->collate_delay + costs->step_delay;
}

double mh_runnable(const mh_load *load)
{
    const mh_usage_sum *usage = &load->facts->usage;
    double whole = load->steady_ns > 0 ? load->steady_ns : 1;
    double threads = (mh_cpu_of(&load->costs) + mh_delay_of(&load->costs)) / whole;
    double seen = usage->wall_ns ? usage->loader_cpus + usage->loader_delay : 0;
    return seen > threads ? seen : threads;
}

int mh_crowded(const mh_load *load)
{
    const mh_facts *facts = load->facts;
    return facts->cpus > 0 && facts->workers > facts->cpus &&
           mh_runnable(load) >= MH_CROWDED * facts->cpus;
}

double mh_crowd_eases(const mh_load *load, int workers)
{
    int cpus = load->facts->cpus;
    return mh_crowded(load) && workers <= cpus ? cpus / mh_runnable(load) : 1;
}

int mh_lock_is_shared(const mh_load *load)
{
    double locked = load->facts->usage.workers_locked;
    if (load->facts->workers < 2 || load->steady_ns <= 0 || locked < MH_LOCK_QUEUE)
        return 0;
    double fetching = (load->costs.fetch_cpu + load->costs.fetch_blocked) / load->steady_ns;
    return locked >= MH_LOCK_SHARE * fetching;
}

int mh_helpers_worked(const mh_load *load)
{
    const mh_usage_sum *usage = &load->facts->usage;
    const mh_costs *costs = &load->costs;
    if (!usage->wall_ns || load->facts->workers < 0 || load->steady_ns <= 0)
        return 0;
    double watched = costs->fetch_cpu + costs->read_cpu + costs->fetch_delay + costs->collate_cpu +
                     costs->collate_delay;
    double helpers = usage->workers_cpus + usage->workers_delay - watched / load->steady_ns;
    if (load->facts->workers == 0) {
        /* They may be the training's: as far as steps were blocked they count as busy with that. */
        double in_steps = (costs->main_blocked + costs->train_blocked) * load->facts->cpus;
        helpers = usage->main_cpus - (mh_cpu_of(costs) + in_steps) / load->steady_ns;
    }
    return helpers > 0.5 * costs->fetch_blocked / load->steady_ns && helpers > 0.1;
}

int mh_storage_explains(const mh_load *load)
{
    const mh_usage_sum *usage = &load->facts->usage;
    double blocked = load->costs.fetch_blocked, steady = load->steady_ns;
    if (load->costs.read_cpu > blocked)
        return 1; /* most of the loss is the CPU time of reading */
    if (blocked <= 0 || steady <= 0)
        return 0;
    double per_s = load->read_bytes / (blocked / 1e9);
    if (per_s < DISK_LEAST_PER_S)
        return 0;
    if (per_s >= DISK_SURE_PER_S || !usage->wall_ns)
        return 1;
    double somebody_blocked = blocked < steady ? blocked / steady : 1;
    if (usage->disk_busy >= 0.5 * somebody_blocked)
        return 1;
    int workers = load->facts->workers;
    double seen = workers > 0 ? usage->workers_disk : usage->main_disk;
    return seen >= 0.5 * blocked / (steady * (workers > 0 ? workers : 1));
}

mh_status mh_others_find(double *others, const mh_load *load, const mh_facts *replayed,
                         const mh_replay_options *base, double scale, mh_error *err)
{
    double measured = mh_delay_of(&load->costs);
    double low = 0, high = OTHERS_MOST * base->cpus;
    mh_replay_options options = *base;
    *others = 0;
    if (high <= 0 || measured < 0.01 * mh_cpu_of(&load->costs) || mh_crowded(load))
        return MH_OK; /* in a crowd of the run's own, others cannot be told apart */
    for (int step = 0; step < OTHERS_STEPS; step++) {
        mh_replay_result result;
        options.others = step ? (low + high) / 2 : 0; /* none at all is the most likely */
        MH_TRY(mh_replay(&result, replayed, &options, err));
        if ((double)result.delay_ns * scale < measured)
            low = options.others;
        else
            high = options.others;
    }
    *others = low;
    return MH_OK;
}
