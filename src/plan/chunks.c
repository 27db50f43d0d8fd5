/* chunks.c - how many chunks of an array a sample touches, and how many bytes they are
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/plan.h>

#include "base/error.h"

/* *product *= factor, or the reason why not. */
static mh_status multiply(uint64_t *product, uint64_t factor, const char *what, mh_error *err)
{
    if (__builtin_mul_overflow(*product, factor, product))
        return mh_fail(err, MH_ERR_INVALID, "the number of %s does not fit 64 bits", what);
    return MH_OK;
}

mh_status mh_plan_chunks_make(mh_plan_chunks *out, const uint64_t *sample, const uint64_t *chunk,
                              size_t dimensions, uint64_t item_bytes, mh_error *err)
{
    if (!out || !sample || !chunk)
        return mh_fail(err, MH_ERR_INVALID, "the plan needs two shapes and a place for its result");
    if (dimensions == 0 || dimensions > MH_PLAN_DIMENSIONS)
        return mh_fail(err, MH_ERR_INVALID, "%zu dimensions, must be 1 to %d", dimensions,
                       MH_PLAN_DIMENSIONS);
    if (item_bytes == 0)
        return mh_fail(err, MH_ERR_INVALID, "an item of 0 bytes, must be at least 1");
    mh_plan_chunks plan = {.min_chunks = 1, .max_chunks = 1};
    uint64_t chunk_bytes = item_bytes;
    for (size_t at = 0; at < dimensions; at++) {
        uint64_t size = sample[at], edge = chunk[at];
        if (size == 0 || edge == 0)
            return mh_fail(err, MH_ERR_INVALID, "the %s has size 0 in dimension %zu",
                           size ? "chunk" : "sample", at);
        uint64_t full = (size - 1) / edge; /* ceil(s/c) is one more */
        uint64_t badly = full + ((size - 1) % edge != 0) + 1;
        MH_TRY(multiply(&chunk_bytes, edge, "bytes in a chunk", err));
        MH_TRY(multiply(&plan.min_chunks, full + 1, "chunks", err));
        MH_TRY(multiply(&plan.max_chunks, badly, "chunks", err));
    }
    plan.min_bytes = plan.min_chunks;
    plan.max_bytes = plan.max_chunks;
    MH_TRY(multiply(&plan.min_bytes, chunk_bytes, "bytes", err));
    MH_TRY(multiply(&plan.max_bytes, chunk_bytes, "bytes", err));
    *out = plan;
    return MH_OK;
}
