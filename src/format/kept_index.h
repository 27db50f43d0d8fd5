/* kept_index.h - a folder's index in a file of the user's cache: used, or made anew and written
 * SPDX-License-Identifier: Apache-2.0
 *
 * The file is $XDG_CACHE_HOME/millhead/HASH.idx (~/.cache without it), of host and real path. It is
 * written under another name and renamed, mapped read-only, shared by whoever opens the folder, and
 * never trusted: what is damaged or of another version is made anew.
 */
#ifndef MH_FORMAT_KEPT_INDEX_H
#define MH_FORMAT_KEPT_INDEX_H

#include "format/index.h"

typedef enum mh_index_state {
    MH_INDEX_USED,    /* the file holds */
    MH_INDEX_WRITTEN, /* made, and kept for the next time */
    MH_INDEX_UNKEPT   /* made, for this time alone: nowhere to keep it, or not wanted */
} mh_index_state;

/* Immutable after open but for add_headers, which comes before anybody else sees it. */
typedef struct mh_kept_index {
    mh_index index;
    mh_index_state state;
    char *path;   /* of its file; NULL: none */
    char *folder; /* real path */
    void *mapped; /* NULL: `made` */
    uint8_t *made;
    mh_error unkept; /* why it could not be written; code MH_OK: it could, or was not to be */
} mh_kept_index;

/* Opens the folder's index. `where` is the file to keep it in; NULL: in the user's cache; "off":
 * nowhere. Where the user's cache cannot be written the index is made each time; a file that was
 * named must be written. `plain` says that no other format wants the folder, which is kept too.
 * *out is untouched on failure. Errors: MH_ERR_NOT_FOUND, MH_ERR_IO, MH_ERR_INVALID (not a folder),
 * MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_kept_index_open(mh_kept_index **out, const char *folder,
                                           const char *where, bool plain, mh_error *err);

/* An index that is kept nowhere, from the bytes of one; takes them over, also on failure. Errors:
 * MH_ERR_CORRUPT, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_kept_index_of(mh_kept_index **out, uint8_t *made, uint64_t size,
                                         mh_error *err);

/* The index if it is kept, holds, and says that no other format wants the folder; else NULL. So a
 * folder that was opened before is known without looking into it. */
mh_kept_index *mh_kept_index_find_plain(const char *folder, const char *where);
void mh_kept_index_close(mh_kept_index *kept); /* NULL allowed */

/* The file is removed: it says of a file what is not so. Whoever has it mapped keeps it. */
void mh_kept_index_forget(const mh_kept_index *kept);

/* What the header of file number `file` says; zeros: not to be found out. */
typedef mh_status mh_header_reader(void *context, const mh_index *index, uint32_t file,
                                   mh_index_picture *out, mh_error *err);

/* Adds the headers of all files where there are none, and keeps them as the rest. */
MH_MUST_CHECK mh_status mh_kept_index_add_headers(mh_kept_index *kept, mh_header_reader *read,
                                                  void *context, mh_error *err);

#endif
