/* pieces.h - a pickled result as it lies in a worker's spill memory
 * SPDX-License-Identifier: Apache-2.0
 *
 *     u64 pieces; then for each: u64 kind, u64 bytes; then each piece's bytes, at multiples of 64
 */
#ifndef MH_WORKERS_PIECES_H
#define MH_WORKERS_PIECES_H

#include <millhead/error.h>

enum mh_piece_kind {
    MH_PIECE_BYTES,  /* the pickle stream: becomes bytes */
    MH_PIECE_BUFFER, /* an out-of-band buffer: becomes a bytearray */
    MH_PIECE_TENSOR, /* a tensor's memory: becomes a torch.uint8 tensor */
    MH_PIECE_KINDS
};

typedef struct mh_piece {
    uint64_t kind;
    uint64_t bytes;
    const void *data;
} mh_piece;

/* The bytes they take, and how they are written there. */
uint64_t mh_pieces_bytes(const mh_piece *pieces, uint64_t count);
void mh_pieces_write(uint8_t *to, const mh_piece *pieces, uint64_t count);

/* Reads pieces out of memory that another process may write to at any time. */
typedef struct mh_piece_reader {
    const uint8_t *base;
    uint64_t bytes;
    uint64_t count;
    uint64_t next; /* number of the next piece, and where its bytes begin */
    uint64_t at;
} mh_piece_reader;

/* After opening, mh_pieces_next may be called reader->count times. Errors of both:
 * MH_ERR_INTERNAL for pieces that do not lie within `bytes`. */
MH_MUST_CHECK mh_status mh_pieces_open(mh_piece_reader *reader, const uint8_t *base, uint64_t bytes,
                                       mh_error *err);
MH_MUST_CHECK mh_status mh_pieces_next(mh_piece_reader *reader, mh_piece *out, mh_error *err);

#endif
