/* test_pickle_parts.c - parts come back as they were written; damaged ones are refused
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"
#include "workers/pickle_parts.h"

static _Alignas(64) uint8_t memory[4096];

static const mh_pickle_part written[] = {
    {MH_PICKLE_BYTES, 5, "hello"},
    {MH_PICKLE_BUFFER, 0, NULL},
    {MH_PICKLE_TENSOR, 64, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
    {MH_PICKLE_BUFFER, 1, "x"},
};
#define COUNT (sizeof written / sizeof *written)

static uint64_t write_all(void)
{
    uint64_t bytes = mh_pickle_parts_bytes(written, COUNT);
    memset(memory, 0xee, sizeof memory);
    mh_pickle_parts_write(memory, written, COUNT);
    assert_int_equal(bytes % 64, 0);
    assert_int_equal(memory[bytes], 0xee);
    return bytes;
}

static mh_status read_all(uint64_t bytes)
{
    mh_pickle_reader reader;
    mh_pickle_part part;
    if (mh_pickle_parts_open(&reader, memory, bytes, NULL) != MH_OK)
        return MH_ERR_INTERNAL;
    for (uint64_t i = 0; i < reader.count; i++) {
        if (mh_pickle_parts_next(&reader, &part, NULL) != MH_OK)
            return MH_ERR_INTERNAL;
        const uint8_t *data = part.data;
        assert_true(data >= memory && data + part.bytes <= memory + bytes);
    }
    return MH_OK;
}

static void parts_come_back_as_they_were_written(void **state)
{
    (void)state;
    mh_pickle_reader reader;
    mh_pickle_part part;
    assert_int_equal(mh_pickle_parts_open(&reader, memory, write_all(), NULL), MH_OK);
    assert_int_equal(reader.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(mh_pickle_parts_next(&reader, &part, NULL), MH_OK);
        assert_int_equal(part.kind, written[i].kind);
        assert_int_equal(part.bytes, written[i].bytes);
        assert_int_equal(((uintptr_t)part.data) % 64, 0);
        if (part.bytes)
            assert_memory_equal(part.data, written[i].data, part.bytes);
    }
}

static void none_are_parts_too(void **state)
{
    (void)state;
    mh_pickle_reader reader;
    mh_pickle_parts_write(memory, NULL, 0);
    assert_int_equal(mh_pickle_parts_open(&reader, memory, mh_pickle_parts_bytes(NULL, 0), NULL),
                     MH_OK);
    assert_int_equal(reader.count, 0);
}

static void what_is_cut_short_is_refused(void **state)
{
    (void)state;
    uint64_t whole = write_all();
    assert_int_equal(read_all(whole), MH_OK);
    assert_int_equal(read_all(whole - 63), MH_OK); /* the last part has one byte */
    for (uint64_t bytes = 0; bytes < whole - 63; bytes++)
        assert_int_equal(read_all(bytes), MH_ERR_INTERNAL);
}

static void numbers_of_any_size_are_harmless(void **state)
{
    (void)state;
    static const uint64_t odd[] = {COUNT + 40, UINT64_MAX, UINT64_MAX / 16, UINT64_MAX - 63,
                                   UINT64_C(1) << 63};
    uint64_t whole = write_all();
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        memcpy(memory, &odd[i], sizeof odd[i]); /* how many */
        assert_int_equal(read_all(whole), MH_ERR_INTERNAL);
        write_all();
        memcpy(memory + 16, &odd[i], sizeof odd[i]); /* the bytes of the first */
        if (odd[i] > whole)
            assert_int_equal(read_all(whole), MH_ERR_INTERNAL);
        write_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_back_as_they_were_written),
        cmocka_unit_test(none_are_parts_too),
        cmocka_unit_test(what_is_cut_short_is_refused),
        cmocka_unit_test(numbers_of_any_size_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
