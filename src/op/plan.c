/* plan.c - what a parsed pipeline says about a field and about one picture of it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/plan.h"

#include "base/error.h"
#include "base/nearest.h"
#include "codec/orientation.h"

#include <string.h>

const char *mh_image_pipeline_field(const mh_image_pipeline *pipeline, size_t at)
{
    return at < pipeline->plan_count ? pipeline->plans[at].name : NULL;
}

mh_status mh_image_pipeline_check(const mh_image_pipeline *pipeline, const char *const *names,
                                  size_t count, mh_error *err)
{
    for (size_t i = 0; i < pipeline->plan_count; i++) {
        const mh_image_plan *plan = &pipeline->plans[i];
        mh_nearest nearest = mh_nearest_to(plan->name, strlen(plan->name));
        char hint[100];
        size_t at = 0;
        while (at < count && strcmp(names[at], plan->name) != 0)
            mh_nearest_offer(&nearest, names[at++]);
        if (at < count)
            continue;
        return mh_fail(err, MH_ERR_INVALID,
                       "'%s' at character %zu of the pipeline is not a field of pictures here%s",
                       plan->name, plan->at + 1, mh_nearest_hint(&nearest, hint, sizeof hint));
    }
    return MH_OK;
}

const mh_image_plan *mh_image_pipeline_plan(const mh_image_pipeline *pipeline, const char *field)
{
    for (size_t i = 0; i < pipeline->plan_count; i++)
        if (strcmp(pipeline->plans[i].name, field) == 0)
            return &pipeline->plans[i];
    return &pipeline->other;
}

static uint32_t put_shape(const mh_image_plan *plan, int64_t height, int64_t width, int64_t *shape)
{
    const mh_finish *finish = &plan->finish;
    uint32_t dims = 0;
    if (!finish->is_mask && finish->planes)
        shape[dims++] = finish->channels;
    shape[dims++] = height;
    shape[dims++] = width;
    if (!finish->is_mask && !finish->planes)
        shape[dims++] = finish->channels;
    return dims;
}

void mh_image_plan_field(const mh_image_plan *plan, mh_field *out)
{
    out->dtype = plan->finish.dtype;
    out->ragged = plan->size.width == 0;
    int64_t height = out->ragged ? -1 : (int64_t)plan->size.height;
    int64_t width = out->ragged ? -1 : (int64_t)plan->size.width;
    out->dims = put_shape(plan, height, width, out->shape);
}

/* The picture's size as the first step sees it. */
static mh_size upright(const mh_image_plan *plan, const mh_picture *picture)
{
    if (plan->exif && mh_orientation_swaps(picture->orientation))
        return (mh_size){picture->height, picture->width};
    return (mh_size){picture->width, picture->height};
}

mh_status mh_image_plan_shape(const mh_image_plan *plan, const mh_picture *picture, int64_t *shape,
                              mh_error *err)
{
    mh_size size = upright(plan, picture);
    for (uint32_t i = 0; i < plan->count; i++) {
        const mh_step *step = plan->steps[i];
        if (step->op->place == MH_OP_PIXELS)
            size = step->op->size(step, size);
        if (size.width > MH_PICTURE_SIDE_MOST || size.height > MH_PICTURE_SIDE_MOST ||
            (uint64_t)size.width * size.height > MH_PICTURE_PIXELS_MOST)
            return mh_fail(err, MH_ERR_UNSUPPORTED,
                           "%s makes %ux%u pixels (width x height) of this picture, too many",
                           step->op->name, size.width, size.height);
    }
    (void)put_shape(plan, size.height, size.width, shape);
    return MH_OK;
}

uint64_t mh_image_plan_fingerprint(const mh_image_plan *plan)
{
    return plan->fingerprint;
}

void mh_image_draws_begin(mh_image_draws *draws, uint64_t seed, uint64_t epoch, uint64_t position)
{
    *draws = (mh_image_draws){.seed = seed, .epoch = epoch, .position = position};
}

/* Fields that share a step must be of one size there. */
static mh_status check_shared(const mh_image_plan *plan, const mh_step *step, mh_size size,
                              mh_image_draws *draws, mh_error *err)
{
    uint32_t *width = &draws->sizes[step->number].width;
    uint32_t *height = &draws->sizes[step->number].height;
    if (*width == 0) {
        *width = size.width;
        *height = size.height;
    }
    if (*width == size.width && *height == size.height)
        return MH_OK;
    return mh_fail(err, MH_ERR_CORRUPT,
                   "%s is %ux%u pixels (width x height) where %s is shared with a field of %ux%u",
                   plan->name, size.width, size.height, step->op->name, *width, *height);
}

mh_status mh_plan_scene(const mh_image_plan *plan, mh_size size, mh_image_draws *draws,
                        mh_scene *scene, mh_error *err)
{
    mh_scene_begin(scene, size, plan->decode == MH_DECODE_MASK);
    for (uint32_t i = 0; i < plan->count; i++) {
        const mh_step *step = plan->steps[i];
        if (step->op->place != MH_OP_PIXELS)
            continue;
        if (step->shared)
            MH_TRY(check_shared(plan, step, scene->size, draws, err));
        mh_drawer drawer = mh_drawer_of(draws->seed, draws->epoch, draws->position, step->drawer);
        MH_TRY(step->op->plan(step, scene, &drawer, err));
    }
    return MH_OK;
}
