/* batch.h - a batch: a slot's memory, the fields in it, and how it gets into the consumer's hands
 * SPDX-License-Identifier: Apache-2.0
 *
 * planned (numbers only) --seat--> memory, samples placed --finish--> dense --hand over--> the
 * loop's
 *
 * Where every sample goes is known when the batch gets its memory (layout.h), so threads place in
 * any order and what is placed lies dense as it is. Finishing moves values only where samples were
 * skipped or replaced. A batch that a worker process filled begins with its slot and its leaves.
 *
 * Threads: one at a time, but for placing different samples, and for references of a batch that was
 * handed over.
 */
#ifndef MH_BATCH_BATCH_H
#define MH_BATCH_BATCH_H

#include "batch/leaf.h"
#include "batch/slots.h"

#include <stdatomic.h>

struct mh_batch {
    _Atomic uint32_t refs;
    mh_layout layout;
    void *owner; /* of what `layout` points to: `release` is called for it in the end */
    void (*release)(void *owner);
    mh_slot *slot;       /* FILLING until it is handed over; NULL: `own`, or not seated */
    uint8_t *own;        /* memory that the pool does not know */
    bool lent;           /* the slot is the consumer's: HELD */
    _Atomic bool uneven; /* some sample is skipped or apart */
    uint64_t planned;    /* samples that it has room for */
    uint64_t samples;    /* fewer where some were skipped */
    uint64_t bytes;      /* that it takes, once it is seated */
    uint64_t epoch;
    uint64_t *numbers, *positions; /* of its samples: in the dataset, in the epoch */
    uint8_t **apart;               /* of each sample: see mh_batch_place_apart */
    size_t array_count;
    mh_array arrays[];
};

/* --- filling --- */

/* A batch without memory, with one reference. The layout is copied. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_batch_new(mh_batch **out, const mh_layout *layout, uint64_t samples,
                                     mh_error *err);

/* Gives it a slot of enough bytes (mh_layout_bytes), which becomes the batch's. */
void mh_batch_seat(mh_batch *batch, mh_slot *slot);

/* Gives it memory of its own, zeroed. MH_ERR_NOMEM, MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_batch_seat_own(mh_batch *batch, mh_error *err);

/* Where field number `field` of its sample `i` is to be placed. */
static inline uint8_t *mh_batch_place(const mh_batch *batch, size_t field, uint64_t i)
{
    const mh_array *array = &batch->arrays[field];
    uint64_t at = array->offsets ? (uint64_t)array->offsets[i] * (array->dtype.bits / 8)
                                 : i * batch->layout.fields[field].bytes;
    return (uint8_t *)array->data + at;
}

/* --- finish.c --- */

/* Sample `i` is left out. */
void mh_batch_skip(mh_batch *batch, uint64_t i);

/* Memory for the ragged values of sample `i`, which stands in for another one whose place they may
 * not fit into: *into of each ragged field. The batch frees it. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_batch_place_apart(mh_batch *batch, uint64_t i, uint8_t **into,
                                             mh_error *err);

/* All samples are placed, and mh_batch_finish has nothing to do. */
bool mh_batch_is_even(const mh_batch *batch);

/* All samples are placed: leaves out those that are skipped, and puts in those that were placed
 * apart. MH_ERR_NOMEM: there is no memory for what was put in. */
MH_MUST_CHECK mh_status mh_batch_finish(mh_batch *batch, mh_error *err);

/* Frees what was placed apart. */
void mh_batch_forget_apart(mh_batch *batch);

/* --- handing over --- */

/* Smaller arrays are copied by who says so: what is kept of a batch should not keep its slot. */
#define MH_SMALL_BYTES UINT64_C(65536)

typedef enum mh_handover {
    MH_HANDOVER_LENT,   /* the slot stays with the batch until its last reference is gone */
    MH_HANDOVER_SMALL,  /* no array is large enough for that: copy them */
    MH_HANDOVER_CROWDED /* the consumer has so many slots that none may be lent: copy all */
} mh_handover;

/* What becomes of a batch whose largest array has `largest` bytes. Its slot is lent if an array has
 * at least `small` bytes and more than `spare` slots of the pool would not be lent before. */
mh_handover mh_hand_over(mh_pool *pool, uint64_t largest, uint32_t spare, uint64_t small);

/* The same for a batch, whose slot is its consumer's if it is lent. Else the batch stays as it is,
 * for the consumer to copy. */
mh_handover mh_batch_hand_over(mh_batch *batch, mh_pool *pool, uint32_t spare, uint64_t small);

/* A batch that another process put into `slot`, which is lent with it: each leaf, checked before,
 * an array without a name. The slot stays the caller's on failure: MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_batch_lend(mh_batch **out, mh_slot *slot, const mh_leaf *leaves,
                                      uint32_t leaf_count, mh_error *err);

/* Moves the bytes to memory of their own and frees the slot; nothing changes where there is none.
 * MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_batch_copy_out(mh_batch *batch, mh_error *err);

#endif
