/* stream.h - the batches of a rank, one after the other through epochs: which samples they hold
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PIPELINE_STREAM_H
#define MH_PIPELINE_STREAM_H

#include "order/blocks.h"
#include "order/choice.h"
#include "order/order.h"
#include <millhead/loader.h>

/* One thread at a time. */
typedef struct mh_stream {
    const mh_loader_options *options; /* the loader's */
    mh_choice choice;                 /* of the dataset's samples */
    mh_block_spec spec;               /* of MH_SHUFFLE_BLOCKS */
    mh_order *order;                  /* of `epoch`; NULL: not made yet */
    mh_blocks *blocks;                /* the same for MH_SHUFFLE_BLOCKS, */
    mh_block_share share;             /* and this rank's share of it */
    mh_leg legs[MH_LEGS_MOST];        /* of start_epoch, by other numbers of ranks */
    uint32_t leg_count;
    uint64_t legs_done;          /* samples in them */
    uint64_t epoch, index;       /* of the next batch */
    uint64_t start_epoch, start; /* the epoch that does not begin at its head, and where it does */
} mh_stream;

/* Of which epoch a batch is, and how large. */
typedef struct mh_stream_batch {
    uint64_t epoch;
    uint64_t
        position; /* of its first sample in the epoch; the others at steps of the world's size */
    uint64_t samples;
} mh_stream_batch;

/* Goes to a place. MH_ERR_INVALID: it is beyond the epoch's samples. */
MH_MUST_CHECK mh_status mh_stream_seek(mh_stream *stream, uint64_t epoch, uint64_t start,
                                       mh_error *err);
/* The same to the place behind legs by other numbers of ranks, for MH_SHUFFLE_BLOCKS. A later seek
 * in that epoch to a place behind them keeps them. */
MH_MUST_CHECK mh_status mh_stream_seek_legs(mh_stream *stream, uint64_t epoch, const mh_leg *legs,
                                            uint32_t count, mh_error *err);
void mh_stream_close(mh_stream *stream);

/* Batches of an epoch, from its start on. */
uint64_t mh_stream_batches(const mh_stream *stream, uint64_t epoch);

/* Where the next batch stands. MH_AGAIN: none will ever come. */
MH_MUST_CHECK mh_status mh_stream_peek(mh_stream *stream, mh_stream_batch *out, mh_error *err);

/* The numbers and positions of the samples in the batch that was peeked at; goes on to the one
 * after it. */
void mh_stream_take(mh_stream *stream, const mh_stream_batch *batch, uint64_t *numbers,
                    uint64_t *positions);

/* The sample that stands in for one that is broken: follows from seed, epoch and the position. */
uint64_t mh_stream_substitute(const mh_stream *stream, uint64_t epoch, uint64_t position,
                              uint32_t attempt);

#endif
