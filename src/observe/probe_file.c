/* probe_file.c - the file a probe reads: a temporary one without a name, or one that is there
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/probe.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/memory.h"
#include "sys/parse.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define LEAST_BYTES (UINT64_C(64) << 10)
#define LEAST_WRITTEN (UINT64_C(8) << 20) /* whatever time that takes */
#define SYNC_BYTES (UINT64_C(16) << 20)   /* a slow disk must not owe more than this at the end */
#define MOST_ENTRIES 2000                 /* looked at for a file to read */
#define MOST_DEPTH 4

/* --- what kind of place it is --- */

static void name_network(mh_probe *out, const char *path, bool directory)
{
    char inside[MH_PARSE_PATH_BYTES], *whole = realpath(path, NULL);
    size_t length;
    char *text = mh_file_read_text("/proc/self/mountinfo", &length);
    /* one step further in: mounts below the directory hold none of our file */
    if (whole && text &&
        snprintf(inside, sizeof inside, "%s%s", whole, directory ? "/." : "") < (int)sizeof inside)
        (void)mh_parse_network_mounts(text, length, inside, out->network, sizeof out->network);
    mh_free(text);
    free(whole); /* realpath's own */
}

static bool lies_in_memory(int fd)
{
    struct statfs about;
    return fstatfs(fd, &about) == 0 && (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC);
}

/* File systems that hold what the kernel knows, and no data. */
static bool holds_no_data(const char *path)
{
    struct statfs about;
    if (statfs(path, &about) != 0)
        return false;
    switch ((unsigned long)about.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEVPTS_SUPER_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case BPF_FS_MAGIC:
        return true;
    default:
        return false;
    }
}

/* --- a temporary file --- */

static mh_status no_room(const char *path, uint64_t needed, uint64_t there, mh_error *err)
{
    (void)mh_fail(err, MH_ERR_IO, "%s has room for %" PRIu64 " MB, the probe needs %" PRIu64 " MB",
                  path, there / 1000000, (needed + 999999) / 1000000);
    if (err)
        err->sys_errno = ENOSPC;
    return MH_ERR_IO;
}

/* Memory is taken from others; a disk that is full stops them. */
static mh_status check_room(int fd, const char *path, uint64_t bytes, mh_error *err)
{
    struct statfs about;
    mh_memory_room room;
    if (fstatfs(fd, &about) == 0 && about.f_blocks > 0) {
        uint64_t there = (uint64_t)about.f_bavail * (uint64_t)about.f_bsize;
        if (there < bytes)
            return no_room(path, bytes, there, err);
    }
    if (lies_in_memory(fd)) {
        mh_memory_room_read(&room, "");
        if (room.available_bytes < bytes)
            return no_room(path, bytes, room.available_bytes, err);
    }
    return MH_OK;
}

/* A descriptor of a file without a name, or -1 with errno. */
static int make_nameless(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char name[MH_PARSE_PATH_BYTES];
    sigset_t all, before;
    if (snprintf(name, sizeof name, "%s/.millhead-probe-XXXXXX", directory) >= (int)sizeof name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    /* no signal between making it and taking its name away */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    fd = mkostemp(name, O_CLOEXEC);
    int failed = errno;
    if (fd >= 0)
        (void)unlink(name);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return fd;
}

/* Numbers that no file system compresses. */
static void fill_random(uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t at = 0; at < count; at++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        words[at] = seed;
    }
}

static mh_status fill_file(mh_probe_file *file, const char *path, const mh_probe_options *options,
                           void *buffer, double seconds, mh_error *err)
{
    uint64_t began = mh_clock_ns(), done = 0, owed = 0;
    if (fallocate(file->fd, 0, 0, (off_t)options->bytes) != 0 &&
        (errno == ENOSPC || errno == EDQUOT))
        return no_room(path, options->bytes, 0, err);
    while (done < options->bytes) {
        bool late = (double)(mh_clock_ns() - began) > seconds * 1e9;
        if (late && done >= LEAST_WRITTEN)
            break;
        fill_random(buffer, MH_PROBE_PIECE / 8, UINT64_C(0x9e3779b97f4a7c15) + done);
        size_t piece = options->bytes - done < MH_PROBE_PIECE ? (size_t)(options->bytes - done)
                                                              : MH_PROBE_PIECE;
        ssize_t wrote = pwrite(file->fd, buffer, piece, (off_t)done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0 && (errno == ENOSPC || errno == EDQUOT))
            return no_room(path, options->bytes, done, err);
        if (wrote <= 0)
            return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write to a temporary file in %s",
                               path);
        done += (uint64_t)wrote;
        owed += (uint64_t)wrote;
        if (owed >= SYNC_BYTES) {
            (void)fdatasync(file->fd);
            owed = 0;
        }
        if (options->progress && options->progress(options->progress_arg, "writing",
                                                   0.3 * (double)done / (double)options->bytes))
            return mh_fail(err, MH_ERR_CLOSED, "stopped");
    }
    if (fdatasync(file->fd) != 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write to a temporary file in %s", path);
    file->bytes = done / MH_PROBE_PAGE * MH_PROBE_PAGE;
    return MH_OK;
}

