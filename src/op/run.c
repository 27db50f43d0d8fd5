/* run.c - one sample: from encoded bytes through the stages of its scene to its place
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/orientation.h"
#include "op/colours.h"
#include "op/plan.h"
#include "op/stage.h"

#include <string.h>

/* Memory between stages number `at` and at + 1. */
static mh_status picture_get(mh_image_room *room, uint32_t at, mh_size size, uint32_t channels,
                             mh_pixmap *out, mh_error *err)
{
    uint64_t bytes = (uint64_t)size.width * size.height * channels + MH_ROW_SLACK;
    *out = (mh_pixmap){mh_scratch_get(&room->pictures[at % 2], bytes, err), size};
    return out->pixels ? MH_OK : MH_ERR_NOMEM;
}

/* --- turning upright --- */

/* The part of the stored picture that becomes this part of the upright one. */
static mh_box stored_box(const mh_picture *picture, mh_box box)
{
    uint8_t o = picture->orientation;
    mh_box out = mh_orientation_swaps(o) ? (mh_box){box.y, box.x, box.height, box.width} : box;
    if (o == 2 || o == 3 || o == 7 || o == 8)
        out.x = picture->width - out.x - out.width;
    if (o == 3 || o == 4 || o == 6 || o == 7)
        out.y = picture->height - out.y - out.height;
    return out;
}

static void turn(const mh_pixmap *from, const mh_pixmap *to, uint8_t orientation, uint32_t channels)
{
    uint8_t o = orientation;
    bool swap = mh_orientation_swaps(o);
    bool mirror_x = o == 2 || o == 3 || o == 7 || o == 8;
    bool mirror_y = o == 3 || o == 4 || o == 6 || o == 7;
    uint8_t *out = to->pixels;
    for (uint32_t y = 0; y < to->size.height; y++)
        for (uint32_t x = 0; x < to->size.width; x++, out += channels) {
            uint32_t at_x = swap ? y : x, at_y = swap ? x : y;
            at_x = mirror_x ? from->size.width - 1 - at_x : at_x;
            at_y = mirror_y ? from->size.height - 1 - at_y : at_y;
            uint64_t pixel = (uint64_t)at_y * from->size.width + at_x;
            memcpy(out, from->pixels + pixel * channels, channels);
        }
}

/* Decodes what the first stage cuts out, turns it upright, and makes it the stage's input. */
static mh_status decode_upright(mh_image_room *room, mh_stage *first, mh_intake *intake,
                                uint32_t channels, mh_error *err)
{
    mh_box box = stored_box(&intake->picture, first->crop);
    mh_size size = {box.width, box.height};
    mh_stage cut = {.crop = box, .resized = size, .window = {0, 0, box.width, box.height}};
    mh_pixmap stored, upright;
    MH_TRY(picture_get(room, 0, size, channels, &stored, err));
    mh_outlet outlet = {stored.pixels, (uint64_t)size.width * channels, NULL, size};
    MH_TRY(mh_stage_run(&cut, room, intake, channels, &outlet, err));
    MH_TRY(picture_get(room, 1, (mh_size){first->crop.width, first->crop.height}, channels,
                       &upright, err));
    turn(&stored, &upright, intake->picture.orientation, channels);
    *intake = (mh_intake){.map = upright, .shrink = 1, .decode = intake->decode};
    first->crop.x = first->crop.y = 0;
    return MH_OK;
}

/* --- stages --- */

/* How much smaller a JPEG may be decoded: still half as large again as what it is resized to. The
 * closer the two are, the more what libjpeg leaves out shows: at 1.5 the result is 41 dB or more
 * from the exact one, at 1.25 38 dB, at 1 as little as 32 dB (photographs with much noise). */
static uint32_t shrink_for(const mh_image_plan *plan, const mh_stage *stage,
                           const mh_picture *picture)
{
    if (plan->profile != MH_IMAGE_FAST || picture->kind != MH_PICTURE_JPEG ||
        stage->filter == MH_FILTER_NEAREST)
        return 1;
    for (uint32_t shrink = 8; shrink > 1; shrink /= 2)
        if (2 * (uint64_t)stage->crop.width >= 3 * (uint64_t)shrink * stage->resized.width &&
            2 * (uint64_t)stage->crop.height >= 3 * (uint64_t)shrink * stage->resized.height)
            return shrink;
    return 1;
}

