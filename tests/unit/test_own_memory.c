/* test_own_memory.c - what counts as a process's own, and how seldom it is looked at
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/own_memory.h"
#include "unit.h"
#include <sys/mman.h>

#define KB UINT64_C(1024)
#define MB (1024 * KB)

/* A heap, a file, batches of millhead's and a stack. */
#define SMAPS                                                                                      \
    "55d0-55d8 rw-p 00000000 00:00 0                     [heap]\n"                                 \
    "Rss:                 900 kB\nPrivate_Clean:        70 kB\nPrivate_Dirty:       800 kB\n"      \
    "VmFlags: rd wr mr\n"                                                                          \
    "7f00-7f08 r-xp 00000000 fe:00 77                    /usr/lib/lib Private_Dirty: 9 kB.so\n"    \
    "Private_Dirty:         4 kB\n"                                                                \
    "7f10-7f18 rw-s 00000000 00:01 5                     /memfd:millhead-batches (deleted)\n"      \
    "Private_Dirty:      9000 kB\n"                                                                \
    "7f20-7f28 rw-s 00000000 00:01 5                     /memfd:others (deleted)\n"                \
    "Private_Dirty:        10 kB\n"                                                                \
    "7ffd-7fff rw-p 00000000 00:00 0                     [stack]\n"                                \
    "Private_Dirty:       100 kB\n"

static void memory_is_summed_but_for_millheads(void **state)
{
    (void)state;
    uint64_t bytes = 7;
    assert_int_equal(mh_parse_own(SMAPS, sizeof SMAPS - 1, &bytes), 1);
    assert_int_equal(bytes, 914 * KB);
    bytes = 7;
    assert_int_equal(mh_parse_own("", 0, &bytes), 0);
    assert_int_equal(mh_parse_own("55-7f rw-p 0 00:00 0\nRss: 1 kB\n", 30, &bytes), 0);
    assert_int_equal(bytes, 7);
}

static void anonymous_memory_is_what_is_not_shared(void **state)
{
    (void)state;
    uint64_t pages = 7;
    assert_int_equal(mh_parse_anonymous("900 500 200 1 0 2 0\n", 20, &pages), 1);
    assert_int_equal(pages, 300);
    assert_int_equal(mh_parse_anonymous("900 200 500", 11, &pages), 1);
    assert_int_equal(pages, 0);
    pages = 7;
    assert_int_equal(mh_parse_anonymous("900 500", 7, &pages), 0);
    assert_int_equal(mh_parse_anonymous("900 x 1", 7, &pages), 0);
    assert_int_equal(pages, 7);
}

/* Anonymous memory of 1000 pages, of which `dirty` is this process's own. */
static void write_process(const char *root, const char *pages, const char *dirty)
{
    char text[256];
    (void)snprintf(text, sizeof text, "9000 %s 0 1 0 2 0\n", pages);
    tree_write(root, "proc/self/statm", text);
    (void)snprintf(text, sizeof text, "55-7f ---p 0 00:00 0 [rollup]\nPrivate_Dirty: %s kB\n",
                   dirty);
    tree_write(root, "proc/self/smaps_rollup", text);
}

static void pages_are_walked_only_when_there_may_be_too_many(void **state)
{
    mh_own_memory look = {0};
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    write_process(*state, "1000", "700");
    assert_int_equal(mh_own_memory_over(&look, 1000 * page, true, *state), 0);
    assert_int_equal(look.own_bytes, 0); /* not walked */
    assert_int_equal(mh_own_memory_over(&look, 900 * page, true, *state), 0);
    assert_int_equal(look.own_bytes, 700 * KB);
    assert_int_equal(mh_own_memory_over(&look, 600 * KB, true, *state), 700 * KB);
    tree_write(*state, "proc/self/smaps", SMAPS);
    write_process(*state, "1000", "9914"); /* most of it batches */
    assert_int_equal(mh_own_memory_over(&look, 800 * KB, true, *state), 914 * KB);
    assert_int_equal(mh_own_memory_over(&look, 914 * KB, true, *state), 0);
}

static void between_two_walks_only_growth_tells(void **state)
{
    mh_own_memory look = {0};
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    write_process(*state, "1000", "100");
    assert_int_equal(mh_own_memory_over(&look, 200 * KB, true, *state), 0);
    look.walk_ns = UINT64_MAX;
    write_process(*state, "1000", "300");
    look.look_ns = 0;
    assert_int_equal(mh_own_memory_over(&look, 200 * KB, false, *state), 0);
    write_process(*state, "2000", "300"); /* a thousand new pages */
    look.look_ns = UINT64_MAX;
    assert_int_equal(mh_own_memory_over(&look, 200 * KB, false, *state), 0); /* not yet */
    look.look_ns = 0;
    assert_true(1000 * page > 200 * KB);
    assert_int_equal(mh_own_memory_over(&look, 200 * KB, false, *state), 300 * KB);
}

static void nothing_to_read_is_nothing_too_much(void **state)
{
    mh_own_memory look = {0};
    assert_int_equal(mh_own_memory_over(&look, 1, true, *state), 0);
    tree_write(*state, "proc/self/statm", "900 500 200 1 0 2 0\n");
    assert_int_equal(mh_own_memory_over(&look, 1, true, *state),
                     300 * (uint64_t)sysconf(_SC_PAGESIZE)); /* no more is known */
}

static void this_process_is_measured(void **state)
{
    (void)state;
    mh_own_memory look = {0};
    const size_t bytes = 64 * MB;
    uint64_t before = mh_own_memory_over(&look, 0, true, "");
    assert_true(before > 0 && before < 64 * MB);
    /* Populated, not written: a sanitizer has memory of its own for what is written. */
    char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    assert_true(block != MAP_FAILED);
    uint64_t after = mh_own_memory_over(&look, 0, true, "");
    assert_true(after >= before + bytes - MB && after <= before + bytes + 8 * MB);
    assert_int_equal(munmap(block, bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_summed_but_for_millheads),
        cmocka_unit_test(anonymous_memory_is_what_is_not_shared),
        cmocka_unit_test_setup_teardown(pages_are_walked_only_when_there_may_be_too_many, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(between_two_walks_only_growth_tells, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(nothing_to_read_is_nothing_too_much, make_tree,
                                        remove_tree),
        cmocka_unit_test(this_process_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
