/* cmd_stage.c - millhead stage: a copy of data on local disk
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define WHERE "stage"

static void print_help(void)
{
    (void)printf(
        "usage: millhead stage SRC DIR [OPTIONS]\n"
        "\n"
        "Copies a file, a directory or what lies below s3://BUCKET/PREFIX/ into DIR, in parallel.\n"
        "Files that are already there in the same version are not copied again, so a second run\n"
        "goes on where the first one ended. One process of a machine copies; the others wait.\n"
        "\n"
        "options:\n"
        "  --storage TEXT   of URLs: endpoint_url=...,region=...,anon=true (docs/remote.md)\n"
        "  --in-flight N    reads under way at a time (default 16)\n"
        "  --json           one JSON object: files, bytes, copied, copied_bytes, skipped,\n"
        "                   seconds\n"
        "  --help           this text\n");
}

static int show_progress(void *progress, double share)
{
    mh_progress_show(progress, share);
    return 0;
}

static const char *remedy(mh_status status, const mh_error *err)
{
    if (err->sys_errno == ENOSPC)
        return "free some space, or give another DIR";
    switch (status) {
    case MH_ERR_NOT_FOUND:
        return "give what is there";
    case MH_ERR_INVALID:
    case MH_ERR_UNSUPPORTED:
        return "see millhead stage --help";
    default:
        return "run it again: it goes on where it ended";
    }
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void print_report(const mh_stage_report *report, double seconds, bool json)
{
    char all[MH_CLI_BYTES], copied[MH_CLI_BYTES];
    if (json)
        (void)printf("{\"files\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"copied\": %" PRIu64
                     ", \"copied_bytes\": %" PRIu64 ", \"skipped\": %" PRIu64
                     ", \"seconds\": %.3f}\n",
                     report->files, report->bytes, report->copied, report->copied_bytes,
                     report->skipped, seconds);
    else
        (void)printf("%" PRIu64 " files, %s: %" PRIu64 " copied (%s), %" PRIu64
                     " were there, in %.1f s\n",
                     report->files, mh_cli_bytes(all, report->bytes), report->copied,
                     mh_cli_bytes(copied, report->copied_bytes), report->skipped, seconds);
}

int mh_cmd_stage(int argc, char **argv)
{
    const char *words[2] = {NULL, NULL};
    bool json = false, help = false;
    int in_flight = 16;
    mh_stage_options options;
    mh_stage_report report;
    mh_progress progress;
    mh_error err;
    mh_stage_options_init(&options);
    mh_stage_report_init(&report);
    const mh_cli_option table[] = {
        {"--storage", MH_CLI_TEXT, &options.storage, 0},
        {"--in-flight", MH_CLI_COUNT, &in_flight, 1},
        {"--json", MH_CLI_FLAG, &json, 0},
        {"--help", MH_CLI_FLAG, &help, 0},
    };
    int code = mh_cli_read(table, sizeof table / sizeof *table, words, 2, argc, argv, WHERE);
    if (code != MH_CLI_OK)
        return code;
    if (help) {
        print_help();
        return MH_CLI_OK;
    }
    if (!words[0] || !words[1] || !*words[0])
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "see millhead stage --help", "give SRC and DIR");
    options.in_flight = (uint32_t)in_flight;
    options.progress = show_progress;
    options.progress_arg = &progress;
    mh_progress_begin(&progress, "copying", words[1]);
    double began = seconds_now();
    mh_status status = mh_stage(words[0], words[1], &options, &report, &err);
    mh_progress_end(&progress);
    if (status != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, remedy(status, &err), "%s", err.message);
    print_report(&report, seconds_now() - began, json);
    return MH_CLI_OK;
}
