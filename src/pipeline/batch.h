/* batch.h - a batch of the native pipeline: memory of a slot, described field by field
 * SPDX-License-Identifier: Apache-2.0
 *
 * planned (numbers only) --seat--> memory, samples placed --finish--> dense --deliver--> the loop's
 *
 * Where every sample goes is known when the batch gets its memory: formats say how large a sample's
 * ragged values are before anything is read. So threads place in any order, and what is placed lies
 * dense as it is. Finishing moves values only where samples were skipped or replaced.
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
    uint64_t bytes;   /* that it takes, once it is seated */
    uint64_t epoch;
    uint64_t *numbers, *positions;
    size_t array_count;
    mh_array arrays[];
};

/* Bytes that nearly every batch of that many samples fits into, fields at multiples of
 * MH_LEAF_ALIGN; where no field is ragged, all do. MH_ERR_INVALID where that is too large. */
MH_MUST_CHECK mh_status mh_batch_usual_bytes(uint64_t *out, const mh_dataset *dataset,
                                             uint64_t samples, mh_error *err);

/* Bytes that this one takes, whose numbers are set. MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_batch_bytes(uint64_t *out, const mh_batch *batch, mh_error *err);

/* A batch without memory, with one reference. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_batch_new(mh_batch **out, mh_dataset *dataset, uint64_t samples,
                                     mh_error *err);

/* Gives it a slot of enough bytes, which becomes the batch's. */
void mh_batch_seat(mh_batch *batch, mh_slot *slot);

/* Gives it memory of its own, zeroed. MH_ERR_NOMEM, MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_batch_seat_own(mh_batch *batch, mh_error *err);

/* Where field number `field` of its sample `i` is to be placed. */
static inline uint8_t *mh_batch_place(const mh_batch *batch, size_t field, uint64_t i)
{
    const mh_array *array = &batch->arrays[field];
    uint64_t at = array->offsets ? (uint64_t)array->offsets[i] * (array->dtype.bits / 8)
                                 : i * batch->dataset->fields[field].bytes;
    return (uint8_t *)array->data + at;
}

/* Memory for the ragged values of a sample that stands in for another, whose place they may not fit
 * into: *into of each ragged field. The caller frees it with mh_free after finishing. MH_ERR_NOMEM.
 */
MH_MUST_CHECK mh_status mh_batch_place_apart(const mh_batch *batch, uint64_t i, uint8_t **out,
                                             uint8_t **into, mh_error *err);

/* All samples are placed: leaves out those that samples[i].skipped says (NULL: none), and puts in
 * those that samples[i].apart has. MH_ERR_NOMEM: there is no memory for what was put in. */
MH_MUST_CHECK mh_status mh_batch_finish(mh_batch *batch, const mh_sample *samples, mh_error *err);

/* Moves the bytes to memory of their own and frees the slot; nothing changes where there is none.
 */
MH_MUST_CHECK mh_status mh_batch_copy_out(mh_batch *batch, mh_error *err);

/* The batch becomes its consumer's: its slot is HELD from now on. */
void mh_batch_deliver(mh_batch *batch);

#endif
