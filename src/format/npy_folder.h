/* npy_folder.h - a folder of arrays: each .npy or .npz in it is one of the files of a dataset
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_NPY_FOLDER_H
#define MH_FORMAT_NPY_FOLDER_H

#include <millhead/error.h>

#include <stddef.h>

/* More files than that are samples rather than fields: the folder is then one of any files. */
#define MH_NPY_FOLDER_MOST 64

typedef struct mh_npy_folder {
    char *paths[MH_NPY_FOLDER_MOST]; /* in order of their names */
    size_t count;
} mh_npy_folder;

/* Lists a local folder. The count is 0 where it holds anything but .npy and .npz files (names that
 * begin with a dot are passed over), more than MH_NPY_FOLDER_MOST of them, or cannot be read.
 * MH_ERR_NOMEM leaves nothing to free; else end with mh_npy_folder_deinit. */
MH_MUST_CHECK mh_status mh_npy_folder_list(mh_npy_folder *folder, const char *path, mh_error *err);

void mh_npy_folder_deinit(mh_npy_folder *folder);

#endif
