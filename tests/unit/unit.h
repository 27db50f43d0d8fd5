/* unit.h - what the unit tests share: cmocka, fixture trees and allocation failure
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_TESTS_UNIT_H
#define MH_TESTS_UNIT_H

/* cmocka.h needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"

/* A new empty directory; its path into `root`. */
static inline void tree_make(char root[64])
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(root, 64, "%s/mh-unit-XXXXXX", base && strlen(base) < 40 ? base : "/tmp");
    assert_non_null(mkdtemp(root));
}

/* Writes a file of the tree, making the directories on its way. */
static inline void tree_write(const char *root, const char *path, const char *text)
{
    char full[4096];
    assert_true(snprintf(full, sizeof full, "%s/%s", root, path) < (int)sizeof full);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static inline int tree_remove_one(const char *path, const struct stat *about, int type,
                                  struct FTW *place)
{
    (void)about;
    (void)type;
    (void)place;
    return remove(path);
}

static inline void tree_remove(const char *root)
{
    assert_int_equal(nftw(root, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* cmocka's set-up and tear-down for a test whose state is the path of a tree of its own. */
static inline int make_tree(void **state)
{
    char *root = malloc(64);
    assert_non_null(root);
    tree_make(root);
    *state = root;
    return 0;
}

static inline int remove_tree(void **state)
{
    tree_remove(*state);
    free(*state);
    return 0;
}

/* Open descriptors of this process; a test that ends with more than it began with leaks. */
static inline int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct stat about;
        count += fstat(fd, &about) == 0;
    }
    return count;
}

/* Runs `body(argument)` with every single allocation failing in turn, and again with all from that
 * one on, until a run needs fewer. The body must cope; nothing may leak. */
static inline void each_allocation_fails(void (*body)(void *), void *argument)
{
    for (int persistent = 0; persistent < 2; persistent++) {
        for (uint64_t nth = 1;; nth++) {
            uint64_t before = mh_alloc_live();
            (void)mh_alloc_fail_at(nth, persistent);
            body(argument);
            uint64_t asked = mh_alloc_fail_at(0, 0);
            assert_int_equal(mh_alloc_live(), before);
            if (asked < nth)
                break;
            assert_true(nth < 10000);
        }
    }
}

/* Waits for a child and returns its exit code, or 128 + the signal that ended it. */
static inline int child_code(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs the test program anew as `PROGRAM look`, with libraries looked for there first:
 * LD_LIBRARY_PATH is read when a program starts. Its exit code. */
static inline int look_again(const char *program, const char *library_path)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("LD_LIBRARY_PATH", library_path, 1);
        (void)execl(program, program, "look", (char *)NULL);
        _exit(126);
    }
    return child_code(pid);
}

#endif
