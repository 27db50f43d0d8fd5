/* arrays.h - .npy files for tests, written without the code under test
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_TESTS_ARRAYS_H
#define MH_TESTS_ARRAYS_H

#include "unit.h"

/* The head of an .npy file, version 1, as NumPy writes it: padded to 64 bytes. Its length. */
static inline size_t npy_head(char *out, size_t room, const char *dict)
{
    size_t length = (10 + strlen(dict) + 1 + 63) / 64 * 64;
    assert_true(length <= room);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)((length - 10) & 0xff);
    out[9] = (char)((length - 10) >> 8);
    memset(out + 10, ' ', length - 10);
    memcpy(out + 10, dict, strlen(dict));
    out[length - 1] = '\n';
    return length;
}

/* What row `sample` of the array `salt` holds at `column`. */
static inline uint32_t cell(uint64_t sample, uint32_t column, uint32_t salt)
{
    return (uint32_t)sample * 2654435761u + column * 40503u + salt;
}

/* Writes root/name: samples x columns of uint32. */
static inline void write_rows(const char *root, const char *name, uint64_t samples,
                              uint32_t columns, uint32_t salt)
{
    char path[256], dict[128], head[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    (void)snprintf(dict, sizeof dict,
                   "{'descr': '<u4', 'fortran_order': False, 'shape': (%llu, %u), }",
                   (unsigned long long)samples, columns);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    size_t length = npy_head(head, sizeof head, dict);
    assert_int_equal(fwrite(head, 1, length, file), length);
    for (uint64_t i = 0; i < samples; i++)
        for (uint32_t c = 0; c < columns; c++) {
            uint32_t value = cell(i, c, salt);
            assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
        }
    assert_int_equal(fclose(file), 0);
}

/* Writes root/name: those bytes. */
static inline void write_bytes(const char *root, const char *name, const void *bytes, size_t size)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* A whole .npy file; its length. */
static inline size_t npy_file(char *out, size_t room, const char *dict, const void *data,
                              size_t size)
{
    size_t length = npy_head(out, room, dict);
    assert_true(size <= room - length);
    memcpy(out + length, data, size);
    return length + size;
}

#endif
