/* few_files.c - a folder that is one dataset: a few files of certain kinds, and nothing else
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/few_files.h"

#include "base/alloc.h"
#include "base/error.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the file's suffix is among them; all have four characters. */
static bool is_wanted(const struct dirent *entry, const char *suffixes)
{
    const char *dot = strrchr(entry->d_name, '.');
    bool is_file =
        entry->d_type != DT_DIR; /* a link, or a file system that does not tell: by name */
    return is_file && dot && strlen(dot) == 4 && strstr(suffixes, dot);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

void mh_few_files_deinit(mh_few_files *folder)
{
    for (size_t i = 0; i < folder->count; i++)
        mh_free(folder->paths[i]);
    folder->count = 0;
}

static mh_status add(mh_few_files *folder, const char *path, const char *name, mh_error *err)
{
    size_t length = strlen(path), room = length + strlen(name) + 2;
    const char *slash = length && path[length - 1] == '/' ? "" : "/";
    char *whole = mh_calloc(room, 1);
    if (!whole)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the files of %s", path);
    (void)snprintf(whole, room, "%s%s%s", path, slash, name);
    folder->paths[folder->count++] = whole;
    return MH_OK;
}

mh_status mh_few_files_list(mh_few_files *folder, const char *path, const char *suffixes,
                            mh_error *err)
{
    mh_status status = MH_OK;
    bool those_only = true;
    folder->count = 0;
    DIR *directory = opendir(path);
    if (!directory)
        return MH_OK;
    for (const struct dirent *entry; those_only && status == MH_OK && (entry = readdir(directory));)
        if (entry->d_name[0] != '.') {
            those_only = is_wanted(entry, suffixes) && folder->count < MH_FEW_FILES_MOST;
            if (those_only)
                status = add(folder, path, entry->d_name, err);
        }
    (void)closedir(directory);
    if (!those_only || status != MH_OK)
        mh_few_files_deinit(folder);
    qsort(folder->paths, folder->count, sizeof *folder->paths, by_name);
    return status;
}
