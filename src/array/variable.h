/* variable.h - one array of a dataset: named dimensions, cut into chunks of equal shape
 * SPDX-License-Identifier: Apache-2.0
 *
 * Formats fill these from their metadata; what is done with them (windows, placing) is the same for
 * all formats. Plain memory of the caller's, which also owns the texts.
 */
#ifndef MH_ARRAY_VARIABLE_H
#define MH_ARRAY_VARIABLE_H

#include "array/decoding.h"

#define MH_VALUE_BYTES_MOST 16 /* complex128 */

typedef struct mh_variable {
    const char *name;
    uint32_t dims;
    const char *dim_names[MH_DIMS_MOST];
    uint64_t shape[MH_DIMS_MOST];
    uint64_t chunk[MH_DIMS_MOST]; /* at least 1; the last chunk of a dimension is full too, what is
                                     beyond the shape is never read */
    mh_dtype dtype;
    uint8_t swapped; /* values stand in the other byte order than this machine's */
    /* Bytes from a value to the next along each dimension, inside a decoded chunk. */
    uint64_t steps[MH_DIMS_MOST];
    /* The value of chunks that are missing, as a chunk would hold it: `swapped` applies. */
    uint8_t fill[MH_VALUE_BYTES_MOST];
    mh_decoding decoding; /* all zero: values are delivered as they are */
    /* A variable may be several arrays, one behind the other along dimension number `along`: each
     * is a part, `goes_on` in all but the first, with its own length there. Name, dimensions, all
     * other lengths and the dtype are those of the first; chunks may differ along that dimension.
     */
    bool goes_on;
    uint32_t along;
    uint64_t begin; /* the parts before it end there */
} mh_variable;

/* Sets `steps` for chunks in C order (the last dimension lies together), or in Fortran's. */
void mh_variable_steps_c(mh_variable *variable);
void mh_variable_steps_f(mh_variable *variable);

/* Sets them for chunks whose bytes are the transposed chunk in C order: order[k] is the dimension
 * that is number k there (zarr's transpose codec). MH_ERR_INVALID: not a permutation. */
MH_MUST_CHECK mh_status mh_variable_steps_transposed(mh_variable *variable, const uint32_t *order,
                                                     mh_error *err);

/* Bytes of one value, and of a decoded chunk. MH_ERR_INVALID, which names the variable: the chunk
 * has a length of 0, or its bytes or the chunks are more than 2^63. */
uint32_t mh_variable_value_bytes(const mh_variable *variable);
MH_MUST_CHECK mh_status mh_variable_check(const mh_variable *variable, uint64_t *out_chunk_bytes,
                                          uint64_t *out_chunks, mh_error *err);

/* Chunks along a dimension; 0 where the array has length 0 there. */
static inline uint64_t mh_variable_chunks_along(const mh_variable *variable, uint32_t dim)
{
    uint64_t length = variable->shape[dim], chunk = variable->chunk[dim];
    return length / chunk + (length % chunk != 0);
}

#endif
