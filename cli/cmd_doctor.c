/* cmd_doctor.c - millhead doctor: what a run waited for, and what to do about it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doctor.h"
#include "doctor_target.h"
#include "options.h"
#include "progress.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEE_HELP "see millhead doctor --help"
#define LOOK_SECONDS 5

typedef struct doctor_request {
    const char *path;
    const char *probe; /* a file; NULL: none */
    int pid;           /* 0: none */
    int seconds;
    bool checklist;
    bool json;
    bool help;
} doctor_request;

static void print_help(void)
{
    (void)printf(
        "usage: millhead doctor [--json] [-o RUN_DIR] [--probe FILE] PROGRAM [ARGUMENTS...]\n"
        "       millhead doctor PATH [--probe FILE] [--json]\n"
        "       millhead doctor --pid N [--seconds S] [--json]\n"
        "       millhead doctor --checklist [--json]\n"
        "\n"
        "Says what training waits for, how we know, what to do and what that would gain.\n"
        "PROGRAM is run unchanged and watched: `millhead doctor train.py --epochs 3`, or any\n"
        "command: `millhead doctor torchrun train.py`. Put -- before a program that has the\n"
        "name of a recorded run. PATH was recorded earlier: the directory of a run, an events\n"
        "file (docs/events.md), or a log of Earthmover's dataloader-demo. Given a directory\n"
        "of `millhead bench`, it lists the runs in it.\n"
        "\n"
        "options:\n"
        "  --pid N      a running training process\n"
        "  --seconds S  how long to look at it (default %d)\n"
        "  --checklist  what to check about this machine; with --json a list of item,\n"
        "               state (pass, warn, fail), found, todo; exit code 1 when one fails\n"
        "  --probe FILE what `millhead probe DATA --json` printed for the storage of the\n"
        "               samples: the verdict promises no more than that storage gives\n"
        "  -o RUN_DIR   where the run of PROGRAM is kept (default: in the cache directory,\n"
        "               ~/.cache/millhead/runs, the last 10)\n"
        "  --json       one JSON object; what PROGRAM prints goes to standard error. Keys:\n"
        "               cause, evidence, fix, fix_settings, predicted_gain, others,\n"
        "               device_wait_share, idle_device_s, epoch_start_share,\n"
        "               epoch_start_s, stages, waits, wait_s, bad_lines, setup_s, loader,\n"
        "               warnings, vantage\n"
        "  --help       this text\n",
        LOOK_SECONDS);
}

/* Process numbers may be larger than the numbers of plans. */
static int parse_pid(int *out, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || *text < '1' || *text > '9' || value > INT_MAX)
        return mh_cli_fail(MH_CLI_USAGE, "doctor", "give the number of a process", "--pid is '%s'",
                           text);
    *out = (int)value;
    return MH_CLI_OK;
}

static int parse(doctor_request *request, int argc, char **argv)
{
    const char *pid = NULL;
    const mh_cli_option options[] = {
        {"--pid", MH_CLI_TEXT, &pid, 0},
        {"--seconds", MH_CLI_COUNT, &request->seconds, 1},
        {"--probe", MH_CLI_TEXT, &request->probe, 0},
        {"--checklist", MH_CLI_FLAG, &request->checklist, 0},
        {"--json", MH_CLI_FLAG, &request->json, 0},
        {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    int bad = mh_cli_read(options, sizeof options / sizeof *options, &request->path, 1, argc, argv,
                          "doctor");
    if (!bad && pid)
        bad = parse_pid(&request->pid, pid);
    if (bad || request->help)
        return bad;
    if ((request->path != NULL) + (request->pid != 0) + request->checklist != 1)
        return mh_cli_fail(MH_CLI_USAGE, "doctor", SEE_HELP,
                           "give one of PATH, a program, --pid N or --checklist");
    if (request->probe && !request->path)
        return mh_cli_fail(MH_CLI_USAGE, "doctor", "give the directory of a run with it",
                           "--probe says where a run's samples lie");
    return MH_CLI_OK;
}

static int diagnose(const char *path, const char *probe_file, bool json)
{
    mh_run *run = NULL;
    mh_probe probe;
    mh_verdict verdict;
    mh_error err;
    mh_progress progress;
    if (probe_file && mh_probe_read(&probe, probe_file, &err) != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, "doctor", MH_CLI_PROBE_REMEDY, "%s", err.message);
    mh_progress_begin(&progress, "reading", path);
    mh_status status = mh_run_read(&run, path, mh_progress_bytes, &progress, &err);
    mh_progress_end(&progress);
    if (status == MH_OK && probe_file)
        mh_run_set_probe(run, &probe);
    mh_verdict_init(&verdict);
    if (status == MH_OK)
        status = mh_run_judge(&verdict, run, &err);
    if (status == MH_OK) {
        mh_wait_stats waits = mh_run_waits(run);
        mh_doctor_print(&verdict, mh_run_facts(run), &waits, mh_run_bad_lines(run),
                        mh_run_setup_s(run), json);
    }
    mh_run_close(run);
    if (status != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, "doctor", mh_cli_run_remedy(status), "%s", err.message);
    return MH_CLI_OK;
}

int mh_cmd_doctor(int argc, char **argv)
{
    doctor_request request = {.seconds = LOOK_SECONDS};
    if (mh_doctor_has_program(argc, argv))
        return mh_cmd_python(argc, argv);
    const char *unknown = mh_doctor_unknown(argc, argv);
    if (unknown)
        return mh_cli_fail(MH_CLI_USAGE, "doctor", "check the name, or give its path",
                           "no program or run '%s'", unknown);
    int bad = parse(&request, argc, argv);
    if (bad)
        return bad;
    if (request.help) {
        print_help();
        return MH_CLI_OK;
    }
    if (request.pid)
        return mh_doctor_pid(request.pid, request.json, request.seconds);
    if (request.checklist)
        return mh_doctor_checklist(request.json);
    if (mh_doctor_is_bench(request.path))
        return mh_doctor_list_runs(request.path, request.json);
    return diagnose(request.path, request.probe, request.json);
}
