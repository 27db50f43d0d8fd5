/* share.h - which positions of an epoch are one rank's: the layout of torch's DistributedSampler
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ORDER_SHARE_H
#define MH_ORDER_SHARE_H

#include <millhead/error.h>

#define MH_RANKS_MOST INT32_MAX

/* What becomes of a number of samples that the ranks do not divide. */
typedef enum mh_share_mode {
    MH_SHARE_PAD,    /* all have equally many: the epoch goes on from its head */
    MH_SHARE_CUT,    /* all have equally many: what is left over is dropped */
    MH_SHARE_UNEVEN, /* each sample once: the first ranks have one more */
    MH_SHARE_MODES
} mh_share_mode;

/* Plain memory of the caller's, copied by value. Read-only after init: any number of threads. */
typedef struct mh_share {
    uint64_t count;  /* samples of the epoch */
    uint64_t first;  /* the epoch's position of this rank's first sample */
    uint64_t ranks;  /* positions from one of its samples to the next */
    uint64_t length; /* how many samples the rank has */
} mh_share;

/* The share of `rank` in an epoch of `count` samples of which the first `start` are done: those
 * that remain are dealt out in turn. With start 0 it is what DistributedSampler gives. A start that
 * was reached with as many ranks (a multiple of them) goes on exactly where that epoch was left;
 * with another number of ranks every sample that remains still comes once, before any padding. *out
 * is untouched on failure. Errors: MH_ERR_INVALID for numbers that make no sense. */
MH_MUST_CHECK mh_status mh_share_init(mh_share *out, uint64_t count, uint64_t start, uint64_t ranks,
                                      uint64_t rank, mh_share_mode mode, mh_error *err);

/* The epoch's position of the rank's sample number `nth`, which is below length. */
uint64_t mh_share_at(const mh_share *share, uint64_t nth);

#endif
