/* cache_tend.c - walking over a cache directory: counting, checking, making room
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/cache_files.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/struct_size.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SPACES_MOST 65536u
#define TOUCH_S 3600
#define IDLE_S (24 * 3600)

/* What is done with each entry. `directory` is where it lies. */
typedef struct walk {
    mh_cache_root *root;
    mh_cache_job job;
    uint64_t need, freed; /* of PRUNE: it ends when so much is free */
    time_t before;        /* and removes only what was read before; 0: all */
    mh_cache_totals totals;
} walk;

static bool is_hex(const char *text, size_t length)
{
    return strlen(text) == length && strspn(text, "0123456789abcdef") == length;
}

/* --- entries --- */

static bool is_sound_file(int fd, const char *name, uint64_t size)
{
    mh_cache_header header;
    if (size < sizeof header || pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header ||
        header.magic != MH_CACHE_MAGIC || header.own_hash != mh_cache_header_hash(&header) ||
        header.size != size - sizeof header || strncmp(header.key, name, sizeof header.key) != 0)
        return false;
    uint8_t *bytes = mh_calloc(header.size ? header.size : 1, 1);
    uint64_t done = 0;
    while (bytes && done < header.size) {
        ssize_t got = pread(fd, bytes + done, header.size - done, (off_t)(sizeof header + done));
        if (got <= 0)
            break;
        done += (uint64_t)got;
    }
    bool sound = bytes && done == header.size &&
                 header.hash == mh_hash64(bytes, header.size, header.version);
    mh_free(bytes);
    return sound;
}

static bool is_sound_entry(int directory, const char *name, uint64_t size)
{
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool sound = fd >= 0 && is_sound_file(fd, name, size);
    if (fd >= 0)
        close(fd);
    return sound;
}

/* A part that nobody writes is what a process left that was killed. */
static void remove_left_part(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (mh_cache_lock(fd, F_WRLCK))
        (void)unlinkat(directory, name, 0);
    close(fd);
}

static void visit_entry(walk *w, int directory, const char *name)
{
    struct stat about;
    size_t length = strlen(name);
    if (length == MH_CACHE_KEY - 1 + 5 && strcmp(name + MH_CACHE_KEY - 1, ".part") == 0) {
        remove_left_part(directory, name);
        return;
    }
    if (!is_hex(name, MH_CACHE_KEY - 1) ||
        fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode))
        return;
    uint64_t size = (uint64_t)about.st_size;
    bool corrupt = w->job == MH_CACHE_VERIFY && !is_sound_entry(directory, name, size);
    bool old = !w->before || about.st_mtim.tv_sec < w->before;
    bool goes = corrupt || w->job == MH_CACHE_CLEAR || (w->job == MH_CACHE_PRUNE && old);
    w->totals.corrupt += corrupt;
    if (goes && unlinkat(directory, name, 0) == 0) {
        w->totals.removed++;
        w->freed += size;
        w->root->ledger->bytes -= size; /* at once: others wait for the room */
        return;
    }
    w->totals.entries++;
    w->totals.bytes += size;
}

static bool is_enough(const walk *w)
{
    return w->job == MH_CACHE_PRUNE && w->freed >= w->need;
}

/* Calls `visit` with every name in a directory that lies in another. */
static void each_name(int parent, const char *name, walk *w,
                      void (*visit)(walk *w, int directory, const char *name))
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (!directory) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *found; !is_enough(w) && (found = readdir(directory));)
        if (found->d_name[0] != '.')
            visit(w, dirfd(directory), found->d_name);
    closedir(directory);
}

static void visit_part_of_space(walk *w, int space, const char *name)
{
    if (is_hex(name, 2))
        each_name(space, name, w, visit_entry);
}

/* --- spaces, those opened longest ago first --- */

typedef struct space {
    char name[MH_CACHE_SPACE];
    struct timespec opened;
} space;

static int by_age(const void *a, const void *b)
{
    const struct timespec *left = &((const space *)a)->opened, *right = &((const space *)b)->opened;
    if (left->tv_sec != right->tv_sec)
        return left->tv_sec < right->tv_sec ? -1 : 1;
    return (left->tv_nsec > right->tv_nsec) - (left->tv_nsec < right->tv_nsec);
}

