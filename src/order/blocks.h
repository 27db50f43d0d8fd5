/* blocks.h - a shuffle that keeps the samples of a block close in time
 * SPDX-License-Identifier: Apache-2.0
 *
 * The line: all blocks in an order drawn by key, and the samples of each in one drawn by key. It
 * depends on seed and epoch alone, and a sample's place in it is its position. Of R ranks, rank r
 * has the r-th of R equal parts of the line. It cuts its piece of each block into `parts` parts;
 * in round t it delivers part i of its block t - i, for all i < parts, in an order drawn by key. So
 * `parts` blocks are in use at a time, and in each round one is begun and one is done with.
 *
 * An epoch may be taken up by another number of ranks: what each rank of then has left, one rank
 * after the other, is a new line, of which each rank of now has its part. The numbers of ranks that
 * an epoch has seen, and how far each came, are its legs.
 */
#ifndef MH_ORDER_BLOCKS_H
#define MH_ORDER_BLOCKS_H

#include "base/cells.h"
#include "order/share.h"

#include <millhead/leg.h>

#define MH_LEGS_MOST 64
#define MH_PARTS_LIMIT 4096

/* Blocks by list where cells.dims is 0: block k is the samples from firsts[k] to firsts[k + 1]. */
typedef struct mh_block_spec {
    mh_cells cells;
    const uint64_t *firsts; /* block_count + 1 of them; the first is 0; copied */
    uint64_t block_count;
    uint32_t parts; /* at least 1 */
} mh_block_spec;

/* The blocks of an epoch, in its order. Read-only after new: any number of threads. */
typedef struct mh_blocks mh_blocks;

/* Keeps 8 bytes for each block, and nothing where all have the same size. Free with mh_blocks_free.
 * *out is untouched on failure. Errors: MH_ERR_INVALID, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_blocks_new(mh_blocks **out, const mh_block_spec *spec, uint64_t seed,
                                      uint64_t epoch, mh_error *err);
void mh_blocks_free(mh_blocks *blocks);
uint64_t mh_blocks_samples(const mh_blocks *blocks);

/* The share of one rank: what remains of an epoch after `legs`, among `world` ranks. Plain memory,
 * copied by value. */
typedef struct mh_block_share {
    mh_leg legs[MH_LEGS_MOST + 1];     /* those before, and this one: its samples are not used */
    uint64_t totals[MH_LEGS_MOST + 1]; /* samples of the line of each */
    uint32_t last;                     /* the leg that is under way */
    uint64_t rank, begin, own;         /* of this rank in the last leg's line */
    uint64_t length;                   /* with padding, or cut */
} mh_block_share;

/* Legs with as many ranks as the one before are made one with it. MH_ERR_INVALID: a leg without
 * ranks or with more samples than there are; too many legs; numbers that make no sense. */
MH_MUST_CHECK mh_status mh_block_share_init(mh_block_share *out, uint64_t samples,
                                            const mh_leg *legs, uint32_t leg_count, uint64_t world,
                                            uint64_t rank, mh_share_mode mode, mh_error *err);

/* The rank's sample number `nth`, which is below the share's length, and its position. */
uint64_t mh_blocks_at(const mh_blocks *blocks, const mh_block_share *share, uint64_t nth,
                      uint64_t *out_position);

/* Which rank of the first leg delivers a sample, and as its how manyth. */
uint64_t mh_blocks_find(const mh_blocks *blocks, uint64_t world, uint64_t sample,
                        uint64_t *out_rank);

#endif
