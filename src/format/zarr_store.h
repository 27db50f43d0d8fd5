/* zarr_store.h - where the keys of a Zarr store lie: files below a directory, or a list of places
 * SPDX-License-Identifier: Apache-2.0
 *
 * A directory (or a prefix of URLs) has an object for each key, whose name follows from the key. A
 * zip archive and a reference file say where each key's bytes are: a range of an object, or a few
 * bytes in the list itself.
 */
#ifndef MH_FORMAT_ZARR_STORE_H
#define MH_FORMAT_ZARR_STORE_H

#include "format/format.h"

#include <stdbool.h>

/* Where the bytes of a key lie. */
typedef struct mh_zarr_place {
    const char *key;
    const uint8_t *bytes; /* here, `size` of them; NULL: in an object */
    uint32_t object;
    uint32_t header; /* in a zip archive: the most bytes of a header that comes first */
    bool whole;      /* the object from its first byte to its last */
    uint64_t offset; /* where the header begins, if there is one */
    uint64_t size;   /* without the header */
} mh_zarr_place;

/* Places in order of key. The texts and bytes lie in `memory`. */
typedef struct mh_zarr_places {
    mh_zarr_place *list;
    size_t count;
    uint8_t *memory;
} mh_zarr_places;

typedef struct mh_zarr_store {
    mh_dataset *dataset;
    char *root;  /* of a directory, without a slash at its end */
    bool listed; /* keys are in `places` */
    mh_zarr_places places;
} mh_zarr_store;

/* Opens what lies at `path`. Of a list, adds to the dataset's objects (and sets its source, where
 * those are reached by another). On failure the store is closed by its caller too. */
MH_MUST_CHECK mh_status mh_zarr_store_open(mh_zarr_store *store, mh_dataset *dataset,
                                           const char *path, mh_error *err);
void mh_zarr_store_close(mh_zarr_store *store);

/* The place of a key in a list; NULL: it has none. Pure, any thread. */
const mh_zarr_place *mh_zarr_places_find(const mh_zarr_places *places, const char *key);

/* All bytes of a key and a 0 behind them, which the caller frees with mh_free. MH_ERR_NOT_FOUND. */
MH_MUST_CHECK mh_status mh_zarr_store_get(const mh_zarr_store *store, const char *key,
                                          uint8_t **out, uint64_t *size, mh_error *err);

/* Called with the key of a metadata document. Sets *array where it is an array's: below that there
 * are only chunks, perhaps millions. */
typedef mh_status mh_zarr_each(void *context, const char *key, bool *array, mh_error *err);

/* Calls `each` for every document (zarr.json, .zarray, .zattrs) below the root. For stores without
 * consolidated metadata. */
MH_MUST_CHECK mh_status mh_zarr_store_walk(mh_zarr_store *store, mh_zarr_each *each, void *context,
                                           mh_error *err);

/* Whether a key names a metadata document. */
bool mh_zarr_is_document(const char *key);

/* --- lists, each in a file of its own --- */

/* From a zip archive, which is that object. MH_ERR_CORRUPT, MH_ERR_UNSUPPORTED (compressed). */
MH_MUST_CHECK mh_status mh_zarr_places_zip(mh_zarr_places *out, mh_dataset *dataset,
                                           uint32_t object, mh_error *err);

/* From the text of a kerchunk reference file. *urls gets the names of objects, counted from 0;
 * the caller frees each and the list, and what *out holds, on failure too. Pure. */
MH_MUST_CHECK mh_status mh_zarr_places_references(mh_zarr_places *out, const char *text,
                                                  size_t size, char ***urls, uint32_t *url_count,
                                                  mh_error *err);

/* Brings the list into order of key; of several with the same key the last one stays. */
void mh_zarr_places_sort(mh_zarr_places *places);

#endif
