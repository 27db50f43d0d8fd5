/* scene.c - what becomes of a picture: crops, a resize and flips gathered into as few passes as
 * give the same pixels
 * SPDX-License-Identifier: Apache-2.0
 *
 * A stage takes up a step as long as the step can be put into its fixed order. A resize behind a
 * flip cannot: a filter rounds left and right differently, so the flipped picture must exist first.
 */
#include "op/step.h"

#include <string.h>

static mh_stage *last(mh_scene *scene)
{
    return &scene->stages[scene->count - 1];
}

static mh_stage *stage_add(mh_scene *scene)
{
    mh_stage *stage = &scene->stages[scene->count++];
    mh_box all = {0, 0, scene->size.width, scene->size.height};
    *stage = (mh_stage){.crop = all, .window = all, .resized = scene->size};
    return stage;
}

static bool is_padded(const mh_stage *stage)
{
    return stage->left || stage->top || stage->right || stage->bottom;
}

static bool is_resized(const mh_stage *stage)
{
    return stage->resized.width != stage->crop.width || stage->resized.height != stage->crop.height;
}

void mh_scene_begin(mh_scene *scene, mh_size size, bool is_mask)
{
    scene->size = size;
    scene->count = 0;
    scene->is_mask = is_mask;
    (void)stage_add(scene);
}

void mh_scene_crop(mh_scene *scene, mh_box box)
{
    mh_stage *stage = last(scene);
    if (is_padded(stage) || stage->colours.any)
        stage = stage_add(scene);
    mh_box *window = &stage->window;
    window->x += stage->flip_x ? window->width - box.x - box.width : box.x;
    window->y += stage->flip_y ? window->height - box.y - box.height : box.y;
    window->width = box.width;
    window->height = box.height;
    if (!is_resized(stage)) { /* then the window is a part of what is cut out */
        stage->crop.x += window->x;
        stage->crop.y += window->y;
        stage->crop.width = stage->resized.width = box.width;
        stage->crop.height = stage->resized.height = box.height;
        window->x = window->y = 0;
    }
    scene->size = (mh_size){box.width, box.height};
}

void mh_scene_resize(mh_scene *scene, mh_size size, mh_filter filter)
{
    mh_stage *stage = last(scene);
    if (size.width == scene->size.width && size.height == scene->size.height)
        return;
    if (is_padded(stage) || stage->colours.any || is_resized(stage) || stage->flip_x ||
        stage->flip_y)
        stage = stage_add(scene);
    stage->resized = size;
    stage->filter = scene->is_mask ? MH_FILTER_NEAREST : filter;
    stage->window = (mh_box){0, 0, size.width, size.height};
    scene->size = size;
}

void mh_scene_flip(mh_scene *scene, bool x, bool y)
{
    mh_stage *stage = last(scene);
    if (is_padded(stage) || stage->colours.any)
        stage = stage_add(scene);
    stage->flip_x ^= x;
    stage->flip_y ^= y;
}

void mh_scene_pad(mh_scene *scene, uint32_t left, uint32_t top, uint32_t right, uint32_t bottom,
                  uint8_t fill)
{
    mh_stage *stage = last(scene);
    if (!left && !top && !right && !bottom)
        return;
    if (is_padded(stage) || stage->colours.any)
        stage = stage_add(scene);
    stage->left = left;
    stage->top = top;
    stage->right = right;
    stage->bottom = bottom;
    stage->fill = fill;
    scene->size.width += left + right;
    scene->size.height += top + bottom;
}

void mh_scene_colour(mh_scene *scene, const mh_colours *colours)
{
    mh_stage *stage = last(scene);
    if (stage->colours.any)
        stage = stage_add(scene);
    stage->colours = *colours;
}
