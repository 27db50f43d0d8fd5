/* zarr_hierarchy.c - the arrays of a Zarr store
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/zarr_hierarchy.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- documents --- */

static mh_status add_document(mh_zarr_documents *documents, const char *path, size_t length,
                              mh_zarr_document document, mh_error *err)
{
    size_t count = documents->count;
    /* Room doubles: where the count is a power of two the list is full. */
    if ((count & (count - 1)) == 0) {
        mh_zarr_document *list =
            mh_realloc(documents->list, count ? 2 * count : 1, sizeof *documents->list);
        if (!list)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for metadata");
        documents->list = list;
    }
    while (length && path[length - 1] == '/')
        length--;
    document.path = mh_calloc(length + 1, 1);
    if (!document.path)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for metadata");
    memcpy(document.path, path, length);
    documents->list[documents->count++] = document;
    return MH_OK;
}

void mh_zarr_documents_free(mh_zarr_documents *documents)
{
    for (size_t i = 0; i < documents->count; i++) {
        mh_free(documents->list[i].path);
        mh_free(documents->list[i].text);
    }
    mh_free(documents->list);
    *documents = (mh_zarr_documents){0};
}

static bool ends_with(const char *key, const char *name, size_t *out_path)
{
    size_t length = strlen(key), tail = strlen(name);
    if (length < tail || strcmp(key + length - tail, name) != 0 ||
        (length > tail && key[length - tail - 1] != '/'))
        return false;
    *out_path = length - tail;
    return true;
}

static bool is_array(mh_json_view document)
{
    return mh_json_view_is(mh_json_member(document, "node_type"), "array");
}

/* "t2m/.zarray": {…}, …  of version 2; "t2m": {…}, … of version 3. */
static mh_status add_member(mh_zarr_documents *out, bool version2, const char *key,
                            mh_json_view value, mh_error *err)
{
    size_t length = strlen(key);
    mh_zarr_document document = {.view = value};
    if (version2) {
        document.attributes = ends_with(key, ".zattrs", &length);
        if (!document.attributes && !ends_with(key, ".zarray", &length))
            return MH_OK;
    } else if (!is_array(value)) {
        return MH_OK;
    }
    return add_document(out, key, length, document, err);
}

mh_status mh_zarr_documents_read(mh_zarr_documents *out, mh_json_view root, bool *consolidated,
                                 mh_error *err)
{
    mh_json_view inline_ = mh_json_member(root, "consolidated_metadata");
    bool version2 = mh_json_member(root, "zarr_consolidated_format").text != NULL;
    mh_json_view metadata = mh_json_member(version2 ? root : inline_, "metadata"), value;
    mh_json_walk walk;
    mh_json_token key;
    char text[MH_NAME_MOST];
    *consolidated = mh_json_walk_init(&walk, metadata) && walk.object;
    while (*consolidated && mh_json_walk_next(&walk, &key, &value)) {
        if (mh_json_text(&key, text, sizeof text) + 8 > sizeof text)
            return mh_fail(err, MH_ERR_CORRUPT, "a key in consolidated metadata is too long");
        MH_TRY(add_member(out, version2, text, value, err));
    }
    return MH_OK;
}

/* --- arrays --- */

static int by_path(const void *a, const void *b)
{
    const mh_zarr_document *left = a, *right = b;
    int order = strcmp(left->path, right->path);
    return order ? order : left->attributes - right->attributes; /* the array before its own */
}

