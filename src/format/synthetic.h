/* synthetic.h - samples that are computed, in chunks like those of real data: what they look like
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_SYNTHETIC_H
#define MH_FORMAT_SYNTHETIC_H

#include <millhead/dataset.h>

#define MH_SYNTHETIC_PREFIX "synthetic:"

typedef struct mh_synthetic {
    uint64_t count;
    mh_field x; /* dtype, dims, ragged and shape */
    uint64_t chunk;
    uint32_t span;
    uint64_t burn_ns;
    double broken;
    uint64_t seed;
} mh_synthetic;

/* "count=1000,shape=16x16,dtype=float32,chunk=8,span=2,ragged,burn=100us,broken=1%,seed=3"; all but
 * count may be left out. Pure. MH_ERR_INVALID with the part that is wrong. */
MH_MUST_CHECK mh_status mh_synthetic_parse(mh_synthetic *out, const char *text, mh_error *err);

#endif
