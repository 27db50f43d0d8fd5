/* op_pad.c - pad: rows and columns of one value around the picture
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/step.h"

#define PAD_MOST 4096

static const mh_argument arguments[] = {
    {MH_ARGUMENT_NUMBERS, 0, NULL, NULL, 1, 4, 0, PAD_MOST, true},
    {MH_ARGUMENT_NUMBERS, 1, "value", NULL, 1, 1, 0, 255, false},
    {.kind = MH_ARGUMENT_END},
};

static const char *check(const mh_step *step)
{
    return step->counts[0] == 3 ? "pad takes 1 number, 2 (left and right, top and bottom) or 4 "
                                  "(left, top, right, bottom)"
                                : NULL;
}

/* Side 0 left, 1 top, 2 right, 3 bottom: torchvision's order. */
static uint32_t amount(const mh_step *step, unsigned side)
{
    return (uint32_t)step->numbers[0][side % step->counts[0]];
}

static mh_size size_after(const mh_step *step, mh_size in)
{
    if (in.width == 0 || in.height == 0)
        return in;
    return (mh_size){in.width + amount(step, 0) + amount(step, 2),
                     in.height + amount(step, 1) + amount(step, 3)};
}

static mh_status plan(const mh_step *step, mh_scene *scene, const mh_drawer *drawer, mh_error *err)
{
    (void)drawer;
    (void)err;
    mh_scene_pad(scene, amount(step, 0), amount(step, 1), amount(step, 2), amount(step, 3),
                 (uint8_t)step->numbers[1][0]);
    return MH_OK;
}

const mh_op mh_op_pad = {
    .name = "pad",
    .usage = "N | X,Y | LEFT,TOP,RIGHT,BOTTOM [value=0]",
    .what = "rows and columns of one value around the picture",
    .place = MH_OP_PIXELS,
    .arguments = arguments,
    .check = check,
    .size = size_after,
    .plan = plan,
};
