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

/* At least `bytes` bytes; what was there before is lost where it grows. NULL: MH_ERR_NOMEM is in
 * *err. */
static inline void *mh_scratch_get(mh_scratch *scratch, uint64_t bytes, mh_error *err)
{
    if (bytes <= scratch->bytes)
        return scratch->memory;
    mh_free(scratch->memory);
    scratch->bytes = bytes + bytes / 4; /* so that slightly larger pictures do not grow it */
    scratch->memory = mh_realloc(NULL, scratch->bytes, 1);
    if (!scratch->memory) {
        scratch->bytes = 0;
        (void)mh_fail(err, MH_ERR_NOMEM, "no memory for %llu bytes of pixels",
                      (unsigned long long)bytes);
    }
    return scratch->memory;
}

static inline void mh_scratch_free(mh_scratch *scratch)
{
    mh_free(scratch->memory);
    *scratch = (mh_scratch){0};
}

#endif