/* --- a file that is there --- */

typedef struct largest {
    char path[MH_PARSE_PATH_BYTES];
    uint64_t bytes;
    int looked_at;
} largest;

static void find_largest(largest *found, const char *directory, int depth)
{
    DIR *entries = depth < MOST_DEPTH ? opendir(directory) : NULL;
    if (!entries)
        return;
    for (struct dirent *entry; found->looked_at < MOST_ENTRIES && (entry = readdir(entries));) {
        char path[MH_PARSE_PATH_BYTES];
        struct stat about;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) >= (int)sizeof path ||
            lstat(path, &about) != 0)
            continue;
        found->looked_at++;
        if (S_ISDIR(about.st_mode)) {
            find_largest(found, path, depth + 1);
        } else if (S_ISREG(about.st_mode) && (uint64_t)about.st_size > found->bytes &&
                   access(path, R_OK) == 0) {
            found->bytes = (uint64_t)about.st_size;
            memcpy(found->path, path, strlen(path) + 1);
        }
    }
    (void)closedir(entries);
}

static mh_status open_existing(mh_probe_file *file, const char *path, uint64_t most, mh_error *err)
{
    struct stat about;
    file->fd = mh_file_open(path);
    if (file->fd < 0 || fstat(file->fd, &about) != 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot read %s", path);
    uint64_t size = (uint64_t)about.st_size < most ? (uint64_t)about.st_size : most;
    if (!S_ISREG(about.st_mode) || size < LEAST_BYTES)
        return mh_fail(err, MH_ERR_NOT_FOUND, "%s is not a file of %d KiB or more", path,
                       (int)(LEAST_BYTES >> 10));
    file->bytes = size / MH_PROBE_PAGE * MH_PROBE_PAGE;
    return MH_OK;
}

static mh_status open_in_directory(mh_probe_file *file, mh_probe *out,
                                   const mh_probe_options *options, void *buffer, double seconds,
                                   mh_error *err)
{
    const char *path = options->path;
    errno = EROFS;
    file->fd = options->read_only ? -1 : make_nameless(path);
    if (file->fd >= 0) {
        (void)snprintf(out->file, sizeof out->file, "a temporary file in %s", path);
        MH_TRY(check_room(file->fd, path, options->bytes, err));
        return fill_file(file, path, options, buffer, seconds, err);
    }
    if (errno == ENOSPC || errno == EDQUOT)
        return no_room(path, options->bytes, 0, err);
    if (errno != EROFS && errno != EACCES && errno != EPERM)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot make a temporary file in %s", path);
    if (access(path, R_OK | X_OK) != 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot read %s", path);
    largest *found = mh_calloc(1, sizeof *found);
    if (!found)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to look for files");
    find_largest(found, path, 0);
    mh_status status = found->bytes < LEAST_BYTES
                           ? mh_fail(err, MH_ERR_NOT_FOUND, "%s holds no file of %d KiB or more",
                                     path, (int)(LEAST_BYTES >> 10))
                           : open_existing(file, found->path, options->bytes, err);
    (void)snprintf(out->file, sizeof out->file, "%.*s", (int)sizeof out->file - 1, found->path);
    mh_free(found);
    return status;
}

mh_status mh_probe_file_open(mh_probe_file *file, mh_probe *out, const mh_probe_options *options,
                             void *buffer, double seconds, mh_error *err)
{
    struct stat about;
    *file = (mh_probe_file){.fd = -1};
    if (stat(options->path, &about) != 0)
        return mh_fail_sys(err, errno == ENOENT ? MH_ERR_NOT_FOUND : MH_ERR_IO, errno,
                           "cannot read %s", options->path);
    if (holds_no_data(options->path))
        return mh_fail(err, MH_ERR_NOT_FOUND,
                       "%s is made by the kernel: there is no storage to measure", options->path);
    name_network(out, options->path, S_ISDIR(about.st_mode));
    mh_status status;
    if (S_ISDIR(about.st_mode)) {
        status = open_in_directory(file, out, options, buffer, seconds, err);
    } else {
        (void)snprintf(out->file, sizeof out->file, "%s", options->path);
        status = open_existing(file, options->path, options->bytes, err);
    }
    if (status != MH_OK) {
        if (file->fd >= 0)
            (void)close(file->fd);
        return status;
    }
    file->in_memory = lies_in_memory(file->fd);
    out->bytes = file->bytes;
    return MH_OK;
}
