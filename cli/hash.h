/* hash.h - hashes of what a loader delivers; docs/native.md has their definition
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_HASH_H
#define MILLHEAD_CLI_HASH_H

#include "cli.h"

typedef struct mh_hash mh_hash;

/* Whether this build can hash. */
bool mh_hash_built(void);

/* NULL: no memory, or not built. free accepts NULL. One thread at a time. */
mh_hash *mh_hash_new(void);
void mh_hash_free(mh_hash *hash);

/* Adds the next batch. */
void mh_hash_add(mh_hash *hash, const mh_batch *batch);

/* Of all batches in their order; and of all samples, whatever their order. */
uint64_t mh_hash_stream(const mh_hash *hash);
uint64_t mh_hash_samples(const mh_hash *hash);

#endif
