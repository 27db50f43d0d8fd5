/* whatif.c - a measured run under other settings, and the settings it would need
 * SPDX-License-Identifier: Apache-2.0
 *
 * The steady batches of the run, repeated until there are enough of them that filling the queue
 * once does not count, are replayed with other settings. How many workers it needs is asked of the
 * whole run, as the doctor does.
 */
#include <millhead/plan.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "plan/facts.h"
#include "plan/workers.h"
#include <math.h>
#include <string.h>

#define ENOUGH_BATCHES 4096
#define MOST_BATCHES 20000 /* of the run: a replay takes some 10 ms */
#define MOST_PREFETCH 16
/* A smaller change does not count. */
#define GAIN 0.02

typedef struct whatif {
    const mh_plan_whatif_options *options;
    mh_load load;
    mh_facts whole; /* the run's, with batches of our own */
    mh_facts facts; /* its steady part, again and again */
    mh_batch_cost *whole_batches, *batches;
    size_t steady;  /* measured batches in there */
    double size;    /* samples of a measured batch, on average */
    double growth;  /* a batch's size to come / measured */
    double step_s;  /* mean, measured */
    double batch_s; /* mean of wait and step, measured */
    double wait_s;
    double making_cpu_s, making_blocked_s, step_cpu_s; /* means, measured */
    double read_bytes;
    int prefetch;  /* the search's */
    double others; /* threads of other processes that want a CPU */
} whatif;

void mh_plan_whatif_options_init_sized(mh_plan_whatif_options *options, size_t struct_size)
{
    const mh_plan_whatif_options defaults = {.gpus = 1, .workers = -1};
    mh_sized_write(options, struct_size, &defaults, sizeof defaults);
}

static mh_status check(const mh_plan_whatif_options *options, mh_error *err)
{
    const struct {
        int value, least, most;
        const char *name;
    } numbers[] = {
        {options->gpus, 1, 65536, "accelerators"},       {options->workers, -1, 65536, "workers"},
        {options->prefetch, 0, 65536, "prefetch"},       {options->cpus, 0, MH_PLAN_MOST, "CPUs"},
        {options->batch_size, 0, MH_PLAN_MOST, "batch"},
    };
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        if (numbers[at].value < numbers[at].least || numbers[at].value > numbers[at].most)
            return mh_fail(err, MH_ERR_INVALID, "the number for %s is %d, must be %d to %d",
                           numbers[at].name, numbers[at].value, numbers[at].least,
                           numbers[at].most);
    if (!(options->step_s >= 0 && options->step_s <= MH_PLAN_MOST))
        return mh_fail(err, MH_ERR_INVALID, "a step of %g s, must be 0 to %d", options->step_s,
                       MH_PLAN_MOST);
    return MH_OK;
}

/* --- the run's steady part --- */

/* First batches of epochs are start-up; where there is nothing else they have to do. */
static size_t count_steady(const mh_facts *facts, int *with_first)
{
    size_t later = 0, measured = 0;
    for (size_t at = 0; at < facts->batch_count; at++) {
        later += !facts->batches[at].first;
        measured += facts->batches[at].fetch != MH_NOT_MEASURED;
    }
    *with_first = later == 0;
    if (facts->workers != 0 && measured * 2 < facts->batch_count)
        return 0;
    size_t steady = *with_first ? facts->batch_count : later;
    return steady < MOST_BATCHES ? steady : MOST_BATCHES;
}

static mh_status take_steady(whatif *what, const mh_facts *facts, mh_error *err)
{
    int with_first;
    what->steady = count_steady(facts, &with_first);
    if (!facts->batch_count)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the run has no batch");
    if (!what->steady)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "the run does not say what its workers did, only how long the loop waited");
    size_t times = (ENOUGH_BATCHES + what->steady - 1) / what->steady;
    size_t count = what->steady * times, taken = 0;
    what->batches = mh_calloc(count, sizeof *what->batches);
    if (!what->batches)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", count);
    for (size_t at = 0; taken < what->steady; at++) {
        if (facts->batches[at].first && !with_first)
            continue;
        mh_batch_cost *batch = &what->batches[taken++];
        *batch = facts->batches[at];
        batch->epoch = batch->first = 0;
    }
    for (size_t at = what->steady; at < count; at++)
        what->batches[at] = what->batches[at - what->steady];
    what->facts = *facts;
    what->facts.batches = what->batches;
    what->facts.batch_count = count;
    return MH_OK;
}

/* For the number of workers: with the start of each epoch, which more of them make longer. */
static mh_status take_whole(whatif *what, const mh_facts *facts, mh_error *err)
{
    mh_costing costing;
    size_t count = facts->batch_count < MOST_BATCHES ? facts->batch_count : MOST_BATCHES;
    what->whole_batches = mh_calloc(count, sizeof *what->whole_batches);
    if (!what->whole_batches)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", count);
    memcpy(what->whole_batches, facts->batches, count * sizeof *what->whole_batches);
    what->whole = *facts;
    what->whole.batches = what->whole_batches;
    what->whole.batch_count = count;
    mh_costing_init(&costing, &what->whole);
    mh_load_of(&what->load, &what->whole, &costing);
    return MH_OK;
}

