/* listed.h - directories and files while they are being listed, and what was known before
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_LISTED_H
#define MH_FORMAT_LISTED_H

#include "format/index.h"

/* Texts one behind the other, each with its NUL; named by their offset. */
typedef struct mh_texts {
    char *text;
    uint64_t bytes, room;
} mh_texts;

typedef struct mh_listed_directory {
    uint32_t path, parent;
    uint32_t first_file, file_count;
    int64_t changed_ns;
    uint64_t inode, device;
} mh_listed_directory;

typedef struct mh_listed_file {
    uint32_t name;
    uint64_t size, version;
} mh_listed_file;

/* Zeroed at first, with the root's path for messages. */
typedef struct mh_listed {
    const char *root;
    int64_t built_ns;
    bool plain;                       /* MH_INDEX_PLAIN */
    mh_listed_directory *directories; /* number 0 is the root, its own parent */
    uint32_t directory_count, directory_room;
    mh_listed_file *files; /* those of a directory together */
    uint32_t file_count, file_room;
    mh_texts paths, names;
} mh_listed;

/* MH_ERR_NOMEM; MH_ERR_INVALID: more than 2^32. */
MH_MUST_CHECK mh_status mh_listed_add_directory(mh_listed *listed, uint32_t parent,
                                                const char *name, mh_error *err);
MH_MUST_CHECK mh_status mh_listed_add_file(mh_listed *listed, const char *name, uint64_t size,
                                           uint64_t version, mh_error *err);
void mh_listed_free(mh_listed *listed);

/* Sorts, decides what counts, and makes the index's bytes. */
MH_MUST_CHECK mh_status mh_listed_to_index(mh_listed *listed, const char *root, uint64_t root_bytes,
                                           uint8_t **out, uint64_t *out_size, uint32_t *out_flags,
                                           mh_error *err);

/* --- an index from before, by directory --- */

#define MH_KNOWN_NONE UINT32_MAX

typedef struct mh_known {
    const mh_index *index;              /* NULL: nothing is known */
    uint32_t *first_child, *next_child; /* of each directory; MH_KNOWN_NONE */
} mh_known;

/* index may be NULL. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_known_make(mh_known *known, const mh_index *index, mh_error *err);
void mh_known_free(mh_known *known);

/* The directory of that path; MH_KNOWN_NONE. */
uint32_t mh_known_find(const mh_known *known, const char *path);

#endif
