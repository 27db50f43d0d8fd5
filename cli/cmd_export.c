/* cmd_export.c - millhead export: a run for other tools
 * SPDX-License-Identifier: Apache-2.0
 */
#include "interrupts.h"
#include "options.h"
#include "progress.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#define SEE_HELP "see millhead export --help"

typedef struct export_request {
    const char *run, *trace, *csv;
    bool json, help;
} export_request;

static void print_help(void)
{
    (void)printf(
        "usage: millhead export RUN [--trace OUT.json] [--csv OUT.csv] [--json]\n"
        "\n"
        "RUN is the directory of a run, an events file or a log of Earthmover's.\n"
        "\n"
        "options:\n"
        "  --trace OUT.json  a trace to open in chrome://tracing or ui.perfetto.dev: a row\n"
        "                    per worker, the loop's waits and steps, counters\n"
        "  --csv OUT.csv     a table: a line per epoch and one for the whole\n"
        "  --json            one JSON object: trace, events, csv; null for what was not asked\n"
        "  --help            this text\n");
}

static int parse(export_request *request, int argc, char **argv)
{
    const mh_cli_option options[] = {
        {"--trace", MH_CLI_TEXT, &request->trace, 0},
        {"--csv", MH_CLI_TEXT, &request->csv, 0},
        {"--json", MH_CLI_FLAG, &request->json, 0},
        {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    int bad = mh_cli_read(options, sizeof options / sizeof *options, &request->run, 1, argc, argv,
                          "export");
    if (bad || request->help)
        return bad;
    if (!request->run)
        return mh_cli_fail(MH_CLI_USAGE, "export", SEE_HELP, "no run given");
    if (!request->trace && !request->csv)
        return mh_cli_fail(MH_CLI_USAGE, "export", "say --trace FILE or --csv FILE",
                           "nothing to export");
    if (mh_cli_is_source(request->trace, request->run) ||
        mh_cli_is_source(request->csv, request->run))
        return mh_cli_fail(MH_CLI_USAGE, "export", "name another file",
                           "what is exported would be written over");
    return MH_CLI_OK;
}

static int show_bytes(void *progress, uint64_t bytes, uint64_t all)
{
    return mh_progress_bytes(progress, bytes, all) || mh_cli_interrupted();
}

static mh_status export_trace(const char *path, const char *out, uint64_t *events, mh_error *err)
{
    mh_progress progress;
    mh_progress_begin(&progress, "exporting", path);
    mh_status status = mh_export_trace(path, out, events, show_bytes, &progress, err);
    mh_progress_end(&progress);
    return status;
}

static mh_status export_csv(const char *path, const char *out, mh_error *err)
{
    mh_run *run = NULL;
    mh_progress progress;
    mh_progress_begin(&progress, "reading", path);
    mh_status status = mh_run_read(&run, path, show_bytes, &progress, err);
    mh_progress_end(&progress);
    if (status == MH_OK)
        status = mh_export_csv(run, out, err);
    mh_run_close(run);
    return status;
}

/* A path, or null. */
static void print_path(const char *path)
{
    if (path)
        mh_cli_print_quoted(path);
    else
        (void)printf("null");
}

static void print_json(const export_request *request, uint64_t events)
{
    (void)printf("{\"trace\": ");
    print_path(request->trace);
    if (request->trace)
        (void)printf(", \"events\": %" PRIu64 ", \"csv\": ", events);
    else
        (void)printf(", \"events\": null, \"csv\": ");
    print_path(request->csv);
    (void)printf("}\n");
}

int mh_cmd_export(int argc, char **argv)
{
    export_request request = {0};
    mh_error err;
    mh_status status = MH_OK;
    uint64_t events = 0;
    int bad = parse(&request, argc, argv);
    if (bad)
        return bad;
    if (request.help) {
        print_help();
        return MH_CLI_OK;
    }
    mh_cli_heed_signals(); /* half a file should not stay */
    if (request.trace)
        status = export_trace(request.run, request.trace, &events, &err);
    if (status == MH_OK && request.trace && !request.json)
        (void)printf("%s: %" PRIu64 " events\n", request.trace, events);
    if (status == MH_OK && request.csv)
        status = export_csv(request.run, request.csv, &err);
    if (mh_cli_interrupted() && status != MH_OK)
        return mh_cli_fail(MH_CLI_INTERRUPTED, "export", "run it again",
                           "interrupted, and nothing left half written");
    if (status != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, "export", mh_cli_run_remedy(status), "%s", err.message);
    if (request.json)
        print_json(&request, events);
    return MH_CLI_OK;
}
