/* plan_memory.c - millhead plan memory: what prefetched batches take, against what there is
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>

#define WHERE "plan memory"
#define SEE_HELP "see millhead plan memory --help"

typedef struct memory_request {
    mh_plan_memory_options options;
    uint64_t sample_bytes; /* 0: not given */
    int batch_size;        /* 0: not given */
    bool json;
    bool help;
} memory_request;

static void print_help(void)
{
    (void)printf("usage: millhead plan memory --batch-bytes SIZE [OPTIONS]\n"
                 "       millhead plan memory --sample-bytes SIZE --batch-size N [OPTIONS]\n"
                 "\n"
                 "Memory that batches loaded ahead take: (workers x prefetch + 3) x bytes of a\n"
                 "batch x ranks, compared with what the machine and the control group have left.\n"
                 "What workers hold while they make a batch comes on top.\n"
                 "\n"
                 "options:\n"
                 "  --batch-bytes SIZE   bytes of one batch, like 38535168, 40MB or 36.75MiB\n"
                 "  --sample-bytes SIZE  bytes of one sample, with --batch-size\n"
                 "  --batch-size N       samples in a batch\n"
                 "  --workers N          loader workers of a rank (default: as plan cpus gives)\n"
                 "  --prefetch P         batches ahead for each worker (default 2)\n"
                 "  --ranks R            training processes on the machine (default: one per GPU)\n"
                 "  --available SIZE     memory to fit into (default: what there is now)\n"
                 "  --json               one JSON object: batch_bytes, workers, prefetch, ranks,\n"
                 "                       batches_per_rank, needed_bytes, available_bytes,\n"
                 "                       machine_bytes, cgroup_bytes (null: no limit), fits,\n"
                 "                       most_prefetch, most_workers\n"
                 "  --help               this text\n");
}

