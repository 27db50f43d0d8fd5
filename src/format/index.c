/* index.c - an index of files as bytes: written, read and checked
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/index.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

#include <string.h>

static const char magic[8] = {'m', 'i', 'l', 'l', 'i', 'd', 'x', '\n'};

#define BYTE_ORDER_MARK 0x01020304u
#define ALIGN UINT64_C(8)

typedef struct index_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t size; /* of the whole index */
    int64_t built_ns;
    uint32_t flags;
    uint32_t sections;
    struct {
        uint64_t offset, bytes, hash;
    } section[MH_INDEX_SECTIONS];
    uint64_t hash; /* of the header up to here */
} index_header;

static const char *const section_names[MH_INDEX_SECTIONS] = {
    [MH_INDEX_ROOT] = "root",       [MH_INDEX_DIRECTORIES] = "directories",
    [MH_INDEX_FILES] = "files",     [MH_INDEX_CLASSES] = "classes",
    [MH_INDEX_HEADERS] = "headers", [MH_INDEX_PATHS] = "paths",
    [MH_INDEX_NAMES] = "file names"};

/* --- order --- */

int mh_index_compare_paths(const char *a, const char *b)
{
    size_t a_class = strcspn(a, "/"), b_class = strcspn(b, "/");
    int by_class = memcmp(a, b, a_class < b_class ? a_class : b_class);
    if (by_class)
        return by_class;
    if (a_class != b_class)
        return a_class < b_class ? -1 : 1;
    return strcmp(a, b);
}

/* --- writing --- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) & ~(ALIGN - 1);
}

static uint64_t header_hash(const index_header *header)
{
    return mh_hash64(header, offsetof(index_header, hash), MH_INDEX_VERSION);
}

mh_status mh_index_write(uint8_t **out, uint64_t *out_size, const mh_index_parts *parts,
                         mh_error *err)
{
    index_header header = {.version = MH_INDEX_VERSION,
                           .byte_order = BYTE_ORDER_MARK,
                           .built_ns = parts->built_ns,
                           .flags = parts->flags,
                           .sections = MH_INDEX_SECTIONS};
    uint64_t end = aligned(sizeof header);
    memcpy(header.magic, magic, sizeof magic);
    for (int i = 0; i < MH_INDEX_SECTIONS; i++) {
        header.section[i].offset = end;
        header.section[i].bytes = parts->sections[i].bytes;
        header.section[i].hash =
            mh_hash64(parts->sections[i].data, parts->sections[i].bytes, (uint64_t)i);
        end = aligned(end + parts->sections[i].bytes);
    }
    header.size = end;
    header.hash = header_hash(&header);
    uint8_t *bytes = mh_calloc(1, end);
    if (!bytes)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for an index of %llu bytes",
                       (unsigned long long)end);
    memcpy(bytes, &header, sizeof header);
    for (int i = 0; i < MH_INDEX_SECTIONS; i++)
        if (parts->sections[i].bytes)
            memcpy(bytes + header.section[i].offset, parts->sections[i].data,
                   parts->sections[i].bytes);
    *out = bytes;
    *out_size = end;
    return MH_OK;
}

/* --- reading: the frame --- */

static mh_status read_header(index_header *header, const uint8_t *bytes, uint64_t size,
                             mh_error *err)
{
    if (size < sizeof *header || memcmp(bytes, magic, sizeof magic) != 0)
        return mh_fail(err, MH_ERR_CORRUPT, "not an index");
    memcpy(header, bytes, sizeof *header);
    if (header->byte_order != BYTE_ORDER_MARK || header->version != MH_INDEX_VERSION)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "an index of another version or machine");
    if (header->hash != header_hash(header) || header->sections != MH_INDEX_SECTIONS)
        return mh_fail(err, MH_ERR_CORRUPT, "the header is damaged");
    if (header->size != size)
        return mh_fail(err, MH_ERR_CORRUPT, "%llu bytes of %llu are there",
                       (unsigned long long)size, (unsigned long long)header->size);
    return MH_OK;
}

static mh_status check_sections(const index_header *header, const uint8_t *bytes, mh_error *err)
{
    for (int i = 0; i < MH_INDEX_SECTIONS; i++) {
        uint64_t offset = header->section[i].offset, length = header->section[i].bytes;
        if (offset % ALIGN || offset < sizeof *header || offset > header->size ||
            length > header->size - offset ||
            mh_hash64(bytes + offset, length, (uint64_t)i) != header->section[i].hash)
            return mh_fail(err, MH_ERR_CORRUPT, "the section %s is damaged", section_names[i]);
    }
    return MH_OK;
}

/* --- reading: the contents --- */

static mh_status fail_section(mh_error *err, mh_index_section section)
{
    return mh_fail(err, MH_ERR_CORRUPT, "the section %s makes no sense", section_names[section]);
}

/* A list of `item` bytes each, at most UINT32_MAX - 1 of them. */
static bool count_items(const index_header *header, mh_index_section section, size_t item,
                        uint32_t *out)
{
    uint64_t bytes = header->section[section].bytes;
    if (bytes % item || bytes / item >= UINT32_MAX)
        return false;
    *out = (uint32_t)(bytes / item);
    return true;
}

