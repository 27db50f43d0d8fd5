/* plan_threads.c - millhead plan threads: loader workers x streaming threads x ranks
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHERE "plan threads"
#define SEE_HELP "see millhead plan threads --help"

/* What a cluster's workers may take; 0 where there is no limit or no cluster. */
typedef struct memory_limits {
    uint64_t each, sum, available;
} memory_limits;

typedef struct threads_request {
    mh_plan_threads_options options;
    int gpus; /* another word for ranks; 0: not given */
    const char *mode, *memory;
    bool shared;
    bool json;
    bool help;
} threads_request;

static void print_help(void)
{
    (void)printf(
        "usage: millhead plan threads [OPTIONS]\n"
        "\n"
        "How many threads load at once where a dataset streams chunks itself (Dask, Zarr) in\n"
        "the workers of a loader in the training processes of a machine, and what suits its\n"
        "CPUs. Without --mode all three ways are compared:\n"
        "  single-threaded  in the thread that asks\n"
        "  threads          a pool in each process that loads\n"
        "  cluster          processes of their own, for each training process or shared\n"
        "\n"
        "options:\n"
        "  --mode MODE          one of the three\n"
        "  --workers N          loader workers of a training process (default 0)\n"
        "  --threads N          of each pool, or of each worker of a cluster\n"
        "  --cluster-workers N  workers of a cluster\n"
        "  --shared             one cluster for all training processes\n"
        "  --memory-limit L     of a cluster's worker: none, a size like 4GB, a share of the\n"
        "                       memory there is like 0.25, or auto: shared evenly (default)\n"
        "  --ranks R, --gpus R  training processes (default: one per GPU of this machine)\n"
        "  --cpus N             CPUs (default: those this process may use)\n"
        "  --json               one JSON object: cpus, ranks, workers, reserved, modes (mode,\n"
        "                       shared, threads, cluster_workers, loaders, streaming, total,\n"
        "                       crowded, nested, most_workers, memory_limit_bytes,\n"
        "                       memory_limits_sum_bytes), advice\n"
        "  --help               this text\n");
}

static int parse(threads_request *request, int argc, char **argv)
{
    mh_plan_threads_options *options = &request->options;
    const mh_cli_option table[] = {
        {"--mode", MH_CLI_TEXT, &request->mode, 0},
        {"--workers", MH_CLI_COUNT, &options->workers, 0},
        {"--threads", MH_CLI_COUNT, &options->threads, 1},
        {"--cluster-workers", MH_CLI_COUNT, &options->cluster_workers, 1},
        {"--shared", MH_CLI_FLAG, &request->shared, 0},
        {"--memory-limit", MH_CLI_TEXT, &request->memory, 0},
        {"--ranks", MH_CLI_COUNT, &options->ranks, 1},
        {"--gpus", MH_CLI_COUNT, &request->gpus, 1},
        {"--cpus", MH_CLI_COUNT, &options->cpus, 1},
        {"--json", MH_CLI_FLAG, &request->json, 0},
        {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    int bad = mh_cli_read(table, sizeof table / sizeof *table, NULL, 0, argc, argv, WHERE);
    if (bad || request->help)
        return bad;
    options->shared = request->shared;
    if (!options->ranks)
        options->ranks = request->gpus ? request->gpus : mh_plan_count_gpus();
    if (!options->ranks)
        options->ranks = 1;
    if (!request->mode)
        return MH_CLI_OK;
    while (options->mode < MH_PLAN_MODE_COUNT &&
           strcmp(request->mode, mh_plan_mode_name(options->mode)) != 0)
        options->mode++;
    if (options->mode == MH_PLAN_MODE_COUNT)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "known: single-threaded, threads, cluster",
                           "unknown mode '%s'", request->mode);
    return MH_CLI_OK;
}

/* No worker of a cluster has room in less; a share above 1 is meant, or a unit is missing. */
#define LIMIT_LEAST 1000000u

/* A limit that was given, by the rules of Dask's memory_limit: a number up to 1 is a share. */
static int limit_given(uint64_t *out, const char *text, uint64_t available)
{
    bool number = text[strspn(text, "0123456789.")] == '\0' && *text;
    char *end;
    double share = number ? strtod(text, &end) : 0;
    if (number && !*end && share > 0 && share <= 1) {
        *out = (uint64_t)(share * (double)available);
        return MH_CLI_OK;
    }
    if (mh_cli_size(out, text, 0, "--memory-limit", WHERE) != MH_CLI_OK)
        return MH_CLI_USAGE;
    if (*out && *out < LIMIT_LEAST)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "give a share up to 1, or a size like 4GB",
                           "--memory-limit is '%s', %" PRIu64 " bytes for a worker", text, *out);
    return MH_CLI_OK;
}

