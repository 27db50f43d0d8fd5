/* verdict.c - what a run waited for, by name
 * SPDX-License-Identifier: Apache-2.0
 *
 * The run is replayed as measured, then with one way of losing time removed at a time. The loss
 * whose removal shortens the run most is the cause; docs/verdicts/ states each rule as a formula.
 */
#include "base/error.h"
#include "base/struct_size.h"
#include "diagnose/judging.h"
#include "plan/facts.h"
#include "plan/workers.h"

/* A verdict replays some twenty times: more batches than this add seconds and no insight. */
#define WINDOW_BATCHES 50000
/* Few slow samples: more than one in twenty are not a tail but another kind of sample. Or: in few
 * batches, that hold nearly all of the excess; unless they are those of the first epoch. */
#define TAIL_SHARE 0.05
#define TAIL_SAMPLES 3 /* one or two are an accident */
#define TAIL_BATCHES 0.25
#define TAIL_HELD 0.8
/* Waiting that a replay of measured stages does not show is noise up to this gain. */
#define UNEXPLAINED 1.1

const char *mh_cause_name(mh_cause cause)
{
    static const char *const names[] = {
#define NAME(code, slug) slug,
        MH_CAUSE_LIST(NAME)
#undef NAME
    };
    return (unsigned)cause < MH_CAUSE_COUNT ? names[cause] : names[MH_CAUSE_UNCLEAR];
}

/* --- small things the parts share ------------------------------------------------------------ */

double mh_gain(double now, double then)
{
    const double most = 1000;
    if (!(now > 0))
        return 1;
    if (!(then > now / most))
        return most;
    return then < now * most ? now / then : 1 / most;
}

double mh_inquiry_gain(const mh_inquiry *inquiry, double then)
{
    double others = mh_ns(inquiry->facts->other_ns);
    return mh_gain(inquiry->base_ns + others, then + others);
}

double mh_outside_ns(const mh_inquiry *inquiry)
{
    double others = mh_ns(inquiry->facts->other_ns), between = mh_ns(inquiry->facts->between_ns);
    return others > between ? others : between;
}

double mh_run_ns(const mh_inquiry *inquiry)
{
    return inquiry->measured_ns + mh_ns(inquiry->facts->remade_ns) + mh_outside_ns(inquiry);
}

double mh_gain_of_run(const mh_inquiry *inquiry, double gain)
{
    double run = mh_run_ns(inquiry);
    double loops = run - mh_outside_ns(inquiry) + mh_ns(inquiry->facts->other_ns);
    return mh_gain(run, run - loops * (1 - 1 / gain));
}

/* Workers that stay would still have to fetch each epoch's first batch. */
double mh_gain_of_one_loader(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    double run = inquiry->base_ns + mh_ns(facts->other_ns) + mh_ns(facts->remade_ns);
    double batches = inquiry->sums.batches > 0 ? inquiry->sums.batches : 1;
    double needed = (double)facts->remade * inquiry->sums.fetch_ns / batches;
    double saved = mh_ns(facts->remade_start_ns) - needed;
    return saved > 0 ? mh_gain(run, run - saved) : 1;
}

mh_status mh_inquiry_time(const mh_inquiry *inquiry, const mh_replay_options *options, double *ns,
                          mh_error *err)
{
    mh_replay_result result;
    MH_TRY(mh_replay(&result, &inquiry->window, options, err));
    *ns = (double)result.startup_ns * inquiry->scale_epochs +
          ((double)result.total_ns - (double)result.startup_ns) * inquiry->scale_batches;
    return MH_OK;
}

/* The run's time with so many workers. In a crowd whoever hands batches over wants a CPU too, and
 * waits for it in the same crowd. */
static mh_status time_with_workers(const void *given, int workers, double *ns, mh_error *err)
{
    const mh_inquiry *inquiry = given;
    mh_replay_options options = inquiry->base;
    options.workers = workers;
    options.transfer = mh_crowd_eases(&inquiry->load, workers);
    return mh_inquiry_time(inquiry, &options, ns, err);
}

mh_status mh_inquiry_workers(const mh_inquiry *inquiry, int *workers, double *ns, mh_error *err)
{
    return mh_workers_fewest(workers, ns, mh_workers_worth_trying(&inquiry->load, 1),
                             time_with_workers, inquiry, err);
}

/* --- summing up ------------------------------------------------------------------------------ */

/* Adds one steady batch's wait to the stages it was for: taking it over first, then in the
 * proportions in which it was made and passed on. */
