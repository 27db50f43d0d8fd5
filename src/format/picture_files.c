/* picture_files.c - fields whose values are pictures in files
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/picture_files.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

#define HEAD_BYTES UINT64_C(4096)      /* most headers are in these */
#define HEAD_MOST (UINT64_C(64) << 20) /* behind more than that no header is looked for */

/* Twice as many bytes until the header is among them. */
mh_status mh_picture_file_look(const mh_dataset *dataset, const char *name, mh_picture *out,
                               uint8_t **buffer, uint64_t *room, mh_error *err)
{
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    mh_error ignored;
    *out = (mh_picture){0};
    for (uint64_t wanted = HEAD_BYTES; wanted <= HEAD_MOST; wanted *= 2) {
        if (*room < wanted) {
            uint8_t *grown = mh_realloc(*buffer, wanted, 1);
            if (!grown)
                return mh_fail(err, MH_ERR_NOMEM, "no memory for the header of %s", name);
            *buffer = grown;
            *room = wanted;
        }
        uint64_t got = 0;
        if (dataset->source->get(name, &options, wanted, *buffer, &got, &ignored) != MH_OK)
            return MH_OK;
        mh_picture found;
        mh_status status = mh_picture_describe(&found, *buffer, got, got < wanted, &ignored);
        if (status == MH_OK)
            *out = found;
        if (status != MH_AGAIN)
            return MH_OK;
    }
    return MH_OK;
}

void mh_picture_shape(const mh_image_plan *plan, const mh_picture *picture, uint32_t dims,
                      int64_t *shape)
{
    mh_error ignored;
    if (picture->height == 0 || mh_image_plan_shape(plan, picture, shape, &ignored) != MH_OK)
        memset(shape, 0, dims * sizeof *shape);
}

uint64_t mh_picture_bytes(const mh_field *field, const int64_t *shape)
{
    uint64_t bytes = field->dtype.bits / 8;
    for (uint32_t i = 0; i < field->dims; i++)
        bytes *= (uint64_t)shape[i];
    return bytes;
}

/* `bytes` is that of the largest value, which need not be as large as all largest lengths. */
void mh_picture_widen(mh_field *field, const int64_t *shape)
{
    uint64_t bytes = mh_picture_bytes(field, shape);
    for (uint32_t i = 0; i < field->dims; i++)
        if (shape[i] > field->shape[i])
            field->shape[i] = shape[i];
    if (bytes > field->bytes)
        field->bytes = bytes;
}
