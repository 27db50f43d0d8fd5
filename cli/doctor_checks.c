/* doctor_checks.c - millhead doctor --checklist: what around a training process slows or ends it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli.h"
#include "doctor.h"

#include <stdio.h>

static const char *const states[] = {"pass", "warn", "fail"};

static void print_json(const mh_check *checks, size_t count)
{
    (void)printf("[");
    for (size_t at = 0; at < count; at++) {
        (void)printf("%s{\"item\": \"%s\", \"state\": \"%s\", \"found\": ", at ? ", " : "",
                     checks[at].item, states[checks[at].state]);
        mh_cli_print_quoted(checks[at].found);
        (void)printf(", \"todo\": ");
        mh_cli_print_quoted(checks[at].todo);
        (void)printf("}");
    }
    (void)printf("]\n");
}

static void print_table(const mh_check *checks, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        (void)printf("%-4s  %-19s  %s\n", states[checks[at].state], checks[at].item,
                     checks[at].found);
        if (*checks[at].todo)
            (void)printf("%27s%s\n", "-> ", checks[at].todo);
    }
}

int mh_doctor_checklist(bool json)
{
    mh_check checks[MH_CHECKS_MOST];
    size_t count = mh_checks_run(checks);
    if (count == 0)
        return mh_cli_fail(MH_CLI_FAILED, "doctor", "free some memory", "out of memory");
    if (json)
        print_json(checks, count);
    else
        print_table(checks, count);
    for (size_t at = 0; at < count; at++)
        if (checks[at].state == MH_CHECK_FAIL)
            return MH_CLI_FAILED;
    return MH_CLI_OK;
}
