/* chain.h - codecs behind each other: a chunk's bytes as stored become exactly its bytes in memory
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_CODEC_CHAIN_H
#define MH_CODEC_CHAIN_H

#include "codec/byte_codec.h"

#define MH_CHAIN_MOST 8 /* codecs of one array */

/* In the order in which they were applied when the chunk was written. The caller's memory; after
 * the last mh_chain_add immutable, for any thread. */
typedef struct mh_chain {
    uint32_t count;
    uint8_t codecs[MH_CHAIN_MOST]; /* numbers in mh_byte_codecs */
    mh_codec_settings settings[MH_CHAIN_MOST];
    uint64_t bytes[MH_CHAIN_MOST + 1]; /* [0]: decoded; [i]: behind codec i, the most */
    bool exact[MH_CHAIN_MOST + 1];     /* bytes[i] is not only the most */
} mh_chain;

/* A chain of no codec: `bytes` are stored as they are. At most 2^40. */
void mh_chain_init(mh_chain *chain, uint64_t bytes);

/* Adds the codec that was applied next. Errors name it: MH_ERR_UNSUPPORTED (unknown, not in this
 * build, too many), MH_ERR_CORRUPT (options). */
MH_MUST_CHECK mh_status mh_chain_add(mh_chain *chain, const char *name, mh_json_view options,
                                     mh_error *err);

/* Most bytes of a stored chunk. */
static inline uint64_t mh_chain_stored_most(const mh_chain *chain)
{
    return chain->bytes[chain->count];
}

/* What one thread needs to decode: states of codecs, two buffers for what lies between codecs. */
typedef struct mh_chain_room mh_chain_room;

/* For all of `chains`, of which entries may be NULL. MH_ERR_NOMEM; nothing is left then. */
MH_MUST_CHECK mh_status mh_chain_room_new(mh_chain_room **out, const mh_chain *const *chains,
                                          size_t count, mh_error *err);
void mh_chain_room_free(mh_chain_room *room); /* NULL allowed */

/* Decodes into `out`, which has chain->bytes[0] bytes; all are written. No allocation of ours.
 * Errors begin with the codec's name: MH_ERR_CORRUPT, MH_ERR_UNSUPPORTED. */
MH_MUST_CHECK mh_status mh_chain_decode(const mh_chain *chain, mh_chain_room *room,
                                        const uint8_t *from, uint64_t size, uint8_t *out,
                                        mh_error *err);

#endif