static int parse(memory_request *request, int argc, char **argv)
{
    mh_plan_memory_options *options = &request->options;
    const mh_cli_option table[] = {
        {"--batch-bytes", MH_CLI_SIZE, &options->batch_bytes, 1},
        {"--sample-bytes", MH_CLI_SIZE, &request->sample_bytes, 1},
        {"--batch-size", MH_CLI_COUNT, &request->batch_size, 1},
        {"--workers", MH_CLI_COUNT, &options->workers, 0},
        {"--prefetch", MH_CLI_COUNT, &options->prefetch, 1},
        {"--ranks", MH_CLI_COUNT, &options->ranks, 1},
        {"--available", MH_CLI_SIZE, &options->available_bytes, 1},
        {"--json", MH_CLI_FLAG, &request->json, 0},
        {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    int bad = mh_cli_read(table, sizeof table / sizeof *table, NULL, 0, argc, argv, WHERE);
    if (bad || request->help)
        return bad;
    bool by_samples = request->sample_bytes && request->batch_size;
    if ((options->batch_bytes > 0) == by_samples || (!by_samples && request->batch_size))
        return mh_cli_fail(MH_CLI_USAGE, WHERE, SEE_HELP,
                           "give --batch-bytes, or --sample-bytes and --batch-size");
    if (by_samples && __builtin_mul_overflow(request->sample_bytes, (uint64_t)request->batch_size,
                                             &options->batch_bytes))
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "check --sample-bytes and --batch-size",
                           "the bytes of a batch do not fit 64 bits");
    return MH_CLI_OK;
}

/* Ranks and workers that were not given: what this machine has room for. */
static mh_status complete(mh_plan_memory_options *options, mh_error *err)
{
    mh_plan_cpus cpus;
    mh_plan_cpus_options cpus_options;
    mh_plan_cpus_options_init(&cpus_options);
    cpus_options.gpus = mh_plan_count_gpus();
    cpus_options.ranks = options->ranks > 0 ? options->ranks : 0;
    mh_status status = mh_plan_cpus_make(&cpus, &cpus_options, err);
    if (status != MH_OK)
        return status;
    if (options->ranks <= 0)
        options->ranks = cpus.ranks;
    if (options->workers < 0)
        options->workers = cpus.total / cpus.ranks;
    return MH_OK;
}

static void print_limit(const char *key, uint64_t bytes)
{
    if (bytes == MH_PLAN_NO_LIMIT)
        (void)printf("\"%s\": null, ", key);
    else
        (void)printf("\"%s\": %" PRIu64 ", ", key, bytes);
}

static void print_json(const mh_plan_memory *plan, const mh_plan_memory_options *options)
{
    (void)printf("{\"batch_bytes\": %" PRIu64 ", \"workers\": %d, \"prefetch\": %d, "
                 "\"ranks\": %d, \"batches_per_rank\": %" PRIu64 ", \"needed_bytes\": %" PRIu64
                 ", ",
                 options->batch_bytes, options->workers, options->prefetch, options->ranks,
                 plan->batches, plan->needed_bytes);
    print_limit("available_bytes", plan->available_bytes);
    print_limit("machine_bytes", plan->machine_bytes);
    print_limit("cgroup_bytes", plan->cgroup_bytes);
    (void)printf("\"fits\": %s, \"most_prefetch\": %d, \"most_workers\": %d}\n",
                 plan->fits ? "true" : "false", plan->most_prefetch, plan->most_workers);
}

/* Who sets the figure that the plan is compared with. */
static const char *limit_name(const mh_plan_memory *plan, const mh_plan_memory_options *options)
{
    if (options->available_bytes)
        return "as given";
    if (plan->available_bytes == MH_PLAN_NO_LIMIT)
        return "could not be read";
    return plan->cgroup_bytes < plan->machine_bytes ? "left in the control group, less 64 MiB"
                                                    : "available on the machine, less 64 MiB";
}

static void print_answer(const mh_plan_memory *plan, const mh_plan_memory_options *options)
{
    if (plan->fits && options->workers == 0)
        (void)printf("It fits: without workers nothing is prefetched.\n");
    else if (plan->fits)
        (void)printf("It fits; with num_workers=%d a prefetch_factor of up to %d would.\n",
                     options->workers, plan->most_prefetch);
    else if (plan->most_prefetch > 0)
        (void)printf("It does not fit: give prefetch_factor=%d or less.\n", plan->most_prefetch);
    else if (plan->most_workers > 0)
        (void)printf("It does not fit, whatever the prefetch: give num_workers=%d or less.\n",
                     plan->most_workers);
    else if (plan->needed_bytes / plan->batches <= plan->available_bytes)
        (void)printf("It does not fit with workers: give num_workers=0, or make the batches "
                     "smaller.\n");
    else
        (void)printf("It does not fit, not even without workers: make the batches smaller.\n");
}

static void print_table(const mh_plan_memory *plan, const mh_plan_memory_options *options)
{
    char text[MH_CLI_BYTES];
    (void)printf("bytes of a batch    %12s\n", mh_cli_bytes(text, options->batch_bytes));
    (void)printf("batches of a rank   %12" PRIu64, plan->batches);
    if (options->workers)
        (void)printf("  (num_workers %d x prefetch_factor %d + 3)", options->workers,
                     options->prefetch);
    (void)printf("\ntraining processes  %12d\n", options->ranks);
    (void)printf("memory needed       %12s\n", mh_cli_bytes(text, plan->needed_bytes));
    (void)printf("memory there is     %12s  (%s)\n\n",
                 plan->available_bytes == MH_PLAN_NO_LIMIT
                     ? "unknown"
                     : mh_cli_bytes(text, plan->available_bytes),
                 limit_name(plan, options));
    print_answer(plan, options);
}

int mh_plan_cmd_memory(int argc, char **argv)
{
    memory_request request = {0};
    mh_plan_memory plan;
    mh_error err;
    mh_plan_memory_options_init(&request.options);
    request.options.workers = request.options.ranks = -1; /* not given */
    int bad = parse(&request, argc, argv);
    if (bad)
        return bad;
    if (request.help) {
        print_help();
        return MH_CLI_OK;
    }
    if (complete(&request.options, &err) != MH_OK ||
        mh_plan_memory_make(&plan, &request.options, &err) != MH_OK)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, SEE_HELP, "%s", err.message);
    if (request.json)
        print_json(&plan, &request.options);
    else
        print_table(&plan, &request.options);
    return MH_CLI_OK;
}
