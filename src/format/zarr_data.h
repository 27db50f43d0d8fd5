/* zarr_data.h - an open Zarr store: its arrays, the windows over them, where chunks lie
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_ZARR_DATA_H
#define MH_FORMAT_ZARR_DATA_H

#include "array/amplification.h"
#include "format/zarr_hierarchy.h"
#include "format/zarr_shards.h"

/* The field of a window's first place along each dimension, on request. */
#define MH_ZARR_ORIGIN "_origin"
#define MH_ZARR_ORIGIN_TAG (UINT32_MAX >> 1)

/* One array that fields are made of. */
typedef struct mh_zarr_variable {
    const mh_zarr_node *node;
    uint32_t first_object; /* of a directory: the number of its first chunk or shard */
    uint64_t grid_count;
    mh_zarr_shard *shards; /* grid_count of them; NULL: it is not sharded */
    uint64_t chunk_bytes;  /* decoded */
} mh_zarr_variable;

/* Immutable once open. */
typedef struct mh_zarr_data {
    char *path;
    mh_zarr_store store;
    mh_zarr_nodes nodes;
    mh_zarr_variable *list;
    mh_variable *variables; /* what array/ knows of each */
    size_t count;
    mh_windows *windows;
    mh_amplification cost; /* in blocks */
    bool wants_origin;
    bool any_plain; /* some arrays are placed from their bytes as they were read */
} mh_zarr_data;

/* Opens the store at `path` as the dataset's own. What is there is freed by mh_zarr_close. */
MH_MUST_CHECK mh_status mh_zarr_open(mh_dataset *dataset, const char *const *paths, size_t count,
                                     mh_error *err);
void mh_zarr_close(mh_dataset *dataset);

/* The name of object `number` of a directory, for mh_objects. */
void mh_zarr_describe(const void *data, uint32_t number, mh_object *out, char *name);

/* Reads the indexes of the shards that windows reach into. */
MH_MUST_CHECK mh_status mh_zarr_shards_load(mh_dataset *dataset, mh_error *err);

/* --- units: chunks (zarr_units.c) --- */

mh_unit mh_zarr_unit(const mh_zarr_data *data, const mh_zarr_variable *variable,
                     const uint64_t *at);
MH_MUST_CHECK mh_status mh_zarr_decode(const mh_zarr_data *data, const mh_zarr_variable *variable,
                                       const uint64_t *at, mh_bytes bytes, uint8_t *out,
                                       mh_chain_room *room, mh_error *err);
/* Of a store that is a list: where number `number` of the array's grid lies; NULL: nowhere. */
const mh_zarr_place *mh_zarr_place_of(const mh_zarr_data *data, const mh_zarr_node *node,
                                      uint64_t number);
/* Puts store, array and chunk before an error. */
void mh_zarr_name_chunk(const mh_zarr_data *data, const mh_zarr_variable *variable,
                        const uint64_t *at, mh_error *err);

/* All values of an array as float64, decoded as CF says; the caller frees them with mh_free. While
 * the dataset opens: its source is opened and closed for it. */
MH_MUST_CHECK mh_status mh_zarr_read_values(mh_dataset *dataset, const mh_zarr_node *node,
                                            double **out, uint64_t *out_count, mh_error *err);

/* What array/ has to know of a node. Gives unnamed dimensions names. MH_ERR_INVALID,
 * MH_ERR_UNSUPPORTED. */
MH_MUST_CHECK mh_status mh_zarr_variable_fill(mh_variable *out, mh_zarr_node *node, bool cf,
                                              mh_error *err);

#endif
