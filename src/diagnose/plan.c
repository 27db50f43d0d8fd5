/* plan.c - how many CPUs for the training processes and how many for loader workers
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/plan.h>

#include "base/error.h"
#include "sys/cpu.h"

void mh_plan_cpus_options_init(mh_plan_cpus_options *options)
{
    *options = (mh_plan_cpus_options){.struct_size = sizeof *options};
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

mh_status mh_plan_cpus_make(mh_plan_cpus *out, const mh_plan_cpus_options *options, mh_error *err)
{
    if (!out || !options)
        return mh_fail(err, MH_ERR_INVALID, "the plan needs options and a place for its result");
    if (options->struct_size != sizeof *options)
        return mh_fail(err, MH_ERR_INVALID,
                       "options of %zu bytes, expected %zu: call mh_plan_cpus_options_init",
                       options->struct_size, sizeof *options);
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
