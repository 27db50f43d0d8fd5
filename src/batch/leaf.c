/* leaf.c - where one array of a batch lies in its slot, and what it is
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/leaf.h"

#include "base/error.h"

#include <string.h>

mh_status mh_leaf_measure(uint64_t *out_bytes, uint8_t type_bits, const int64_t *shape,
                          uint32_t dims, mh_error *err)
{
    uint64_t bytes = type_bits / 8u;
    bool empty = false;
    for (uint32_t i = 0; i < dims; i++) {
        if (shape[i] < 0)
            return mh_fail(err, MH_ERR_INVALID, "dimension %u is negative", i);
        empty = empty || shape[i] == 0;
        if (shape[i] > 0 && __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes))
            return mh_fail(err, MH_ERR_INVALID, "the shape overflows at dimension %u", i);
    }
    if (bytes > INT64_MAX)
        return mh_fail(err, MH_ERR_INVALID, "the array has more than 2^63 bytes");
    *out_bytes = empty ? 0 : bytes;
    return MH_OK;
}

mh_status mh_leaf_place(mh_leaf *leaf, uint64_t *end, uint64_t slot_bytes, mh_error *err)
{
    uint64_t bytes = 0;
    if (leaf->dims > MH_LEAF_DIMS)
        return mh_fail(err, MH_ERR_INVALID, "a leaf with %u dimensions", leaf->dims);
    MH_TRY(mh_leaf_measure(&bytes, leaf->type_bits, leaf->shape, leaf->dims, err));
    uint64_t behind = *end, offset;
    if (!mh_layout_part(&behind, bytes, &offset) || behind > slot_bytes)
        return mh_fail(err, MH_ERR_NOMEM, "the batch does not fit into its slot of %llu bytes",
                       (unsigned long long)slot_bytes);
    leaf->offset = offset;
    leaf->bytes = bytes;
    *end = behind;
    return MH_OK;
}

mh_array mh_leaf_array(const mh_leaf *leaf, void *data)
{
    mh_array array = {.dtype = {.code = leaf->type_code, .bits = leaf->type_bits},
                      .dims = leaf->dims,
                      .data = data,
                      .bytes = leaf->bytes};
    memcpy(array.shape, leaf->shape, leaf->dims * sizeof *array.shape);
    return array;
}

static bool type_known(uint8_t code, uint8_t bits)
{
    switch (code) {
    case 0: /* int */
    case 1: /* uint */
        return bits == 8 || bits == 16 || bits == 32 || bits == 64;
    case 2: /* float */
        return bits == 16 || bits == 32 || bits == 64;
    case 4: /* bfloat */
        return bits == 16;
    case 5: /* complex */
        return bits == 64 || bits == 128;
    case 6: /* bool */
        return bits == 8;
    default:
        return false;
    }
}

mh_status mh_leaf_check(const mh_leaf *leaf, uint64_t slot_bytes, mh_error *err)
{
    uint64_t bytes = 0;
    if (!type_known(leaf->type_code, leaf->type_bits))
        return mh_fail(err, MH_ERR_CORRUPT, "a leaf of unknown type %u with %u bits",
                       leaf->type_code, leaf->type_bits);
    if (leaf->dims > MH_LEAF_DIMS)
        return mh_fail(err, MH_ERR_CORRUPT, "a leaf with %u dimensions", leaf->dims);
    if (mh_leaf_measure(&bytes, leaf->type_bits, leaf->shape, leaf->dims, NULL) != MH_OK)
        return mh_fail(err, MH_ERR_CORRUPT, "a leaf with an impossible shape");
    if (bytes != leaf->bytes)
        return mh_fail(err, MH_ERR_CORRUPT, "a leaf of %llu bytes whose shape says %llu",
                       (unsigned long long)leaf->bytes, (unsigned long long)bytes);
    if (leaf->offset % MH_LEAF_ALIGN || leaf->offset > slot_bytes ||
        bytes > slot_bytes - leaf->offset)
        return mh_fail(err, MH_ERR_CORRUPT, "a leaf at %llu of %llu bytes, beyond its slot of %llu",
                       (unsigned long long)leaf->offset, (unsigned long long)bytes,
                       (unsigned long long)slot_bytes);
    return MH_OK;
}
