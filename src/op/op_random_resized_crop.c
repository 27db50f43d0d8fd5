/* op_random_resized_crop.c - random_resized_crop: a part of random area and shape, resized
 * SPDX-License-Identifier: Apache-2.0
 *
 * torchvision's RandomResizedCrop: ten attempts to draw an area and an aspect ratio that fit, then
 * the largest middle part whose ratio is allowed.
 */
#include "op/step.h"

#include <math.h>

#define ATTEMPTS 10
#define DRAWS 4 /* of an attempt: area, ratio, top, left */

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_SIZE, .required = true},
    {.kind = MH_ARGUMENT_WORD, .slot = 0, .choices = MH_FILTER_NAMES},
    {MH_ARGUMENT_NUMBERS, 0, "scale", NULL, 2, 2, 1e-6, 1, false},
    {MH_ARGUMENT_NUMBERS, 1, "ratio", NULL, 2, 2, 1e-3, 1e3, false},
    {.kind = MH_ARGUMENT_END},
};

static const char *check(const mh_step *step)
{
    for (int slot = 0; slot < 2; slot++)
        if (step->counts[slot] && step->numbers[slot][0] > step->numbers[slot][1])
            return "scale= and ratio= need the smaller number first";
    return NULL;
}

/* The part in the middle that is used where nothing that was drawn fits. */
static mh_box fallback(mh_size size, double low, double high)
{
    double ratio = (double)size.width / size.height;
    uint32_t width = size.width, height = size.height;
    if (ratio < low)
        height = (uint32_t)rint(width / low);
    else if (ratio > high)
        width = (uint32_t)rint(height * high);
    width = width < 1 ? 1 : width > size.width ? size.width : width;
    height = height < 1 ? 1 : height > size.height ? size.height : height;
    return (mh_box){(size.width - width) / 2, (size.height - height) / 2, width, height};
}

static mh_box choose(const mh_step *step, mh_size size, const mh_drawer *drawer)
{
    double least = step->counts[0] ? step->numbers[0][0] : 0.08;
    double most = step->counts[0] ? step->numbers[0][1] : 1;
    double low = step->counts[1] ? step->numbers[1][0] : 3.0 / 4;
    double high = step->counts[1] ? step->numbers[1][1] : 4.0 / 3;
    double area = (double)size.width * size.height, log_low = log(low), log_high = log(high);
    for (uint32_t draw = 0; draw < ATTEMPTS * DRAWS; draw += DRAWS) {
        double wanted = area * mh_draw_between(drawer, draw, least, most);
        double ratio = exp(mh_draw_between(drawer, draw + 1, log_low, log_high));
        double width = rint(sqrt(wanted * ratio)), height = rint(sqrt(wanted / ratio));
        if (width < 1 || height < 1 || width > size.width || height > size.height)
            continue;
        uint32_t columns = (uint32_t)width, rows = (uint32_t)height;
        uint64_t top = mh_draw_below(drawer, draw + 2, (uint64_t)size.height - rows + 1);
        uint64_t left = mh_draw_below(drawer, draw + 3, (uint64_t)size.width - columns + 1);
        return (mh_box){(uint32_t)left, (uint32_t)top, columns, rows};
    }
    return fallback(size, low, high);
}

static mh_status plan(const mh_step *step, mh_scene *scene, const mh_drawer *drawer, mh_error *err)
{
    (void)err;
    mh_scene_crop(scene, choose(step, scene->size, drawer));
    mh_scene_resize(scene, step->size, mh_step_filter(step, 0));
    return MH_OK;
}

const mh_op mh_op_random_resized_crop = {
    .name = "random_resized_crop",
    .usage = "N | HxW [FILTER] [scale=0.08,1] [ratio=3/4,4/3]",
    .what = "a part of random area (scale) and aspect ratio, resized; torchvision's distribution",
    .place = MH_OP_PIXELS,
    .arguments = arguments,
    .check = check,
    .size = mh_step_given_size,
    .plan = plan,
};
