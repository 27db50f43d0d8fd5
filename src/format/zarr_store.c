/* zarr_store.c - where the keys of a Zarr store lie
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/zarr_store.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/zarr_array.h"
#include "format/zip_directory.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MOST 32u /* groups inside groups */

/* --- opening --- */

static char *copy_text(const char *text, size_t length)
{
    char *copy = mh_calloc(length + 1, 1);
    return copy ? memcpy(copy, text, length) : NULL;
}

/* Places name objects from 0 on; those of other stores come before them. */
static void count_objects_from(mh_zarr_places *places, uint32_t first)
{
    for (size_t i = 0; i < places->count; i++)
        places->list[i].object += first;
}

static mh_status open_zip(mh_zarr_store *store, const char *path, mh_error *err)
{
    uint32_t object;
    store->listed = true;
    MH_TRY(mh_dataset_add_object(store->dataset, path, &object, err));
    MH_TRY(mh_zarr_places_zip(&store->places, store->dataset, object, err));
    count_objects_from(&store->places, object);
    return MH_OK;
}

/* The objects that references name, and the source that they are reached by. */
static mh_status add_urls(mh_dataset *dataset, char **urls, uint32_t count, mh_error *err)
{
    const mh_source_type *source, *known = NULL; /* of the objects that are there */
    mh_objects *objects = &dataset->objects;
    mh_object *list = mh_realloc(objects->list, objects->count + (size_t)count + 1, sizeof *list);
    if (!list)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %u objects", count);
    objects->list = list;
    if (objects->count)
        MH_TRY(mh_source_of(&known, list[0].name, err));
    for (uint32_t i = 0; i < count; i++) {
        const char *name = strncmp(urls[i], "file://", 7) == 0 ? urls[i] + 7 : urls[i];
        MH_TRY(mh_source_of(&source, name, err));
        if (known && source != known)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "references to both %s and %s", list[0].name,
                           urls[i]);
        dataset->source = known = source;
        char *copy = copy_text(name, strlen(name));
        if (!copy)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for %u objects", count);
        list[objects->count++] = (mh_object){.name = copy, .size = MH_SIZE_UNKNOWN};
    }
    return MH_OK;
}

static mh_status open_references(mh_zarr_store *store, const char *path, mh_error *err)
{
    uint8_t *text = NULL;
    uint64_t size = 0;
    char **urls = NULL;
    uint32_t count = 0;
    const uint32_t first = store->dataset->objects.count;
    store->listed = true;
    MH_TRY(mh_dataset_get(store->dataset, path, MH_ZARR_TEXT_MOST, &text, &size, err));
    mh_status status = mh_zarr_places_references(&store->places, (const char *)text, (size_t)size,
                                                 &urls, &count, err);
    count_objects_from(&store->places, first);
    if (status == MH_OK)
        status = add_urls(store->dataset, urls, count, err);
    else
        mh_error_prefix(err, "%s", path);
    for (uint32_t i = 0; i < count; i++)
        mh_free(urls[i]);
    mh_free((void *)urls);
    mh_free(text);
    return status;
}

/* Files tell by their first bytes what they are; all else is a directory. */
mh_status mh_zarr_store_open(mh_zarr_store *store, mh_dataset *dataset, const char *path,
                             mh_error *err)
{
    struct stat about;
    uint8_t head[2] = {0};
    uint64_t got = 0;
    size_t length = strlen(path);
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    *store = (mh_zarr_store){.dataset = dataset};
    bool folder =
        dataset->source == &mh_source_file && stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    if (!folder && dataset->source->get(path, &options, sizeof head, head, &got, err) == MH_OK) {
        if (got == 2 && memcmp(head, "PK", 2) == 0)
            return open_zip(store, path, err);
        if (got && strchr("{ \n", (char)head[0]))
            return open_references(store, path, err);
    }
    while (length > 1 && path[length - 1] == '/')
        length--;
    store->root = copy_text(path, length);
    return store->root ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for %s", path);
}

