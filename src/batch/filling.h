/* filling.h - a batch whose arrays become known one by one, as Python's collate functions make them
 * SPDX-License-Identifier: Apache-2.0
 *
 * In any process that has the slot's memory; one thread at a time.
 */
#ifndef MH_BATCH_FILLING_H
#define MH_BATCH_FILLING_H

#include "batch/dlpack.h"
#include "batch/leaf.h"

/* Leaves that are put into a slot, one behind the other. */
typedef struct mh_filling {
    uint8_t *slot; /* NULL: nothing is put there, only measured */
    uint64_t slot_bytes;
    uint64_t end;    /* of what is there */
    mh_leaf *leaves; /* room for MH_LEAVES_MAX; NULL without a slot */
    uint32_t leaf_count;
    /* Where what is put in is only a run of the batch's samples: it is rows first ... of `rows`. 0:
     * it is the whole batch. */
    uint32_t first;
    uint32_t rows;
} mh_filling;

/* Makes a place for the next leaf, of whose samples `leaf` describes those that are there, and
 * fills in its offset (of all samples) and bytes. *out_data: where they are to be put. MH_ERR_NOMEM
 * when it does not fit, MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_filling_next(mh_filling *filling, mh_leaf *leaf, uint8_t **out_data,
                                        mh_error *err);

/* A whole tensor, which lies row by row in this process's memory, becomes the next leaf. False: it
 * does not fit, or no leaf can be like that. */
bool mh_filling_tensor(mh_filling *filling, const mh_dl_tensor *tensor);

/* The leaf a tensor would be, its place apart. The tensor has at most MH_LEAF_DIMS dimensions. */
mh_leaf mh_leaf_of_tensor(const mh_dl_tensor *tensor);

#endif
