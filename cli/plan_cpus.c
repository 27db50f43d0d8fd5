/* plan_cpus.c - millhead plan cpus: how many workers for these CPUs and GPUs
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "plan.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define WHERE "plan cpus"

static void print_help(void)
{
    (void)printf(
        "usage: millhead plan cpus [--cpus N] [--gpus G] [--ranks R] [--json]\n"
        "\n"
        "Splits the CPUs of a machine between training processes and loader workers.\n"
        "Two CPUs are kept for each GPU where there are four or more, else one; with more\n"
        "ranks than GPUs they are kept for each rank. The rest is for workers.\n"
        "\n"
        "options:\n"
        "  --cpus N   CPUs (default: those this process may use)\n"
        "  --gpus G   GPUs; 0 counts as one consumer (default: those of this machine)\n"
        "  --ranks R  training processes on the machine (default: one per GPU)\n"
        "  --json     one JSON object: cpus, gpus, ranks, reserved, workers_per_gpu,\n"
        "             total\n"
        "  --help     this text\n");
}

int mh_plan_count_gpus(void)
{
    int count = 0;
    DIR *directory = opendir("/dev");
    if (!directory)
        return 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        const char *name = entry->d_name;
        size_t prefix = strlen("nvidia");
        if (strncmp(name, "nvidia", prefix) == 0 && name[prefix] &&
            strspn(name + prefix, "0123456789") == strlen(name + prefix))
            count++;
    }
    (void)closedir(directory);
    return count;
}

static void print_json(const mh_plan_cpus *plan)
{
    (void)printf("{\"cpus\": %d, \"gpus\": %d, \"ranks\": %d, \"reserved\": %d, "
                 "\"workers_per_gpu\": %d, \"total\": %d}\n",
                 plan->cpus, plan->gpus, plan->ranks, plan->reserved, plan->workers_per_gpu,
                 plan->total);
}

static void print_table(const mh_plan_cpus *plan)
{
    (void)printf("CPUs                %6d\n"
                 "GPUs                %6d\n"
                 "training processes  %6d\n"
                 "CPUs reserved       %6d\n"
                 "workers per GPU     %6d\n"
                 "workers in total    %6d\n"
                 "\n",
                 plan->cpus, plan->gpus, plan->ranks, plan->reserved, plan->workers_per_gpu,
                 plan->total);
    int each = plan->total / plan->ranks;
    if (plan->ranks == 1)
        (void)printf("Give the training process num_workers=%d.\n", each);
    else
        (void)printf("Give each of the %d training processes num_workers=%d.\n", plan->ranks, each);
    int busy = plan->ranks + plan->total;
    if (busy > plan->cpus)
        (void)printf("That is %d processes for %d CPU%s: some will wait for one.\n", busy,
                     plan->cpus, plan->cpus == 1 ? "" : "s");
}

int mh_plan_cmd_cpus(int argc, char **argv)
{
    mh_plan_cpus_options options;
    mh_plan_cpus plan;
    mh_error err;
    bool json = false, help = false;
    mh_plan_cpus_options_init(&options);
    options.gpus = -1; /* not given */
    const mh_cli_option table[] = {
        {"--cpus", MH_CLI_COUNT, &options.cpus, 1},
        {"--gpus", MH_CLI_COUNT, &options.gpus, 0},
        {"--ranks", MH_CLI_COUNT, &options.ranks, 1},
        {"--json", MH_CLI_FLAG, &json, 0},
        {"--help", MH_CLI_FLAG, &help, 0},
    };
    int bad = mh_cli_read(table, sizeof table / sizeof *table, NULL, 0, argc, argv, WHERE);
    if (bad)
        return bad;
    if (help) {
        print_help();
        return MH_CLI_OK;
    }
    if (options.gpus < 0)
        options.gpus = mh_plan_count_gpus();
    if (mh_plan_cpus_make(&plan, &options, &err) != MH_OK)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "see millhead plan cpus --help", "%s", err.message);
    if (json)
        print_json(&plan);
    else
        print_table(&plan);
    return MH_CLI_OK;
}
