/* op_normalize.c - normalize: (value / 255 - mean) / std, as torchvision's in float32
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "op/finish.h"

enum { PRESET_IMAGENET = 1, PRESET_UNIT };

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_WORD, .slot = 0, .choices = "imagenet unit"},
    {.kind = MH_ARGUMENT_WORD, .slot = 1, .choices = "f16 bf16 f32"},
    {MH_ARGUMENT_NUMBERS, 0, "mean", NULL, 1, 3, -1e6, 1e6, false},
    {MH_ARGUMENT_NUMBERS, 1, "std", NULL, 1, 3, 1e-6, 1e6, false},
    {.kind = MH_ARGUMENT_END},
};

static const char *check(const mh_step *step)
{
    bool given = step->counts[0] || step->counts[1];
    if (step->words[0] && given)
        return "normalize takes imagenet or unit, or mean= and std=, not both";
    if (!step->words[0] && !(step->counts[0] && step->counts[1]))
        return "normalize needs imagenet, unit, or mean= and std=";
    return NULL;
}

static float number(const mh_step *step, unsigned slot, uint32_t channel)
{
    static const double imagenet[2][3] = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
    if (step->words[0] == PRESET_IMAGENET)
        return (float)imagenet[slot][channel];
    if (step->words[0] == PRESET_UNIT)
        return (float)slot; /* mean 0, std 1 */
    return (float)step->numbers[slot][step->counts[slot] == 1 ? 0 : channel];
}

static bool fits(const mh_step *step, unsigned slot, uint32_t channels)
{
    return step->counts[slot] <= 1 || step->counts[slot] == channels;
}

static mh_status finish_values(const mh_step *step, mh_finish *finish, mh_error *err)
{
    if (finish->is_mask)
        return mh_fail(err, MH_ERR_INVALID, "a mask holds labels, which cannot be normalized");
    if (!fits(step, 0, finish->channels) || !fits(step, 1, finish->channels) ||
        (step->words[0] == PRESET_IMAGENET && finish->channels != 3))
        return mh_fail(err, MH_ERR_INVALID,
                       "the picture has %u channel%s, and mean and std another number",
                       finish->channels, finish->channels == 1 ? "" : "s");
    if (finish->dtype.code != 1)
        return mh_fail(err, MH_ERR_INVALID, "values are normalized once, before any cast");
    for (uint32_t channel = 0; channel < finish->channels; channel++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            float *value = &finish->values[channel][byte];
            *value = *value / 255.0F;
            *value = *value - number(step, 0, channel);
            *value = *value / number(step, 1, channel);
        }
    finish->as_bytes = false;
    mh_finish_cast(finish, mh_finish_dtypes[step->words[1] ? step->words[1] : 3]);
    return MH_OK;
}

const mh_op mh_op_normalize = {
    .name = "normalize",
    .usage = "imagenet | unit | mean=R,G,B std=R,G,B [f16 | bf16 | f32]",
    .what = "(value / 255 - mean) / std; unit: value / 255",
    .place = MH_OP_VALUES,
    .arguments = arguments,
    .check = check,
    .finish = finish_values,
};