static void share_wait(mh_stage_shares *stages, const mh_costs *costs, double wait, int cpu_known)
{
    double taking = costs->transfer + costs->transfer_delay;
    taking = taking < wait ? taking : wait;
    double collate = costs->collate_cpu + costs->collate_blocked + costs->collate_delay;
    double blocked = costs->fetch_blocked + costs->read_cpu;
    double making = costs->fetch_cpu + blocked + costs->fetch_delay + collate + costs->passing;
    double rest = wait - taking;
    double drawing = costs->drawing < taking ? costs->drawing : taking;
    stages->wait_order += drawing;
    stages->wait_transfer += taking - drawing;
    if (making <= 0) {
        stages->wait_other += rest;
        return;
    }
    double part = rest / making;
    stages->wait_cpu += costs->fetch_cpu * part;
    stages->wait_run += costs->fetch_delay * part;
    *(cpu_known ? &stages->wait_blocked : &stages->wait_other) += blocked * part;
    stages->wait_collate += collate * part;
    stages->wait_transfer += costs->passing * part;
}

static void sum_up(mh_inquiry *inquiry)
{
    mh_sums *sums = &inquiry->sums;
    mh_stage_shares *stages = &inquiry->out->stages;
    for (size_t at = 0; at < inquiry->facts->batch_count; at++) {
        const mh_batch_cost *batch = &inquiry->facts->batches[at];
        mh_costs costs;
        mh_costs_of(&costs, &inquiry->costing, batch);
        sums->all_wait += mh_ns(batch->wait);
        sums->all_step += mh_ns(batch->step);
        sums->startup += costs.startup;
        if (batch->first) {
            sums->first_step += mh_ns(batch->step);
            continue;
        }
        sums->batches++;
        sums->wait += mh_ns(batch->wait);
        sums->step += mh_ns(batch->step);
        sums->fetch_ns += mh_ns(batch->fetch);
        sums->helpers += mh_ns(batch->fetch_helpers) + mh_ns(batch->collate_helpers);
        sums->excess += mh_excess(batch);
        sums->fetch_known += batch->fetch != MH_NOT_MEASURED || inquiry->costing.inline_fetch;
        int cpu_known = (batch->fetch != MH_NOT_MEASURED ? batch->fetch_cpu : batch->wait_cpu) !=
                        MH_NOT_MEASURED;
        sums->cpu_known += cpu_known;
        sums->train_known += batch->step_train != MH_NOT_MEASURED;
        share_wait(stages, &costs, mh_ns(batch->wait), cpu_known);
        stages->main += costs.main_cpu + costs.main_blocked;
    }
    sums->startup += mh_ns(inquiry->facts->setup_ns);
    mh_load_of(&inquiry->load, inquiry->facts, &inquiry->costing);
}

/* Whether the excess of slow samples is in few batches: those above its mean. */
static void sum_excess(mh_inquiry *inquiry)
{
    mh_sums *sums = &inquiry->sums;
    if (sums->excess <= 0)
        return;
    double mean = sums->excess / sums->batches;
    for (size_t at = 0; at < inquiry->facts->batch_count; at++) {
        const mh_batch_cost *batch = &inquiry->facts->batches[at];
        double excess = mh_excess(batch);
        if (!batch->first && batch->epoch == inquiry->facts->batches[0].epoch)
            sums->excess_first_epoch += excess;
        if (!batch->first && excess > mean) {
            sums->excess_batches++;
            sums->excess_held += excess;
        }
    }
}

static void finish_shares(mh_inquiry *inquiry)
{
    mh_stage_shares *stages = &inquiry->out->stages;
    double whole = inquiry->steady_ns;
    double *parts[] = {&stages->main,         &stages->wait_cpu,     &stages->wait_run,
                       &stages->wait_blocked, &stages->wait_collate, &stages->wait_transfer,
                       &stages->wait_order,   &stages->wait_other};
    stages->train = 1;
    for (size_t at = 0; at < sizeof parts / sizeof *parts; at++) {
        *parts[at] = whole > 0 ? *parts[at] / whole : 0;
        stages->train -= *parts[at];
    }
    stages->train = stages->train > 0 ? stages->train : 0;
    inquiry->out->device_wait_share = whole > 0 ? inquiry->sums.wait / whole : 0;
    inquiry->out->idle_device_s = inquiry->sums.wait / 1e9;
    double starts = inquiry->measured_ns - inquiry->steady_ns - inquiry->sums.first_step +
                    mh_ns(inquiry->facts->remade_start_ns);
    double run = mh_run_ns(inquiry);
    inquiry->out->epoch_start_s = starts > 0 ? starts / 1e9 : 0;
    inquiry->out->epoch_start_share = starts > 0 ? starts / run : 0;
}

