/* variable.c - one array of a dataset: how its chunks lie
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/variable.h"

#include "base/error.h"

#define BYTES_MOST (UINT64_C(1) << 62)

uint32_t mh_variable_value_bytes(const mh_variable *variable)
{
    return variable->dtype.bits / 8u;
}

void mh_variable_steps_c(mh_variable *variable)
{
    uint64_t step = mh_variable_value_bytes(variable);
    for (uint32_t d = variable->dims; d-- > 0;) {
        variable->steps[d] = step;
        step *= variable->chunk[d];
    }
}

void mh_variable_steps_f(mh_variable *variable)
{
    uint64_t step = mh_variable_value_bytes(variable);
    for (uint32_t d = 0; d < variable->dims; d++) {
        variable->steps[d] = step;
        step *= variable->chunk[d];
    }
}

mh_status mh_variable_steps_transposed(mh_variable *variable, const uint32_t *order, mh_error *err)
{
    uint64_t step = mh_variable_value_bytes(variable);
    uint32_t seen = 0;
    for (uint32_t k = variable->dims; k-- > 0;) {
        if (order[k] >= variable->dims || (seen & 1u << order[k]))
            return mh_fail(err, MH_ERR_INVALID, "%s: the order of a transpose names %u %s",
                           variable->name, order[k],
                           order[k] >= variable->dims ? "of fewer dimensions" : "twice");
        seen |= 1u << order[k];
        variable->steps[order[k]] = step;
        step *= variable->chunk[order[k]];
    }
    return MH_OK;
}

mh_status mh_variable_check(const mh_variable *variable, uint64_t *out_chunk_bytes,
                            uint64_t *out_chunks, mh_error *err)
{
    uint64_t bytes = mh_variable_value_bytes(variable), chunks = 1;
    if (variable->dims > MH_DIMS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s has %u dimensions, and %d are the most",
                       variable->name, variable->dims, MH_DIMS_MOST);
    if (bytes == 0 || bytes > MH_VALUE_BYTES_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s has values of %u bits", variable->name,
                       variable->dtype.bits);
    for (uint32_t d = 0; d < variable->dims; d++) {
        if (variable->chunk[d] == 0)
            return mh_fail(err, MH_ERR_INVALID, "%s has chunks of length 0 along %s",
                           variable->name, variable->dim_names[d]);
        if (variable->shape[d] > BYTES_MOST ||
            __builtin_mul_overflow(bytes, variable->chunk[d], &bytes) || bytes > BYTES_MOST ||
            __builtin_mul_overflow(chunks, mh_variable_chunks_along(variable, d), &chunks) ||
            chunks > BYTES_MOST)
            return mh_fail(err, MH_ERR_INVALID, "%s is too large: see its shape and chunks",
                           variable->name);
    }
    *out_chunk_bytes = bytes;
    *out_chunks = chunks;
    return MH_OK;
}
