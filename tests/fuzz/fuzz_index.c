/* fuzz_index.c - fuzz target: whatever an index says of files and directories lies inside it
 * SPDX-License-Identifier: Apache-2.0
 *
 * Hashes keep nearly every input out, so each is tried again with hashes that fit.
 */
#include "base/hash.h"
#include "format/index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Where the header of this version keeps what the hashes are of. */
enum { SIZE_AT = 16, SECTIONS_AT = 40, HASH_AT = SECTIONS_AT + 24 * MH_INDEX_SECTIONS };

static void require(int truth)
{
    if (!truth)
        abort();
}

static void repair(uint8_t *bytes, uint64_t size)
{
    if (size < HASH_AT + sizeof size)
        return;
    memcpy(bytes + SIZE_AT, &size, sizeof size);
    for (uint64_t i = 0; i < MH_INDEX_SECTIONS; i++) {
        uint64_t at[3];
        uint8_t *section = bytes + SECTIONS_AT + i * sizeof at;
        memcpy(at, section, sizeof at);
        if (at[0] > size || at[1] > size - at[0])
            continue;
        at[2] = mh_hash64(bytes + at[0], at[1], i);
        memcpy(section, at, sizeof at);
    }
    uint64_t hash = mh_hash64(bytes, HASH_AT, MH_INDEX_VERSION);
    memcpy(bytes + HASH_AT, &hash, sizeof hash);
}

static void check(const uint8_t *bytes, uint64_t size)
{
    mh_index index;
    mh_error err = {0};
    mh_status status = mh_index_read(&index, bytes, size, &err);
    if (status != MH_OK) {
        require(status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED);
        require(err.message[0] != '\0');
        return;
    }
    uint64_t letters = strlen(index.root) + strlen(index.root + strlen(index.root) + 1);
    for (uint32_t i = 0; i < index.file_count; i++) {
        const mh_index_file *file = &index.files[i];
        const char *name = mh_index_file_name(&index, i);
        require(file->directory < index.directory_count);
        require(!strchr(name, '/') && strcmp(name, "..") != 0 && *name);
        letters += strlen(name) + (index.pictures ? index.pictures[i].height : 0);
    }
    for (uint32_t i = 0; i < index.directory_count; i++) {
        require(index.directories[i].parent < index.directory_count);
        require(mh_index_path(&index, i)[0] != '/');
        require(!strstr(mh_index_path(&index, i), "/../") &&
                !strstr(mh_index_path(&index, i), "//"));
        letters += strlen(mh_index_path(&index, i));
    }
    for (uint32_t i = 0; i < index.class_count; i++)
        letters += strlen(mh_index_class(&index, i));
    require(letters < UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1); /* aligned, and of exactly its size */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    check(copy, size);
    repair(copy, size);
    check(copy, size);
    free(copy);
    return 0;
}