static void sum_up(whatif *what)
{
    mh_costing costing;
    double each = 1e-9 / (double)what->steady;
    mh_costing_init(&costing, &what->facts);
    for (size_t at = 0; at < what->steady; at++) {
        const mh_batch_cost *batch = &what->batches[at];
        mh_costs costs;
        mh_costs_of(&costs, &costing, batch);
        what->size += batch->samples / (double)what->steady;
        what->read_bytes += (double)batch->read_bytes / (double)what->steady;
        what->wait_s += mh_ns(batch->wait) * each;
        what->step_s += mh_ns(batch->step) * each;
        what->making_cpu_s += (costs.fetch_cpu + costs.read_cpu + costs.collate_cpu) * each;
        what->making_blocked_s += (costs.fetch_blocked + costs.collate_blocked) * each;
        what->step_cpu_s += (costs.main_cpu + costs.train_cpu + costs.transfer) * each;
    }
    what->batch_s = what->wait_s + what->step_s;
    if (!(what->size > 0))
        what->size = what->facts.batch_size > 0 ? what->facts.batch_size : 1;
}

/* A longer step that was asked for is longer by the same for every batch: where the run trained
 * nothing, what its steps differ by is no share of a real one. */
static uint64_t changed_step(const whatif *what, double step_ns, double mean_s)
{
    double more_ns = (mean_s - what->step_s) * 1e9;
    if (what->options->step_s > 0 && more_ns > 0)
        return (uint64_t)(step_ns + more_ns);
    return (uint64_t)(step_ns * (mean_s / what->step_s));
}

/* The device takes another time: what the loop does itself on a CPU stays. A step that was asked
 * for is one that did not wait for a CPU. */
static void change_steps(const whatif *what, mh_batch_cost *batches, size_t count, double mean_s)
{
    for (size_t at = 0; at < count; at++) {
        mh_batch_cost *batch = &batches[at];
        uint64_t step = changed_step(what, mh_ns(batch->step), mean_s);
        if (batch->step_train != MH_NOT_MEASURED) {
            uint64_t own = batch->step > batch->step_train ? batch->step - batch->step_train : 0;
            batch->step_train = step > own ? step - own : 0;
        }
        if (batch->step_cpu != MH_NOT_MEASURED && batch->step_cpu > step)
            batch->step_cpu = step;
        if (what->options->step_s > 0)
            batch->step_delay = 0;
        batch->step = step;
    }
}

/* --- points --- */

static mh_status memory_of(mh_whatif_point *point, double batch_bytes, mh_error *err)
{
    mh_plan_memory_options options;
    mh_plan_memory memory;
    if (!(batch_bytes > 0))
        return MH_OK;
    mh_plan_memory_options_init(&options);
    options.batch_bytes = batch_bytes < 0x1p63 ? (uint64_t)(batch_bytes + 0.5) : UINT64_MAX;
    options.workers = point->workers;
    options.prefetch = point->prefetch;
    options.ranks = point->gpus;
    options.available_bytes = 1; /* only counted here */
    MH_TRY(mh_plan_memory_make(&memory, &options, err));
    point->memory_bytes = memory.needed_bytes;
    return MH_OK;
}

/* What follows from how long a batch takes. */
static mh_status fill(mh_whatif_point *point, const whatif *what, double batch_s, double growth,
                      mh_error *err)
{
    double per_s = batch_s > 0 ? point->gpus / batch_s : 0;
    double loop_cpu_s = what->step_cpu_s < point->step_s ? what->step_cpu_s : point->step_s;
    point->batch_size = what->size * growth;
    point->wait_share = batch_s > 0 ? 1 - point->step_s / batch_s : 0;
    point->wait_share = point->wait_share > 0 ? point->wait_share : 0;
    point->samples_per_s = point->batch_size * per_s;
    point->cpus_busy = (what->making_cpu_s * growth + loop_cpu_s) * per_s;
    point->read_bytes_per_s = what->read_bytes * growth * per_s;
    double bytes = what->options->batch_bytes ? (double)what->options->batch_bytes
                                              : (double)what->facts.batch_bytes * growth;
    point->delivered_bytes_per_s = bytes * per_s;
    return memory_of(point, bytes, err);
}

static mh_replay_options settings(const whatif *what, int gpus, int workers, int prefetch)
{
    mh_replay_options options;
    mh_replay_options_init(&options, &what->whole);
    options.workers = workers;
    options.prefetch = prefetch;
    options.ranks = gpus;
    options.others = what->others;
    options.fetch_cpu = options.fetch_blocked = options.collate = what->growth;
    options.transfer = what->growth * mh_crowd_eases(&what->load, workers);
    return options;
}

static mh_status play(mh_whatif_point *point, const whatif *what, int gpus, int workers,
                      int prefetch, mh_error *err)
{
    mh_replay_options options = settings(what, gpus, workers, prefetch);
    mh_replay_result result;
    MH_TRY(mh_replay(&result, &what->facts, &options, err));
    double count = (double)what->facts.batch_count * 1e9;
    *point = (mh_whatif_point){
        .gpus = gpus,
        .workers = workers,
        .prefetch = prefetch,
        .step_s = (double)result.step_ns / count,
    };
    return fill(point, what, (double)(result.wait_ns + result.step_ns) / count, what->growth, err);
}