static size_t list_spaces(const mh_cache_root *root, space **out)
{
    size_t count = 0, room = 0;
    int fd = openat(root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    *out = NULL;
    for (const struct dirent *found; directory && (found = readdir(directory));) {
        struct stat about;
        char path[MH_CACHE_SPACE + 8];
        if (!is_hex(found->d_name, MH_CACHE_SPACE - 1) || count == SPACES_MOST)
            continue;
        if (count == room) {
            space *longer = mh_realloc(*out, room ? room * 2 : 64, sizeof **out);
            if (!longer)
                break;
            *out = longer;
            room = room ? room * 2 : 64;
        }
        space *added = &(*out)[count];
        memset(added, 0, sizeof *added);
        memcpy(added->name, found->d_name, MH_CACHE_SPACE);
        (void)snprintf(path, sizeof path, "%s/name", added->name);
        if (fstatat(root->fd, path, &about, AT_SYMLINK_NOFOLLOW) == 0)
            added->opened = about.st_mtim;
        count++;
    }
    if (directory)
        closedir(directory);
    else if (fd >= 0)
        close(fd);
    if (*out)
        qsort(*out, count, sizeof **out, by_age);
    return count;
}

/* What the space is of; its file, locked where nobody uses the space, else -1. */
static int open_name(const mh_cache_root *root, const char *name, char *shown, size_t room,
                     bool lock)
{
    char path[MH_CACHE_SPACE + 8];
    (void)snprintf(path, sizeof path, "%s/name", name);
    int fd = openat(root->fd, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    ssize_t got = fd >= 0 ? pread(fd, shown, room - 1, 0) : 0;
    shown[got > 0 ? got : 0] = '\0';
    if (fd >= 0 && lock && !mh_cache_lock(fd, F_WRLCK)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void walk_spaces(walk *w, mh_cache_each *each, void *context)
{
    space *spaces;
    size_t count = list_spaces(w->root, &spaces);
    bool removes = w->job == MH_CACHE_PRUNE || w->job == MH_CACHE_CLEAR;
    for (size_t i = 0; i < count && !is_enough(w); i++) {
        char shown[512];
        uint64_t entries = w->totals.entries, bytes = w->totals.bytes;
        int used = open_name(w->root, spaces[i].name, shown, sizeof shown, removes);
        if (!removes || used >= 0)
            each_name(w->root->fd, spaces[i].name, w, visit_part_of_space);
        if (used >= 0)
            close(used);
        w->totals.spaces++;
        if (each)
            each(context, shown, w->totals.entries - entries, w->totals.bytes - bytes);
    }
    mh_free(spaces);
}

/* --- jobs --- */

uint64_t mh_cache_evict(mh_cache_root *root, uint64_t need)
{
    walk w = {.root = root, .job = MH_CACHE_PRUNE, .need = need};
    if (!mh_cache_lock(root->ledger_fd, F_WRLCK))
        return 0;
    walk_spaces(&w, NULL, NULL);
    (void)mh_cache_lock(root->ledger_fd, F_UNLCK);
    return w.freed;
}

uint64_t mh_cache_evict_idle(mh_cache_root *root, int in, uint64_t need)
{
    walk w = {.root = root, .job = MH_CACHE_PRUNE, .need = need, .before = time(NULL) - IDLE_S};
    if (!mh_cache_lock(root->ledger_fd, F_WRLCK))
        return 0;
    each_name(in, ".", &w, visit_part_of_space);
    (void)mh_cache_lock(root->ledger_fd, F_UNLCK);
    return w.freed;
}

void mh_cache_touch(int fd, const struct timespec *dated)
{
    if (time(NULL) - dated->tv_sec > TOUCH_S)
        (void)futimens(fd, NULL);
}

void mh_cache_recount(mh_cache_root *root)
{
    walk w = {.root = root, .job = MH_CACHE_COUNT};
    if (!mh_cache_lock(root->ledger_fd, F_WRLCK))
        return;
    walk_spaces(&w, NULL, NULL);
    root->ledger->bytes = w.totals.bytes;
    root->ledger->counted_s = (uint64_t)time(NULL);
    (void)mh_cache_lock(root->ledger_fd, F_UNLCK);
}

void mh_cache_totals_init_sized(mh_cache_totals *totals, size_t size)
{
    const mh_cache_totals defaults = {.struct_size = size};
    mh_sized_write(totals, size, &defaults, sizeof defaults);
}

mh_status mh_cache_tend(const char *directory, mh_cache_job job, uint64_t limit,
                        mh_cache_each *each, void *argument, mh_cache_totals *out, mh_error *err)
{
    mh_cache_root root;
    size_t size = out->struct_size;
    if ((unsigned)job >= MH_CACHE_JOBS)
        return mh_fail(err, MH_ERR_INVALID, "unknown job %d for a cache", (int)job);
    MH_TRY(mh_cache_root_open(&root, directory, false, err));
    mh_cache_recount(&root);
    uint64_t bytes = root.ledger->bytes;
    walk w = {.root = &root, .job = job, .need = bytes > limit ? bytes - limit : 0};
    if (job != MH_CACHE_PRUNE || w.need)
        walk_spaces(&w, each, argument);
    walk left = {.root = &root, .job = MH_CACHE_COUNT};
    if (w.totals.removed)
        walk_spaces(&left, NULL, NULL);
    else
        left.totals.entries = w.totals.entries;
    w.totals.entries = left.totals.entries;
    w.totals.bytes = root.ledger->bytes;
    w.totals.struct_size = size;
    mh_sized_write(out, size, &w.totals, sizeof w.totals);
    mh_cache_root_close(&root);
    return MH_OK;
}
