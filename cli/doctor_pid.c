/* doctor_pid.c - millhead doctor --pid: a running process, looked at for a while
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doctor.h"
#include "progress.h"

#include <stdio.h>
#include <string.h>

static int show_progress(void *progress, double share)
{
    mh_progress_show(progress, share);
    return 0;
}

static const char *remedy(mh_status status)
{
    switch (status) {
    case MH_ERR_NOT_FOUND:
        return "give the number of the training process while it runs";
    case MH_ERR_IO:
        return "run it as that user, or as root";
    case MH_ERR_UNSUPPORTED:
        return "give the training process itself; without workers nothing is seen from here: "
               "millhead "
               "doctor -- COMMAND, or millhead.watch";
    default:
        return "see millhead doctor --help";
    }
}

/* What was seen comes before what follows from it. */
static void add_notes(mh_verdict *verdict, const mh_live *live)
{
    size_t count = 0;
    while (count < MH_VERDICT_LINES && mh_live_note(live, count))
        count++;
    size_t kept = verdict->evidence_count;
    if (kept > MH_VERDICT_LINES - count)
        kept = MH_VERDICT_LINES - count;
    memmove(verdict->evidence + count, verdict->evidence, kept * sizeof *verdict->evidence);
    for (size_t at = 0; at < count; at++)
        (void)snprintf(verdict->evidence[at], MH_VERDICT_LINE, "%s", mh_live_note(live, at));
    verdict->evidence_count = count + kept;
}

int mh_doctor_pid(int pid, bool json, double seconds)
{
    mh_progress progress;
    char name[16];
    mh_live *live = NULL;
    mh_verdict verdict;
    mh_error err;
    (void)snprintf(name, sizeof name, "%d", pid);
    mh_progress_begin(&progress, "looking at process", name);
    mh_status status = mh_live_look(&live, pid, seconds, show_progress, &progress, &err);
    mh_progress_end(&progress);
    mh_verdict_init(&verdict);
    if (status == MH_OK)
        status = mh_verdict_make(&verdict, mh_live_facts(live), &err);
    if (status == MH_OK) {
        mh_wait_stats waits = mh_live_waits(live);
        add_notes(&verdict, live);
        mh_doctor_print(&verdict, mh_live_facts(live), &waits, 0, 0, json);
    }
    mh_live_close(live);
    if (status != MH_OK)
        return mh_cli_fail(status == MH_ERR_INVALID ? MH_CLI_USAGE : MH_CLI_FAILED, "doctor",
                           remedy(status), "%s", err.message);
    return MH_CLI_OK;
}
