/* zip_directory.c - what lies where in a zip archive, read by pure functions over its bytes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/zip_directory.h"

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

#define END_BYTES 22u
#define LOCATOR_BYTES 20u
#define END64_BYTES 56u
#define ENTRY_BYTES 46u

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t get32(const uint8_t *at)
{
    return get16(at) | (uint32_t)get16(at + 2) << 16;
}

static uint64_t get64(const uint8_t *at)
{
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

static bool is_record(const uint8_t *at, const char *type)
{
    return at[0] == 'P' && at[1] == 'K' && at[2] == (uint8_t)type[0] && at[3] == (uint8_t)type[1];
}

/* --- the end --- */

/* The last record is followed by a comment that reaches to the end of the file. */
static mh_status find_end(size_t *out, const uint8_t *tail, size_t size, mh_error *err)
{
    for (size_t at = size < END_BYTES ? 0 : size - END_BYTES + 1; at-- > 0;)
        if (is_record(tail + at, "\5\6") && get16(tail + at + 20) == size - at - END_BYTES) {
            *out = at;
            return MH_OK;
        }
    return mh_fail(err, MH_ERR_CORRUPT, "zip archive without its end: it was cut, or is not one");
}

/* The record that a locator before the last one leads to has the numbers that need 64 bits. */
static mh_status read_end64(mh_zip_end *out, const uint8_t *tail, size_t locator,
                            uint64_t tail_offset, mh_error *err)
{
    uint64_t offset = get64(tail + locator + 8);
    if (get32(tail + locator + 4) != 0 || get32(tail + locator + 16) > 1)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "zip archive in several parts");
    if (locator < END64_BYTES || offset < tail_offset ||
        offset - tail_offset > locator - END64_BYTES ||
        !is_record(tail + (offset - tail_offset), "\6\6"))
        return mh_fail(err, MH_ERR_CORRUPT, "zip64 end record at byte %llu: missing",
                       (unsigned long long)offset);
    const uint8_t *record = tail + (offset - tail_offset);
    *out = (mh_zip_end){
        .count = get64(record + 32), .bytes = get64(record + 40), .offset = get64(record + 48)};
    return MH_OK;
}

mh_status mh_zip_end_read(mh_zip_end *out, const uint8_t *tail, size_t size, uint64_t file_bytes,
                          mh_error *err)
{
    size_t at = 0;
    mh_zip_end end;
    MH_TRY(find_end(&at, tail, size, err));
    const uint8_t *record = tail + at;
    if (at >= LOCATOR_BYTES && is_record(record - LOCATOR_BYTES, "\6\7"))
        MH_TRY(read_end64(&end, tail, at - LOCATOR_BYTES, file_bytes - size, err));
    else if (get16(record + 4) != 0 || get16(record + 6) != 0)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "zip archive in several parts");
    else
        end = (mh_zip_end){
            .count = get16(record + 10), .bytes = get32(record + 12), .offset = get32(record + 16)};
    uint64_t before = file_bytes - size + at;
    if (end.offset > before || end.bytes > before - end.offset ||
        end.count > end.bytes / ENTRY_BYTES)
        return mh_fail(err, MH_ERR_CORRUPT, "zip directory at byte %llu: beyond the end",
                       (unsigned long long)end.offset);
    if (end.bytes > MH_ZIP_DIRECTORY_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "zip directory of %llu bytes",
                       (unsigned long long)end.bytes);
    *out = end;
    return MH_OK;
}

/* --- entries --- */

static mh_status corrupt(const mh_zip_end *end, uint64_t at, const char *what, mh_error *err)
{
    return mh_fail(err, MH_ERR_CORRUPT, "zip directory at byte %llu: %s",
                   (unsigned long long)(end->offset + at), what);
}

/* Takes the next 64-bit number where the 32-bit one says that it is there. */
static bool widen(uint64_t *value, const uint8_t **at, size_t *left)
{
    if (*value != UINT32_MAX)
        return true;
    if (*left < 8)
        return false;
    *value = get64(*at);
    *at += 8;
    *left -= 8;
    return true;
}

/* Extra fields are a number, a length and bytes each; number 1 is zip64's. */
static bool read_extras(mh_zip_entry *entry, const uint8_t *extra, size_t size)
{
    while (size >= 4) {
        size_t length = get16(extra + 2);
        const uint8_t *at = extra + 4;
        if (length > size - 4)
            return false;
        if (get16(extra) == 1)
            return widen(&entry->bytes, &at, &length) &&
                   widen(&entry->packed_bytes, &at, &length) &&
                   widen(&entry->header_offset, &at, &length);
        extra += 4 + length;
        size -= 4 + length;
    }
    return true;
}

mh_status mh_zip_entry_read(mh_zip_entry *out, const uint8_t *directory, const mh_zip_end *end,
                            uint64_t *at, mh_error *err)
{
    if (*at > end->bytes || end->bytes - *at < ENTRY_BYTES)
        return corrupt(end, *at, "an entry is cut", err);
    const uint8_t *record = directory + *at;
    size_t name = get16(record + 28), extra = get16(record + 30), comment = get16(record + 32);
    if (!is_record(record, "\1\2"))
        return corrupt(end, *at, "not an entry", err);
    if (end->bytes - *at - ENTRY_BYTES < name + extra + comment)
        return corrupt(end, *at, "an entry is cut", err);
    mh_zip_entry entry = {.name = (const char *)record + ENTRY_BYTES,
                          .name_bytes = name,
                          .method = get16(record + 10),
                          .encrypted = get16(record + 8) & 1,
                          .packed_bytes = get32(record + 20),
                          .bytes = get32(record + 24),
                          .header_offset = get32(record + 42)};
    if (memchr(entry.name, '\0', name))
        return corrupt(end, *at, "a zero in a name", err);
    if (!read_extras(&entry, record + ENTRY_BYTES + name, extra))
        return corrupt(end, *at, "an extra field is cut", err);
    if (entry.header_offset > end->offset || end->offset - entry.header_offset < MH_ZIP_LOCAL_BYTES)
        return corrupt(end, *at, "an entry's bytes lie beyond the directory", err);
    *at += ENTRY_BYTES + name + extra + comment;
    *out = entry;
    return MH_OK;
}

mh_status mh_zip_local_read(uint64_t *out_offset, const uint8_t *local, const mh_zip_entry *entry,
                            const mh_zip_end *end, mh_error *err)
{
    unsigned long long begin = entry->header_offset;
    uint64_t offset =
        entry->header_offset + MH_ZIP_LOCAL_BYTES + get16(local + 26) + get16(local + 28);
    if (!is_record(local, "\3\4"))
        return mh_fail(err, MH_ERR_CORRUPT, "zip header at byte %llu: missing", begin);
    if (offset > end->offset || entry->packed_bytes > end->offset - offset)
        return mh_fail(err, MH_ERR_CORRUPT, "zip header at byte %llu: its bytes are cut", begin);
    *out_offset = offset;
    return MH_OK;
}

mh_status mh_zip_local_skip(uint64_t *out, const uint8_t *bytes, uint64_t size, mh_error *err)
{
    if (size < MH_ZIP_LOCAL_BYTES || !is_record(bytes, "\3\4"))
        return mh_fail(err, MH_ERR_CORRUPT, "zip header: missing");
    uint64_t length = MH_ZIP_LOCAL_BYTES + get16(bytes + 26) + get16(bytes + 28);
    if (length > size)
        return mh_fail(err, MH_ERR_CORRUPT, "zip header: %llu bytes, there should be at most %llu",
                       (unsigned long long)length, (unsigned long long)size);
    *out = length;
    return MH_OK;
}