void mh_zarr_store_close(mh_zarr_store *store)
{
    mh_free(store->root);
    mh_free(store->places.list);
    mh_free(store->places.memory);
}

/* --- lists --- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const mh_zarr_place *)a)->key, ((const mh_zarr_place *)b)->key);
}

/* Keys lie behind each other in memory: the later of two equal ones stands higher. */
static int by_key_then_age(const void *a, const void *b)
{
    int order = by_key(a, b);
    const char *left = ((const mh_zarr_place *)a)->key, *right = ((const mh_zarr_place *)b)->key;
    return order ? order : (left > right) - (left < right);
}

void mh_zarr_places_sort(mh_zarr_places *places)
{
    size_t kept = 0;
    if (places->count)
        qsort(places->list, places->count, sizeof *places->list, by_key_then_age);
    for (size_t i = 0; i < places->count; i++)
        if (i + 1 == places->count || by_key(&places->list[i], &places->list[i + 1]) != 0)
            places->list[kept++] = places->list[i];
    places->count = kept;
}

const mh_zarr_place *mh_zarr_places_find(const mh_zarr_places *places, const char *key)
{
    const mh_zarr_place wanted = {.key = key};
    if (!places->count)
        return NULL;
    return bsearch(&wanted, places->list, places->count, sizeof *places->list, by_key);
}

/* --- metadata --- */

static mh_status get_listed(const mh_zarr_store *store, const mh_zarr_place *place, uint8_t **out,
                            uint64_t *size, mh_error *err)
{
    mh_source *source = NULL;
    mh_dataset *dataset = store->dataset;
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    uint64_t got = 0, begin = 0;
    if (place->whole)
        return mh_dataset_get(dataset, dataset->objects.list[place->object].name, MH_ZARR_TEXT_MOST,
                              out, size, err);
    uint8_t *bytes = mh_calloc(place->header + place->size + 1, 1);
    if (!bytes)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %s", place->key);
    mh_read read = {.object = place->object,
                    .offset = place->offset,
                    .size = place->header + place->size,
                    .into = bytes};
    if (place->bytes) {
        memcpy(bytes, place->bytes, place->size);
        *out = bytes;
        return MH_OK;
    }
    mh_status status = dataset->source->open(&source, &dataset->objects, &options, err);
    if (status == MH_OK && place->size)
        status = mh_source_read(source, &read, &got, err);
    if (status == MH_OK && place->header)
        status = mh_zip_local_skip(&begin, bytes, place->header, err);
    mh_source_close(source);
    if (status != MH_OK) {
        mh_free(bytes);
        return status;
    }
    memmove(bytes, bytes + begin, place->size);
    bytes[place->size] = '\0';
    *out = bytes;
    return MH_OK;
}

mh_status mh_zarr_store_get(const mh_zarr_store *store, const char *key, uint8_t **out,
                            uint64_t *size, mh_error *err)
{
    char name[MH_NAME_MOST];
    if (!store->listed) {
        if (snprintf(name, sizeof name, "%s/%s", store->root, key) >= (int)sizeof name)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "the key %.100s… is too long", key);
        return mh_dataset_get(store->dataset, name, MH_ZARR_TEXT_MOST, out, size, err);
    }
    const mh_zarr_place *place = mh_zarr_places_find(&store->places, key);
    if (!place)
        return mh_fail(err, MH_ERR_NOT_FOUND, "there is no %s in it", key);
    if (place->size > MH_ZARR_TEXT_MOST)
        return mh_fail(err, MH_ERR_CORRUPT, "%s has %llu bytes", key,
                       (unsigned long long)place->size);
    *size = place->size;
    return get_listed(store, place, out, size, err);
}

/* --- walking --- */

bool mh_zarr_is_document(const char *key)
{
    const char *slash = strrchr(key, '/');
    const char *name = slash ? slash + 1 : key;
    return strcmp(name, "zarr.json") == 0 || strcmp(name, ".zarray") == 0 ||
           strcmp(name, ".zattrs") == 0;
}

