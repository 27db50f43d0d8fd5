/* listed.c - directories and files while they are being listed, then sorted into an index
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/listed.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/listing.h"

#include <stdlib.h>
#include <string.h>

/* --- growing --- */

static mh_status fail_memory(mh_error *err)
{
    return mh_fail(err, MH_ERR_NOMEM, "no memory for a list of files");
}

/* Room for one more item of `size` bytes. */
static mh_status grow(void *list, uint32_t count, uint32_t *room, size_t size, mh_error *err)
{
    void *old;
    if (count < *room)
        return MH_OK;
    if (count >= UINT32_MAX / 2)
        return mh_fail(err, MH_ERR_INVALID, "more than two billion files");
    uint32_t wanted = count ? count * 2 : 64;
    memcpy(&old, list, sizeof old);
    void *grown = mh_realloc(old, wanted, size);
    if (!grown)
        return fail_memory(err);
    memcpy(list, &grown, sizeof grown);
    *room = wanted;
    return MH_OK;
}

/* Puts `text` behind the others. */
static mh_status add_text(mh_texts *texts, const char *text, size_t length, mh_error *err)
{
    if (texts->room - texts->bytes <= length) {
        uint64_t wanted = (texts->room + length + 1) * 2;
        char *grown = wanted < UINT32_MAX ? mh_realloc(texts->text, wanted, 1) : NULL;
        if (!grown)
            return fail_memory(err);
        texts->text = grown;
        texts->room = wanted;
    }
    memcpy(texts->text + texts->bytes, text, length);
    texts->text[texts->bytes + length] = '\0';
    texts->bytes += length + 1;
    return MH_OK;
}

mh_status mh_listed_add_directory(mh_listed *listed, uint32_t parent, const char *name,
                                  mh_error *err)
{
    char path[4096];
    size_t above = 0, length = strlen(name);
    if (listed->directory_count) {
        const char *text = listed->paths.text + listed->directories[parent].path;
        above = strlen(text);
        if (above + length + 2 > sizeof path)
            return mh_fail(err, MH_ERR_INVALID, "%s/%s: the path of %s is too long", listed->root,
                           text, name);
        memcpy(path, text, above);
        if (above)
            path[above++] = '/';
    }
    memcpy(path + above, name, length);
    MH_TRY(grow(&listed->directories, listed->directory_count, &listed->directory_room,
                sizeof *listed->directories, err));
    listed->directories[listed->directory_count++] =
        (mh_listed_directory){.path = (uint32_t)listed->paths.bytes, .parent = parent};
    return add_text(&listed->paths, path, above + length, err);
}

mh_status mh_listed_add_file(mh_listed *listed, const char *name, uint64_t size, uint64_t version,
                             mh_error *err)
{
    MH_TRY(
        grow(&listed->files, listed->file_count, &listed->file_room, sizeof *listed->files, err));
    listed->files[listed->file_count++] =
        (mh_listed_file){.name = (uint32_t)listed->names.bytes, .size = size, .version = version};
    return add_text(&listed->names, name, strlen(name), err);
}

void mh_listed_free(mh_listed *listed)
{
    mh_free(listed->directories);
    mh_free(listed->files);
    mh_free(listed->paths.text);
    mh_free(listed->names.text);
}

/* --- what was known --- */

mh_status mh_known_make(mh_known *known, const mh_index *index, mh_error *err)
{
    *known = (mh_known){0};
    if (!index)
        return MH_OK;
    uint32_t count = index->directory_count;
    known->first_child = mh_calloc(count, sizeof *known->first_child);
    known->next_child = mh_calloc(count, sizeof *known->next_child);
    if (!known->first_child || !known->next_child)
        return fail_memory(err);
    known->index = index;
    for (uint32_t i = 0; i < count; i++)
        known->first_child[i] = known->next_child[i] = MH_KNOWN_NONE;
    for (uint32_t i = count; i-- > 1;) { /* number 0 is the root and nobody's child */
        uint32_t parent = index->directories[i].parent;
        known->next_child[i] = known->first_child[parent];
        known->first_child[parent] = i;
    }
    return MH_OK;
}

void mh_known_free(mh_known *known)
{
    mh_free(known->first_child);
    mh_free(known->next_child);
}

uint32_t mh_known_find(const mh_known *known, const char *path)
{
    uint32_t low = 0, high = known->index ? known->index->directory_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = mh_index_compare_paths(path, mh_index_path(known->index, middle));
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return MH_KNOWN_NONE;
}

/* --- sorting --- */

static int by_path(const void *a, const void *b, void *context)
{
    const mh_listed *listed = context;
    const uint32_t *left = a, *right = b;
    return mh_index_compare_paths(listed->paths.text + listed->directories[*left].path,
                                  listed->paths.text + listed->directories[*right].path);
}

static int by_name(const void *a, const void *b, void *context)
{
    const mh_listed_file *left = a, *right = b;
    const char *names = context;
    return strcmp(names + left->name, names + right->name);
}

/* --- what counts --- */

