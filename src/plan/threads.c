/* threads.c - loader workers times streaming threads times ranks, against the CPUs
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/plan.h>

#include "base/error.h"
#include "base/struct_size.h"

/* A pool of more gains little: what is read goes through one interpreter. */
#define POOL_MOST 8
#define CLUSTER_THREADS 4
#define CLUSTER_WORKERS 2

static const char *const mode_names[] = {
#define MODE_NAME(code, name) name,
    MH_PLAN_MODE_LIST(MODE_NAME)
#undef MODE_NAME
};

const char *mh_plan_mode_name(mh_plan_mode mode)
{
    return (unsigned)mode < MH_PLAN_MODE_COUNT ? mode_names[mode] : "unknown";
}

void mh_plan_threads_options_init_sized(mh_plan_threads_options *options, size_t struct_size)
{
    const mh_plan_threads_options defaults = {.ranks = 1};
    mh_sized_write(options, struct_size, &defaults, sizeof defaults);
}

static int within(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

static mh_plan_threads_advice advise(int cpus, int ranks)
{
    int room = within(cpus / ranks, 1, cpus);
    int left = within(cpus - ranks, 1, cpus); /* each rank has a thread that trains */
    mh_plan_threads_advice advice = {
        .threads_most = within(room, 1, POOL_MOST),
        .cluster_threads = within(room, 1, CLUSTER_THREADS),
        .shared_threads = within(left, 1, CLUSTER_THREADS),
    };
    advice.threads_least = within(advice.threads_most / 2, 1, POOL_MOST);
    advice.cluster_workers =
        within(advice.threads_most / advice.cluster_threads, 1, CLUSTER_WORKERS);
    advice.shared_workers = within(left / advice.shared_threads, 1, cpus);
    return advice;
}

static void complete(mh_plan_threads *plan, const mh_plan_threads_options *options)
{
    const mh_plan_threads_advice *advice = &plan->advice;
    plan->threads = 1;
    if (options->mode == MH_PLAN_THREADS)
        plan->threads = options->threads ? options->threads : advice->threads_least;
    if (options->mode != MH_PLAN_CLUSTER)
        return;
    int threads = options->shared ? advice->shared_threads : advice->cluster_threads;
    int workers = options->shared ? advice->shared_workers : advice->cluster_workers;
    plan->threads = options->threads ? options->threads : threads;
    plan->cluster_workers = options->cluster_workers ? options->cluster_workers : workers;
}

static void count(mh_plan_threads *plan, const mh_plan_threads_options *options)
{
    int64_t ranks = options->ranks, threads = plan->threads;
    plan->loaders = ranks * (options->workers ? options->workers : 1);
    plan->streaming = plan->loaders * threads;
    plan->total = plan->streaming;
    int64_t room = plan->cpus - plan->reserved, each = ranks * threads;
    if (options->mode == MH_PLAN_CLUSTER) {
        plan->streaming = (options->shared ? 1 : ranks) * plan->cluster_workers * threads;
        plan->total = (options->workers ? plan->loaders : 0) + plan->streaming;
        room -= plan->streaming;
        each = ranks;
    }
    plan->crowded = plan->total > plan->cpus;
    int64_t helpers = threads * (options->mode == MH_PLAN_CLUSTER ? plan->cluster_workers : 1);
    plan->nested = options->workers > 1 && helpers > 1;
    plan->most_workers = room > 0 ? (int)(room / each) : 0;
}

mh_status mh_plan_threads_make(mh_plan_threads *out, const mh_plan_threads_options *given,
                               mh_error *err)
{
    mh_plan_threads_options taken, *options = &taken;
    if (!out || !given)
        return mh_fail(err, MH_ERR_INVALID, "the plan needs options and a place for its result");
    MH_TRY(MH_SIZED_TAKE(options, given, mh_plan_threads_options, shared, err));
    const struct {
        int value, least;
        const char *name;
    } numbers[] = {
        {options->cpus, 0, "CPUs"},       {options->ranks, 1, "ranks"},
        {options->workers, 0, "workers"}, {options->cluster_workers, 0, "workers of a cluster"},
        {options->threads, 0, "threads"},
    };
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        if (numbers[at].value < numbers[at].least || numbers[at].value > MH_PLAN_MOST)
            return mh_fail(err, MH_ERR_INVALID, "the number of %s is %d, must be %d to %d",
                           numbers[at].name, numbers[at].value, numbers[at].least, MH_PLAN_MOST);
    if ((unsigned)options->mode >= MH_PLAN_MODE_COUNT)
        return mh_fail(err, MH_ERR_INVALID, "unknown mode %d", (int)options->mode);

    mh_plan_cpus cpus;
    mh_plan_cpus_options cpus_options;
    mh_plan_cpus_options_init(&cpus_options);
    cpus_options.cpus = options->cpus;
    cpus_options.gpus = options->ranks;
    MH_TRY(mh_plan_cpus_make(&cpus, &cpus_options, err));
    mh_plan_threads plan = {.cpus = cpus.cpus, .reserved = cpus.reserved};
    plan.advice = advise(plan.cpus, options->ranks);
    complete(&plan, options);
    count(&plan, options);
    *out = plan;
    return MH_OK;
}
