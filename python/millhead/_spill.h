/* _spill.h - how a pickled batch and its buffers lie in a worker's spill memory
 * SPDX-License-Identifier: Apache-2.0
 *
 *     u64 pieces; then for each: u64 kind, u64 bytes; then each piece's bytes, at multiples of 64
 */
#ifndef MH_PYTHON_SPILL_H
#define MH_PYTHON_SPILL_H

#include <stdint.h>

enum mh_piece_kind {
    MH_PIECE_BYTES,  /* the pickle stream: becomes bytes */
    MH_PIECE_BUFFER, /* an out-of-band buffer: becomes a bytearray */
    MH_PIECE_TENSOR, /* a tensor's memory: becomes a torch.uint8 tensor */
    MH_PIECE_KINDS
};

typedef struct mh_piece {
    uint64_t kind;
    uint64_t bytes;
} mh_piece;

static inline uint64_t mh_piece_align(uint64_t offset)
{
    return (offset + 63) / 64 * 64;
}

#endif
