/* facts.c - facts as a caller of another version may give them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/facts.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include <string.h>

void mh_facts_init_sized(mh_facts *facts, size_t struct_size, size_t batch_stride,
                         size_t rank_stride)
{
    const mh_facts nothing = {
        .batch_stride = batch_stride,
        .rank_stride = rank_stride,
        .workers = -1,
        .prefetch = -1,
        .batch_size = -1,
        .in_order = -1,
        .persistent = -1,
        .pin_memory = -1,
        .cpus = -1,
        .usage.gpu_util = -1,
    };
    mh_sized_write(facts, struct_size, &nothing, sizeof nothing);
}

/* An array of `count` structs of `size` bytes each, from one whose structs are `stride` bytes; what
 * they lack is 0. */
static mh_status widen(void **out, const void *given, size_t count, size_t stride, size_t size,
                       mh_error *err)
{
    char *copy = mh_calloc(count, size);
    if (!copy)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to copy the facts");
    for (size_t at = 0; at < count; at++)
        memcpy(copy + at * size, (const char *)given + at * stride, stride < size ? stride : size);
    *out = copy;
    return MH_OK;
}

static mh_status check_stride(size_t stride, size_t least, const char *field, mh_error *err)
{
    if (stride < least)
        return mh_fail(err, MH_ERR_INVALID,
                       "%s of mh_facts is %zu, expected at least %zu: call mh_facts_init", field,
                       stride, least);
    return MH_OK;
}

static mh_status take_batches(mh_whole_facts *out, mh_error *err)
{
    mh_facts *facts = &out->facts;
    void *copy = NULL;
    if (!facts->batches || !facts->batch_count)
        return MH_OK;
    MH_TRY(check_stride(facts->batch_stride, MH_FIRST_SIZE(mh_batch_cost, first), "batch_stride",
                        err));
    if (facts->batch_stride == sizeof *out->batches)
        return MH_OK;
    MH_TRY(widen(&copy, facts->batches, facts->batch_count, facts->batch_stride,
                 sizeof *out->batches, err));
    facts->batches = out->batches = copy;
    facts->batch_stride = sizeof *out->batches;
    return MH_OK;
}

static mh_status take_ranks(mh_whole_facts *out, mh_error *err)
{
    mh_facts *facts = &out->facts;
    void *copy = NULL;
    if (!facts->ranks || !facts->rank_count)
        return MH_OK;
    MH_TRY(
        check_stride(facts->rank_stride, MH_FIRST_SIZE(mh_rank_cost, total), "rank_stride", err));
    if (facts->rank_stride == sizeof *out->ranks)
        return MH_OK;
    MH_TRY(
        widen(&copy, facts->ranks, facts->rank_count, facts->rank_stride, sizeof *out->ranks, err));
    facts->ranks = out->ranks = copy;
    facts->rank_stride = sizeof *out->ranks;
    return MH_OK;
}

mh_status mh_facts_take(mh_whole_facts *out, const mh_facts *given, mh_error *err)
{
    *out = (mh_whole_facts){0};
    MH_TRY(MH_SIZED_TAKE(&out->facts, given, mh_facts, rank_stride, err));
    MH_TRY(take_batches(out, err));
    return take_ranks(out, err);
}

void mh_facts_drop(mh_whole_facts *whole)
{
    mh_free(whole->batches);
    mh_free(whole->ranks);
}
