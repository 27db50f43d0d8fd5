/* randperm.c - torch.randperm: mt19937 and a Fisher-Yates shuffle, one of two
 * SPDX-License-Identifier: Apache-2.0
 *
 * Small: step i exchanges entry i with one at or behind it, and never comes back to it. So the
 * first k entries need k draws only, and an epoch begins at once. Large (2^32 / 20 samples, where
 * the remainder of 32 bits would be uneven): step i puts i at a place among the first i + 1, and
 * what was there at the end; every entry may change until the last step.
 */
#include "order/randperm.h"

#include "base/alloc.h"
#include "base/error.h"
#include "order/mersenne.h"

#define BLOCK 256 /* steps at a time */

struct mh_randperm {
    uint64_t count;
    uint64_t steps; /* done, of count */
    mh_randperm_way way;
    uint32_t *entries; /* each XOR its place: zeroed memory is the identity, touched when drawn */
    mh_mersenne random;
};

mh_status mh_randperm_new(mh_randperm **out, uint64_t count, uint64_t seed, mh_error *err)
{
    mh_randperm_way way = count < MH_RANDPERM_LARGE_FROM ? MH_RANDPERM_SMALL : MH_RANDPERM_LARGE;
    return mh_randperm_new_in_way(out, count, seed, way, err);
}

mh_status mh_randperm_new_in_way(mh_randperm **out, uint64_t count, uint64_t seed,
                                 mh_randperm_way way, mh_error *err)
{
    if (count > MH_RANDPERM_MOST)
        return mh_fail(
            err, MH_ERR_UNSUPPORTED,
            "torch's shuffle of %llu samples would take too much memory: use shuffle=True (or "
            "order='keyed' of a sampler)",
            (unsigned long long)count);
    mh_randperm *perm = mh_calloc(1, sizeof *perm);
    uint32_t *entries = mh_calloc(count, sizeof *entries);
    if (!perm || !entries) {
        mh_free(entries);
        mh_free(perm);
        return mh_fail(err, MH_ERR_NOMEM, "no memory (%llu bytes) for the order of %llu samples",
                       (unsigned long long)count * sizeof *entries, (unsigned long long)count);
    }
    perm->count = count;
    perm->way = way;
    perm->entries = entries;
    mh_mersenne_seed(&perm->random, (uint32_t)seed);
    *out = perm;
    return MH_OK;
}

void mh_randperm_free(mh_randperm *perm)
{
    if (!perm)
        return;
    mh_free(perm->entries);
    mh_free(perm);
}

/* The entry that step `here` exchanges with entry `here`. */
static uint32_t randperm_partner(mh_randperm *perm, uint64_t here)
{
    uint64_t left = perm->count - here;
    if (perm->way == MH_RANDPERM_LARGE) /* entry `here` is still the identity's */
        return (uint32_t)(mh_mersenne_next64(&perm->random) % (here + 1));
    if (left == 1) /* torch draws nothing for the last one */
        return (uint32_t)here;
    return (uint32_t)here + mh_mersenne_next(&perm->random) % (uint32_t)left;
}

/* Partners lie anywhere, in memory that no cache holds. All of a block are on their way before the
 * first is waited for. */
static void randperm_block(mh_randperm *perm, uint64_t steps)
{
    uint32_t partners[BLOCK];
    for (uint64_t step = 0; step < steps; step++) {
        partners[step] = randperm_partner(perm, perm->steps + step);
        __builtin_prefetch(&perm->entries[partners[step]], 1);
    }
    for (uint64_t step = 0; step < steps; step++, perm->steps++) {
        uint32_t *here = &perm->entries[perm->steps];
        uint32_t *there = &perm->entries[partners[step]];
        uint32_t places = (uint32_t)perm->steps ^ partners[step];
        uint32_t entry = *here ^ places;
        *here = *there ^ places;
        *there = entry;
    }
}

static int randperm_knows(const mh_randperm *perm, uint64_t position)
{
    return perm->steps == perm->count || (perm->way == MH_RANDPERM_SMALL && perm->steps > position);
}

int mh_randperm_draw(mh_randperm *perm, uint64_t position, uint64_t most)
{
    while (!randperm_knows(perm, position) && most > 0) {
        uint64_t left = perm->count - perm->steps;
        uint64_t steps = most < BLOCK ? most : BLOCK;
        steps = steps < left ? steps : left;
        randperm_block(perm, steps);
        most -= steps;
    }
    return randperm_knows(perm, position);
}

uint64_t mh_randperm_at(mh_randperm *perm, uint64_t position)
{
    (void)mh_randperm_draw(perm, position, UINT64_MAX);
    return perm->entries[position] ^ (uint32_t)position;
}
