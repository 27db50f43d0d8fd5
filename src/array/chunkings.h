/* chunkings.h - what windows cost in an order and a memory, with the chunks there are or others
 * SPDX-License-Identifier: Apache-2.0
 *
 * Exact where memory is enough. Where it is not, a chunk may have to be decoded again: how often
 * depends on which ones happen to stay, and the figures are then the most that is to be expected.
 */
#ifndef MH_ARRAY_CHUNKINGS_H
#define MH_ARRAY_CHUNKINGS_H

#include "array/amplification.h"

/* In which order windows are wanted. */
typedef enum mh_reading {
    MH_READING_ROWS,     /* as they are numbered */
    MH_READING_ANYWHERE, /* any window next */
    MH_READING_BLOCKS    /* mh_blocks_choose */
} mh_reading;

/* A read costs about as much time as decoding so many bytes. */
#define MH_READ_COSTS_BYTES (UINT64_C(128) << 10)
#define MH_CHUNKINGS_MOST 4 /* classes of size: up to 256 KiB, 1 MiB, 4 MiB, 16 MiB */

typedef struct mh_chunking {
    uint64_t chunk[MH_DIMS_MOST]; /* along each of mh_windows_dims; 0: no array has the dimension */
    double chunk_bytes;           /* of the array with the largest chunks */
    mh_amplification cost;        /* decoded_bytes and decoded_chunks are those of the order */
    double enough_bytes;          /* memory for chunks with which none is decoded again for want of
                                     it */
} mh_chunking;

/* What an epoch costs with the chunks that there are and so much memory for them.
 * MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_chunking_of(const mh_windows *windows, mh_reading reading,
                                       uint64_t memory_bytes, mh_chunking *out, mh_error *err);

/* The best chunks of each class of size, for the same windows over the same arrays: those with the
 * least bytes decoded, MH_READ_COSTS_BYTES added for each read. *out_best is the number of the best
 * of all. Gives how many there are in *out_count: 0 where no class has any. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_chunkings_try(const mh_windows *windows, mh_reading reading,
                                         uint64_t memory_bytes, mh_chunking out[MH_CHUNKINGS_MOST],
                                         size_t *out_count, size_t *out_best, mh_error *err);

/* What the last one goes by. */
static inline double mh_chunking_score(const mh_chunking *chunking)
{
    return chunking->cost.decoded_bytes +
           chunking->cost.decoded_chunks * (double)MH_READ_COSTS_BYTES;
}

#endif
