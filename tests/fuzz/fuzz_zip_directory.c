/* fuzz_zip_directory.c - fuzz target: what a zip archive says of its entries lies inside it,
 * whatever the bytes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/zip_directory.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static int refused(mh_status status, const mh_error *err)
{
    if (status == MH_OK)
        return 0;
    require(status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED);
    require(err->message[0] != '\0');
    return 1;
}

/* A copy of exactly its size, so that a sanitizer sees one byte too far. */
static void check_entries(const uint8_t *data, const uint8_t *directory, const mh_zip_end *end)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < end->count; i++) {
        mh_zip_entry entry;
        mh_error err = {0};
        uint64_t offset = 0, before = at;
        if (refused(mh_zip_entry_read(&entry, directory, end, &at, &err), &err))
            return;
        require(at > before && at <= end->bytes);
        require((const uint8_t *)entry.name + entry.name_bytes <= directory + end->bytes);
        require(entry.header_offset + MH_ZIP_LOCAL_BYTES <= end->offset);
        if (!refused(mh_zip_local_read(&offset, data + entry.header_offset, &entry, end, &err),
                     &err))
            require(offset <= end->offset && entry.packed_bytes <= end->offset - offset);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_zip_end end = {0};
    mh_error err = {0};
    size_t tail = size < MH_ZIP_TAIL_MOST ? size : MH_ZIP_TAIL_MOST;
    if (refused(mh_zip_end_read(&end, data + (size - tail), tail, size, &err), &err))
        return 0;
    require(end.offset <= size && end.bytes <= size - end.offset);
    uint8_t *directory = malloc(end.bytes ? end.bytes : 1);
    if (!directory)
        return 0;
    memcpy(directory, data + end.offset, end.bytes);
    check_entries(data, directory, &end);
    free(directory);
    return 0;
}
