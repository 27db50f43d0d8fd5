/* layout.h - where the fields of a batch lie in one block of memory
 * SPDX-License-Identifier: Apache-2.0
 *
 * A field is FIXED, all samples of one shape, or RAGGED, each of its own:
 *
 *     FIXED    values of sample 0, 1, 2 ...
 *     RAGGED   values of sample 0, 1, 2 ... | where each one's begin | the shape of each
 *
 * Each part begins at a multiple of MH_LEAF_ALIGN. How large a sample's ragged values are is known
 * before anything is read, so all places are known when a batch gets its memory.
 *
 * Everything here is arithmetic: any thread, no memory of its own.
 */
#ifndef MH_BATCH_LAYOUT_H
#define MH_BATCH_LAYOUT_H

#include <millhead/loader.h>
#include <stdbool.h>

/* Parts of a batch start at multiples of this: a cache line, and what torch's kernels like. */
#define MH_LEAF_ALIGN 64

/* What all batches of a dataset consist of. */
typedef struct mh_layout {
    const mh_field *fields;
    size_t field_count;
    /* The shape of one sample's values of a ragged field; NULL where no field is ragged. */
    void (*measure)(const void *measured, size_t field, uint64_t sample, int64_t *shape);
    const void *measured;
} mh_layout;

/* Puts a part of so many bytes behind *end, which then is behind the part. False: too large. */
static inline bool mh_layout_part(uint64_t *end, uint64_t bytes, uint64_t *out_offset)
{
    uint64_t offset;
    if (__builtin_add_overflow(*end, MH_LEAF_ALIGN - 1, &offset))
        return false;
    *out_offset = offset & ~(uint64_t)(MH_LEAF_ALIGN - 1);
    return !__builtin_add_overflow(*out_offset, bytes, end) && *end < SIZE_MAX / 2;
}

/* Bytes of one sample's values of a ragged field, and their shape. */
uint64_t mh_layout_measure(const mh_layout *layout, size_t field, uint64_t sample, int64_t *shape);

/* Bytes of a batch of these samples, at least 1. MH_ERR_INVALID: too many. */
MH_MUST_CHECK mh_status mh_layout_bytes(uint64_t *out, const mh_layout *layout,
                                        const uint64_t *samples, uint64_t count, mh_error *err);

/* Bytes that nearly every batch of `count` of the dataset's samples fits into; where no field is
 * ragged, all do. MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_layout_usual_bytes(uint64_t *out, const mh_layout *layout,
                                              uint64_t dataset_count, uint64_t count,
                                              mh_error *err);

/* Describes the fields in `memory`, which has what mh_layout_bytes says, and fills in the offsets
 * and shapes of the ragged ones. Gives the number of bytes. */
uint64_t mh_layout_describe(const mh_layout *layout, const uint64_t *samples, uint64_t count,
                            uint8_t *memory, mh_array *arrays);

#endif
