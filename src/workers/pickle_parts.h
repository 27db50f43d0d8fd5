/* pickle_parts.h - a pickled result as it lies in a worker's spill memory
 * SPDX-License-Identifier: Apache-2.0
 *
 *     u64 parts; then for each: u64 kind, u64 bytes; then each part's bytes, at multiples of 64
 */
#ifndef MH_WORKERS_PICKLE_PARTS_H
#define MH_WORKERS_PICKLE_PARTS_H

#include <millhead/error.h>

enum mh_pickle_part_kind {
    MH_PICKLE_BYTES,  /* the pickle stream: becomes bytes */
    MH_PICKLE_BUFFER, /* an out-of-band buffer: becomes a bytearray */
    MH_PICKLE_TENSOR, /* a tensor's memory: becomes a torch.uint8 tensor */
    MH_PICKLE_KINDS
};

typedef struct mh_pickle_part {
    uint64_t kind;
    uint64_t bytes;
    const void *data;
} mh_pickle_part;

/* The bytes they take, and how they are written there. */
uint64_t mh_pickle_parts_bytes(const mh_pickle_part *parts, uint64_t count);
void mh_pickle_parts_write(uint8_t *to, const mh_pickle_part *parts, uint64_t count);

/* Reads parts out of memory that another process may write to at any time. */
typedef struct mh_pickle_reader {
    const uint8_t *base;
    uint64_t bytes;
    uint64_t count;
    uint64_t next; /* number of the next part, and where its bytes begin */
    uint64_t at;
} mh_pickle_reader;

/* After opening, mh_pickle_parts_next may be called reader->count times. Errors of both:
 * MH_ERR_INTERNAL for parts that do not lie within `bytes`. */
MH_MUST_CHECK mh_status mh_pickle_parts_open(mh_pickle_reader *reader, const uint8_t *base,
                                             uint64_t bytes, mh_error *err);
MH_MUST_CHECK mh_status mh_pickle_parts_next(mh_pickle_reader *reader, mh_pickle_part *out,
                                             mh_error *err);

#endif