static uint64_t hash_text(uint64_t hash, mh_json_view view)
{
    for (size_t i = 0; i < view.size; i++)
        hash = (hash ^ (uint8_t)view.text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The field of "a/b" is called so; that of an array which is the whole store, as the store is:
 * "era5.zarr" gives "era5". */
static char *name_of(const char *path, const char *store_path)
{
    size_t length = strlen(store_path);
    const char *from = path;
    if (*path) {
        length = strlen(path);
    } else {
        while (length > 1 && store_path[length - 1] == '/')
            length--;
        from = store_path + length;
        while (from > store_path && from[-1] != '/')
            from--;
        length -= (size_t)(from - store_path);
        const char *dot = memchr(from, '.', length);
        if (dot && dot != from)
            length = (size_t)(dot - from);
    }
    char *name = mh_calloc(length + 1, 1);
    return name ? memcpy(name, from, length) : NULL;
}

static mh_status add_node(mh_zarr_nodes *out, const mh_zarr_document *document,
                          mh_json_view attributes, const char *store_path, mh_error *err)
{
    mh_zarr_node *node = &out->list[out->count];
    *node = (mh_zarr_node){.name = name_of(document->path, store_path)};
    node->path = mh_calloc(strlen(document->path) + 1, 1);
    out->count++;
    if (!node->name || !node->path)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for metadata");
    memcpy(node->path, document->path, strlen(document->path));
    node->hash = hash_text(UINT64_C(0xcbf29ce484222325), document->view);
    if (attributes.text)
        node->hash = hash_text(node->hash, attributes);
    if (mh_zarr_array_read(&node->array, document->view, attributes, &node->refused) == MH_OK)
        node->refused.code = MH_OK;
    else
        mh_error_prefix(&node->refused, "%s: array '%s'", store_path, node->name);
    return MH_OK;
}

mh_status mh_zarr_nodes_of(mh_zarr_nodes *out, mh_zarr_documents *documents, const char *store_path,
                           mh_error *err)
{
    const size_t count = documents->count;
    out->list = mh_calloc(count ? count : 1, sizeof *out->list);
    if (!out->list)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for metadata");
    if (count)
        qsort(documents->list, count, sizeof *documents->list, by_path);
    for (size_t i = 0; i < count; i++) {
        const mh_zarr_document *document = &documents->list[i];
        mh_json_view attributes = {NULL, 0};
        if (document->attributes)
            continue;
        if (i && !document[-1].attributes && strcmp(document[-1].path, document->path) == 0)
            continue; /* told twice */
        for (size_t k = i + 1; k < count && strcmp(documents->list[k].path, document->path) == 0;
             k++)
            if (documents->list[k].attributes)
                attributes = documents->list[k].view;
        MH_TRY(add_node(out, document, attributes, store_path, err));
    }
    return MH_OK;
}

void mh_zarr_nodes_free(mh_zarr_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++) {
        mh_free(nodes->list[i].path);
        mh_free(nodes->list[i].name);
    }
    mh_free(nodes->list);
    *nodes = (mh_zarr_nodes){0};
}

/* --- looking --- */

typedef struct finding {
    mh_zarr_store *store;
    const char *path;
    mh_zarr_documents *documents;
} finding;

/* Reads a document of the store; *out points into *text, which the caller frees. */
static mh_status get_document(const finding *f, const char *key, uint8_t **text, mh_json_view *out,
                              mh_error *err)
{
    uint64_t size = 0;
    char what[64];
    MH_TRY(mh_zarr_store_get(f->store, key, text, &size, err));
    (void)snprintf(what, sizeof what, "%.50s", key);
    mh_status status = mh_json_view_of(out, (const char *)*text, (size_t)size, what, err);
    if (status != MH_OK) {
        mh_error_prefix(err, "%s", f->path);
        mh_free(*text);
        *text = NULL;
    }
    return status;
}

static mh_status found(void *context, const char *key, bool *array, mh_error *err)
{
    const finding *f = context;
    mh_zarr_document document = {0};
    size_t length = 0;
    document.attributes = ends_with(key, ".zattrs", &length);
    MH_TRY(get_document(f, key, &document.text, &document.view, err));
    bool version2 = ends_with(key, ".zarray", &length);
    if (!version2 && !document.attributes) {
        (void)ends_with(key, "zarr.json", &length);
        if (!is_array(document.view)) {
            mh_free(document.text);
            return MH_OK;
        }
    }
    *array = *array || !document.attributes;
    size_t before = f->documents->count;
    mh_status status = add_document(f->documents, key, length, document, err);
    if (f->documents->count == before)
        mh_free(document.text);
    return status;
}

/* The one document that has it all: 1; there is none: 0. */
static mh_status try_consolidated(const finding *f, const char *key, bool *done, uint8_t **text,
                                  mh_error *err)
{
    mh_json_view view = {NULL, 0};
    mh_error missing;
    *done = false;
    mh_status status = get_document(f, key, text, &view, &missing);
    if (status == MH_ERR_NOT_FOUND)
        return MH_OK;
    if (status != MH_OK) {
        if (err)
            *err = missing;
        return status;
    }
    status = mh_zarr_documents_read(f->documents, view, done, err);
    if (status == MH_OK && !*done && is_array(view)) {
        *done = true;
        status = add_document(f->documents, "", 0, (mh_zarr_document){.view = view}, err);
    }
    return status;
}

static mh_status find_documents(const finding *f, uint8_t **text, mh_error *err)
{
    bool done;
    MH_TRY(try_consolidated(f, "zarr.json", &done, text, err));
    if (done)
        return MH_OK;
    mh_free(*text);
    *text = NULL;
    MH_TRY(try_consolidated(f, ".zmetadata", &done, text, err));
    return done ? MH_OK : mh_zarr_store_walk(f->store, found, (void *)f, err);
}

mh_status mh_zarr_nodes_read(mh_zarr_nodes *out, mh_zarr_store *store, const char *path,
                             mh_error *err)
{
    mh_zarr_documents documents = {0};
    uint8_t *text = NULL;
    const finding f = {.store = store, .path = path, .documents = &documents};
    mh_status status = find_documents(&f, &text, err);
    if (status == MH_OK)
        status = mh_zarr_nodes_of(out, &documents, path, err);
    if (status == MH_OK && out->count == 0)
        status = mh_fail(err, MH_ERR_NOT_FOUND, "%s holds no Zarr array", path);
    mh_zarr_documents_free(&documents);
    mh_free(text);
    return status;
}