static void count_cpus(mh_inquiry *inquiry)
{
    const mh_usage_sum *usage = &inquiry->facts->usage;
    double whole = inquiry->steady_ns > 0 ? inquiry->steady_ns : 1;
    inquiry->own_cpus = mh_cpu_of(&inquiry->load.costs) / whole;
    inquiry->runnable = mh_runnable(&inquiry->load);
    if (!usage->wall_ns)
        return;
    if (usage->loader_cpus > inquiry->own_cpus)
        inquiry->own_cpus = usage->loader_cpus;
    double others = usage->busy_cpus - usage->loader_cpus;
    inquiry->other_cpus = others > 0 ? others : 0;
}

static mh_status begin(mh_inquiry *inquiry, mh_error *err)
{
    const mh_facts *facts = inquiry->facts;
    inquiry->window = *facts;
    inquiry->scale_epochs = inquiry->scale_batches = 1;
    if (facts->batch_count > WINDOW_BATCHES) {
        double epochs = 0, shown = 0;
        for (size_t at = 0; at < facts->batch_count; at++) {
            epochs += facts->batches[at].first != 0;
            shown += facts->batches[at].first != 0 && at < WINDOW_BATCHES;
        }
        inquiry->window.batch_count = WINDOW_BATCHES;
        inquiry->scale_batches = (double)facts->batch_count / WINDOW_BATCHES;
        inquiry->scale_epochs = shown > 0 ? epochs / shown : 1;
        inquiry->window.setup_ns = (uint64_t)(mh_ns(facts->setup_ns) / inquiry->scale_epochs);
        inquiry->window.setup_order_ns =
            (uint64_t)(mh_ns(facts->setup_order_ns) / inquiry->scale_epochs);
    }
    mh_costing_init(&inquiry->costing, facts);
    sum_up(inquiry);
    sum_excess(inquiry);
    inquiry->steady_ns = inquiry->sums.wait + inquiry->sums.step;
    inquiry->measured_ns = inquiry->sums.all_wait + inquiry->sums.all_step + mh_ns(facts->setup_ns);
    finish_shares(inquiry);
    mh_native_share(inquiry);
    count_cpus(inquiry);
    mh_slow_worker_find(&inquiry->slow, facts);
    mh_replay_options_init(&inquiry->base, facts);
    MH_TRY(mh_others_find(&inquiry->base.others, &inquiry->load, &inquiry->window, &inquiry->base,
                          inquiry->scale_batches, err));
    MH_TRY(mh_inquiry_time(inquiry, &inquiry->base, &inquiry->base_ns, err));
    double off = mh_gain(inquiry->base_ns, inquiry->measured_ns) - 1;
    inquiry->out->replay_off = off < 0 ? -off : off;
    return MH_OK;
}

/* --- suspects: what would be won without each ------------------------------------------------ */

/* CPU time of workers beside the threads that fetch, as a multiple of theirs, from which on it is a
 * pool's; and CPUs used by other threads of Python's beside the loop, in all and for each of its
 * own, from which on they keep the interpreter's lock from it. */
#define POOL_TIMES 1.4
#define RIVAL_SHARE 0.5
#define RIVAL_CPUS 0.1

int mh_pools_crowd(const mh_inquiry *inquiry)
{
    const mh_usage_sum *usage = &inquiry->facts->usage;
    const mh_costs *costs = &inquiry->load.costs;
    int cpus = inquiry->facts->cpus;
    if (!usage->wall_ns || cpus <= 0 || inquiry->facts->workers < 1 || inquiry->steady_ns <= 0)
        return 0;
    double fetching = (costs->fetch_cpu + costs->read_cpu + costs->fetch_delay +
                       costs->collate_cpu + costs->collate_delay) /
                      inquiry->steady_ns;
    double computing = costs->fetch_cpu + costs->read_cpu + costs->collate_cpu;
    /* one helper that works while its worker sleeps is no crowd; where helpers were measured, it is
     * what they do beside a worker that computes */
    if (inquiry->sums.helpers > 0 && costs->pool_cpu < (POOL_TIMES - 1) * computing)
        return 0;
    double wanted = usage->workers_cpus + usage->workers_delay;
    return wanted >= MH_CROWDED * cpus && wanted >= POOL_TIMES * fetching &&
           usage->workers_cpus >= 0.5 * cpus;
}

