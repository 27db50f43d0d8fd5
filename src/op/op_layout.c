/* op_layout.c - layout: channels last (as decoded) or first
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "op/finish.h"

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_WORD, .slot = 0, .choices = "hwc chw", .required = true},
    {.kind = MH_ARGUMENT_END},
};

static mh_status finish_values(const mh_step *step, mh_finish *finish, mh_error *err)
{
    if (finish->is_mask)
        return mh_fail(err, MH_ERR_INVALID, "a mask has no channels to lay out");
    finish->planes = step->words[0] == 2;
    return MH_OK;
}

const mh_op mh_op_layout = {
    .name = "layout",
    .usage = "hwc | chw",
    .what = "channels last, as decoded, or first, as torch has them",
    .place = MH_OP_VALUES,
    .arguments = arguments,
    .finish = finish_values,
};
