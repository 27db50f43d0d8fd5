/* plan_cpus.c - millhead plan cpus: how many workers for these CPUs and GPUs
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan.h"

#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define SEE_HELP "see millhead plan cpus --help"

typedef struct plan_request {
    mh_plan_cpus_options options;
    bool gpus_given;
    bool json;
    bool help;
} plan_request;

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

static int parse(plan_request *request, int argc, char **argv)
{
    enum { CPUS = 256, GPUS, RANKS, JSON, HELP };
    static const struct option options[] = {
        {"cpus", required_argument, NULL, CPUS},   {"gpus", required_argument, NULL, GPUS},
        {"ranks", required_argument, NULL, RANKS}, {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, HELP},         {0},
    };
    int answer, bad = MH_CLI_OK;
    while (!bad && (answer = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (answer) {
        case CPUS:
            bad = mh_cli_number(&request->options.cpus, optarg, 1, "--cpus", "plan cpus");
            break;
        case GPUS:
            bad = mh_cli_number(&request->options.gpus, optarg, 0, "--gpus", "plan cpus");
            request->gpus_given = true;
            break;
        case RANKS:
            bad = mh_cli_number(&request->options.ranks, optarg, 1, "--ranks", "plan cpus");
            break;
        case JSON:
            request->json = true;
            break;
        case HELP:
        case 'h':
            request->help = true;
            return MH_CLI_OK;
        default:
            return mh_cli_bad_option(answer, argv, "plan cpus", SEE_HELP);
        }
    }
    if (bad)
        return bad;
    if (optind < argc)
        return mh_cli_fail(MH_CLI_USAGE, "plan cpus", SEE_HELP, "unexpected argument '%s'",
                           argv[optind]);
    return MH_CLI_OK;
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
}

int mh_plan_cmd_cpus(int argc, char **argv)
{
    plan_request request = {0};
    mh_plan_cpus plan;
    mh_error err;
    mh_plan_cpus_options_init(&request.options);
    int bad = parse(&request, argc, argv);
    if (bad)
        return bad;
    if (request.help) {
        print_help();
        return MH_CLI_OK;
    }
    if (!request.gpus_given)
        request.options.gpus = mh_plan_count_gpus();
    if (mh_plan_cpus_make(&plan, &request.options, &err) != MH_OK)
        return mh_cli_fail(MH_CLI_USAGE, "plan cpus", SEE_HELP, "%s", err.message);
    if (request.json)
        print_json(&plan);
    else
        print_table(&plan);
    return MH_CLI_OK;
}