int mh_rival_holds_up(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    const mh_costs *costs = &inquiry->load.costs;
    if (facts->rival < RIVAL_CPUS || inquiry->steady_ns <= 0)
        return 0;
    double own =
        (mh_cpu_of(costs) -
         (facts->workers > 0 ? costs->fetch_cpu + costs->read_cpu + costs->collate_cpu : 0)) /
        inquiry->steady_ns;
    return facts->rival >= RIVAL_CPUS && facts->rival >= RIVAL_SHARE * own;
}

static int few_slow_samples(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    const mh_sums *sums = &inquiry->sums;
    if (facts->samples_slow < TAIL_SAMPLES || sums->excess <= 0 ||
        mh_lock_is_shared(&inquiry->load))
        return 0;
    if ((double)facts->samples_slow <= TAIL_SHARE * (double)facts->samples_timed)
        return 1;
    /* a first epoch that fills a cache is no tail of later ones */
    int warms_up = facts->epochs > 1 && sums->excess_first_epoch >= TAIL_HELD * sums->excess;
    return !warms_up && (sums->excess_batches <= TAIL_BATCHES * sums->batches &&
                         sums->excess_held >= TAIL_HELD * sums->excess);
}

static mh_replay_options without(mh_replay_options options, mh_loss loss)
{
    switch (loss) {
    case MH_LOSS_FETCH_CPU:
        options.fetch_cpu = 0;
        break;
    case MH_LOSS_FETCH_BLOCKED:
        options.fetch_blocked = 0;
        break;
    case MH_LOSS_COLLATE:
        options.collate = 0;
        break;
    case MH_LOSS_TRANSFER:
        options.transfer = 0;
        break;
    case MH_LOSS_MAIN:
        options.step_main = 0;
        break;
    case MH_LOSS_TAIL:
        options.clip_excess = 1;
        break;
    case MH_LOSS_STARTUP:
        options.startup = 0;
        break;
    case MH_LOSS_CROWD:
    case MH_LOSS_COUNT:
        break;
    }
    return options;
}

/* Nothing wins more than it took, whatever a replay says: a loader no more than it was waited for,
 * the process's own work no more than its time, and not what that work waited for a CPU because of
 * other processes. Somebody has to wait for a first batch, so that does not count. */
static double capped(const mh_inquiry *inquiry, mh_loss loss, double gain)
{
    const mh_costs *costs = &inquiry->load.costs;
    double took = loss == MH_LOSS_MAIN ? costs->main_cpu + costs->main_blocked : inquiry->sums.wait;
    double others = mh_ns(inquiry->facts->other_ns), run = inquiry->measured_ns + others;
    double most = mh_gain(run, run - took);
    return loss != MH_LOSS_STARTUP && gain > most ? most : gain;
}

static mh_status try_without(mh_inquiry *inquiry, mh_loss loss, double from_ns,
                             const mh_replay_options *from, mh_error *err)
{
    mh_replay_options options = without(*from, loss);
    double then;
    MH_TRY(mh_inquiry_time(inquiry, &options, &then, err));
    /* in parts of the whole run, so that gains can be compared */
    double saved = from_ns - then;
    inquiry->gain[loss] = capped(inquiry, loss, mh_inquiry_gain(inquiry, inquiry->base_ns - saved));
    return MH_OK;
}

/* Without start-up, and without the gap between epochs in which workers have nothing ready. */
static mh_status try_startup(mh_inquiry *inquiry, mh_error *err)
{
    mh_replay_options options = without(inquiry->base, MH_LOSS_STARTUP);
    mh_replay_result result;
    double then;
    MH_TRY(mh_inquiry_time(inquiry, &options, &then, err));
    MH_TRY(mh_replay(&result, &inquiry->window, &options, err));
    inquiry->gap_ns = (double)result.gap_ns * inquiry->scale_epochs;
    double once = mh_gain_of_one_loader(inquiry);
    double gain = mh_inquiry_gain(inquiry, then - inquiry->gap_ns);
    inquiry->gain[MH_LOSS_STARTUP] = gain > once ? gain : once;
    return MH_OK;
}

/* Fewer workers, where they stand in each other's way. */
static mh_status try_crowd(mh_inquiry *inquiry, mh_error *err)
{
    double then;
    inquiry->gain[MH_LOSS_CROWD] = 1;
    if (!mh_crowded(&inquiry->load)) /* pools alone may crowd: their workers are enough */
        return MH_OK;
    MH_TRY(mh_inquiry_workers(inquiry, &inquiry->crowd_workers, &then, err));
    inquiry->gain[MH_LOSS_CROWD] = mh_inquiry_gain(inquiry, then);
    return MH_OK;
}