static int limit_memory(memory_limits *out, const char *text, int64_t workers)
{
    mh_plan_memory_options options;
    mh_plan_memory memory;
    mh_plan_memory_options_init(&options);
    options.batch_bytes = 1;
    if (mh_plan_memory_make(&memory, &options, NULL) != MH_OK || workers == 0)
        return MH_CLI_OK;
    out->available = memory.available_bytes;
    bool known = memory.available_bytes != MH_PLAN_NO_LIMIT;
    if (!text || strcmp(text, "auto") == 0) {
        out->each = known ? memory.available_bytes / (uint64_t)workers : 0;
    } else if (strcmp(text, "none") != 0) {
        int bad = limit_given(&out->each, text, memory.available_bytes);
        if (bad)
            return bad;
    }
    if (__builtin_mul_overflow(out->each, (uint64_t)workers, &out->sum))
        out->sum = UINT64_MAX;
    return MH_CLI_OK;
}

static const char *s_of(int64_t count)
{
    return count == 1 ? "" : "s";
}

static int64_t cluster_workers(const mh_plan_threads *plan, const mh_plan_threads_options *options)
{
    return (int64_t)plan->cluster_workers * (options->shared ? 1 : options->ranks);
}

static void print_json_mode(const mh_plan_threads *plan, const mh_plan_threads_options *options,
                            const memory_limits *memory)
{
    (void)printf("{\"mode\": \"%s\", \"shared\": %s, \"threads\": %d, \"cluster_workers\": %d, "
                 "\"loaders\": %" PRId64 ", \"streaming\": %" PRId64 ", \"total\": %" PRId64
                 ", \"crowded\": %s, \"nested\": %s, \"most_workers\": %d, ",
                 mh_plan_mode_name(options->mode), options->shared ? "true" : "false",
                 plan->threads, plan->cluster_workers, plan->loaders, plan->streaming, plan->total,
                 plan->crowded ? "true" : "false", plan->nested ? "true" : "false",
                 plan->most_workers);
    if (memory->each)
        (void)printf("\"memory_limit_bytes\": %" PRIu64 ", \"memory_limits_sum_bytes\": %" PRIu64
                     "}",
                     memory->each, memory->sum);
    else
        (void)printf("\"memory_limit_bytes\": null, \"memory_limits_sum_bytes\": null}");
}

static void print_json_advice(const mh_plan_threads_advice *advice)
{
    (void)printf("\"advice\": {\"threads_least\": %d, \"threads_most\": %d, "
                 "\"cluster_workers\": %d, \"cluster_threads\": %d, \"shared_workers\": %d, "
                 "\"shared_threads\": %d}}\n",
                 advice->threads_least, advice->threads_most, advice->cluster_workers,
                 advice->cluster_threads, advice->shared_workers, advice->shared_threads);
}

/* "8 loader workers x 4 threads = 32 threads": how the total comes about. */
static void print_mode(const mh_plan_threads *plan, const mh_plan_threads_options *options,
                       const memory_limits *memory)
{
    char text[MH_CLI_BYTES];
    const char *loader = options->workers ? "loader worker" : "process";
    const char *plural = plan->loaders == 1 ? "" : options->workers ? "s" : "es";
    (void)printf("%-16s ", mh_plan_mode_name(options->mode));
    if (options->mode != MH_PLAN_CLUSTER || options->workers)
        (void)printf("%" PRId64 " %s%s ", plan->loaders, loader, plural);
    if (options->mode == MH_PLAN_THREADS)
        (void)printf("x %d thread%s ", plan->threads, s_of(plan->threads));
    if (options->mode == MH_PLAN_CLUSTER) {
        int64_t workers = cluster_workers(plan, options);
        (void)printf("%s%" PRId64 " cluster worker%s x %d thread%s ", options->workers ? "+ " : "",
                     workers, s_of(workers), plan->threads, s_of(plan->threads));
    }
    (void)printf("= %" PRId64 " thread%s%s\n", plan->total, s_of(plan->total),
                 plan->crowded ? ", more than CPUs" : "");
    if (memory->each)
        (void)printf("%-16s at most %s for each worker of a cluster\n", "",
                     mh_cli_bytes(text, memory->each));
}

static void print_crowding(const mh_plan_threads *plan, const mh_plan_threads_options *options)
{
    (void)printf("warning: %s: %" PRId64 " threads for %d CPU%s%s; ",
                 mh_plan_mode_name(options->mode), plan->total, plan->cpus, s_of(plan->cpus),
                 plan->nested ? ", as loader workers and streaming threads add up" : "");
    if (plan->most_workers > 0 && plan->most_workers < options->workers)
        (void)printf("num_workers=%d leaves each a CPU. ", plan->most_workers);
    else
        (void)printf("take fewer threads. ");
    (void)printf("More pay only where they wait for disk or network.\n");
}

