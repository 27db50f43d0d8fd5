/* verdict.c - what a run waited for, by name
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/diagnose.h>

#include "base/error.h"

#include <stdio.h>

const char *mh_cause_name(mh_cause cause)
{
    static const char *const names[] = {
#define NAME(code, slug) slug,
        MH_CAUSE_LIST(NAME)
#undef NAME
    };
    return (unsigned)cause < MH_CAUSE_COUNT ? names[cause] : names[MH_CAUSE_UNCLEAR];
}

mh_status mh_verdict_make(mh_verdict *out, const mh_facts *facts, mh_error *err)
{
    if (!out || !facts)
        return mh_fail(err, MH_ERR_INVALID, "a verdict needs facts and a place for its result");
    *out = (mh_verdict){
        .cause = MH_CAUSE_UNCLEAR,
        .predicted_gain = 1,
        .fix_settings = {-1, -1, -1, -1, -1, 1},
    };
    (void)snprintf(out->fix, sizeof out->fix, "measure the run with millhead.watch(loader)");
    return MH_OK;
}