/* Every offset into it is the begin of a text that ends inside. */
static bool is_text(const char *text, uint64_t bytes)
{
    return bytes > 0 && text[bytes - 1] == '\0';
}

/* A path never leaves the root: no part of it begins with a dot, none is empty. */
static bool is_inside(const char *path)
{
    if (!*path)
        return true;
    for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (*part == '.' || *part == '/' || !*part)
            return false;
    return true;
}

static mh_status check_directories(const mh_index *index, mh_error *err)
{
    uint32_t files = 0;
    for (uint32_t i = 0; i < index->directory_count; i++) {
        const mh_index_directory *directory = &index->directories[i];
        bool sound = directory->path < index->paths_bytes &&
                     directory->parent < index->directory_count && directory->first_file == files &&
                     directory->file_count <= index->file_count - files &&
                     (directory->class_number < index->class_count ||
                      directory->class_number == MH_INDEX_NO_CLASS);
        if (!sound || !is_inside(mh_index_path(index, i)))
            return fail_section(err, MH_INDEX_DIRECTORIES);
        files += directory->file_count;
    }
    if (index->directory_count == 0 || *mh_index_path(index, 0) || files != index->file_count)
        return fail_section(err, MH_INDEX_DIRECTORIES);
    return MH_OK;
}

static mh_status check_files(const mh_index *index, mh_error *err)
{
    if (memchr(index->names, '/', index->names_bytes))
        return fail_section(err, MH_INDEX_NAMES);
    for (uint32_t d = 0; d < index->directory_count; d++) {
        const mh_index_directory *directory = &index->directories[d];
        for (uint32_t i = 0; i < directory->file_count; i++) {
            const mh_index_file *file = &index->files[directory->first_file + i];
            if (file->directory != d || file->name >= index->names_bytes ||
                index->names[file->name] == '.' || index->names[file->name] == '\0')
                return fail_section(err, MH_INDEX_FILES);
        }
    }
    return MH_OK;
}

static mh_status check_contents(const mh_index *index, const index_header *header, mh_error *err)
{
    if (!is_text(index->root, index->root_bytes) ||
        strlen(index->root) + 1 >= index->root_bytes) /* two texts */
        return fail_section(err, MH_INDEX_ROOT);
    if (!is_text(index->paths, index->paths_bytes))
        return fail_section(err, MH_INDEX_PATHS);
    if (!is_text(index->names, index->names_bytes))
        return fail_section(err, MH_INDEX_NAMES);
    for (uint32_t i = 0; i < index->class_count; i++)
        if (index->classes[i] >= index->paths_bytes)
            return fail_section(err, MH_INDEX_CLASSES);
    uint64_t headers = header->section[MH_INDEX_HEADERS].bytes;
    if (headers && headers != index->file_count * sizeof *index->pictures)
        return fail_section(err, MH_INDEX_HEADERS);
    MH_TRY(check_directories(index, err));
    return check_files(index, err);
}

mh_status mh_index_read(mh_index *out, const uint8_t *bytes, uint64_t size, mh_error *err)
{
    index_header header;
    MH_TRY(read_header(&header, bytes, size, err));
    MH_TRY(check_sections(&header, bytes, err));
    const void *at[MH_INDEX_SECTIONS];
    for (int i = 0; i < MH_INDEX_SECTIONS; i++)
        at[i] = bytes + header.section[i].offset;
    mh_index index = {
        .bytes = bytes,
        .size = size,
        .built_ns = header.built_ns,
        .flags = header.flags,
        .root = at[MH_INDEX_ROOT],
        .root_bytes = header.section[MH_INDEX_ROOT].bytes,
        .directories = at[MH_INDEX_DIRECTORIES],
        .files = at[MH_INDEX_FILES],
        .classes = at[MH_INDEX_CLASSES],
        .pictures = header.section[MH_INDEX_HEADERS].bytes ? at[MH_INDEX_HEADERS] : NULL,
        .paths = at[MH_INDEX_PATHS],
        .names = at[MH_INDEX_NAMES],
        .paths_bytes = header.section[MH_INDEX_PATHS].bytes,
        .names_bytes = header.section[MH_INDEX_NAMES].bytes,
        .contents = header.section[MH_INDEX_FILES].hash ^ header.section[MH_INDEX_PATHS].hash ^
                    header.section[MH_INDEX_NAMES].hash,
    };
    if (!count_items(&header, MH_INDEX_DIRECTORIES, sizeof *index.directories,
                     &index.directory_count) ||
        !count_items(&header, MH_INDEX_FILES, sizeof *index.files, &index.file_count) ||
        !count_items(&header, MH_INDEX_CLASSES, sizeof *index.classes, &index.class_count))
        return mh_fail(err, MH_ERR_CORRUPT, "a section is cut");
    MH_TRY(check_contents(&index, &header, err));
    *out = index;
    return MH_OK;
}
