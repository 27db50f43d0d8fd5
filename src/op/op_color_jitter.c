/* op_color_jitter.c - color_jitter: brightness, contrast, saturation and hue, in random order
 * SPDX-License-Identifier: Apache-2.0
 *
 * torchvision's ColorJitter: x stands for factors from 1 - x (at least 0) to 1 + x, two numbers for
 * the factors themselves; hue for shifts from -x to x of the circle of colours.
 */
#include "op/step.h"

#define HUE 3
#define KINDS 4
#define FIRST_FACTOR 4 /* draws 0 to 2 choose the order */

static const mh_argument arguments[] = {
    {MH_ARGUMENT_NUMBERS, 0, "brightness", NULL, 1, 2, 0, 100, false},
    {MH_ARGUMENT_NUMBERS, 1, "contrast", NULL, 1, 2, 0, 100, false},
    {MH_ARGUMENT_NUMBERS, 2, "saturation", NULL, 1, 2, 0, 100, false},
    {MH_ARGUMENT_NUMBERS, 3, "hue", NULL, 1, 2, -0.5, 0.5, false},
    {.kind = MH_ARGUMENT_END},
};

static const char *check(const mh_step *step)
{
    bool any = false;
    for (int kind = 0; kind < KINDS; kind++) {
        any = any || step->counts[kind];
        if (step->counts[kind] == 2 && step->numbers[kind][0] > step->numbers[kind][1])
            return "color_jitter needs the smaller number first";
    }
    if (step->counts[HUE] == 1 && step->numbers[HUE][0] < 0)
        return "one number for hue means both directions: write it without sign";
    return any ? NULL : "color_jitter needs brightness=, contrast=, saturation= or hue=";
}

/* Draws how much of a kind; a range that holds nothing but "no change" leaves it out. */
static void choose(mh_colours *colours, const mh_step *step, unsigned kind, const mh_drawer *drawer)
{
    double neutral = kind == HUE ? 0 : 1, low = neutral, high = neutral;
    if (step->counts[kind] == 1) {
        low -= step->numbers[kind][0];
        high += step->numbers[kind][0];
        if (kind != HUE && low < 0)
            low = 0;
    } else if (step->counts[kind] == 2) {
        low = step->numbers[kind][0];
        high = step->numbers[kind][1];
    }
    colours->used[kind] = low != neutral || high != neutral;
    colours->factors[kind] = mh_draw_between(drawer, FIRST_FACTOR + kind, low, high);
}

static mh_status plan(const mh_step *step, mh_scene *scene, const mh_drawer *drawer, mh_error *err)
{
    (void)err;
    mh_colours colours = {.any = true, .order = {0, 1, 2, 3}};
    for (uint32_t kind = 0; kind + 1 < KINDS; kind++) {
        uint64_t chosen = kind + mh_draw_below(drawer, kind, KINDS - kind);
        uint8_t kept = colours.order[kind];
        colours.order[kind] = colours.order[chosen];
        colours.order[chosen] = kept;
    }
    for (unsigned kind = 0; kind < KINDS; kind++)
        choose(&colours, step, kind, drawer);
    mh_scene_colour(scene, &colours);
    return MH_OK;
}

const mh_op mh_op_color_jitter = {
    .name = "color_jitter",
    .usage = "[brightness=X] [contrast=X] [saturation=X] [hue=X]",
    .what = "random changes of colour in random order; torchvision's parameters, Pillow's pixels",
    .place = MH_OP_PIXELS,
    .arguments = arguments,
    .check = check,
    .size = mh_step_same_size,
    .plan = plan,
};
