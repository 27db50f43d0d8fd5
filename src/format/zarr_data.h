/* zarr_data.h - an open Zarr store, or several that are joined: its arrays, the windows over them,
 * where chunks lie SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_ZARR_DATA_H
#define MH_FORMAT_ZARR_DATA_H

#include "array/amplification.h"
#include "format/zarr_hierarchy.h"
#include "format/zarr_shards.h"

/* The field of a window's first place along each dimension, on request. */
#define MH_ZARR_ORIGIN "_origin"
#define MH_ZARR_ORIGIN_TAG (UINT32_MAX >> 1)

/* One store of those that are joined; most often there is one. */
typedef struct mh_zarr_member {
    const char *path;
    mh_zarr_store store;
    mh_zarr_nodes nodes;
} mh_zarr_member;

/* One array that fields are made of, or a part of one. */
typedef struct mh_zarr_variable {
    const mh_zarr_member *member;
    const mh_zarr_node *node;
    uint32_t first_object; /* of a directory: the number of its first chunk or shard */
    uint64_t grid_count;
    mh_zarr_shard *shards; /* grid_count of them; NULL: it is not sharded */
    uint64_t chunk_bytes;  /* decoded */
} mh_zarr_variable;

/* Immutable once open. */
typedef struct mh_zarr_data {
    mh_zarr_member *members;
    size_t member_count;
    char joined[MH_ZARR_NAME_ROOM]; /* the dimension along which; "": there is one store */
    mh_zarr_variable *list;         /* the parts of one after each other, in order of members */
    mh_variable *variables;         /* what array/ knows of each */
    size_t count;
    mh_windows *windows;
    mh_amplification cost; /* in blocks */
    bool wants_origin;
    bool any_plain; /* some arrays are placed from their bytes as they were read */
} mh_zarr_data;

/* Opens the stores at `paths` as the dataset's own. What is there is freed by mh_zarr_close. */
MH_MUST_CHECK mh_status mh_zarr_open(mh_dataset *dataset, const char *const *paths, size_t count,
                                     mh_error *err);
void mh_zarr_close(mh_dataset *dataset);

/* The name of object `number` of a directory, for mh_objects. */
void mh_zarr_describe(const void *data, uint32_t number, mh_object *out, char *name);

/* Reads the indexes of the shards that windows reach into. */
MH_MUST_CHECK mh_status mh_zarr_shards_load(mh_dataset *dataset, mh_error *err);

/* --- units: chunks (zarr_units.c) --- */

mh_unit mh_zarr_unit(const mh_zarr_variable *variable, const uint64_t *at);
MH_MUST_CHECK mh_status mh_zarr_decode(const mh_zarr_variable *variable, const uint64_t *at,
                                       mh_bytes bytes, uint8_t *out, mh_chain_room *room,
                                       mh_error *err);
/* Of a store that is a list: where number `number` of the array's grid lies; NULL: nowhere. */
const mh_zarr_place *mh_zarr_place_of(const mh_zarr_variable *variable, uint64_t number);
/* Puts store, array and chunk before an error. */
void mh_zarr_name_chunk(const mh_zarr_variable *variable, const uint64_t *at, mh_error *err);

/* --- coordinates (zarr_load.c) --- */

/* The array `lat` along the dimension `lat`. */
bool mh_zarr_is_coordinate(const mh_zarr_node *node);
/* That of a dimension which can be read; NULL: there is none. */
const mh_zarr_node *mh_zarr_coordinate_of(const mh_zarr_member *member, const char *dim);

/* All values of an array as float64, decoded as CF says; the caller frees them with mh_free. While
 * the dataset opens: its source is opened and closed for it. */
MH_MUST_CHECK mh_status mh_zarr_read_values(const mh_zarr_member *member, const mh_zarr_node *node,
                                            double **out, uint64_t *out_count, mh_error *err);

/* What array/ has to know of a node. MH_ERR_INVALID, MH_ERR_UNSUPPORTED. */
MH_MUST_CHECK mh_status mh_zarr_variable_fill(mh_variable *out, const mh_zarr_node *node, bool cf,
                                              mh_error *err);

/* --- several stores as one (zarr_join.c) --- */

/* Of data->list, which has arrays of the first member: finds the dimension along which members are
 * joined (`wanted`, or the first one that varies) and puts into the list, behind each array that
 * has it, those of the other members. MH_ERR_INVALID names both stores that do not fit. */
MH_MUST_CHECK mh_status mh_zarr_join(mh_zarr_data *data, const char *wanted, mh_error *err);

/* That the parts of a variable are delivered in one type. MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_zarr_join_types(const mh_zarr_data *data, mh_error *err);

/* Texts that are "" where there are none. */
typedef struct mh_coordinate_kind {
    char units[64], calendar[32];
} mh_coordinate_kind;

/* The coordinate of all members together, which the caller frees. Times are in the units of the
 * first store, or, where stores differ, in seconds. */
MH_MUST_CHECK mh_status mh_zarr_join_values(const mh_zarr_data *data, const char *dim, double **out,
                                            uint64_t *out_count, mh_coordinate_kind *out_kind,
                                            mh_error *err);

#endif
