/* op_center_crop.c - center_crop: the middle of a picture; a smaller one is padded with zeros
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/step.h"

#include <math.h>

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_SIZE, .required = true},
    {.kind = MH_ARGUMENT_END},
};

/* How much a side lacks; torchvision puts the odd pixel behind. */
static uint32_t lacking(uint32_t wanted, uint32_t there)
{
    return wanted > there ? wanted - there : 0;
}

/* Where the middle begins: half of what is left over, rounded to even as Python's round does. */
static uint32_t middle(uint32_t there, uint32_t wanted)
{
    return (uint32_t)rint((there - wanted) / 2.0);
}

static mh_status plan(const mh_step *step, mh_scene *scene, const mh_drawer *drawer, mh_error *err)
{
    (void)drawer;
    (void)err;
    mh_size wanted = step->size;
    uint32_t columns = lacking(wanted.width, scene->size.width);
    uint32_t rows = lacking(wanted.height, scene->size.height);
    mh_scene_pad(scene, columns / 2, rows / 2, (columns + 1) / 2, (rows + 1) / 2, 0);
    mh_scene_crop(scene,
                  (mh_box){middle(scene->size.width, wanted.width),
                           middle(scene->size.height, wanted.height), wanted.width, wanted.height});
    return MH_OK;
}

const mh_op mh_op_center_crop = {
    .name = "center_crop",
    .usage = "N | HxW",
    .what = "the middle; smaller pictures are padded with zeros",
    .place = MH_OP_PIXELS,
    .arguments = arguments,
    .size = mh_step_given_size,
    .plan = plan,
};
