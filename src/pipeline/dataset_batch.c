/* dataset_batch.c - batches of a dataset: laid out as its fields are
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/dataset_batch.h"

#include "base/error.h"

static void measure(const void *measured, size_t field, uint64_t sample, int64_t *shape)
{
    const mh_dataset *dataset = measured;
    dataset->format->measure(dataset, dataset->tags[field], sample, shape);
}

static void release(void *dataset)
{
    mh_dataset_unref(dataset);
}

mh_layout mh_dataset_layout(const mh_dataset *dataset)
{
    return (mh_layout){.fields = dataset->fields,
                       .field_count = dataset->field_count,
                       .measure = measure,
                       .measured = dataset};
}

mh_status mh_dataset_batch_new(mh_batch **out, mh_dataset *dataset, uint64_t samples, mh_error *err)
{
    const mh_layout layout = mh_dataset_layout(dataset);
    MH_TRY(mh_batch_new(out, &layout, samples, err));
    (*out)->owner = mh_dataset_ref(dataset);
    (*out)->release = release;
    return MH_OK;
}
