/* fuzz_zarr.c - fuzz target: metadata of Zarr stores is sound or refused, whatever the text
 * SPDX-License-Identifier: Apache-2.0
 *
 * The text is read as consolidated metadata, as one array's, and as references.
 */
#include "base/alloc.h"
#include "format/zarr_hierarchy.h"
#include "format/zarr_shards.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

/* What the rest of the reader relies on. */
static void check_array(const mh_zarr_array *array)
{
    uint64_t at[MH_DIMS_MOST], bytes = array->type.dtype.bits / 8, inner;
    uint32_t seen = 0;
    char key[1024];
    require(array->dims <= MH_DIMS_MOST && bytes >= 1 && bytes <= MH_VALUE_BYTES_MOST);
    for (uint32_t i = 0; i < array->dims; i++) {
        require(array->shape[i] >= 0 && array->chunk[i] >= 1 && array->grid[i] >= array->chunk[i]);
        require(array->order[i] < array->dims);
        seen |= 1u << array->order[i];
        bytes *= (uint64_t)array->chunk[i];
        at[i] = 0;
    }
    require(seen == (1u << array->dims) - 1);
    require(array->chain.bytes[0] == bytes && bytes <= MH_ZARR_CHUNK_MOST);
    require(array->shard_chunks >= 1);
    require(array->decoding.fill_count <= MH_CF_FILLS_MOST);
    require(mh_zarr_key(array, at, key, sizeof key) > 0);
    require(mh_zarr_shard_of(array, at, &inner) == 0 && inner == 0);
}

static void check_refused(const mh_error *err)
{
    require(err->code == MH_ERR_CORRUPT || err->code == MH_ERR_UNSUPPORTED);
    require(err->message[0] != '\0' && !strchr(err->message, '\n'));
}

static void as_hierarchy(mh_json_view root)
{
    mh_zarr_documents documents = {0};
    mh_zarr_nodes nodes = {0};
    mh_error err = {0};
    bool consolidated;
    if (mh_zarr_documents_read(&documents, root, &consolidated, &err) == MH_OK &&
        mh_zarr_nodes_of(&nodes, &documents, "x.zarr", &err) == MH_OK)
        for (size_t i = 0; i < nodes.count; i++) {
            require(nodes.list[i].name && nodes.list[i].path);
            if (nodes.list[i].refused.code == MH_OK)
                check_array(&nodes.list[i].array);
        }
    mh_zarr_nodes_free(&nodes);
    mh_zarr_documents_free(&documents);
}

static void as_references(const char *text, size_t size)
{
    mh_zarr_places places;
    char **urls = NULL;
    uint32_t count = 0;
    mh_error err = {0};
    if (mh_zarr_places_references(&places, text, size, &urls, &count, &err) == MH_OK)
        for (size_t i = 0; i < places.count; i++) {
            const mh_zarr_place *place = &places.list[i];
            require(mh_zarr_places_find(&places, place->key) == place);
            require(place->bytes || place->object < count);
        }
    else
        check_refused(&err);
    for (uint32_t i = 0; i < count; i++)
        mh_free(urls[i]);
    mh_free((void *)urls);
    mh_free(places.list);
    mh_free(places.memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mh_zarr_array array;
    mh_json_view root;
    mh_error err = {0};
    const char *text = (const char *)data;
    as_references(text, size);
    if (mh_json_view_of(&root, text, size, "metadata", &err) != MH_OK)
        return 0;
    if (mh_zarr_array_read(&array, root, mh_json_member(root, "attributes"), &err) == MH_OK)
        check_array(&array);
    else
        check_refused(&err);
    as_hierarchy(root);
    return 0;
}
