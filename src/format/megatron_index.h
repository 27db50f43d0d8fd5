/* megatron_index.h - Megatron's .idx: where the documents of a .bin are
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_MEGATRON_INDEX_H
#define MH_FORMAT_MEGATRON_INDEX_H

#include <millhead/dataset.h>

/* What the bytes of an .idx say. The lists lie in those bytes, little endian and at any alignment.
 */
typedef struct mh_megatron_index {
    mh_dtype dtype;         /* of tokens */
    uint64_t sequences;     /* pieces of text, one after the other in the .bin */
    uint64_t documents;     /* of one sequence or more */
    uint64_t tokens;        /* of all sequences */
    const uint8_t *lengths; /* int32 for each sequence */
    const uint8_t *firsts;  /* int64: the first sequence of each document, and their number */
} mh_megatron_index;

/* Reads all `size` bytes of an .idx whose .bin has bin_bytes. Checks every number: an index that
 * does not fit its .bin is refused with what is wrong. Pure. Errors: MH_ERR_CORRUPT;
 * MH_ERR_UNSUPPORTED (another version, tokens that are not integers). */
MH_MUST_CHECK mh_status mh_megatron_index_read(mh_megatron_index *out, const uint8_t *bytes,
                                               size_t size, uint64_t bin_bytes, mh_error *err);

/* Tokens of document number `at` of an index that was read. Pure. */
uint64_t mh_megatron_document(const mh_megatron_index *index, uint64_t at);

#endif