static void print_warnings(const mh_plan_threads *plan, const mh_plan_threads_options *options,
                           const memory_limits *memory)
{
    char sum[MH_CLI_BYTES], there[MH_CLI_BYTES];
    if (plan->crowded)
        print_crowding(plan, options);
    if (memory->sum > memory->available)
        (void)printf("warning: the limits of all workers of clusters are %s, there is %s\n",
                     mh_cli_bytes(sum, memory->sum), mh_cli_bytes(there, memory->available));
}

static void print_advice(const mh_plan_threads *plan, const mh_plan_threads_options *options)
{
    const mh_plan_threads_advice *advice = &plan->advice;
    (void)printf("\nFor %d CPU%s and %d training process%s:\n", plan->cpus, s_of(plan->cpus),
                 options->ranks, options->ranks == 1 ? "" : "es");
    (void)printf("- a pool of ");
    if (advice->threads_least < advice->threads_most)
        (void)printf("%d to ", advice->threads_least);
    (void)printf("%d thread%s in each, without loader workers, is often enough\n",
                 advice->threads_most, s_of(advice->threads_most));
    (void)printf(
        "- a cluster of %s%d worker%s with %d thread%s for each shows more (a dashboard)\n",
        advice->cluster_workers > 1 ? "1 to " : "at most ", advice->cluster_workers,
        s_of(advice->cluster_workers), advice->cluster_threads, s_of(advice->cluster_threads));
    if (options->ranks > 1)
        (void)printf("- or one cluster for all of them, of %d worker%s with %d thread%s\n",
                     advice->shared_workers, s_of(advice->shared_workers), advice->shared_threads,
                     s_of(advice->shared_threads));
    (void)printf("- the more loader workers, the fewer threads in each: single-threaded with many\n"
                 "Begin with few, and look with millhead bench or millhead doctor.\n");
}

typedef struct planned_mode {
    mh_plan_threads_options options;
    mh_plan_threads plan;
    memory_limits memory;
} planned_mode;

/* Plans the mode asked for, or all. */
static int make_plans(planned_mode plans[MH_PLAN_MODE_COUNT], size_t *count,
                      const threads_request *request)
{
    mh_error err;
    *count = request->mode ? 1 : MH_PLAN_MODE_COUNT;
    for (size_t at = 0; at < *count; at++) {
        planned_mode *one = &plans[at];
        *one = (planned_mode){.options = request->options};
        if (!request->mode)
            one->options.mode = (mh_plan_mode)at;
        one->options.shared &= one->options.mode == MH_PLAN_CLUSTER;
        if (mh_plan_threads_make(&one->plan, &one->options, &err) != MH_OK)
            return mh_cli_fail(MH_CLI_USAGE, WHERE, SEE_HELP, "%s", err.message);
        int bad =
            limit_memory(&one->memory, request->memory, cluster_workers(&one->plan, &one->options));
        if (bad)
            return bad;
    }
    return MH_CLI_OK;
}

static void print_json(const planned_mode *plans, size_t count)
{
    (void)printf("{\"cpus\": %d, \"ranks\": %d, \"workers\": %d, \"reserved\": %d, \"modes\": [",
                 plans->plan.cpus, plans->options.ranks, plans->options.workers,
                 plans->plan.reserved);
    for (size_t at = 0; at < count; at++) {
        (void)printf("%s", at ? ", " : "");
        print_json_mode(&plans[at].plan, &plans[at].options, &plans[at].memory);
    }
    (void)printf("], ");
    print_json_advice(&plans->plan.advice);
}

int mh_plan_cmd_threads(int argc, char **argv)
{
    threads_request request = {0};
    planned_mode plans[MH_PLAN_MODE_COUNT];
    size_t count;
    mh_plan_threads_options_init(&request.options);
    request.options.ranks = 0; /* not given */
    int bad = parse(&request, argc, argv);
    if (!bad && request.help) {
        print_help();
        return MH_CLI_OK;
    }
    if (!bad)
        bad = make_plans(plans, &count, &request);
    if (bad)
        return bad;
    if (request.json) {
        print_json(plans, count);
        return MH_CLI_OK;
    }
    for (size_t at = 0; at < count; at++)
        print_mode(&plans[at].plan, &plans[at].options, &plans[at].memory);
    for (size_t at = 0; at < count; at++)
        print_warnings(&plans[at].plan, &plans[at].options, &plans[at].memory);
    print_advice(&plans->plan, &plans->options);
    return MH_CLI_OK;
}
