/* filling.c - a batch whose arrays become known one by one, as Python's collate functions make them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/filling.h"

#include "base/error.h"

#include <string.h>

mh_status mh_filling_next(mh_filling *filling, mh_leaf *leaf, uint8_t **out_data, mh_error *err)
{
    mh_leaf whole = *leaf;
    uint64_t row_bytes = 0;
    if (filling->leaf_count == MH_LEAVES_MAX)
        return mh_fail(err, MH_ERR_NOMEM, "a batch of more than %d leaves", MH_LEAVES_MAX);
    if (filling->rows)
        whole.shape[0] = filling->rows;
    MH_TRY(mh_leaf_place(&whole, &filling->end, filling->slot_bytes, err));
    if (filling->leaves)
        filling->leaves[filling->leaf_count] = whole;
    filling->leaf_count++;
    leaf->offset = whole.offset;
    leaf->bytes = whole.bytes;
    if (filling->rows) {
        row_bytes = whole.bytes / filling->rows;
        leaf->bytes = row_bytes * (uint64_t)leaf->shape[0];
    }
    *out_data = filling->slot ? filling->slot + whole.offset + row_bytes * filling->first : NULL;
    return MH_OK;
}

mh_leaf mh_leaf_of_tensor(const mh_dl_tensor *tensor)
{
    mh_leaf leaf = {.type_code = tensor->type_code,
                    .type_bits = tensor->type_bits,
                    .dims = (uint16_t)tensor->ndim};
    memcpy(leaf.shape, tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
    return leaf;
}

bool mh_filling_tensor(mh_filling *filling, const mh_dl_tensor *tensor)
{
    mh_error err;
    uint8_t *to = NULL;
    mh_leaf leaf = mh_leaf_of_tensor(tensor);
    if (mh_filling_next(filling, &leaf, &to, &err) != MH_OK ||
        mh_leaf_check(&leaf, filling->slot_bytes, &err) != MH_OK)
        return false;
    if (to && leaf.bytes)
        memcpy(to, mh_dl_data(tensor), (size_t)leaf.bytes);
    return true;
}