static mh_status try_all(mh_inquiry *inquiry, mh_error *err)
{
    mh_replay_options from = inquiry->base;
    double from_ns = inquiry->base_ns;
    inquiry->gain[MH_LOSS_TAIL] = 1;
    if (few_slow_samples(inquiry)) {
        MH_TRY(try_without(inquiry, MH_LOSS_TAIL, from_ns, &from, err));
        if (inquiry->gain[MH_LOSS_TAIL] >= MH_GAIN_MATTERS) {
            /* what slow samples cost is theirs alone; fetching is judged by the others */
            from = without(from, MH_LOSS_TAIL);
            MH_TRY(mh_inquiry_time(inquiry, &from, &from_ns, err));
        }
    }
    static const mh_loss losses[] = {MH_LOSS_FETCH_CPU, MH_LOSS_FETCH_BLOCKED, MH_LOSS_COLLATE,
                                     MH_LOSS_TRANSFER, MH_LOSS_MAIN};
    for (size_t at = 0; at < sizeof losses / sizeof *losses; at++)
        MH_TRY(try_without(inquiry, losses[at], from_ns, &from, err));
    MH_TRY(try_startup(inquiry, err));
    return try_crowd(inquiry, err);
}

/* --- names ----------------------------------------------------------------------------------- */

static int saturated(const mh_inquiry *inquiry)
{
    int cpus = inquiry->facts->cpus;
    if (inquiry->facts->workers == 0)
        return cpus == 1; /* one thread cannot fill more */
    return cpus > 0 && inquiry->own_cpus + inquiry->other_cpus >= MH_SATURATED * cpus;
}

static mh_cause cause_of_cpu(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    if (saturated(inquiry))
        return MH_CAUSE_CPU;
    if (facts->probes >= MH_PROBES_ENOUGH)
        return facts->probes_native < facts->probes - facts->probes_native ? MH_CAUSE_PYTHON
                                                                           : MH_CAUSE_CPU;
    return facts->workers == 0 ? MH_CAUSE_PYTHON : MH_CAUSE_CPU;
}

mh_cause mh_cause_of(const mh_inquiry *inquiry, mh_loss loss)
{
    switch (loss) {
    case MH_LOSS_FETCH_CPU:
        return cause_of_cpu(inquiry);
    case MH_LOSS_FETCH_BLOCKED:
        if (mh_helpers_worked(&inquiry->load))
            return MH_CAUSE_CPU;
        return mh_storage_explains(&inquiry->load) ? MH_CAUSE_DISK : MH_CAUSE_LATENCY;
    case MH_LOSS_COLLATE:
        return MH_CAUSE_COLLATE;
    case MH_LOSS_TRANSFER:
    case MH_LOSS_MAIN:
        return MH_CAUSE_MAIN;
    case MH_LOSS_TAIL:
        return MH_CAUSE_TAIL;
    case MH_LOSS_CROWD:
        return MH_CAUSE_OVERSUBSCRIBED;
    case MH_LOSS_STARTUP:
        return MH_CAUSE_STARTUP;
    case MH_LOSS_COUNT:
        break;
    }
    return MH_CAUSE_UNCLEAR;
}

double mh_handover_matters(const mh_inquiry *inquiry)
{
    return mh_drawing_is_most(&inquiry->load.costs) ? MH_GAIN_DRAWING : MH_GAIN_HANDOVER;
}

/* --- choosing -------------------------------------------------------------------------------- */

static double matters(const mh_inquiry *inquiry, mh_loss loss)
{
    if (loss == MH_LOSS_TRANSFER)
        return mh_handover_matters(inquiry);
    return loss == MH_LOSS_STARTUP ? MH_GAIN_STARTUP : MH_GAIN_MATTERS;
}

/* The largest loss; MH_LOSS_COUNT: none matters. Crowding goes before what it spoils: CPU times
 * and start-up are not to be trusted while it lasts, and fewer workers cost nothing. */
