/* batch.h - a batch of the native pipeline: memory of a slot, described field by field
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PIPELINE_BATCH_H
#define MH_PIPELINE_BATCH_H

#include "batch/slots.h"
#include <millhead/loader.h>
#include <stdatomic.h>
#include <stdbool.h>

struct mh_batch {
    _Atomic uint32_t refs;
    mh_dataset *dataset; /* its reference keeps the names of the fields */
    mh_slot *slot;       /* FILLING until it is delivered; NULL: `own` */
    uint8_t *own;        /* a copy that the pool does not know */
    bool delivered;
    uint64_t samples;
    uint64_t position;
    uint64_t *numbers;
    size_t array_count;
    mh_array arrays[];
};

/* Bytes that a batch of that many samples takes in a slot, fields at multiples of MH_LEAF_ALIGN.
 * MH_ERR_INVALID where that is too large. */
MH_MUST_CHECK mh_status mh_batch_bytes(uint64_t *out, const mh_dataset *dataset, uint64_t samples,
                                       mh_error *err);

/* A batch over a slot that it takes over, with one reference. On failure the slot stays the
 * caller's. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_batch_new(mh_batch **out, mh_dataset *dataset, mh_slot *slot,
                                     uint64_t samples, mh_error *err);

/* A batch in memory of its own, zeroed, with one reference. MH_ERR_NOMEM, MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_batch_new_own(mh_batch **out, mh_dataset *dataset, uint64_t samples,
                                         mh_error *err);

/* Moves the bytes to memory of their own and frees the slot; nothing changes where there is none.
 */
MH_MUST_CHECK mh_status mh_batch_copy_out(mh_batch *batch, mh_error *err);

/* The batch becomes its consumer's: its slot is HELD from now on. */
void mh_batch_deliver(mh_batch *batch);

#endif
