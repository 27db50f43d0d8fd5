/* op_random_crop.c - random_crop: a part of fixed size at a random place
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "op/step.h"

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_SIZE, .required = true},
    {MH_ARGUMENT_NUMBERS, 0, "pad", NULL, 1, 1, 0, 4096, false},
    {.kind = MH_ARGUMENT_END},
};

static mh_status plan(const mh_step *step, mh_scene *scene, const mh_drawer *drawer, mh_error *err)
{
    mh_size wanted = step->size;
    uint32_t pad = (uint32_t)step->numbers[0][0];
    mh_scene_pad(scene, pad, pad, pad, pad, 0);
    mh_size there = scene->size;
    if (there.width < wanted.width || there.height < wanted.height)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "the picture is %ux%u (height x width), smaller than random_crop %ux%u: "
                       "resize or pad it before",
                       there.height, there.width, wanted.height, wanted.width);
    uint64_t top = mh_draw_below(drawer, 0, (uint64_t)there.height - wanted.height + 1);
    uint64_t left = mh_draw_below(drawer, 1, (uint64_t)there.width - wanted.width + 1);
    mh_scene_crop(scene, (mh_box){(uint32_t)left, (uint32_t)top, wanted.width, wanted.height});
    return MH_OK;
}

const mh_op mh_op_random_crop = {
    .name = "random_crop",
    .usage = "N | HxW [pad=N]",
    .what = "a part of fixed size at a random place, after padding with pad zeros",
    .place = MH_OP_PIXELS,
    .arguments = arguments,
    .size = mh_step_given_size,
    .plan = plan,
};