static mh_loss largest(const mh_inquiry *inquiry)
{
    mh_loss best = MH_LOSS_COUNT;
    for (int loss = 0; loss < MH_LOSS_COUNT; loss++) {
        if (inquiry->gain[loss] >= matters(inquiry, (mh_loss)loss) &&
            (best == MH_LOSS_COUNT || inquiry->gain[loss] > inquiry->gain[best]))
            best = (mh_loss)loss;
    }
    if (best != MH_LOSS_COUNT && best != MH_LOSS_MAIN && mh_pools_crowd(inquiry))
        return MH_LOSS_CROWD;
    int spoilt = best == MH_LOSS_FETCH_CPU || best == MH_LOSS_STARTUP || best == MH_LOSS_COLLATE;
    if (spoilt && inquiry->gain[MH_LOSS_CROWD] >= matters(inquiry, MH_LOSS_CROWD))
        return MH_LOSS_CROWD;
    return best;
}

/* Lists a cause among the others, in order of gain, each once. */
_Static_assert((int)MH_CAUSE_COUNT <= MH_VERDICT_OTHERS, "every cause has room among the others");

static void list_other(mh_verdict *out, mh_cause cause, double gain)
{
    if (cause == out->cause)
        return;
    size_t at = 0;
    while (at < out->other_count && out->others[at].cause != cause)
        at++;
    if (at == out->other_count) /* a cause is listed once: all fit */
        out->others[out->other_count++] = (mh_suspect){cause, gain};
    else if (out->others[at].gain < gain)
        out->others[at].gain = gain;
    for (; at && out->others[at - 1].gain < out->others[at].gain; at--) {
        mh_suspect moved = out->others[at];
        out->others[at] = out->others[at - 1];
        out->others[at - 1] = moved;
    }
}

/* With the gains of their fixes, as the cause has it. One that is larger by less than can be told
 * from luck is as large. */
static void list_others(mh_inquiry *inquiry, double straggler_gain)
{
    double first = inquiry->out->predicted_gain;
    if (mh_too_short(inquiry))
        return;
    for (int loss = 0; loss < MH_LOSS_COUNT; loss++) {
        double gain = inquiry->fix_sure[loss];
        if (gain > first && gain < MH_GAIN_MATTERS * first)
            gain = first;
        if (inquiry->gain[loss] >= matters(inquiry, (mh_loss)loss))
            list_other(inquiry->out, mh_cause_of(inquiry, (mh_loss)loss), gain);
    }
    if (straggler_gain >= MH_GAIN_MATTERS)
        list_other(inquiry->out, MH_CAUSE_STRAGGLER, straggler_gain);
    if (mh_memory_grows(inquiry->facts))
        list_other(inquiry->out, MH_CAUSE_MEMORY, 1);
}

/* Nothing stands out by itself: is the loader fast enough, or are its losses many and small? */
static mh_status judge_rest(mh_inquiry *inquiry, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    mh_replay_options free_loader = inquiry->base;
    free_loader.fetch_cpu = free_loader.fetch_blocked = 0;
    free_loader.collate = 0;
    double then;
    MH_TRY(mh_inquiry_time(inquiry, &free_loader, &then, err));
    double gain = capped(inquiry, MH_LOSS_FETCH_CPU, mh_inquiry_gain(inquiry, then));
    const mh_costs *costs = &inquiry->load.costs;
    double handover = costs->transfer + costs->transfer_delay;
    double waited = mh_gain(inquiry->steady_ns, inquiry->steady_ns - inquiry->sums.wait + handover);
    int measured = inquiry->sums.fetch_known * 2 >= inquiry->sums.batches;
    double noise = measured ? UNEXPLAINED : MH_GAIN_MATTERS;
    if (waited < MH_GAIN_MATTERS || (gain < MH_GAIN_MATTERS && waited < noise)) {
        out->cause = MH_CAUSE_DEVICE;
        return MH_OK;
    }
    if (gain < MH_GAIN_MATTERS)
        return MH_OK; /* it waited, and nothing measured explains it */
    mh_loss best = MH_LOSS_FETCH_CPU;
    for (int loss = MH_LOSS_FETCH_CPU; loss < MH_LOSS_TRANSFER; loss++)
        best = inquiry->gain[loss] > inquiry->gain[best] ? (mh_loss)loss : best;
    inquiry->loss = best;
    out->cause = mh_cause_of(inquiry, best);
    return MH_OK;
}

/* Start-up is in first batches too. */
int mh_too_short(const mh_inquiry *inquiry)
{
    double batches = inquiry->loss == MH_LOSS_STARTUP ? (double)inquiry->facts->batch_count
                                                      : inquiry->sums.batches;
    return batches < MH_BATCHES_ENOUGH;
}

/* What each loss's own fix wins. Other workers change more than one loss; what they win beyond this
 * one is not to its credit. */
