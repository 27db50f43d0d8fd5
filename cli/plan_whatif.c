/* plan_whatif.c - millhead plan whatif: what a measured run would need with other settings
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "plan.h"
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHERE "plan whatif"
#define SEE_HELP "see millhead plan whatif --help"
#define PROBE_SECONDS 3

typedef struct whatif_request {
    mh_plan_whatif_options options;
    const char *path;
    const char *storage; /* to be probed; NULL: not asked for */
    const char *probe;   /* a file with what a probe found; NULL: none */
    char shown[512];     /* which of them it was */
    bool json;
    bool help;
} whatif_request;

static void print_help(void)
{
    (void)printf(
        "usage: millhead plan whatif RUN [OPTIONS]\n"
        "\n"
        "Predicts from a measured run (a run directory, an events file or a log of\n"
        "Earthmover's) how long the loop would wait with other settings, and how many workers,\n"
        "how much prefetch, bandwidth and memory a number of accelerators needs.\n"
        "\n"
        "options:\n"
        "  --gpus N            accelerators on the machine, each with its loader (default 1)\n"
        "  --step S            seconds a step takes (default: as in the run, and\n"
        "                      in proportion to --batch-size)\n"
        "  --workers N         loader workers of each (default: as in the run)\n"
        "  --prefetch P        batches ahead for each worker (default: as in the run)\n"
        "  --batch-size N      samples in a batch (default: as in the run)\n"
        "  --batch-bytes SIZE  bytes of such a batch, to plan memory (default: as in the run,\n"
        "                      where its batches are tensors or arrays)\n"
        "  --cpus N            CPUs of the machine (default: as in the run)\n"
        "  --storage PATH      probe where the data lies, for some %d seconds, and compare\n"
        "  --probe FILE        the same with what `millhead probe PATH --json` printed\n"
        "  --json              one JSON object: measured, asked, needed (each: gpus, workers,\n"
        "                      prefetch, batch_size, step_s, wait_share, samples_per_s,\n"
        "                      cpus_busy, read_bytes_per_s, delivered_bytes_per_s,\n"
        "                      memory_bytes), enough, cpus, others, making_cpu_s,\n"
        "                      making_blocked_s, replay_off, batches, storage_mb_per_s,\n"
        "                      storage_random_mb_per_s, storage_enough (null: not probed)\n"
        "  --help              this text\n",
        PROBE_SECONDS);
}

static int parse(whatif_request *request, int argc, char **argv)
{
    mh_plan_whatif_options *options = &request->options;
    const mh_cli_option table[] = {
        {"--gpus", MH_CLI_COUNT, &options->gpus, 1},
        {"--step", MH_CLI_SECONDS, &options->step_s, 0},
        {"--workers", MH_CLI_COUNT, &options->workers, 0},
        {"--prefetch", MH_CLI_COUNT, &options->prefetch, 1},
        {"--batch-size", MH_CLI_COUNT, &options->batch_size, 1},
        {"--batch-bytes", MH_CLI_SIZE, &options->batch_bytes, 1},
        {"--cpus", MH_CLI_COUNT, &options->cpus, 1},
        {"--storage", MH_CLI_TEXT, &request->storage, 0},
        {"--probe", MH_CLI_TEXT, &request->probe, 0},
        {"--json", MH_CLI_FLAG, &request->json, 0},
        {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    int bad =
        mh_cli_read(table, sizeof table / sizeof *table, &request->path, 1, argc, argv, WHERE);
    if (bad || request->help)
        return bad;
    if (!request->path)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "give the directory millhead.watch wrote",
                           "no run given");
    if (request->storage && request->probe)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "give one of them",
                           "--storage probes now, --probe reads an earlier result");
    return MH_CLI_OK;
}

static int show_progress(void *progress, const char *what, double share)
{
    (void)what;
    mh_progress_show(progress, share);
    return 0;
}

/* Probes where the data lies, or reads what a probe found; neither: *out is all 0. */
static int get_storage(mh_storage *out, whatif_request *request)
{
    mh_probe_options options;
    mh_probe probe = {0};
    mh_error err;
    mh_progress progress;
    mh_status status = MH_OK;
    if (request->probe && mh_probe_read(&probe, request->probe, &err) != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, MH_CLI_PROBE_REMEDY, "%s", err.message);
    if (request->storage) {
        mh_probe_options_init(&options);
        options.path = request->storage;
        options.seconds = PROBE_SECONDS;
        options.progress = show_progress;
        options.progress_arg = &progress;
        mh_progress_begin(&progress, "probing",
                          mh_probe_is_url(request->storage) ? MH_CLI_SOME_URL : request->storage);
        status = mh_probe_run(&probe, &options, &err);
        mh_progress_end(&progress);
    }
    if (status != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "give another --storage, or see millhead probe",
                           "%s", err.message);
    if (request->storage && mh_probe_is_url(request->storage)) /* without what may be secret */
        (void)snprintf(request->shown, sizeof request->shown, "%s", probe.file);
    else
        (void)snprintf(request->shown, sizeof request->shown, "%s",
                       request->storage ? request->storage
                       : request->probe ? request->probe
                                        : "");
    mh_storage_of(out, &probe);
    return MH_CLI_OK;
}