static int enough(const mh_whatif_point *point)
{
    return point->wait_share <= MH_WHATIF_WAIT;
}

static int better(const mh_whatif_point *point, const mh_whatif_point *than)
{
    return point->samples_per_s > than->samples_per_s * (1 + GAIN);
}

static mh_status time_with_workers(const void *given, int workers, double *ns, mh_error *err)
{
    const whatif *what = given;
    mh_replay_options options = settings(what, what->options->gpus, workers, what->prefetch);
    mh_replay_result result;
    MH_TRY(mh_replay(&result, &what->whole, &options, err));
    *ns = (double)result.total_ns;
    return MH_OK;
}

/* More ahead only where workers alone do not do: uneven batches need it. */
static mh_status find_needed(mh_whatif_point *out, whatif *what, int prefetch, mh_error *err)
{
    int gpus = what->options->gpus, workers;
    double ns;
    what->prefetch = prefetch;
    MH_TRY(mh_workers_fewest(&workers, &ns, mh_workers_worth_trying(&what->load, gpus),
                             time_with_workers, what, err));
    MH_TRY(play(out, what, gpus, workers, prefetch, err));
    if (what->options->prefetch || workers == 0)
        return MH_OK;
    while (!enough(out) && prefetch < MOST_PREFETCH) {
        mh_whatif_point next;
        prefetch *= 2;
        MH_TRY(play(&next, what, gpus, workers, prefetch, err));
        if (better(&next, out))
            *out = next;
    }
    return MH_OK;
}

static mh_status make(mh_plan_whatif *plan, whatif *what, mh_error *err)
{
    const mh_plan_whatif_options *options = what->options;
    int had_workers = what->facts.workers > 0 ? what->facts.workers : 0;
    int had_prefetch = what->facts.prefetch > 0 ? what->facts.prefetch : 2;
    mh_whatif_point again;
    what->growth = 1;
    mh_replay_options as_was = settings(what, 1, had_workers, had_prefetch);
    MH_TRY(mh_others_find(&what->others, &what->load, &what->whole, &as_was, 1, err));
    MH_TRY(play(&again, what, 1, had_workers, had_prefetch, err));
    double replayed_s = again.samples_per_s > 0 ? what->size / again.samples_per_s : 0;
    plan->replay_off = what->batch_s > 0 ? fabs(replayed_s / what->batch_s - 1) : 0;
    plan->measured = (mh_whatif_point){
        .gpus = 1, .workers = had_workers, .prefetch = had_prefetch, .step_s = what->step_s};
    MH_TRY(fill(&plan->measured, what, what->batch_s, 1, err));
    plan->making_cpu_s = what->making_cpu_s;
    plan->making_blocked_s = what->making_blocked_s;
    plan->batches = what->steady;

    what->growth = options->batch_size ? options->batch_size / what->size : 1;
    double step_s = options->step_s > 0 ? options->step_s : what->step_s * what->growth;
    if (what->step_s > 0) {
        change_steps(what, what->batches, what->facts.batch_count, step_s);
        change_steps(what, what->whole_batches, what->whole.batch_count, step_s);
    }
    if (options->cpus) { /* another machine */
        what->facts.cpus = what->whole.cpus = options->cpus;
        what->others = what->whole.usage.wall_ns = 0;
    }
    plan->others = what->others;
    plan->cpus = what->facts.cpus > 0 ? what->facts.cpus : 0;
    int prefetch = options->prefetch ? options->prefetch : had_prefetch;
    MH_TRY(play(&plan->asked, what, options->gpus,
                options->workers >= 0 ? options->workers : had_workers, prefetch, err));
    MH_TRY(find_needed(&plan->needed, what, prefetch, err));
    plan->enough = enough(&plan->needed);
    return MH_OK;
}

mh_status mh_plan_whatif_make(mh_plan_whatif *out, const mh_facts *facts,
                              const mh_plan_whatif_options *given, mh_error *err)
{
    mh_plan_whatif_options options;
    mh_whole_facts whole;
    if (!out || !facts || !given)
        return mh_fail(err, MH_ERR_INVALID, "the plan needs facts, options and a place");
    MH_TRY(MH_SIZED_TAKE(&options, given, mh_plan_whatif_options, batch_bytes, err));
    MH_TRY(check(&options, err));
    whatif what = {.options = &options};
    mh_plan_whatif plan = {0};
    mh_status status = mh_facts_take(&whole, facts, err);
    if (status == MH_OK)
        status = take_steady(&what, &whole.facts, err);
    if (status == MH_OK)
        status = take_whole(&what, &whole.facts, err);
    if (status == MH_OK) {
        sum_up(&what);
        status = make(&plan, &what, err);
    }
    mh_free(what.batches);
    mh_free(what.whole_batches);
    mh_facts_drop(&whole);
    if (status == MH_OK)
        *out = plan;
    return status;
}
