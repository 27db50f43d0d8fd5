/* scratch.h - memory that grows to what was ever needed and is used again
 * SPDX-License-Identifier: Apache-2.0
 *
 * One thread at a time.
 */
#ifndef MH_OP_SCRATCH_H
#define MH_OP_SCRATCH_H

#include "base/alloc.h"
#include "base/error.h"

typedef struct mh_scratch {
    void *memory;
    uint64_t bytes;
} mh_scratch;

/* At least `bytes` bytes at *out; what was there before is lost where it grows. MH_ERR_NOMEM. */
MH_MUST_CHECK static inline mh_status mh_scratch_get(mh_scratch *scratch, uint64_t bytes,
                                                     void **out, mh_error *err)
{
    if (bytes > scratch->bytes) {
        mh_free(scratch->memory);
        scratch->bytes = bytes + bytes / 4; /* so that slightly larger pictures do not grow it */
        scratch->memory = mh_realloc(NULL, scratch->bytes, 1);
        if (!scratch->memory) {
            scratch->bytes = 0;
            return mh_fail(err, MH_ERR_NOMEM, "no memory for %llu bytes of pixels",
                           (unsigned long long)bytes);
        }
    }
    *out = scratch->memory;
    return MH_OK;
}

static inline void mh_scratch_free(mh_scratch *scratch)
{
    mh_free(scratch->memory);
    *scratch = (mh_scratch){0};
}

#endif
