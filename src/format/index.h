/* index.h - the files of a folder, listed once and kept: read by a pure function over its bytes
 * SPDX-License-Identifier: Apache-2.0
 *
 * An index is one block of bytes, the same in memory and in a file: a header, then sections, each
 * with a hash of its own. It is never changed; another one takes its place.
 *
 *     header       version, byte order, when it was built, kind, place and hash of each section
 *     ROOT         host and real path of the folder, to tell it from others
 *     DIRECTORIES  of the folder and all below it, by class, then path: date and inode
 *     FILES        those of each directory together, by name: size and version
 *     CLASSES      names of the folders that are classes
 *     HEADERS      what each picture's header says, once somebody needed it
 *     PATHS, NAMES the texts that directories and classes, and files, point into
 */
#ifndef MH_FORMAT_INDEX_H
#define MH_FORMAT_INDEX_H

#include <millhead/error.h>
#include <stdbool.h>

#define MH_INDEX_VERSION 1u

typedef enum mh_index_section {
    MH_INDEX_ROOT,
    MH_INDEX_DIRECTORIES,
    MH_INDEX_FILES,
    MH_INDEX_CLASSES,
    MH_INDEX_HEADERS,
    MH_INDEX_PATHS,
    MH_INDEX_NAMES,
    MH_INDEX_SECTIONS
} mh_index_section;

#define MH_INDEX_NO_CLASS UINT32_MAX

typedef struct mh_index_directory {
    uint32_t path;   /* in PATHS, from the root on: "" is the root itself, "dog/puppies" */
    uint32_t parent; /* its own number: the root */
    uint32_t class_number;
    uint32_t first_file, file_count;
    uint32_t unused;
    int64_t changed_ns; /* its modification time */
    uint64_t device, inode;
} mh_index_directory;

typedef struct mh_index_file {
    uint32_t name; /* in NAMES */
    uint32_t directory;
    uint64_t size;
    uint64_t version; /* of the file source; 0: the file could not be asked */
} mh_index_file;

/* As mh_picture has it; zeros: the header cannot be read. */
typedef struct mh_index_picture {
    uint32_t height, width;
    uint8_t kind, channels, bits, palette, progressive, orientation;
    uint8_t unused[2];
} mh_index_picture;

/* What a folder is taken for. Files that do not count are not in the index. */
#define MH_INDEX_PICTURES 1u /* only files with a picture's suffix count, else all */
#define MH_INDEX_BY_CLASS 2u /* only files below folders of the root count, else those in it */
/* No other format wanted the folder when it was listed: none does while what is in it is the same
 */
#define MH_INDEX_PLAIN 4u

/* Points into the index's bytes. */
typedef struct mh_index {
    const uint8_t *bytes;
    uint64_t size;
    int64_t built_ns; /* by the clock that dates files */
    uint32_t flags;
    const char *root; /* "host\0path" */
    uint64_t root_bytes;
    const mh_index_directory *directories;
    uint32_t directory_count;
    const mh_index_file *files;
    uint32_t file_count;
    const uint32_t *classes; /* names in PATHS */
    uint32_t class_count;
    const mh_index_picture *pictures; /* NULL: nobody needed them yet */
    const char *paths, *names;
    uint64_t paths_bytes, names_bytes;
    uint64_t contents; /* changes when names, sizes or versions of files do */
} mh_index;

/* Checks all of it: hashes, places, numbers and texts, so that whoever uses it need not. `bytes` at
 * a multiple of 8. Errors: MH_ERR_CORRUPT, with the section; MH_ERR_UNSUPPORTED: another version or
 * byte order. */
MH_MUST_CHECK mh_status mh_index_read(mh_index *out, const uint8_t *bytes, uint64_t size,
                                      mh_error *err);

/* What an index is written from: built_ns, flags and the sections' contents. */
typedef struct mh_index_parts {
    int64_t built_ns;
    uint32_t flags;
    struct {
        const void *data;
        uint64_t bytes;
    } sections[MH_INDEX_SECTIONS];
} mh_index_parts;

/* The bytes of an index; free them with mh_free. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_index_write(uint8_t **out, uint64_t *out_size,
                                       const mh_index_parts *parts, mh_error *err);

static inline const char *mh_index_file_name(const mh_index *index, uint64_t file)
{
    return index->names + index->files[file].name;
}

static inline const char *mh_index_path(const mh_index *index, uint32_t directory)
{
    return index->paths + index->directories[directory].path;
}

/* The name of class number `at`. */
static inline const char *mh_index_class(const mh_index *index, uint32_t at)
{
    return index->paths + index->classes[at];
}

/* Comes first by class, then by path, as ImageFolder lists directories: < 0, 0 or > 0. */
int mh_index_compare_paths(const char *a, const char *b);

#endif