/* --- JSON --- */

static void print_json_point(const char *name, const mh_whatif_point *point)
{
    (void)printf("\"%s\": {\"gpus\": %d, \"workers\": %d, \"prefetch\": %d, \"batch_size\": %.6g, "
                 "\"step_s\": %.6g, \"wait_share\": %.6g, \"samples_per_s\": %.6g, "
                 "\"cpus_busy\": %.6g, \"read_bytes_per_s\": %.6g, ",
                 name, point->gpus, point->workers, point->prefetch, point->batch_size,
                 point->step_s, point->wait_share, point->samples_per_s, point->cpus_busy,
                 point->read_bytes_per_s);
    if (point->memory_bytes)
        (void)printf("\"delivered_bytes_per_s\": %.6g, \"memory_bytes\": %" PRIu64 "}, ",
                     point->delivered_bytes_per_s, point->memory_bytes);
    else
        (void)printf("\"delivered_bytes_per_s\": null, \"memory_bytes\": null}, ");
}

static bool storage_is_enough(const mh_plan_whatif *plan, const mh_storage *storage)
{
    return plan->needed.read_bytes_per_s <= storage->sequential_per_s;
}

static void print_json_storage(const mh_plan_whatif *plan, const mh_storage *storage)
{
    if (storage->sequential_per_s > 0)
        (void)printf("\"storage_mb_per_s\": %.6g, ", storage->sequential_per_s / 1e6);
    else
        (void)printf("\"storage_mb_per_s\": null, ");
    if (storage->random_per_s > 0)
        (void)printf("\"storage_random_mb_per_s\": %.6g, ", storage->random_per_s / 1e6);
    else
        (void)printf("\"storage_random_mb_per_s\": null, ");
    (void)printf("\"storage_enough\": %s}\n", storage->sequential_per_s <= 0     ? "null"
                                              : storage_is_enough(plan, storage) ? "true"
                                                                                 : "false");
}

static void print_json(const mh_plan_whatif *plan, const mh_storage *storage)
{
    (void)printf("{");
    print_json_point("measured", &plan->measured);
    print_json_point("asked", &plan->asked);
    print_json_point("needed", &plan->needed);
    (void)printf("\"enough\": %s, \"cpus\": %d, \"others\": %.6g, \"making_cpu_s\": %.6g, "
                 "\"making_blocked_s\": %.6g, "
                 "\"replay_off\": %.6g, \"batches\": %" PRIu64 ", ",
                 plan->enough ? "true" : "false", plan->cpus, plan->others, plan->making_cpu_s,
                 plan->making_blocked_s, plan->replay_off, plan->batches);
    print_json_storage(plan, storage);
}

/* --- for people --- */

static void print_counts(const char *name, int measured, int asked, int needed)
{
    (void)printf("%-22s %12d %12d %12d\n", name, measured, asked, needed);
}

static void print_reals(const char *format, const char *name, double measured, double asked,
                        double needed)
{
    const double values[] = {measured, asked, needed};
    char text[32];
    (void)printf("%-22s", name);
    for (size_t at = 0; at < 3; at++) {
        (void)snprintf(text, sizeof text, format, values[at]);
        (void)printf(" %12s", text);
    }
    (void)printf("\n");
}

static void print_rate(const char *name, double measured, double asked, double needed,
                       const char *after)
{
    const double values[] = {measured, asked, needed};
    char text[MH_CLI_BYTES + 4];
    (void)printf("%-22s", name);
    for (size_t at = 0; at < 3; at++) {
        char bytes[MH_CLI_BYTES];
        (void)mh_cli_bytes(bytes, values[at] < 0x1p63 ? (uint64_t)values[at] : UINT64_MAX);
        (void)snprintf(text, sizeof text, "%s%s", bytes, after);
        (void)printf(" %12s", text);
    }
    (void)printf("\n");
}

static void print_table(const mh_plan_whatif *plan)
{
    const mh_whatif_point *was = &plan->measured, *asked = &plan->asked, *needed = &plan->needed;
    (void)printf("%-22s %12s %12s %12s\n", "", "measured", "asked", "needed");
    print_counts("accelerators", was->gpus, asked->gpus, needed->gpus);
    print_counts("workers of each", was->workers, asked->workers, needed->workers);
    print_counts("prefetch", was->prefetch, asked->prefetch, needed->prefetch);
    print_reals("%.4g", "batch size", was->batch_size, asked->batch_size, needed->batch_size);
    print_reals("%.4g ms", "step", was->step_s * 1e3, asked->step_s * 1e3, needed->step_s * 1e3);
    print_reals("%.1f %%", "waiting for batches", was->wait_share * 100, asked->wait_share * 100,
                needed->wait_share * 100);
    print_reals("%.4g", "samples a second", was->samples_per_s, asked->samples_per_s,
                needed->samples_per_s);
    print_reals("%.2f", "CPUs busy", was->cpus_busy, asked->cpus_busy, needed->cpus_busy);
    print_rate("from storage", was->read_bytes_per_s, asked->read_bytes_per_s,
               needed->read_bytes_per_s, "/s");
    if (needed->memory_bytes) {
        print_rate("to the accelerators", was->delivered_bytes_per_s, asked->delivered_bytes_per_s,
                   needed->delivered_bytes_per_s, "/s");
        print_rate("memory of batches", (double)was->memory_bytes, (double)asked->memory_bytes,
                   (double)needed->memory_bytes, "");
    }
}