static uint32_t flags_of(const mh_listed *listed)
{
    uint64_t pictures_in_root = 0, pictures_below = 0, below = 0;
    for (uint32_t d = 0; d < listed->directory_count; d++)
        for (uint32_t i = 0; i < listed->directories[d].file_count; i++) {
            const mh_listed_file *file = &listed->files[listed->directories[d].first_file + i];
            bool picture = mh_listing_is_picture(listed->names.text + file->name);
            pictures_in_root += picture && d == 0;
            pictures_below += picture && d > 0;
            below += d > 0;
        }
    uint32_t plain = listed->plain ? MH_INDEX_PLAIN : 0;
    if (pictures_below)
        return plain | MH_INDEX_PICTURES | MH_INDEX_BY_CLASS;
    if (pictures_in_root)
        return plain | MH_INDEX_PICTURES;
    return plain | (below ? MH_INDEX_BY_CLASS : 0);
}

static bool counts(const mh_listed *listed, uint32_t directory, const mh_listed_file *file,
                   uint32_t flags)
{
    bool below = directory > 0;
    return below == ((flags & MH_INDEX_BY_CLASS) != 0) &&
           (!(flags & MH_INDEX_PICTURES) || mh_listing_is_picture(listed->names.text + file->name));
}

/* --- sections --- */

typedef struct sections {
    uint32_t *order;  /* directories by path */
    uint32_t *number; /* of each directory in that order */
    mh_index_directory *directories;
    mh_index_file *files;
    uint32_t *classes;
    uint32_t file_count, class_count;
    mh_texts names;
} sections;

static void sections_free(sections *made)
{
    mh_free(made->order);
    mh_free(made->number);
    mh_free(made->directories);
    mh_free(made->files);
    mh_free(made->classes);
    mh_free(made->names.text);
}

static mh_status sections_init(sections *made, mh_listed *listed, mh_error *err)
{
    uint32_t count = listed->directory_count;
    made->order = mh_calloc(count, sizeof *made->order);
    made->number = mh_calloc(count, sizeof *made->number);
    made->directories = mh_calloc(count, sizeof *made->directories);
    made->files = mh_calloc(listed->file_count + 1u, sizeof *made->files);
    made->classes = mh_calloc(count, sizeof *made->classes);
    if (!made->order || !made->number || !made->directories || !made->files || !made->classes)
        return fail_memory(err);
    for (uint32_t i = 0; i < count; i++)
        made->order[i] = i;
    qsort_r(made->order, count, sizeof *made->order, by_path, listed);
    for (uint32_t i = 0; i < count; i++)
        made->number[made->order[i]] = i;
    return MH_OK;
}

static mh_status add_files(sections *made, const mh_listed *listed, uint32_t directory,
                           uint32_t flags, mh_error *err)
{
    const mh_listed_directory *from = &listed->directories[directory];
    if (from->file_count)
        qsort_r(listed->files + from->first_file, from->file_count, sizeof *listed->files, by_name,
                listed->names.text);
    for (uint32_t i = 0; i < from->file_count; i++) {
        const mh_listed_file *file = &listed->files[from->first_file + i];
        const char *name = listed->names.text + file->name;
        if (!counts(listed, directory, file, flags))
            continue;
        made->files[made->file_count++] = (mh_index_file){.name = (uint32_t)made->names.bytes,
                                                          .directory = made->number[directory],
                                                          .size = file->size,
                                                          .version = file->version};
        MH_TRY(add_text(&made->names, name, strlen(name), err));
    }
    return MH_OK;
}

/* Folders of the root are classes, also those without a file: so labels are ImageFolder's. */
static mh_status add_directories(sections *made, const mh_listed *listed, uint32_t flags,
                                 mh_error *err)
{
    for (uint32_t i = 0; i < listed->directory_count; i++) {
        uint32_t directory = made->order[i];
        const mh_listed_directory *from = &listed->directories[directory];
        if (directory > 0 && from->parent == 0 && flags & MH_INDEX_BY_CLASS)
            made->classes[made->class_count++] = from->path;
        made->directories[i] = (mh_index_directory){
            .path = from->path,
            .parent = made->number[from->parent],
            .class_number = made->class_count ? made->class_count - 1 : MH_INDEX_NO_CLASS,
            .first_file = made->file_count,
            .changed_ns = from->changed_ns,
            .device = from->device,
            .inode = from->inode};
        MH_TRY(add_files(made, listed, directory, flags, err));
        made->directories[i].file_count = made->file_count - made->directories[i].first_file;
    }
    return MH_OK;
}

mh_status mh_listed_to_index(mh_listed *listed, const char *root, uint64_t root_bytes,
                             uint8_t **out, uint64_t *out_size, uint32_t *out_flags, mh_error *err)
{
    sections made = {0};
    uint32_t flags = *out_flags = flags_of(listed);
    mh_status status = sections_init(&made, listed, err);
    if (status == MH_OK)
        status = add_text(&made.names, "", 0, err); /* so that there is one */
    if (status == MH_OK)
        status = add_directories(&made, listed, flags, err);
    if (status == MH_OK) {
        const mh_index_parts parts = {
            .built_ns = listed->built_ns,
            .flags = flags,
            .sections = {
                [MH_INDEX_ROOT] = {root, root_bytes},
                [MH_INDEX_DIRECTORIES] = {made.directories,
                                          listed->directory_count * sizeof *made.directories},
                [MH_INDEX_FILES] = {made.files, made.file_count * sizeof *made.files},
                [MH_INDEX_CLASSES] = {made.classes, made.class_count * sizeof *made.classes},
                [MH_INDEX_PATHS] = {listed->paths.text, listed->paths.bytes},
                [MH_INDEX_NAMES] = {made.names.text, made.names.bytes}}};
        status = mh_index_write(out, out_size, &parts, err);
    }
    sections_free(&made);
    return status;
}
