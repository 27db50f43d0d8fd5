/* test_index.c - folders listed once: order, what counts, what is noticed, what damage does
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/kept_index.h"
#include "format/listing.h"
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

static char where[128];

/* The index of ROOT/data, kept in ROOT/kept.idx. */
static mh_kept_index *open_index(const char *root)
{
    char folder[128];
    mh_kept_index *kept = NULL;
    mh_error err = {0};
    (void)snprintf(folder, sizeof folder, "%s/data", root);
    (void)snprintf(where, sizeof where, "%s/kept.idx", root);
    if (mh_kept_index_open(&kept, folder, where, false, &err) != MH_OK)
        fail_msg("%s", err.message);
    return kept;
}

/* The directory changed long ago, so that it is not listed once more. */
static void make_old(const char *root, const char *path)
{
    char full[128];
    const struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    assert_int_equal(utimensat(AT_FDCWD, full, times, 0), 0);
}

static void write_tree(const char *root)
{
    static const char *const files[] = {"b/2.jpg", "b/10.JPG",     "b/notes.txt",
                                        "a/z.png", "a/sub/q.jpeg", "a-b/1.jpg",
                                        "README",  ".cache/x.jpg", "b/.hidden.jpg"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "data/%s", files[i]);
        tree_write(root, path, files[i]);
    }
    make_old(root, "data/a");
    make_old(root, "data/a/sub");
    make_old(root, "data/a-b");
    make_old(root, "data/b");
    make_old(root, "data");
}

/* "class path" of all files. */
static void expect_files(const mh_kept_index *kept, const char *const *expected, uint32_t count)
{
    const mh_index *index = &kept->index;
    char found[128];
    assert_int_equal(index->file_count, count);
    for (uint32_t i = 0; i < count; i++) {
        const mh_index_directory *directory = &index->directories[index->files[i].directory];
        bool classed = directory->class_number != MH_INDEX_NO_CLASS;
        (void)snprintf(found, sizeof found, "%s %s/%s",
                       classed ? mh_index_class(index, directory->class_number) : "-",
                       index->paths + directory->path, mh_index_file_name(index, i));
        assert_string_equal(found, expected[i]);
    }
}

static void files_come_in_the_order_of_ImageFolder(void **state)
{
    /* os.walk of each class: its own files first; a-b is another class and not inside a */
    static const char *const expected[] = {"a a/z.png", "a a/sub/q.jpeg", "a-b a-b/1.jpg",
                                           "b b/10.JPG", "b b/2.jpg"};
    write_tree(*state);
    mh_kept_index *kept = open_index(*state);
    expect_files(kept, expected, 5);
    assert_int_equal(kept->index.class_count, 3);
    assert_int_equal(kept->index.flags, MH_INDEX_PICTURES | MH_INDEX_BY_CLASS);
    assert_int_equal(kept->index.files[0].size, strlen("a/z.png"));
    assert_int_equal(kept->state, MH_INDEX_WRITTEN);
    mh_kept_index_close(kept);
}

static void a_folder_without_folders_is_flat(void **state)
{
    static const char *const texts[] = {"- /a.txt", "- /b"};
    static const char *const pictures[] = {"- /c.png"};
    tree_write(*state, "data/b", "12");
    tree_write(*state, "data/a.txt", "1");
    mh_kept_index *kept = open_index(*state);
    expect_files(kept, texts, 2);
    assert_int_equal(kept->index.flags, 0);
    mh_kept_index_close(kept);
    tree_write(*state, "data/c.png", "1");
    kept = open_index(*state);
    expect_files(kept, pictures, 1);
    mh_kept_index_close(kept);
    make_old(*state, "data");
    mh_kept_index_close(open_index(*state)); /* does not know the texts any more */
    char path[128];
    (void)snprintf(path, sizeof path, "%s/data/c.png", (char *)*state);
    assert_int_equal(unlink(path), 0);
    kept = open_index(*state);
    expect_files(kept, texts, 2);
    mh_kept_index_close(kept);
}