typedef struct walk {
    mh_zarr_store *store;
    mh_zarr_each *each;
    void *context;
} walk;

static mh_status walk_folder(const walk *w, const char *prefix, unsigned depth, mh_error *err);

/* The documents of one folder. */
static mh_status walk_documents(const walk *w, const char *directory, const char *prefix,
                                bool *array, mh_error *err)
{
    static const char *const names[] = {"zarr.json", ".zarray", ".zattrs"};
    char path[MH_NAME_MOST];
    struct stat about;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (snprintf(path, sizeof path, "%s/%s", directory, names[i]) >= (int)sizeof path ||
            stat(path, &about) != 0 || !S_ISREG(about.st_mode))
            continue;
        (void)snprintf(path, sizeof path, "%s%s", prefix, names[i]);
        MH_TRY(w->each(w->context, path, array, err));
    }
    return MH_OK;
}

static mh_status walk_below(const walk *w, const char *directory, const char *prefix,
                            unsigned depth, mh_error *err)
{
    struct dirent **names = NULL;
    mh_status status = MH_OK;
    int count = scandir(directory, &names, NULL, alphasort);
    if (count < 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot list %s", directory);
    for (int i = 0; i < count; i++) {
        char below[MH_NAME_MOST];
        const char *name = names[i]->d_name;
        bool folder = names[i]->d_type == DT_DIR || names[i]->d_type == DT_LNK ||
                      names[i]->d_type == DT_UNKNOWN;
        if (status == MH_OK && folder && name[0] != '.' &&
            snprintf(below, sizeof below, "%s%s/", prefix, name) < (int)sizeof below)
            status = walk_folder(w, below, depth + 1, err);
        free(names[i]);
    }
    free(names);
    return status;
}

static mh_status walk_folder(const walk *w, const char *prefix, unsigned depth, mh_error *err)
{
    char directory[MH_NAME_MOST];
    struct stat about;
    bool array = false;
    if (depth > DEPTH_MOST || snprintf(directory, sizeof directory, "%s/%s", w->store->root,
                                       prefix) >= (int)sizeof directory)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s: groups nested too deep", w->store->root);
    if (stat(directory, &about) != 0 || !S_ISDIR(about.st_mode))
        return MH_OK;
    MH_TRY(walk_documents(w, directory, prefix, &array, err));
    return array ? MH_OK : walk_below(w, directory, prefix, depth, err);
}

/* Of a prefix of URLs all objects are listed. */
static mh_status walk_listed_object(void *context, const mh_object *object, mh_error *err)
{
    const walk *w = context;
    bool array;
    size_t root = strlen(w->store->root);
    if (strlen(object->name) <= root + 1 || !mh_zarr_is_document(object->name + root + 1))
        return MH_OK;
    return w->each(w->context, object->name + root + 1, &array, err);
}

mh_status mh_zarr_store_walk(mh_zarr_store *store, mh_zarr_each *each, void *context, mh_error *err)
{
    walk w = {.store = store, .each = each, .context = context};
    const mh_dataset *dataset = store->dataset;
    bool array;
    if (store->listed) {
        for (size_t i = 0; i < store->places.count; i++)
            if (mh_zarr_is_document(store->places.list[i].key))
                MH_TRY(each(context, store->places.list[i].key, &array, err));
        return MH_OK;
    }
    if (dataset->source == &mh_source_file)
        return walk_folder(&w, "", 0, err);
    if (!dataset->source->list)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "%s has no consolidated metadata, and %s cannot be listed: consolidate it",
                       store->root, dataset->source->name);
    char prefix[MH_NAME_MOST];
    (void)snprintf(prefix, sizeof prefix, "%s/", store->root);
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    return dataset->source->list(prefix, &options, walk_listed_object, &w, err);
}
