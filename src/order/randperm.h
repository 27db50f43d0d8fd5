/* randperm.h - the shuffle torch.randperm gives for a seeded CPU generator, drawn as it is needed
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ORDER_RANDPERM_H
#define MH_ORDER_RANDPERM_H

#include <millhead/error.h>

/* The most samples: 2^32, 16 GiB. (torch's sampler would need about 200 GB for as many.) */
#define MH_RANDPERM_MOST (UINT64_C(1) << 32)

/* From here on torch shuffles in another way. */
#define MH_RANDPERM_LARGE_FROM (UINT32_MAX / 20)

typedef enum mh_randperm_way {
    MH_RANDPERM_SMALL, /* from the front, 32 bits a draw: the first k entries need k draws */
    MH_RANDPERM_LARGE, /* growing, 64 bits a draw: no entry is known before the last draw */
} mh_randperm_way;

/* A permutation of [0, count) in 4 bytes a sample. One thread at a time. */
typedef struct mh_randperm mh_randperm;

/* torch.randperm(count, generator=torch.Generator().manual_seed(seed)), bit for bit, in the way
 * torch takes for `count`. Nothing is drawn yet. Free with mh_randperm_free. *out is untouched on
 * failure. Errors: MH_ERR_NOMEM; MH_ERR_UNSUPPORTED for more than MH_RANDPERM_MOST. */
MH_MUST_CHECK mh_status mh_randperm_new(mh_randperm **out, uint64_t count, uint64_t seed,
                                        mh_error *err);

/* The same in a given way, for tests: 4 bytes and a draw for each of MH_RANDPERM_LARGE_FROM samples
 * would be too much for them. */
MH_MUST_CHECK mh_status mh_randperm_new_in_way(mh_randperm **out, uint64_t count, uint64_t seed,
                                               mh_randperm_way way, mh_error *err);

/* NULL allowed. */
void mh_randperm_free(mh_randperm *perm);

/* Draws on until `position` (below count) is known, and a few more, but at most `most`. 1 when it
 * is known. */
int mh_randperm_draw(mh_randperm *perm, uint64_t position, uint64_t most);

/* What is at `position`, which is below count; draws what it needs and was not drawn yet. */
uint64_t mh_randperm_at(mh_randperm *perm, uint64_t position);

#endif
