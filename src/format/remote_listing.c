/* remote_listing.c - what lies below a prefix of a store, as the index of a folder
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stores list names by their bytes, so that a folder's files come before and behind those of the
 * folders in it. They are kept, sorted by folder, and then added as a folder's listing adds them.
 */
#include "format/remote_listing.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/listed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH_MOST 64

typedef struct entry {
    char *folder; /* "" is the root */
    char *name;   /* behind the folder's end; "": the folder alone */
    uint64_t size, version;
} entry;

typedef struct collected {
    size_t prefix; /* bytes of every name that are the root's */
    entry *list;
    size_t count, room;
} collected;

/* --- names --- */

static bool is_passed_over(const char *name)
{
    for (;; name = strchr(name, '/') + 1) {
        if (*name == '.' || *name == '/')
            return true;
        if (!strchr(name, '/'))
            return false;
    }
}

static mh_status collect(void *context, const mh_object *object, mh_error *err)
{
    collected *all = context;
    const char *name = object->name + all->prefix;
    if (is_passed_over(name))
        return MH_OK;
    if (all->count == all->room) {
        const size_t room = all->room ? all->room * 2 : 256;
        entry *list = mh_realloc(all->list, room, sizeof *list);
        if (!list)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for a list of %zu names", room);
        all->list = list;
        all->room = room;
    }
    const size_t bytes = strlen(name) + 1;
    char *text = mh_calloc(bytes + 1, 1); /* both parts, each with its end */
    if (!text)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a list of names");
    const char *slash = strrchr(name, '/');
    const size_t folder = slash ? (size_t)(slash - name) : 0;
    memcpy(text, name, folder);
    memcpy(text + folder + 1, slash ? slash + 1 : name, strlen(slash ? slash + 1 : name));
    all->list[all->count++] = (entry){.folder = text,
                                      .name = text + folder + 1,
                                      .size = object->size,
                                      .version = object->version};
    return MH_OK;
}

/* A folder, then all that is in it, then the next: a slash comes before all else. */
static int compare_folders(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    const int left = *a == '/' ? 1 : (unsigned char)*a + 1,
              right = *b == '/' ? 1 : (unsigned char)*b + 1;
    return (*a ? left : 0) - (*b ? right : 0);
}

static int by_folder(const void *a, const void *b)
{
    const entry *left = a, *right = b;
    const int order = compare_folders(left->folder, right->folder);
    return order ? order : strcmp(left->name, right->name);
}

static void collected_free(collected *all)
{
    for (size_t i = 0; i < all->count; i++)
        mh_free(all->list[i].folder);
    mh_free(all->list);
}

/* --- folders --- */

/* The folders from the root to the one that files are added to. */
typedef struct way {
    uint32_t numbers[DEPTH_MOST];
    size_t depth;
} way;

static const char *path_of(const mh_listed *listed, uint32_t number)
{
    return listed->paths.text + listed->directories[number].path;
}

static bool lies_in(const char *path, const char *folder)
{
    const size_t length = strlen(folder);
    return length == 0 ||
           (strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0'));
}

/* Goes up to what has the folder in it, then down into it. */
static mh_status enter(mh_listed *listed, way *at, const char *folder, mh_error *err)
{
    while (!lies_in(folder, path_of(listed, at->numbers[at->depth - 1])))
        at->depth--;
    for (;;) {
        const uint32_t above = at->numbers[at->depth - 1];
        const char *rest = folder + strlen(path_of(listed, above));
        char name[MH_NAME_MOST];
        rest += *rest == '/';
        if (!*rest)
            return MH_OK;
        if (at->depth == DEPTH_MOST)
            return mh_fail(err, MH_ERR_UNSUPPORTED, "%s/%s: over %d folders in each other",
                           listed->root, folder, DEPTH_MOST);
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(rest, "/"), rest);
        MH_TRY(mh_listed_add_directory(listed, above, name, err));
        at->numbers[at->depth++] = listed->directory_count - 1;
        listed->directories[listed->directory_count - 1].first_file = listed->file_count;
    }
}

static mh_status add_all(mh_listed *listed, const collected *all, mh_error *err)
{
    way at = {.depth = 1};
    MH_TRY(mh_listed_add_directory(listed, 0, "", err));
    for (size_t i = 0; i < all->count; i++) {
        const entry *added = &all->list[i];
        const bool twice = i > 0 && by_folder(added, &all->list[i - 1]) == 0;
        MH_TRY(enter(listed, &at, added->folder, err));
        if (!*added->name || twice)
            continue;
        MH_TRY(mh_listed_add_file(listed, added->name, added->size, added->version, err));
        listed->directories[at.numbers[at.depth - 1]].file_count++;
    }
    return MH_OK;
}

/* --- the whole --- */

static mh_status to_index(uint8_t **out, uint64_t *out_size, const char *root, const collected *all,
                          mh_error *err)
{
    struct timespec now;
    uint32_t flags = 0;
    char id[MH_NAME_MOST + 1] = ""; /* no host, then the root */
    const size_t length = strlen(root);
    clock_gettime(CLOCK_REALTIME, &now);
    mh_listed listed = {.root = root, .built_ns = (int64_t)now.tv_sec * 1000000000, .plain = true};
    memcpy(id + 1, root, length + 1);
    mh_status status = add_all(&listed, all, err);
    if (status == MH_OK)
        status = mh_listed_to_index(&listed, id, length + 2, out, out_size, &flags, err);
    mh_listed_free(&listed);
    return status;
}

/* `root` without slashes at its end, and one. False: it is too long. */
static bool prefix_of(char prefix[MH_NAME_MOST], const char *root)
{
    size_t length = strlen(root);
    while (length > 1 && root[length - 1] == '/')
        length--;
    return snprintf(prefix, MH_NAME_MOST, "%.*s/", (int)length, root) < (int)MH_NAME_MOST;
}

static mh_status end_at_first(void *context, const mh_object *object, mh_error *err)
{
    (void)object;
    (void)err;
    *(bool *)context = true;
    return MH_END;
}

bool mh_remote_listing_is_folder(const mh_source_type *source, const mh_source_options *options,
                                 const char *root)
{
    mh_error ignored;
    bool found = false;
    char prefix[MH_NAME_MOST];
    if (source->list && prefix_of(prefix, root))
        (void)!source->list(prefix, options, end_at_first, &found, &ignored);
    return found;
}

mh_status mh_remote_listing_make(uint8_t **out, uint64_t *out_size, const mh_source_type *source,
                                 const mh_source_options *options, const char *root, mh_error *err)
{
    char prefix[MH_NAME_MOST];
    if (!prefix_of(prefix, root))
        return mh_fail(err, MH_ERR_INVALID, "%.100s... is too long", root);
    collected all = {.prefix = strlen(prefix)};
    mh_status status = source->list(prefix, options, collect, &all, err);
    if (status == MH_OK && all.count == 0)
        status = mh_fail(err, MH_ERR_NOT_FOUND, "there is no %s: no object has this name or prefix",
                         root);
    if (status == MH_OK) {
        qsort(all.list, all.count, sizeof *all.list, by_folder);
        status = to_index(out, out_size, root, &all, err);
    }
    collected_free(&all);
    return status;
}