static bool ends_in_memory(const mh_stage *stage)
{
    return stage->left || stage->top || stage->right || stage->bottom || stage->colours.any;
}

/* A stage whose result the next one reads. */
static mh_status run_between(mh_image_room *room, uint32_t at, mh_intake *intake, uint32_t channels,
                             mh_error *err)
{
    const mh_stage *stage = &room->scene.stages[at];
    mh_size inner = {stage->window.width, stage->window.height};
    mh_size size = {inner.width + stage->left + stage->right,
                    inner.height + stage->top + stage->bottom};
    mh_pixmap made;
    MH_TRY(picture_get(room, at, size, channels, &made, err));
    uint64_t stride = (uint64_t)size.width * channels;
    if (size.width != inner.width || size.height != inner.height)
        memset(made.pixels, stage->fill, stride * size.height);
    uint8_t *corner = made.pixels + stage->top * stride + (uint64_t)stage->left * channels;
    mh_outlet outlet = {corner, stride, NULL, inner};
    MH_TRY(mh_stage_run(stage, room, intake, channels, &outlet, err));
    if (stage->colours.any)
        mh_colours_change(&stage->colours, made.pixels, (uint64_t)size.width * size.height);
    *intake = (mh_intake){.map = made, .shrink = 1, .decode = intake->decode};
    return MH_OK;
}

/* Everything into the sample's place. */
static mh_status run_stages(const mh_image_plan *plan, mh_image_room *room, mh_intake *intake,
                            uint8_t *into, mh_error *err)
{
    mh_scene *scene = &room->scene;
    const mh_finish *finish = &plan->finish;
    uint32_t channels = finish->channels;
    uint32_t between = scene->count - (ends_in_memory(&scene->stages[scene->count - 1]) ? 0 : 1);
    for (uint32_t at = 0; at < between; at++)
        MH_TRY(run_between(room, at, intake, channels, err));
    mh_stage rest = {.crop = {0, 0, scene->size.width, scene->size.height},
                     .resized = scene->size,
                     .window = {0, 0, scene->size.width, scene->size.height}};
    const mh_stage *last = between < scene->count ? &scene->stages[between] : &rest;
    bool plain = finish->as_bytes && (!finish->planes || channels == 1);
    mh_outlet outlet = {into, (uint64_t)scene->size.width * channels, plain ? NULL : finish,
                        scene->size};
    return mh_stage_run(last, room, intake, channels, &outlet, err);
}

/* --- samples --- */

static mh_status check_place(const mh_image_plan *plan, const mh_picture *picture,
                             const mh_image_job *job, mh_error *err)
{
    int64_t shape[3] = {1, 1, 1};
    MH_TRY(mh_image_plan_shape(plan, picture, shape, err));
    uint64_t bytes = plan->finish.dtype.bits / 8;
    for (int i = 0; i < 3; i++)
        bytes *= (uint64_t)shape[i];
    if (bytes == job->into_bytes)
        return MH_OK;
    return mh_fail(err, MH_ERR_CORRUPT,
                   "the picture of %ux%u pixels takes %llu bytes where %llu were expected: the "
                   "file has changed",
                   picture->width, picture->height, (unsigned long long)bytes,
                   (unsigned long long)job->into_bytes);
}

mh_status mh_image_run(const mh_image_plan *plan, mh_image_room *room, const mh_image_job *job,
                       mh_error *err)
{
    mh_intake intake = {.bytes = job->bytes, .size = job->size, .decode = plan->decode};
    mh_picture *picture = &intake.picture;
    MH_TRY(mh_picture_describe(picture, job->bytes, job->size, 1, err));
    MH_TRY(check_place(plan, picture, job, err));
    bool turned = plan->exif && picture->orientation > 1;
    bool swapped = turned && mh_orientation_swaps(picture->orientation);
    mh_size size = swapped ? (mh_size){picture->height, picture->width}
                           : (mh_size){picture->width, picture->height};
    MH_TRY(mh_plan_scene(plan, size, job->draws, &room->scene, err));
    intake.shrink = turned ? 1 : shrink_for(plan, &room->scene.stages[0], picture);
    if (turned)
        MH_TRY(decode_upright(room, &room->scene.stages[0], &intake, plan->finish.channels, err));
    return run_stages(plan, room, &intake, job->into, err);
}
