/* leaf.h - where one array of a batch lies in its slot, and what it is
 * SPDX-License-Identifier: Apache-2.0
 *
 * A batch is a tree of containers whose leaves are arrays. The tree is Python's business (the
 * schema both sides agree on); each leaf is one of these, written by a worker beside its result and
 * checked by the consumer before it is believed.
 */
#ifndef MH_BATCH_LEAF_H
#define MH_BATCH_LEAF_H

#include "batch/layout.h"

#define MH_LEAF_DIMS 8
#define MH_LEAVES_MAX 64 /* of a batch */

/* Type codes are DLPack's: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool. */
typedef struct mh_leaf {
    uint64_t offset; /* from the slot's start, a multiple of MH_LEAF_ALIGN */
    uint64_t bytes;
    uint8_t type_code;
    uint8_t type_bits;
    uint16_t dims;
    uint32_t origin; /* what its rows were made of, where runs of them have to agree; else 0 */
    int64_t shape[MH_LEAF_DIMS];
} mh_leaf;

/* Bytes of a dense array, or MH_ERR_INVALID when the shape is negative or too large. */
MH_MUST_CHECK mh_status mh_leaf_measure(uint64_t *out_bytes, uint8_t type_bits,
                                        const int64_t *shape, uint32_t dims, mh_error *err);

/* Places the next leaf after *end (kept aligned, moved past the leaf). Fills bytes and offset from
 * type and shape. MH_ERR_NOMEM when it does not fit into slot_bytes. */
MH_MUST_CHECK mh_status mh_leaf_place(mh_leaf *leaf, uint64_t *end, uint64_t slot_bytes,
                                      mh_error *err);

/* The leaf as an array, without a name, whose bytes are at `data`. */
mh_array mh_leaf_array(const mh_leaf *leaf, void *data);

/* Whether a leaf another process wrote is sound: type, shape, size and place. Pure. */
MH_MUST_CHECK mh_status mh_leaf_check(const mh_leaf *leaf, uint64_t slot_bytes, mh_error *err);

#endif