static mh_status try_fixes(mh_inquiry *inquiry, mh_error *err)
{
    for (int loss = 0; loss < MH_LOSS_COUNT; loss++) {
        if (inquiry->gain[loss] < matters(inquiry, (mh_loss)loss))
            continue;
        mh_verdict verdict = *inquiry->out;
        mh_inquiry other = *inquiry;
        other.out = &verdict;
        other.loss = (mh_loss)loss;
        verdict.cause = mh_cause_of(inquiry, (mh_loss)loss);
        MH_TRY(mh_fix_make(&other, err));
        double best = verdict.possible_gain, sure = verdict.predicted_gain;
        double most = (mh_loss)loss == inquiry->loss ? best : inquiry->gain[loss];
        inquiry->fix_gain[loss] = best < most ? best : most;
        inquiry->fix_sure[loss] = sure < most ? sure : most;
        /* a start that comes once is less of a longer run: little to win is nothing to name */
        double starts = inquiry->sums.startup + mh_ns(inquiry->facts->remade_start_ns);
        if (loss == MH_LOSS_STARTUP && verdict.fix_settings.persistent != 1 &&
            (inquiry->fix_gain[loss] < MH_GAIN_STARTUP || starts < MH_STARTUP_LEAST_NS))
            inquiry->gain[loss] = 1;
    }
    return MH_OK;
}

/* The largest loss, unless the fix of another wins clearly more. */
static mh_loss most_worth(const mh_inquiry *inquiry, mh_loss best)
{
    mh_loss first = best;
    for (int loss = 0; best != MH_LOSS_CROWD && loss < MH_LOSS_COUNT; loss++) {
        double gain = inquiry->gain[loss] > 1 ? inquiry->fix_gain[loss] : 0;
        if (gain >= MH_GAIN_MATTERS * inquiry->fix_gain[best] && gain > inquiry->fix_gain[first])
            first = (mh_loss)loss;
    }
    return first;
}

static mh_status choose(mh_inquiry *inquiry, double straggler_gain, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    mh_loss loss = inquiry->loss = largest(inquiry);
    if (mh_too_short(inquiry)) {
        inquiry->seen = loss;
        inquiry->loss = MH_LOSS_COUNT;
        return MH_OK;
    }
    MH_TRY(try_fixes(inquiry, err));
    loss = inquiry->loss = largest(inquiry);
    double gain = loss == MH_LOSS_COUNT ? 1 : inquiry->gain[loss];
    if (loss != MH_LOSS_COUNT)
        loss = inquiry->loss = most_worth(inquiry, loss);
    if (straggler_gain >= MH_GAIN_MATTERS && straggler_gain >= gain)
        out->cause = MH_CAUSE_STRAGGLER;
    else if (loss != MH_LOSS_COUNT)
        out->cause = mh_cause_of(inquiry, loss);
    else
        MH_TRY(judge_rest(inquiry, err));
    /* a step that waits for the interpreter's lock looks like one that waits for a device */
    if (out->cause == MH_CAUSE_DEVICE && mh_rival_holds_up(inquiry))
        out->cause = MH_CAUSE_MAIN;
    /* it costs no time yet: only where nothing else does is it what to look at first */
    if (out->cause == MH_CAUSE_DEVICE && mh_memory_grows(inquiry->facts))
        out->cause = MH_CAUSE_MEMORY;
    return MH_OK;
}

/* --- the way in ------------------------------------------------------------------------------ */

/* Settings no machine has count as not known. */
static void clean_setting(int *setting)
{
    const int most = 65536;
    *setting = *setting < 0 || *setting > most ? -1 : *setting;
}

/* A sampler that failed must not make the verdict absurd: what is no number counts as 0. */
static void clean_facts(mh_facts *facts)
{
    clean_setting(&facts->workers);
    clean_setting(&facts->prefetch);
    clean_setting(&facts->cpus);
    mh_usage_sum *usage = &facts->usage;
    int unseen = usage->main_data < 0;
    double *const numbers[] = {
        &usage->machine_cpus,
        &usage->busy_cpus,
        &usage->loader_cpus,
        &usage->loader_delay,
        &usage->iowait_cpus,
        &usage->disk_busy,
        &usage->disk_read_per_s,
        &usage->net_read_per_s,
        &usage->memory_per_s,
        &usage->memory_first_bytes,
        &usage->memory_last_bytes,
        &usage->memory_share_up,
        &usage->memory_available_bytes,
        &usage->gpu_util,
        &usage->main_cpus,
        &usage->workers_cpus,
        &usage->workers_delay,
        &usage->main_data,
        &usage->main_disk,
        &usage->workers_run,
        &usage->workers_disk,
        &usage->workers_idle,
        &usage->workers_blocked,
        &usage->workers_locked,
        &usage->memory_even,
    };
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) {
        if (!(*numbers[at] >= 0 && *numbers[at] < 1e18))
            *numbers[at] = 0;
    }
    if (unseen)
        usage->main_data = -1;
}

