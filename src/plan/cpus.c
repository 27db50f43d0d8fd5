/* cpus.c - how many CPUs for the training processes and how many for loader workers
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/plan.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "sys/cpu.h"

void mh_plan_cpus_options_init_sized(mh_plan_cpus_options *options, size_t struct_size)
{
    const mh_plan_cpus_options defaults = {0};
    mh_sized_write(options, struct_size, &defaults, sizeof defaults);
}

static mh_status plan_check(int value, const char *what, mh_error *err)
{
    if (value < 0 || value > MH_PLAN_MOST)
        return mh_fail(err, MH_ERR_INVALID, "%s is %d, must be 0 to %d", what, value, MH_PLAN_MOST);
    return MH_OK;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

mh_status mh_plan_cpus_make(mh_plan_cpus *out, const mh_plan_cpus_options *given, mh_error *err)
{
    mh_plan_cpus_options taken, *options = &taken;
    if (!out || !given)
        return mh_fail(err, MH_ERR_INVALID, "the plan needs options and a place for its result");
    MH_TRY(MH_SIZED_TAKE(options, given, mh_plan_cpus_options, ranks, err));
    MH_TRY(plan_check(options->cpus, "the number of CPUs", err));
    MH_TRY(plan_check(options->gpus, "the number of GPUs", err));
    MH_TRY(plan_check(options->ranks, "the number of ranks", err));

    int cpus = options->cpus ? options->cpus : mh_cpu_allowed("");
    int gpus = larger(options->gpus, 1);
    int ranks = options->ranks ? options->ranks : gpus;
    int consumers = larger(gpus, ranks);
    int reserved = cpus >= 4 * consumers ? 2 * consumers : consumers;
    int at_least = (ranks + gpus - 1) / gpus; /* one worker for every rank */
    int workers = larger(at_least, (cpus - reserved) / gpus);
    *out = (mh_plan_cpus){
        .cpus = cpus,
        .gpus = options->gpus,
        .ranks = ranks,
        .reserved = reserved,
        .workers_per_gpu = workers,
        .total = workers * gpus,
    };
    return MH_OK;
}
