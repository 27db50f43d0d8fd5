/* few_files.h - a folder that is one dataset: a few files of certain kinds, and nothing else
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_NPY_FOLDER_H
#define MH_FORMAT_NPY_FOLDER_H

#include <millhead/error.h>

#include <stddef.h>

/* More files than that are samples rather than fields: the folder is then one of any files. */
#define MH_FEW_FILES_MOST 64

typedef struct mh_few_files {
    char *paths[MH_FEW_FILES_MOST]; /* in order of their names */
    size_t count;
} mh_few_files;

/* Lists a local folder. The count is 0 where it holds anything but files of these suffixes, as
 * ".npy .npz" (names that begin with a dot are passed over), more than MH_FEW_FILES_MOST of them,
 * or cannot be read.
 * MH_ERR_NOMEM leaves nothing to free; else end with mh_few_files_deinit. */
MH_MUST_CHECK mh_status mh_few_files_list(mh_few_files *folder, const char *path,
                                          const char *suffixes, mh_error *err);

void mh_few_files_deinit(mh_few_files *folder);

#endif
