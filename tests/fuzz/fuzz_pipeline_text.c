/* fuzz_pipeline_text.c - fuzz target: what a pipeline text says is sound
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static void check_plan(const mh_image_plan *plan)
{
    mh_field field = {0};
    mh_picture picture = {.width = 500, .height = 375, .orientation = 8};
    int64_t shape[MH_DIMS_MOST];
    mh_error err = {0};
    mh_image_plan_field(plan, &field);
    require(field.dims == 2 || field.dims == 3);
    require(field.dtype.bits == 8 || field.dtype.bits == 16 || field.dtype.bits == 32);
    if (mh_image_plan_shape(plan, &picture, shape, &err) != MH_OK) {
        require(err.message[0] != '\0');
        return;
    }
    for (uint32_t i = 0; i < field.dims; i++)
        require(shape[i] >= 1 && (field.ragged || shape[i] == field.shape[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_image_pipeline *pipeline = NULL;
    mh_error err = {0};
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    mh_status status = mh_image_pipeline_parse(&pipeline, text, MH_IMAGE_EXACT, &err);
    free(text);
    if (status != MH_OK) {
        require(status == MH_ERR_INVALID && err.message[0] != '\0');
        return 0;
    }
    check_plan(mh_image_pipeline_plan(pipeline, "image"));
    for (size_t i = 0; mh_image_pipeline_field(pipeline, i); i++)
        check_plan(mh_image_pipeline_plan(pipeline, mh_image_pipeline_field(pipeline, i)));
    mh_image_pipeline_free(pipeline);
    return 0;
}