static void an_index_is_used_until_a_directory_changes(void **state)
{
    write_tree(*state);
    mh_kept_index_close(open_index(*state));
    mh_kept_index *kept = open_index(*state);
    assert_int_equal(kept->state, MH_INDEX_USED);
    assert_int_equal(kept->index.file_count, 5);
    mh_kept_index_close(kept);
    tree_write(*state, "data/a/sub/new.png", "1");
    kept = open_index(*state);
    assert_int_equal(kept->state, MH_INDEX_WRITTEN);
    assert_int_equal(kept->index.file_count, 6);
    mh_kept_index_close(kept);
    tree_write(*state, "data/c/1.png", "1");
    kept = open_index(*state);
    assert_int_equal(kept->index.file_count, 7);
    assert_int_equal(kept->index.class_count, 4);
    mh_kept_index_close(kept);
}

/* Another file in the same tick of the clock leaves the date as it was. */
static void what_changed_a_moment_ago_is_listed_again(void **state)
{
    char folder[128];
    struct stat about;
    write_tree(*state);
    tree_write(*state, "data/b/3.jpg", "3");
    (void)snprintf(folder, sizeof folder, "%s/data/b", (char *)*state);
    mh_kept_index *kept = open_index(*state);
    assert_int_equal(kept->index.file_count, 6);
    mh_kept_index_close(kept);
    assert_int_equal(stat(folder, &about), 0);
    tree_write(*state, "data/b/4.jpg", "4");
    const struct timespec times[2] = {about.st_mtim, about.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, folder, times, 0), 0);
    kept = open_index(*state);
    assert_int_equal(kept->state, MH_INDEX_WRITTEN);
    assert_int_equal(kept->index.file_count, 7);
    mh_kept_index_close(kept);
}

