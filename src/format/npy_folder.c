/* npy_folder.c - a folder of arrays: each .npy or .npz in it is one of the files of a dataset
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/npy_folder.h"

#include "base/alloc.h"
#include "base/error.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_array(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    bool is_file =
        entry->d_type != DT_DIR; /* a link, or a file system that does not tell: by name */
    return is_file && dot && (strcmp(dot, ".npy") == 0 || strcmp(dot, ".npz") == 0);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

void mh_npy_folder_deinit(mh_npy_folder *folder)
{
    for (size_t i = 0; i < folder->count; i++)
        mh_free(folder->paths[i]);
    folder->count = 0;
}

static mh_status add(mh_npy_folder *folder, const char *path, const char *name, mh_error *err)
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

mh_status mh_npy_folder_list(mh_npy_folder *folder, const char *path, mh_error *err)
{
    mh_status status = MH_OK;
    bool arrays_only = true;
    folder->count = 0;
    DIR *directory = opendir(path);
    if (!directory)
        return MH_OK;
    for (const struct dirent *entry;
         arrays_only && status == MH_OK && (entry = readdir(directory));)
        if (entry->d_name[0] != '.') {
            arrays_only = is_array(entry) && folder->count < MH_NPY_FOLDER_MOST;
            if (arrays_only)
                status = add(folder, path, entry->d_name, err);
        }
    (void)closedir(directory);
    if (!arrays_only || status != MH_OK)
        mh_npy_folder_deinit(folder);
    qsort(folder->paths, folder->count, sizeof *folder->paths, by_name);
    return status;
}
