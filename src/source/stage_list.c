/* stage_list.c - the files that are to be copied, and what they are called there
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/stage_list.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <fts.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

typedef struct reader {
    mh_stage_list *list;
    size_t prefix; /* bytes of names that their paths do not have */
} reader;

/* Whether a path stays below the directory that it is taken from. */
static bool is_inside(const char *path)
{
    if (!*path || *path == '/')
        return false;
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (!part[length])
            break;
    }
    return true;
}

static mh_status add(void *context, const mh_object *object, mh_error *err)
{
    reader *r = context;
    mh_stage_list *list = r->list;
    size_t length = strlen(object->name);
    const char *path = object->name + (r->prefix < length ? r->prefix : length);
    if (object->size == 0 && length && object->name[length - 1] == '/')
        return MH_OK; /* what consoles make to show a folder */
    if (!is_inside(path))
        return mh_fail(err, MH_ERR_INVALID, "%.200s has no place below a directory", object->name);
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 64;
        mh_object *objects = mh_realloc(list->objects, room, sizeof *objects);
        if (objects)
            list->objects = objects;
        char **paths = objects ? mh_realloc((void *)list->paths, room, sizeof *paths) : NULL;
        if (!paths)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for the names of files");
        list->paths = paths;
        list->room = room;
    }
    char *name = mh_calloc(length + 1, 1);
    if (!name)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the names of files");
    memcpy(name, object->name, length);
    list->objects[list->count] =
        (mh_object){.name = name, .size = object->size, .version = object->version};
    list->paths[list->count++] = name + (path - object->name);
    return MH_OK;
}

/* What lies below a local directory. */
static mh_status add_directory(reader *r, const char *directory, const mh_source_type *type,
                               const mh_source_options *options, mh_error *err)
{
    char *const roots[] = {(char *)(uintptr_t)directory, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    mh_status status = MH_OK;
    if (!walk)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot list %.200s", directory);
    for (FTSENT *found; status == MH_OK && (found = fts_read(walk));) {
        if (found->fts_info == FTS_ERR || found->fts_info == FTS_DNR)
            status = mh_fail_sys(err, MH_ERR_IO, found->fts_errno, "cannot list %.200s",
                                 found->fts_path);
        if (status != MH_OK || found->fts_info != FTS_F)
            continue;
        mh_object object = {.name = found->fts_path};
        status = type->stat(&object, options, err);
        if (status == MH_OK)
            status = add(r, &object, err);
    }
    (void)fts_close(walk);
    return status;
}

static size_t last_part(const char *from)
{
    size_t length = strcspn(from, "?#");
    while (length && from[length - 1] != '/')
        length--;
    return length;
}

mh_status mh_stage_list_read(mh_stage_list *out, const char *from, const mh_source_type *type,
                             const mh_source_options *options, mh_error *err)
{
    struct stat about;
    char prefix[MH_NAME_MOST];
    reader r = {.list = out};
    size_t length = strlen(from);
    *out = (mh_stage_list){0};
    if (length + 2 > sizeof prefix)
        return mh_fail(err, MH_ERR_INVALID, "%.100s... is too long", from);
    memcpy(prefix, from, length + 1);
    while (length && prefix[length - 1] == '/')
        prefix[--length] = '\0';
    r.prefix = length + 1;
    bool is_file = type == &mh_source_file;
    if (is_file && stat(from, &about) == 0 && S_ISDIR(about.st_mode))
        return add_directory(&r, prefix, type, options, err);
    mh_object object = {.name = from};
    mh_status status = MH_ERR_NOT_FOUND;
    if (from[strlen(from) - 1] != '/')
        status = type->stat(&object, options, err);
    if (status == MH_OK) {
        r.prefix = last_part(from);
        return add(&r, &object, err);
    }
    if (status != MH_ERR_NOT_FOUND || !type->list)
        return status == MH_ERR_NOT_FOUND && !type->list && from[strlen(from) - 1] == '/'
                   ? mh_fail(err, MH_ERR_UNSUPPORTED,
                             "what lies below %.200s cannot be listed: give single addresses", from)
                   : status;
    prefix[length] = '/';
    prefix[length + 1] = '\0';
    MH_TRY(type->list(prefix, options, add, &r, err));
    return out->count ? MH_OK
                      : mh_fail(err, MH_ERR_NOT_FOUND, "there is nothing below %.200s", prefix);
}

void mh_stage_list_free(mh_stage_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        mh_free((char *)(uintptr_t)list->objects[i].name);
    mh_free(list->objects);
    mh_free((void *)list->paths);
    *list = (mh_stage_list){0};
}
