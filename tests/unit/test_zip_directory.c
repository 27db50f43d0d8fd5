/* test_zip_directory.c - directories of zip archives: those Python writes, and damaged ones
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/zip_directory.h"
#include "zips.h"

static const zip_file files[] = {{"x.npy", "0123456789", 10, 0}, {"d/y.npy", "abc", 3, 8}};
static zip z;

/* Reads all of the archive z as if it ended after `size` bytes; the number of sound entries. */
static int read_all(size_t size, mh_error *err)
{
    mh_zip_end end;
    mh_zip_entry entry;
    uint64_t at = 0, offset;
    uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees a read beyond it */
    assert_non_null(exact);
    memcpy(exact, z.bytes, size);
    int sound = mh_zip_end_read(&end, exact, size, size, err) == MH_OK ? 0 : -1;
    for (uint64_t i = 0; sound >= 0 && i < end.count; i++) {
        if (mh_zip_entry_read(&entry, exact + end.offset, &end, &at, err) != MH_OK ||
            mh_zip_local_read(&offset, exact + entry.header_offset, &entry, &end, err) != MH_OK)
            break;
        assert_int_equal(entry.name_bytes, strlen(files[i].name));
        assert_memory_equal(entry.name, files[i].name, entry.name_bytes);
        assert_int_equal(entry.bytes, files[i].size);
        assert_int_equal(entry.packed_bytes, files[i].size);
        assert_int_equal(entry.method, files[i].method);
        assert_memory_equal(exact + offset, files[i].bytes, files[i].size);
        sound++;
    }
    free(exact);
    return sound;
}

static void entries_lie_where_they_were_put(void **state)
{
    mh_error err = {0};
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        zip_make(&z, files, 2, wide);
        assert_int_equal(read_all(z.size, &err), 2);
        for (size_t size = 0; size < z.size; size++)
            assert_int_equal(read_all(size, &err), -1);
    }
}

static void a_comment_may_follow(void **state)
{
    mh_error err = {0};
    (void)state;
    zip_make(&z, files, 2, 0);
    z.size -= 2;
    put(&z, 7, 2);
    put_all(&z, "PK\5\6 no", 7);
    assert_int_equal(read_all(z.size, &err), 2);
}

/* The tail alone is enough: the rest may be terabytes. */
static void the_tail_of_a_large_archive_is_enough(void **state)
{
    const uint64_t offset = UINT64_C(5) << 40;
    mh_zip_end end;
    mh_zip_entry entry;
    mh_error err = {0};
    uint64_t at = 0;
    (void)state;
    z.size = 0;
    z.directory = 0;
    put_entry(&z, &files[0], offset - 4096, 1);
    size_t bytes = z.size;
    put(&z, 0x06064b50, 4);
    put(&z, 44, 8);
    put(&z, 45, 4);
    put(&z, 0, 8);
    put(&z, 1, 8);
    put(&z, 1, 8);
    put(&z, bytes, 8);
    put(&z, offset, 8);
    put(&z, 0x07064b50, 4);
    put(&z, 0, 4);
    put(&z, offset + bytes, 8);
    put(&z, 1, 4);
    put(&z, 0x06054b50, 4);
    put(&z, 0, 4);
    put(&z, 0x00010001, 4);
    put(&z, bytes, 4);
    put(&z, UINT32_MAX, 4);
    put(&z, 0, 2);
    assert_int_equal(mh_zip_end_read(&end, z.bytes, z.size, offset + z.size, &err), MH_OK);
    assert_int_equal(end.offset, offset);
    assert_int_equal(mh_zip_entry_read(&entry, z.bytes, &end, &at, &err), MH_OK);
    assert_int_equal(entry.header_offset, offset - 4096);
    assert_int_equal(at, end.bytes);
}

static void damage_is_named(void **state)
{
    static const struct {
        int of_local; /* else an offset in the directory */
        size_t at;
        uint8_t byte;
        const char *said;
    } cases[] = {{0, 0, 'X', "not an entry"},         {0, 46, 0, "a zero in a name"},
                 {0, 29, 0xff, "an entry is cut"},    {0, 45, 0x7f, "beyond the directory"},
                 {1, 0, 'X', "zip header at byte 0"}, {0, 22, 0x10, "its bytes are cut"},
                 {1, 27, 0xff, "its bytes are cut"}};
    mh_error err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zip_make(&z, files, 2, 0);
        z.bytes[(cases[i].of_local ? 0 : z.directory) + cases[i].at] = cases[i].byte;
        assert_int_equal(read_all(z.size, &err), 0);
        assert_int_equal(err.code, MH_ERR_CORRUPT);
        if (!strstr(err.message, cases[i].said))
            fail_msg("'%s' does not say '%s'", err.message, cases[i].said);
    }
    zip_make(&z, files, 2, 0);
    z.bytes[z.size - 18] = 1; /* the number of this disk */
    assert_int_equal(read_all(z.size, &err), -1);
    assert_int_equal(err.code, MH_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_lie_where_they_were_put),
        cmocka_unit_test(a_comment_may_follow),
        cmocka_unit_test(the_tail_of_a_large_archive_is_enough),
        cmocka_unit_test(damage_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
