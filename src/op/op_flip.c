/* op_flip.c - flip: left and right, or top and bottom, change places now and then
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/step.h"

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_WORD, .slot = 0, .choices = "horizontal vertical"},
    {MH_ARGUMENT_NUMBERS, 0, "p", NULL, 1, 1, 0, 1, false},
    {.kind = MH_ARGUMENT_END},
};

static mh_status plan(const mh_step *step, mh_scene *scene, const mh_drawer *drawer, mh_error *err)
{
    (void)err;
    double probability = step->counts[0] ? step->numbers[0][0] : 0.5;
    bool vertical = step->words[0] == 2;
    if (mh_draw_unit(drawer, 0) < probability)
        mh_scene_flip(scene, !vertical, vertical);
    return MH_OK;
}

const mh_op mh_op_flip = {
    .name = "flip",
    .usage = "[horizontal | vertical] [p=0.5]",
    .what = "mirrors with probability p",
    .place = MH_OP_PIXELS,
    .arguments = arguments,
    .size = mh_step_same_size,
    .plan = plan,
};
