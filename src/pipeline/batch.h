/* batch.h - a batch of the native pipeline: memory of a slot, described field by field
 * SPDX-License-Identifier: Apache-2.0
 *
 * planned (numbers only) --seat--> memory, samples placed --finish--> dense --deliver--> the loop's
 *
 * A sample's place depends on its number in the batch alone, so threads place in any order: ragged
 * fields have room for the largest sample each. Finishing moves the values together.
 */
#ifndef MH_PIPELINE_BATCH_H
#define MH_PIPELINE_BATCH_H

#include "batch/slots.h"
#include "pipeline/residency.h"
#include <millhead/loader.h>
#include <stdatomic.h>
#include <stdbool.h>

struct mh_batch {
    _Atomic uint32_t refs;
    mh_dataset *dataset; /* its reference keeps the names of the fields */
    mh_slot *slot;       /* FILLING until it is delivered; NULL: `own`, or not seated */
    uint8_t *own;        /* memory that the pool does not know */
    bool delivered;
    uint64_t planned; /* samples that it has room for */
    uint64_t samples; /* fewer where some were skipped */
    uint64_t epoch;
    uint64_t *numbers, *positions;
    size_t array_count;
    mh_array arrays[];
};

/* Bytes that a batch of that many samples takes in a slot, fields at multiples of MH_LEAF_ALIGN.
 * MH_ERR_INVALID where that is too large. */
MH_MUST_CHECK mh_status mh_batch_bytes(uint64_t *out, const mh_dataset *dataset, uint64_t samples,
                                       mh_error *err);

/* A batch without memory, with one reference. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_batch_new(mh_batch **out, mh_dataset *dataset, uint64_t samples,
                                     mh_error *err);

/* Gives it a slot, which becomes the batch's. */
void mh_batch_seat(mh_batch *batch, mh_slot *slot);

/* Gives it memory of its own, zeroed. MH_ERR_NOMEM, MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_batch_seat_own(mh_batch *batch, mh_error *err);

/* Where field number `field` of its sample `i` is to be placed. */
static inline uint8_t *mh_batch_place(const mh_batch *batch, size_t field, uint64_t i)
{
    return (uint8_t *)batch->arrays[field].data + i * batch->dataset->fields[field].bytes;
}

/* All samples are placed: leaves out those that samples[i].skipped says (NULL: none), and makes
 * ragged fields dense. */
void mh_batch_finish(mh_batch *batch, const mh_sample *samples);

/* Moves the bytes to memory of their own and frees the slot; nothing changes where there is none.
 */
MH_MUST_CHECK mh_status mh_batch_copy_out(mh_batch *batch, mh_error *err);

/* The batch becomes its consumer's: its slot is HELD from now on. */
void mh_batch_deliver(mh_batch *batch);

#endif
