/* mersenne.h - the Mersenne Twister mt19937, which torch's CPU generator is
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ORDER_MERSENNE_H
#define MH_ORDER_MERSENNE_H

#include <stdint.h>

#define MH_MERSENNE_WORDS 624

/* Plain memory of the caller's; one thread at a time. */
typedef struct mh_mersenne {
    uint32_t words[MH_MERSENNE_WORDS];
    uint32_t used; /* of words[]; all of them: twist first */
} mh_mersenne;

/* As torch.Generator().manual_seed(seed): only the lower 32 bits count there. */
void mh_mersenne_seed(mh_mersenne *mersenne, uint32_t seed);

/* The next 32 bits. */
uint32_t mh_mersenne_next(mh_mersenne *mersenne);

/* The next 64 bits as torch makes them of two draws: the first is the upper half. */
uint64_t mh_mersenne_next64(mh_mersenne *mersenne);

#endif
