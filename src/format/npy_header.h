/* npy_header.h - the head of an .npy file, read by a pure function over its bytes
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_NPY_HEADER_H
#define MH_FORMAT_NPY_HEADER_H

#include <millhead/dataset.h>

#define MH_NPY_MAGIC "\x93NUMPY"
#define MH_NPY_MAGIC_BYTES 6u

/* Enough for every head that NumPy writes for up to a thousand members with ordinary names. */
#define MH_NPY_HEAD_MOST 65536
#define MH_NPY_MEMBERS_MOST 1024
#define MH_NPY_NAME_ROOM 128

/* A part of each element of the array that becomes a field. Its values lie at `offset` plus a
 * multiple of each stride. */
typedef struct mh_npy_member {
    char
        name[MH_NPY_NAME_ROOM]; /* UTF-8; "pos.x" where structs are nested; "": the whole element */
    mh_dtype dtype; /* dates and times are int64, strings uint8 with one more dimension */
    uint8_t swap;   /* bytes of each number that stand in the other order; 1: none do */
    uint32_t dims;
    int64_t shape[MH_DIMS_MOST];
    uint64_t strides[MH_DIMS_MOST]; /* in bytes */
    uint64_t offset;                /* in the element */
} mh_npy_member;

typedef struct mh_npy_header {
    uint32_t dims;
    int64_t shape[MH_DIMS_MOST + 1]; /* of the whole array */
    int fortran;                     /* the first index changes fastest */
    uint64_t item_bytes;             /* of one element */
    uint64_t data_offset;
    uint64_t data_bytes;
    uint32_t member_count; /* 1, without a name, where the type has no members */
    mh_npy_member members[MH_NPY_MEMBERS_MOST];
} mh_npy_header;

/* Reads the first `size` bytes of a file; on failure *out is undefined. Errors: MH_ERR_CORRUPT,
 * with the offset; MH_ERR_UNSUPPORTED for what is sound and not read here, by name: objects, long
 * doubles, too many dimensions or members. */
MH_MUST_CHECK mh_status mh_npy_header_read(mh_npy_header *out, const uint8_t *bytes, size_t size,
                                           mh_error *err);

/* What a type such as "<f4" is: dtype, swap and the dimension of a string; *out_bytes of each. The
 * rest of *out is left alone. */
MH_MUST_CHECK mh_status mh_npy_type_read(mh_npy_member *out, uint64_t *out_bytes, const char *type,
                                         mh_error *err);

#endif
