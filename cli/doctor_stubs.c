/* doctor_stubs.c - parts of `millhead doctor` that are not built yet
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doctor.h"

int mh_doctor_pid(int pid, bool json, double seconds)
{
    (void)json;
    (void)seconds;
    return mh_cli_fail(MH_CLI_USAGE, "doctor", "give a run or a log",
                       "looking at process %d is not built yet", pid);
}

int mh_doctor_checklist(bool json)
{
    (void)json;
    return mh_cli_fail(MH_CLI_USAGE, "doctor", "give a run or a log",
                       "the checklist is not built yet");
}
