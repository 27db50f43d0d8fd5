/* op_resize.c - resize: to a size, or the shorter side to a length
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/step.h"

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_SIZE, .required = true},
    {.kind = MH_ARGUMENT_WORD, .slot = 0, .choices = MH_FILTER_NAMES},
    {.kind = MH_ARGUMENT_END},
};

/* The longer side of a picture whose shorter one becomes `to`, rounded down as torchvision does. */
static uint32_t longer_side(uint32_t to, uint32_t longer, uint32_t shorter)
{
    uint64_t length = (uint64_t)to * longer / shorter;
    return length < UINT32_MAX ? (uint32_t)length : UINT32_MAX;
}

static mh_size size_after(const mh_step *step, mh_size in)
{
    uint32_t side = step->size.width;
    if (!step->one_side)
        return step->size;
    if (in.width == 0 || in.height == 0)
        return in;
    return in.width <= in.height ? (mh_size){side, longer_side(side, in.height, in.width)}
                                 : (mh_size){longer_side(side, in.width, in.height), side};
}

static mh_status plan(const mh_step *step, mh_scene *scene, const mh_drawer *drawer, mh_error *err)
{
    (void)drawer;
    (void)err;
    mh_scene_resize(scene, size_after(step, scene->size), mh_step_filter(step, 0));
    return MH_OK;
}

const mh_op mh_op_resize = {
    .name = "resize",
    .usage = "N | HxW [bilinear | bicubic | lanczos | box | hamming | nearest]",
    .what = "to H rows and W columns, or the shorter side to N; antialiased as Pillow's",
    .place = MH_OP_PIXELS,
    .arguments = arguments,
    .size = size_after,
    .plan = plan,
};
