/* replay.c - a measured run played again under other settings
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/diagnose.h>

#include "base/error.h"

void mh_replay_options_init(mh_replay_options *options, const mh_facts *facts)
{
    *options = (mh_replay_options){
        .struct_size = sizeof *options,
        .workers = facts->workers > 0 ? facts->workers : 0,
        .prefetch = facts->prefetch > 0 ? facts->prefetch : 2, /* torch's default */
        .cpus = facts->cpus > 0 ? facts->cpus : 0,
        .in_order = facts->in_order != 0,
        .fetch_cpu = 1,
        .fetch_blocked = 1,
        .collate = 1,
        .transfer = 1,
        .step_main = 1,
        .startup = 1,
    };
}

mh_status mh_replay(mh_replay_result *out, const mh_facts *facts, const mh_replay_options *options,
                    mh_error *err)
{
    (void)out;
    (void)facts;
    (void)options;
    return mh_fail(err, MH_ERR_UNSUPPORTED, "not yet");
}