/* What keeps it waiting, where more workers do not help. */
static void print_limit(const mh_plan_whatif *plan)
{
    const mh_whatif_point *needed = &plan->needed;
    (void)printf("More than num_workers=%d, prefetch_factor=%d does not help: ", needed->workers,
                 needed->prefetch);
    if (plan->cpus && needed->cpus_busy > 0.85 * plan->cpus)
        (void)printf("the %d CPUs are full.\nTake more CPUs (%.1f would keep up), fewer "
                     "accelerators, or make samples cheaper.\n",
                     plan->cpus,
                     needed->cpus_busy / (needed->wait_share < 1 ? 1 - needed->wait_share : 1));
    else if (plan->others > 0.1)
        (void)printf("other processes take the CPUs\n(%.1f of their threads want one). Wait for "
                     "them to end, "
                     "or give the run more CPUs.\n",
                     plan->others);
    else
        (void)printf("the loop itself takes batches no\nfaster, or they are too uneven. "
                     "millhead doctor says which.\n");
}

static void print_storage(const mh_plan_whatif *plan, const char *where, const mh_storage *storage)
{
    if (!(storage->sequential_per_s > 0)) {
        (void)printf("%s: no storage that could be probed.\n", where);
        return;
    }
    (void)printf("%s gives one reader %.4g MB/s in sequence", where,
                 storage->sequential_per_s / 1e6);
    if (storage->random_per_s > 0)
        (void)printf(", %.3g in small reads anywhere", storage->random_per_s / 1e6);
    (void)printf("; %.4g are needed: %s.\n", plan->needed.read_bytes_per_s / 1e6,
                 storage_is_enough(plan, storage) ? "enough where it is read in sequence"
                 : storage->network               ? "use several readers at once"
                                                  : "put the data on faster storage");
}

static void print_notes(const mh_plan_whatif *plan)
{
    const mh_whatif_point *needed = &plan->needed;
    char all[MH_CLI_TIME], cpu[MH_CLI_TIME], blocked[MH_CLI_TIME];
    (void)printf("\nMaking a batch took %s: %s computing, %s on I/O or asleep (mean of %" PRIu64
                 " batches).\n",
                 mh_cli_time(all, plan->making_cpu_s + plan->making_blocked_s),
                 mh_cli_time(cpu, plan->making_cpu_s), mh_cli_time(blocked, plan->making_blocked_s),
                 plan->batches);
    if (plan->enough)
        (void)printf("Give each accelerator num_workers=%d, prefetch_factor=%d.\n", needed->workers,
                     needed->prefetch);
    else
        print_limit(plan);
    if (plan->others > 0.1)
        (void)printf("Other processes wanted CPUs too (%.1f threads); the plan expects them again, "
                     "unless --cpus is given.\n",
                     plan->others);
    if (plan->making_blocked_s > plan->making_cpu_s)
        (void)printf("Most of it is waiting. The plan assumes that the disk or network has room: "
                     "check with millhead probe PATH.\n");
    if (!needed->memory_bytes)
        (void)printf(
            "The run does not say how large its batches are: give --batch-bytes to plan memory.\n");
    if (plan->replay_off > 0.15)
        (void)printf("warning: a simulation of the run itself is off by %.0f %%: the numbers are "
                     "rough.\n",
                     plan->replay_off * 100);
}

int mh_plan_cmd_whatif(int argc, char **argv)
{
    whatif_request request = {0};
    mh_plan_whatif plan;
    mh_run *run = NULL;
    mh_error err;
    mh_plan_whatif_options_init(&request.options);
    int bad = parse(&request, argc, argv);
    if (bad)
        return bad;
    if (request.help) {
        print_help();
        return MH_CLI_OK;
    }
    mh_progress progress;
    mh_progress_begin(&progress, "reading", request.path);
    mh_status status = mh_run_read(&run, request.path, mh_progress_bytes, &progress, &err);
    mh_progress_end(&progress);
    if (status != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, mh_cli_run_remedy(status), "%s", err.message);
    status = mh_plan_whatif_make(&plan, mh_run_facts(run), &request.options, &err);
    mh_run_close(run);
    if (status == MH_ERR_INVALID)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, SEE_HELP, "%s", err.message);
    if (status != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, WHERE,
                           "give the directory of a run that was watched from its start", "%s",
                           err.message);
    mh_storage storage = {0};
    bad = get_storage(&storage, &request);
    if (bad)
        return bad;
    if (request.json) {
        print_json(&plan, &storage);
        return MH_CLI_OK;
    }
    print_table(&plan);
    print_notes(&plan);
    if (*request.shown)
        print_storage(&plan, request.shown, &storage);
    return MH_CLI_OK;
}
