/* zips.h - zip archives for tests, written without the code under test, as Python's zipfile does
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_TESTS_ZIPS_H
#define MH_TESTS_ZIPS_H

#include "unit.h"

typedef struct zip_file {
    const char *name;
    const void *bytes;
    size_t size;
    uint16_t method;
} zip_file;

typedef struct zip {
    uint8_t bytes[16384];
    size_t size;
    size_t offsets[8];
    size_t directory;
} zip;

static inline void put(zip *z, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++, value >>= 8) {
        assert_true(z->size < sizeof z->bytes);
        z->bytes[z->size++] = (uint8_t)value;
    }
}

static inline void put_all(zip *z, const void *bytes, size_t size)
{
    assert_true(size <= sizeof z->bytes - z->size);
    memcpy(z->bytes + z->size, bytes, size);
    z->size += size;
}

/* As force_zip64 makes it: the sizes are in an extra field. */
static inline void put_local(zip *z, const zip_file *file)
{
    put(z, 0x04034b50, 4);
    put(z, 45, 2);
    put(z, 0, 2);
    put(z, file->method, 2);
    put(z, 0, 8); /* time, date, checksum */
    put(z, UINT64_MAX, 8);
    put(z, strlen(file->name), 2);
    put(z, 20, 2);
    put_all(z, file->name, strlen(file->name));
    put(z, 1, 2);
    put(z, 16, 2);
    put(z, file->size, 8);
    put(z, file->size, 8);
    put_all(z, file->bytes, file->size);
}

/* wide: the numbers are in an extra field, as for more than 2 GB. */
static inline void put_entry(zip *z, const zip_file *file, uint64_t offset, int wide)
{
    put(z, 0x02014b50, 4);
    put(z, 45, 2);
    put(z, 45, 2);
    put(z, 0, 2);
    put(z, file->method, 2);
    put(z, 0, 8);
    put(z, wide ? UINT32_MAX : file->size, 4);
    put(z, wide ? UINT32_MAX : file->size, 4);
    put(z, strlen(file->name), 2);
    put(z, wide ? 4 + 3 + 28 : 0, 2);
    put(z, 0, 10);
    put(z, wide ? UINT32_MAX : offset, 4);
    put_all(z, file->name, strlen(file->name));
    if (!wide)
        return;
    put(z, 0x9999, 2); /* somebody else's extra field */
    put(z, 3, 2);
    put(z, 0, 3);
    put(z, 1, 2);
    put(z, 24, 2);
    put(z, file->size, 8);
    put(z, file->size, 8);
    put(z, offset, 8);
}

static inline void put_end(zip *z, uint64_t count, int wide)
{
    uint64_t bytes = z->size - z->directory, record = z->size;
    if (wide) {
        put(z, 0x06064b50, 4);
        put(z, 44, 8);
        put(z, 45, 2);
        put(z, 45, 2);
        put(z, 0, 8);
        put(z, count, 8);
        put(z, count, 8);
        put(z, bytes, 8);
        put(z, z->directory, 8);
        put(z, 0x07064b50, 4);
        put(z, 0, 4);
        put(z, record, 8);
        put(z, 1, 4);
    }
    put(z, 0x06054b50, 4);
    put(z, 0, 4);
    put(z, wide ? UINT16_MAX : count, 2);
    put(z, wide ? UINT16_MAX : count, 2);
    put(z, wide ? UINT32_MAX : bytes, 4);
    put(z, wide ? UINT32_MAX : z->directory, 4);
    put(z, 0, 2);
}

static inline void zip_make(zip *z, const zip_file *files, size_t count, int wide)
{
    z->size = 0;
    for (size_t i = 0; i < count; i++) {
        z->offsets[i] = z->size;
        put_local(z, &files[i]);
    }
    z->directory = z->size;
    for (size_t i = 0; i < count; i++)
        put_entry(z, &files[i], z->offsets[i], wide);
    put_end(z, count, wide);
}

#endif
