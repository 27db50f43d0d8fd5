/* dataset_batch.h - batches of a dataset: laid out as its fields are
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PIPELINE_DATASET_BATCH_H
#define MH_PIPELINE_DATASET_BATCH_H

#include "batch/batch.h"
#include "format/format.h"

/* What batches of the dataset consist of; good as long as the dataset. */
mh_layout mh_dataset_layout(const mh_dataset *dataset);

/* mh_batch_new, with a reference of the dataset that the batch keeps. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_dataset_batch_new(mh_batch **out, mh_dataset *dataset, uint64_t samples,
                                             mh_error *err);

#endif