static void an_index_that_is_damaged_is_made_anew(void **state)
{
    write_tree(*state);
    mh_kept_index *kept = open_index(*state);
    uint64_t size = kept->index.size;
    mh_kept_index_close(kept);
    for (uint64_t at = 0; at < size; at += 7) {
        uint8_t byte;
        int fd = open(where, O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
        close(fd);
        kept = open_index(*state);
        assert_int_equal(kept->index.file_count, 5);
        mh_kept_index_close(kept);
    }
    assert_int_equal(truncate(where, 100), 0);
    kept = open_index(*state);
    assert_int_equal(kept->state, MH_INDEX_WRITTEN);
    mh_kept_index_close(kept);
}

static void an_index_of_another_folder_is_not_used(void **state)
{
    char other[128];
    mh_kept_index *kept = NULL;
    mh_error err;
    write_tree(*state);
    tree_write(*state, "else/x.jpg", "1");
    mh_kept_index_close(open_index(*state));
    (void)snprintf(other, sizeof other, "%s/else", (char *)*state);
    assert_int_equal(mh_kept_index_open(&kept, other, where, false, &err), MH_OK);
    assert_int_equal(kept->index.file_count, 1);
    mh_kept_index_close(kept);
}

static void without_a_place_to_keep_it_a_folder_still_opens(void **state)
{
    char folder[128], cache[128];
    mh_kept_index *kept = NULL;
    mh_error err = {0};
    struct rlimit small = {100, 100}, before;
    write_tree(*state);
    tree_write(*state, "file", "not a directory");
    (void)snprintf(folder, sizeof folder, "%s/data", (char *)*state);
    (void)snprintf(cache, sizeof cache, "%s/file", (char *)*state);
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    assert_int_equal(mh_kept_index_open(&kept, folder, NULL, false, &err), MH_OK);
    assert_int_equal(kept->state, MH_INDEX_UNKEPT);
    assert_int_equal(kept->unkept.code, MH_ERR_IO);
    assert_int_equal(kept->index.file_count, 5);
    mh_kept_index_close(kept);
    /* a disk that is full in the middle of it */
    assert_int_equal(setenv("XDG_CACHE_HOME", *state, 1), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(mh_kept_index_open(&kept, folder, NULL, false, &err), MH_OK);
    assert_int_equal(kept->state, MH_INDEX_UNKEPT);
    mh_kept_index_close(kept);
    (void)snprintf(where, sizeof where, "%s/named.idx", (char *)*state);
    assert_int_equal(mh_kept_index_open(&kept, folder, where, false, &err), MH_ERR_IO);
    assert_non_null(strstr(err.message, "cannot write the index"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_not_equal(access(where, F_OK), 0);
    assert_int_equal(mh_kept_index_open(&kept, folder, NULL, false, &err), MH_OK);
    assert_int_equal(kept->state, MH_INDEX_WRITTEN);
    mh_kept_index_close(kept);
}

static void links_are_followed_but_not_in_circles(void **state)
{
    char link[128], folder[128];
    mh_kept_index *kept = NULL;
    mh_error err = {0};
    static const char *const expected[] = {"a a/1.jpg", "a a/gone.jpg", "b b/1.jpg"};
    tree_write(*state, "data/a/1.jpg", "1");
    tree_write(*state, "else/1.jpg", "1");
    (void)snprintf(link, sizeof link, "%s/data/b", (char *)*state);
    assert_int_equal(symlink("../else", link), 0);
    (void)snprintf(link, sizeof link, "%s/data/a/gone.jpg", (char *)*state);
    assert_int_equal(symlink("nowhere", link), 0);
    kept = open_index(*state);
    expect_files(kept, expected, 3);
    mh_kept_index_close(kept);
    (void)snprintf(link, sizeof link, "%s/data/a/again", (char *)*state);
    assert_int_equal(symlink("..", link), 0);
    (void)snprintf(folder, sizeof folder, "%s/data", (char *)*state);
    assert_int_equal(mh_kept_index_open(&kept, folder, "off", false, &err), MH_ERR_INVALID);
    assert_non_null(strstr(err.message, "data/a/again is linked to itself"));
}

static mh_status header_of_size(void *context, const mh_index *index, uint32_t file,
                                mh_index_picture *out, mh_error *err)
{
    (void)err;
    ++*(int *)context;
    *out = (mh_index_picture){.height = (uint32_t)index->files[file].size, .width = file};
    return MH_OK;
}

static void headers_are_read_once(void **state)
{
    int reads = 0;
    mh_error err;
    write_tree(*state);
    for (int open = 0; open < 2; open++) {
        mh_kept_index *kept = open_index(*state);
        assert_int_equal(mh_kept_index_add_headers(kept, header_of_size, &reads, &err), MH_OK);
        assert_int_equal(reads, 5);
        assert_int_equal(kept->index.pictures[4].height, strlen("b/2.jpg"));
        assert_int_equal(kept->index.pictures[4].width, 4);
        mh_kept_index_close(kept);
    }
}

static void open_and_close(void *root)
{
    char folder[128];
    mh_kept_index *kept = NULL;
    mh_error err;
    int reads = 0;
    (void)snprintf(folder, sizeof folder, "%s/data", (char *)root);
    (void)snprintf(where, sizeof where, "%s/kept.idx", (char *)root);
    if (mh_kept_index_open(&kept, folder, where, false, &err) != MH_OK) {
        assert_int_equal(err.code, MH_ERR_NOMEM);
        return;
    }
    if (mh_kept_index_add_headers(kept, header_of_size, &reads, &err) != MH_OK)
        assert_int_equal(err.code, MH_ERR_NOMEM);
    mh_kept_index_close(kept);
}

static void each_allocation_may_fail(void **state)
{
    int descriptors = open_descriptors();
    tree_write(*state, "data/b/3.jpg", "3"); /* just now: listed each time */
    each_allocation_fails(open_and_close, *state);
    assert_int_equal(open_descriptors(), descriptors);
}

int main(void)
{
#define TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)
    const struct CMUnitTest tests[] = {
        TREE(files_come_in_the_order_of_ImageFolder),
        TREE(a_folder_without_folders_is_flat),
        TREE(an_index_is_used_until_a_directory_changes),
        TREE(what_changed_a_moment_ago_is_listed_again),
        TREE(an_index_that_is_damaged_is_made_anew),
        TREE(an_index_of_another_folder_is_not_used),
        TREE(without_a_place_to_keep_it_a_folder_still_opens),
        TREE(links_are_followed_but_not_in_circles),
        TREE(headers_are_read_once),
        TREE(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
