/* fuzz_picture.c - fuzz target: pictures, their headers and decoders, through several pipelines
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a few bytes can claim to hold must not take seconds to decode. */
#define PIXELS_MOST (1 << 18)

static const char *const texts[] = {
    "decode",
    "decode exif | random_resized_crop 24 | flip",
    "decode mask | resize 9x11",
    "decode grey | resize 20x7 lanczos | normalize unit f16 | layout chw",
    "center_crop 30x20 | color_jitter brightness=0.3 hue=0.1 | pad 2",
};

static void require(int truth)
{
    if (!truth)
        abort();
}

static void run(const char *text, mh_image_profile profile, const mh_picture *picture,
                const uint8_t *data, size_t size)
{
    mh_image_pipeline *pipeline;
    mh_image_room *room;
    mh_image_draws draws;
    mh_error err = {0};
    int64_t shape[3] = {1, 1, 1};
    mh_field field = {0};
    require(mh_image_pipeline_parse(&pipeline, text, profile, &err) == MH_OK);
    require(mh_image_room_new(&room, &err) == MH_OK);
    const mh_image_plan *plan = mh_image_pipeline_plan(pipeline, "image");
    mh_image_plan_field(plan, &field);
    if (mh_image_plan_shape(plan, picture, shape, &err) == MH_OK) {
        uint64_t bytes = (uint64_t)(shape[0] * shape[1] * shape[2]) * field.dtype.bits / 8;
        uint8_t *into = malloc(bytes); /* exactly: a sanitizer sees one byte too far */
        require(into != NULL);
        mh_image_job job = {data, size, &draws, into, bytes};
        mh_image_draws_begin(&draws, size, 0, 0);
        for (int again = 0; again < 2; again++) /* a room stays usable after an error */
            if (mh_image_run(plan, room, &job, &err) != MH_OK)
                require(err.message[0] != '\0');
        free(into);
    }
    mh_image_room_free(room);
    mh_image_pipeline_free(pipeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_picture picture, again;
    mh_error err = {0};
    mh_status status = mh_picture_describe(&picture, data, size, 1, &err);
    if (status != MH_OK) {
        require((status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED) && err.message[0]);
        return 0;
    }
    require(mh_picture_describe(&again, data, size, 0, &err) == MH_OK);
    require(again.width == picture.width && again.orientation == picture.orientation);
    if ((uint64_t)picture.width * picture.height > PIXELS_MOST)
        return 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        run(texts[i], i % 2 ? MH_IMAGE_FAST : MH_IMAGE_EXACT, &picture, data, size);
    return 0;
}
