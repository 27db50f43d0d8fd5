/* zarr_array.h - what the metadata of a Zarr array says, read by pure functions over its text
 * SPDX-License-Identifier: Apache-2.0
 *
 * Versions 2 (.zarray and .zattrs) and 3 (zarr.json) become the same struct.
 */
#ifndef MH_FORMAT_ZARR_ARRAY_H
#define MH_FORMAT_ZARR_ARRAY_H

#include "array/variable.h"
#include "base/json_view.h"
#include "codec/chain.h"

#define MH_ZARR_NAME_ROOM 128                 /* bytes of a dimension's name, its end among them */
#define MH_ZARR_TEXT_MOST (UINT64_C(1) << 28) /* bytes of one metadata document */
#define MH_ZARR_CHUNK_MOST (UINT64_C(1) << 40)
#define MH_ZARR_SHARD_CHUNKS_MOST (UINT64_C(1) << 24)

/* Numbers as they are stored. */
typedef struct mh_zarr_type {
    mh_dtype dtype;
    bool big_endian;
} mh_zarr_type;

typedef struct mh_zarr_array {
    int version; /* 2 or 3 */
    uint32_t dims;
    int64_t shape[MH_DIMS_MOST];
    int64_t grid[MH_DIMS_MOST];  /* of what a key stands for: a chunk, or a shard of them */
    int64_t chunk[MH_DIMS_MOST]; /* of what is decoded */
    char dim_names[MH_DIMS_MOST][MH_ZARR_NAME_ROOM]; /* "": it has none */
    mh_zarr_type type;
    uint8_t fill[MH_VALUE_BYTES_MOST]; /* in the stored byte order; zeros where there is none */
    bool has_fill;
    uint32_t order[MH_DIMS_MOST]; /* the dimension that is number k in a chunk's bytes */
    char separator;               /* in keys: '.' or '/' */
    bool plain_keys;              /* 0.1 and not c/0/1 */
    mh_chain chain;               /* of a chunk */
    bool sharded, index_at_start;
    mh_chain index;        /* of a shard's index: 16 bytes for each chunk */
    uint64_t shard_chunks; /* chunks of a shard; 1 where it is not sharded */
    char codec_names[128]; /* for people: "bytes, blosc" */
    mh_decoding decoding;  /* what CF attributes ask for */
    char units[64];        /* of a coordinate: "hours since 1900-01-01"; "": none */
    char calendar[32];     /* of a coordinate: "noleap"; "": the standard one */
} mh_zarr_array;

/* `metadata` is a .zarray or a zarr.json, `attributes` a .zattrs (text NULL: there are none; of
 * version 3 they are in the metadata). The dims are at most MH_DIMS_MOST, the chunk lengths at
 * least 1, a chunk's bytes at most MH_ZARR_CHUNK_MOST. MH_ERR_CORRUPT; MH_ERR_UNSUPPORTED names the
 * type, codec, filter or extension that stands in the way. */
MH_MUST_CHECK mh_status mh_zarr_array_read(mh_zarr_array *out, mh_json_view metadata,
                                           mh_json_view attributes, mh_error *err);

/* The key of the chunk or shard at these places of the grid, without the array's path: its bytes,
 * not counting the NUL; 0: it does not fit. */
size_t mh_zarr_key(const mh_zarr_array *array, const uint64_t *at, char *out, size_t room);

/* --- its parts, each in a file of its own --- */

/* "<f4" and "float32". MH_ERR_UNSUPPORTED names the type. */
MH_MUST_CHECK mh_status mh_zarr_type_v2(mh_zarr_type *out, mh_json_view dtype, mh_error *err);
MH_MUST_CHECK mh_status mh_zarr_type_v3(mh_zarr_type *out, mh_json_view data_type, mh_error *err);

/* A fill value as bytes of the stored type; null: zeros. MH_ERR_CORRUPT. */
MH_MUST_CHECK mh_status mh_zarr_fill(const mh_zarr_type *type, mh_json_view value, uint8_t *out,
                                     mh_error *err);
/* The same as a number; false where it is complex. */
bool mh_zarr_fill_number(const mh_zarr_type *type, const uint8_t *fill, double *out);

/* From filters and compressor, or from the codecs of version 3: order, byte order, chains, shards.
 * Shape, grid and type are set. */
MH_MUST_CHECK mh_status mh_zarr_codecs_v2(mh_zarr_array *array, mh_json_view metadata,
                                          mh_error *err);
MH_MUST_CHECK mh_status mh_zarr_codecs_v3(mh_zarr_array *array, mh_json_view codecs, mh_error *err);

/* CF attributes, of an array whose type and fill are set. MH_ERR_CORRUPT. */
MH_MUST_CHECK mh_status mh_zarr_attributes(mh_zarr_array *array, mh_json_view attributes,
                                           mh_error *err);

#endif
