/* amplification.h - what windows cost: bytes decoded over bytes that differ, and blocks that keep
 * the two close
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block is the samples whose origins lie in one cell of the array. A chunk that windows of
 * several blocks reach into is decoded for each. Amplification A = decoded / unique is exact:
 * windows of a cell are a product over dimensions, so the chunks they touch are too, and sums of
 * products over all cells are products of sums.
 */
#ifndef MH_ARRAY_AMPLIFICATION_H
#define MH_ARRAY_AMPLIFICATION_H

#include "array/windows.h"

#define MH_AMPLIFICATION_GOOD 1.10
/* The most memory that blocks under way are planned for. It is not the loader's: the order must not
 * depend on the machine. */
#define MH_POOL_BYTES (UINT64_C(256) << 20)
#define MH_PARTS_MOST 32 /* blocks under way at a time: more mix no better */
#define MH_PARTS_LEAST 4

typedef struct mh_amplification {
    double unique_bytes;  /* of all chunks that any window touches, decoded, each once */
    double decoded_bytes; /* each once per block that touches it */
    double factor;        /* decoded / unique; 1 where there is nothing */
    double block_bytes;   /* of the chunks of one block, at most */
    double sample_bytes;  /* decoded for one sample alone, mean */
    double useful_bytes;  /* of a sample as stored */
    double decoded_chunks, sample_chunks; /* how many chunks those bytes are */
} mh_amplification;

/* With cells of those lengths, in values along each of mh_windows_dims. Errors: MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_amplification_of(const mh_windows *windows, const uint64_t *cell,
                                            mh_amplification *out, mh_error *err);

/* Chooses cells, in whole chunks of the largest chunk along each dimension: the smallest that make
 * A at most MH_AMPLIFICATION_GOOD, else those with the least A of which MH_PARTS_LEAST fit in
 * pool_bytes; and how many blocks are under way at a time. Where there are no dimensions, no cells.
 * Errors: MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_blocks_choose(const mh_windows *windows, uint64_t pool_bytes,
                                         mh_cells *out, uint32_t *out_parts,
                                         mh_amplification *out_cost, mh_error *err);

#endif