static mh_status judge(mh_inquiry *inquiry, mh_error *err)
{
    mh_straggler straggler;
    mh_straggler_find(&straggler, inquiry->facts);
    MH_TRY(begin(inquiry, err));
    if (mh_native_waits(inquiry)) {
        mh_native_judge(inquiry);
        mh_signs(inquiry);
        return MH_OK;
    }
    MH_TRY(try_all(inquiry, err));
    MH_TRY(choose(inquiry, straggler.gain, err));
    mh_say_waiting(inquiry);
    if (inquiry->out->cause == MH_CAUSE_STRAGGLER) {
        mh_evidence(inquiry->out, "%s", straggler.evidence);
        mh_say_fix(inquiry->out, "%s", straggler.fix);
        inquiry->out->predicted_gain = straggler.gain;
    } else if (inquiry->out->cause == MH_CAUSE_MEMORY) {
        mh_memory_say(inquiry->out, inquiry->facts, 1);
    } else {
        mh_say_loss(inquiry);
        mh_say_seen(inquiry);
        MH_TRY(mh_fix_make(inquiry, err));
        mh_say_crowd_first(inquiry);
    }
    if (inquiry->out->possible_gain < inquiry->out->predicted_gain)
        inquiry->out->possible_gain = inquiry->out->predicted_gain;
    mh_say_trust(inquiry);
    list_others(inquiry, straggler.gain);
    mh_signs(inquiry);
    return MH_OK;
}

static void judge_ranks_alone(const mh_facts *facts, mh_verdict *out)
{
    mh_straggler straggler;
    mh_straggler_find(&straggler, facts);
    if (straggler.gain < MH_GAIN_MATTERS)
        return;
    out->cause = MH_CAUSE_STRAGGLER;
    out->predicted_gain = straggler.gain;
    mh_evidence(out, "%s", straggler.evidence);
    mh_say_fix(out, "%s", straggler.fix);
}

void mh_verdict_init_sized(mh_verdict *verdict, size_t struct_size)
{
    const mh_verdict unclear = {
        .cause = MH_CAUSE_UNCLEAR,
        .predicted_gain = 1,
        .possible_gain = 1,
        .stages.train = 1,
        .fix_settings = {-1, -1, -1, -1, -1, 1, -1, -1, 0},
        .fix = "measure the run: for batch in millhead.watch(loader), or millhead doctor -- "
               "python train.py",
    };
    mh_sized_write(verdict, struct_size, &unclear, sizeof unclear);
}

static mh_status judge_facts(mh_verdict *out, mh_facts *facts, mh_error *err)
{
    if (facts->batch_count && !facts->batches)
        return mh_fail(err, MH_ERR_INVALID, "%zu batches, and none given", facts->batch_count);
    clean_facts(facts);
    if (facts->batch_count) {
        mh_inquiry inquiry = {
            .facts = facts, .out = out, .loss = MH_LOSS_COUNT, .seen = MH_LOSS_COUNT};
        return judge(&inquiry, err);
    }
    judge_ranks_alone(facts, out);
    if (out->cause == MH_CAUSE_UNCLEAR && facts->usage.wall_ns)
        mh_outside_judge(facts, out);
    return MH_OK;
}

mh_status mh_verdict_make(mh_verdict *out, const mh_facts *facts, mh_error *err)
{
    mh_verdict verdict;
    mh_whole_facts whole;
    if (!out || !facts)
        return mh_fail(err, MH_ERR_INVALID, "a verdict needs facts and a place for its result");
    MH_TRY(mh_sized_check(out, MH_FIRST_SIZE(mh_verdict, warning_count), "mh_verdict", err));
    mh_verdict_init(&verdict);
    mh_status status = mh_facts_take(&whole, facts, err);
    if (status == MH_OK)
        status = judge_facts(&verdict, &whole.facts, err);
    mh_facts_drop(&whole);
    if (status == MH_OK)
        mh_sized_write(out, out->struct_size, &verdict, sizeof verdict);
    return status;
}
