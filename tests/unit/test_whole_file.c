/* test_whole_file.c - files that are read from their first byte to their last, by computed names
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/source.h"

#include "unit.h"

#define ROOM 16u

static char root[64];

static int make_root(void **state)
{
    (void)state;
    tree_make(root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    tree_remove(root);
    return 0;
}

static void describe(const void *context, uint32_t number, mh_object *out, char *name)
{
    (void)snprintf(name, MH_NAME_MOST, "%s/%u", (const char *)context, number);
    *out = (mh_object){.name = name, .size = MH_SIZE_UNKNOWN};
}

static mh_status read_number(mh_source *source, uint32_t number, char *into, uint64_t *got,
                             mh_error *err)
{
    const mh_read read = {.object = number, .whole = 1, .size = ROOM, .into = (uint8_t *)into};
    return mh_source_read(source, &read, got, err);
}

/* However long they are, up to the room; and none keeps a descriptor. */
static void test_reads_whatever_is_there(void **state)
{
    mh_error err;
    mh_source *source = NULL;
    char into[ROOM + 1] = {0};
    uint64_t got = 0;
    const mh_objects objects = {.count = 4, .describe = describe, .context = root};
    const mh_source_options options = {.in_flight = 1};
    (void)state;
    tree_write(root, "0", "seven!!");
    tree_write(root, "1", "");
    tree_write(root, "2", "more than sixteen");
    assert_int_equal(mh_source_file.open(&source, &objects, &options, &err), MH_OK);
    assert_int_equal(read_number(source, 0, into, &got, &err), MH_OK);
    assert_int_equal(got, 7);
    assert_string_equal(into, "seven!!");
    assert_int_equal(read_number(source, 1, into, &got, &err), MH_OK);
    assert_int_equal(got, 0);
    assert_int_equal(read_number(source, 2, into, &got, &err), MH_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "/2 has 17 bytes"));
    assert_int_equal(read_number(source, 3, into, &got, &err), MH_ERR_NOT_FOUND);
    int next = dup(0);
    tree_write(root, "0", "eight!!!");
    assert_int_equal(read_number(source, 0, into, &got, &err), MH_OK);
    assert_int_equal(got, 8);
    int after = dup(0);
    assert_int_equal(after, next + 1);
    close(next);
    close(after);
    mh_source_close(source);
}

/* What is in memory comes at once; a listed file that has changed does not come at all. */
static void test_knows_the_version_of_a_listed_file(void **state)
{
    mh_error err;
    mh_source *source = NULL;
    char name[128], into[ROOM];
    uint64_t got = 0;
    (void)state;
    tree_write(root, "0", "first");
    (void)snprintf(name, sizeof name, "%s/0", root);
    mh_object object = {.name = name};
    const mh_objects objects = {.count = 1, .list = &object};
    const mh_source_options options = {.in_flight = 1};
    const mh_read read = {.whole = 1, .size = ROOM, .into = (uint8_t *)into};
    assert_int_equal(mh_source_file.stat(&object, &options, &err), MH_OK);
    assert_int_equal(mh_source_file.open(&source, &objects, &options, &err), MH_OK);
    mh_status status = mh_source_try_now(source, &read, &got, &err);
    assert_true(status == MH_OK || status == MH_AGAIN); /* some file systems cannot say */
    if (status == MH_OK)
        assert_int_equal(got, 5);
    tree_write(root, "0", "another");
    assert_int_equal(read_number(source, 0, into, &got, &err), MH_ERR_IO);
    assert_non_null(strstr(err.message, "changed"));
    mh_source_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_whatever_is_there),
        cmocka_unit_test(test_knows_the_version_of_a_listed_file),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
