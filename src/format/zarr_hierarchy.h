/* zarr_hierarchy.h - the arrays of a Zarr store, from consolidated metadata or found by looking
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_ZARR_HIERARCHY_H
#define MH_FORMAT_ZARR_HIERARCHY_H

#include "format/zarr_array.h"
#include "format/zarr_store.h"

typedef struct mh_zarr_node {
    char *path;          /* in the store, without slashes at its ends; "": the root */
    char *name;          /* what its field is called */
    mh_zarr_array array; /* as far as it was read */
    mh_error refused;    /* code is MH_OK where it can be read */
    uint64_t hash;       /* of its metadata */
} mh_zarr_node;

typedef struct mh_zarr_nodes {
    mh_zarr_node *list; /* in order of path */
    size_t count;
} mh_zarr_nodes;

/* Reads the metadata of all arrays: one document where it is consolidated. An array that cannot be
 * read is there with its error. `path` is the store's, for messages and for the name of a single
 * array. Errors: MH_ERR_CORRUPT, MH_ERR_NOT_FOUND (nothing of Zarr's is there), those of the
 * source. What was read is freed by the caller on failure too. */
MH_MUST_CHECK mh_status mh_zarr_nodes_read(mh_zarr_nodes *out, mh_zarr_store *store,
                                           const char *path, mh_error *err);
void mh_zarr_nodes_free(mh_zarr_nodes *nodes);

/* --- pure parts, for the fuzzer too --- */

/* One document of metadata. */
typedef struct mh_zarr_document {
    char *path;        /* of the array or group it belongs to */
    bool attributes;   /* .zattrs, else .zarray or zarr.json */
    mh_json_view view; /* in text that outlives it */
    uint8_t *text;     /* its own, or NULL */
} mh_zarr_document;

typedef struct mh_zarr_documents {
    mh_zarr_document *list;
    size_t count;
} mh_zarr_documents;

/* The documents in a .zmetadata, or in a zarr.json that has consolidated_metadata. They point into
 * the text. *consolidated is false where the document has none. */
MH_MUST_CHECK mh_status mh_zarr_documents_read(mh_zarr_documents *out, mh_json_view root,
                                               bool *consolidated, mh_error *err);
void mh_zarr_documents_free(mh_zarr_documents *documents);

/* Arrays from documents, which come into order of path. */
MH_MUST_CHECK mh_status mh_zarr_nodes_of(mh_zarr_nodes *out, mh_zarr_documents *documents,
                                         const char *store_path, mh_error *err);

#endif
