/* npy_header.h - the head of an .npy file, read by a pure function over its bytes
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_NPY_HEADER_H
#define MH_FORMAT_NPY_HEADER_H

#include <millhead/dataset.h>

/* Enough for every head that NumPy writes for arrays without named members. */
#define MH_NPY_HEAD_MOST 65536

typedef struct mh_npy_header {
    mh_dtype dtype; /* dates and times as int64, strings as uint8 with one more dimension */
    uint32_t dims;
    int64_t shape[MH_DIMS_MOST + 1]; /* of the whole array */
    uint64_t data_offset;
    uint64_t data_bytes;
} mh_npy_header;

/* Reads the first `size` bytes of a file. Errors: MH_ERR_CORRUPT, with the offset;
 * MH_ERR_UNSUPPORTED for what is sound and not read here, by name: objects, long doubles, named
 * members, Fortran order, the other byte order, too many dimensions. */
MH_MUST_CHECK mh_status mh_npy_header_read(mh_npy_header *out, const uint8_t *bytes, size_t size,
                                           mh_error *err);

#endif
