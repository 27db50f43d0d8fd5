/* read.c - samples of a dataset by number, without a loader
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "format/format.h"
#include "pipeline/batch.h"

#include <string.h>

static mh_status check_numbers(const mh_dataset *dataset, const uint64_t *numbers, size_t count,
                               mh_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] >= dataset->count)
            return mh_fail(err, MH_ERR_INVALID, "no sample has the number %llu: there are %llu",
                           (unsigned long long)numbers[i], (unsigned long long)dataset->count);
    return MH_OK;
}

static mh_status read_field(mh_source *source, const mh_batch *batch, size_t field, mh_error *err)
{
    const uint64_t bytes = batch->dataset->fields[field].bytes;
    uint8_t *place = batch->arrays[field].data;
    for (uint64_t i = 0; bytes && i < batch->samples; i++, place += bytes) {
        const mh_piece piece = mh_dataset_piece(batch->dataset, field, batch->numbers[i]);
        const mh_read read = {
            .object = piece.object, .offset = piece.offset, .size = bytes, .into = place};
        mh_status status = mh_source_read(source, &read, err);
        if (status != MH_OK) {
            mh_error_prefix(err, "sample %llu", (unsigned long long)batch->numbers[i]);
            return status;
        }
    }
    return MH_OK;
}

mh_status mh_dataset_read(mh_dataset *dataset, const uint64_t *numbers, size_t count,
                          mh_batch **out, mh_error *err)
{
    mh_error own;
    mh_source *source = NULL;
    mh_batch *batch = NULL;
    if (!err)
        err = &own;
    MH_TRY(check_numbers(dataset, numbers, count, err));
    MH_TRY(mh_dataset_source(dataset, &source, err));
    MH_TRY(mh_batch_new_own(&batch, dataset, count, err));
    if (count)
        memcpy(batch->numbers, numbers, count * sizeof *numbers);
    mh_status status = MH_OK;
    for (size_t field = 0; field < batch->array_count && status == MH_OK; field++)
        status = read_field(source, batch, field, err);
    if (status != MH_OK) {
        mh_batch_unref(batch);
        return status;
    }
    mh_batch_deliver(batch);
    *out = batch;
    return MH_OK;
}
