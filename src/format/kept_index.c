/* kept_index.c - a folder's index in a file of the user's cache
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/kept_index.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "format/listing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST_MOST 256
#define OFF "off"

/* Host and real path of the folder: what an index is known by. */
typedef struct identity {
    char text[HOST_MOST + PATH_MAX];
    uint64_t bytes;
} identity;

static char *copied(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = mh_calloc(bytes, 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* --- where --- */

static mh_status identify(identity *out, int root_fd, const char *folder, mh_error *err)
{
    char host[HOST_MOST] = "", link[64];
    /* what the descriptor says, and not another walk through the path */
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", root_fd);
    (void)gethostname(host, sizeof host - 1);
    size_t begin = strlen(host) + 1;
    memcpy(out->text, host, begin);
    ssize_t length = readlink(link, out->text + begin, PATH_MAX - 1);
    if (length < 0) { /* no /proc here */
        if (!realpath(folder, out->text + begin))
            return mh_fail_sys(err, MH_ERR_IO, errno, "cannot find %s", folder);
        length = (ssize_t)strlen(out->text + begin);
    }
    out->text[begin + (size_t)length] = '\0';
    out->bytes = begin + (size_t)length + 1;
    return MH_OK;
}

/* "" where the user has no cache directory. */
static void cache_path(char *out, size_t room, const identity *who)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    unsigned long long hash = mh_hash64(who->text, who->bytes, 0);
    int length = -1;
    if (cache && *cache == '/')
        length = snprintf(out, room, "%s/millhead/%016llx.idx", cache, hash);
    else if (home && *home == '/')
        length = snprintf(out, room, "%s/.cache/millhead/%016llx.idx", home, hash);
    if (length < 0 || (size_t)length >= room)
        *out = '\0';
}

/* --- reading --- */

static void unmap(mh_kept_index *kept)
{
    if (kept->mapped)
        (void)munmap(kept->mapped, kept->index.size);
    kept->mapped = NULL;
}

/* False: there is none that could be used. */
static bool map(mh_kept_index *kept, const identity *who)
{
    mh_error ignored;
    struct stat about;
    int fd = open(kept->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    void *bytes = MAP_FAILED;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0)
        bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return false;
    if (mh_index_read(&kept->index, bytes, (uint64_t)about.st_size, &ignored) == MH_OK &&
        kept->index.root_bytes == who->bytes &&
        memcmp(kept->index.root, who->text, who->bytes) == 0) {
        kept->mapped = bytes;
        return true;
    }
    (void)munmap(bytes, (size_t)about.st_size);
    return false;
}

/* --- writing --- */

static void make_directories(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return;
    memcpy(part, path, length + 1);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0700); /* what is missing in the end shows when the file is made */
        *slash = '/';
    }
}

static bool write_all(int fd, const uint8_t *bytes, uint64_t size)
{
    for (uint64_t done = 0; done < size;) {
        ssize_t put = write(fd, bytes + done, size - done);
        if (put < 0 && errno != EINTR)
            return false;
        done += put > 0 ? (uint64_t)put : 0;
    }
    return true;
}

static mh_status write_file(const char *path, const uint8_t *bytes, uint64_t size, mh_error *err)
{
    char other[PATH_MAX];
    int length = snprintf(other, sizeof other, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof other)
        return mh_fail(err, MH_ERR_INVALID, "the index's path is too long: %s", path);
    (void)unlink(other); /* of a process that had this number and died */
    int fd = open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write the index %s", path);
    bool written = write_all(fd, bytes, size);
    int number = errno;
    if (close(fd) < 0 && written) {
        written = false;
        number = errno;
    }
    if (written && rename(other, path) == 0)
        return MH_OK;
    if (written)
        number = errno;
    (void)unlink(other);
    return mh_fail_sys(err, MH_ERR_IO, number, "cannot write the index %s", path);
}

/* Keeps what was made; only a file that the user named must be written. */
static mh_status keep(mh_kept_index *kept, bool named, mh_error *err)
{
    kept->state = MH_INDEX_UNKEPT;
    if (!kept->path)
        return MH_OK;
    if (!named)
        make_directories(kept->path);
    mh_status status = write_file(kept->path, kept->made, kept->index.size, &kept->unkept);
    if (status == MH_OK) {
        kept->state = MH_INDEX_WRITTEN;
        kept->unkept.code = MH_OK;
    } else if (named) {
        if (err)
            *err = kept->unkept;
        return status;
    }
    return MH_OK;
}

/* --- the whole --- */

/* Takes `made`, and lets go of what was there before. */
static mh_status adopt(mh_kept_index *kept, uint8_t *made, uint64_t size, mh_error *err)
{
    mh_index index;
    mh_status status = mh_index_read(&index, made, size, err);
    if (status != MH_OK) {
        mh_free(made);
        return status;
    }
    unmap(kept);
    mh_free(kept->made);
    kept->made = made;
    kept->index = index;
    return MH_OK;
}

/* Where the folder's index would be, and what it is known by. */
static mh_status locate(mh_kept_index *kept, identity *who, int root_fd, const char *folder,
                        const char *where, mh_error *err)
{
    char path[PATH_MAX] = "";
    MH_TRY(identify(who, root_fd, folder, err));
    bool named = where && strcmp(where, OFF) != 0;
    if (!where)
        cache_path(path, sizeof path, who);
    kept->folder = copied(who->text + strlen(who->text) + 1);
    kept->path = named ? copied(where) : *path ? copied(path) : NULL;
    if (!kept->folder || ((named || *path) && !kept->path))
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the index of %s", folder);
    return MH_OK;
}

static mh_status open_in(mh_kept_index *kept, int root_fd, const char *folder, const char *where,
                         bool plain, mh_error *err)
{
    identity who;
    uint8_t *made = NULL;
    uint64_t size = 0;
    MH_TRY(locate(kept, &who, root_fd, folder, where, err));
    bool found = kept->path && map(kept, &who);
    bool says_enough = found && (!plain || kept->index.flags & MH_INDEX_PLAIN);
    if (says_enough && mh_listing_holds(&kept->index, root_fd))
        return MH_OK;
    MH_TRY(mh_listing_make(&made, &size, root_fd, who.text, who.bytes, found ? &kept->index : NULL,
                           plain, err));
    MH_TRY(adopt(kept, made, size, err));
    return keep(kept, where && strcmp(where, OFF) != 0, err);
}

mh_status mh_kept_index_open(mh_kept_index **out, const char *folder, const char *where, bool plain,
                             mh_error *err)
{
    int root_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) {
        mh_status code = errno == ENOENT    ? MH_ERR_NOT_FOUND
                         : errno == ENOTDIR ? MH_ERR_INVALID
                                            : MH_ERR_IO;
        return mh_fail_sys(err, code, errno, "cannot open %s", folder);
    }
    mh_kept_index *kept = mh_calloc(1, sizeof *kept);
    mh_status status = kept ? open_in(kept, root_fd, folder, where, plain, err)
                            : mh_fail(err, MH_ERR_NOMEM, "no memory for an index");
    close(root_fd);
    if (status != MH_OK) {
        mh_kept_index_close(kept);
        return status;
    }
    *out = kept;
    return MH_OK;
}

mh_status mh_kept_index_of(mh_kept_index **out, uint8_t *made, uint64_t size, mh_error *err)
{
    mh_kept_index *kept = mh_calloc(1, sizeof *kept);
    if (!kept) {
        mh_free(made);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for an index");
    }
    kept->state = MH_INDEX_UNKEPT;
    mh_status status = adopt(kept, made, size, err);
    if (status == MH_OK)
        *out = kept;
    else
        mh_kept_index_close(kept);
    return status;
}

static bool find_in(mh_kept_index *kept, int root_fd, const char *folder, const char *where)
{
    identity who;
    mh_error ignored;
    return locate(kept, &who, root_fd, folder, where, &ignored) == MH_OK && kept->path &&
           map(kept, &who) && kept->index.flags & MH_INDEX_PLAIN &&
           mh_listing_holds(&kept->index, root_fd);
}

mh_kept_index *mh_kept_index_find_plain(const char *folder, const char *where)
{
    int root_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0)
        return NULL;
    mh_kept_index *kept = mh_calloc(1, sizeof *kept);
    if (kept && !find_in(kept, root_fd, folder, where)) {
        mh_kept_index_close(kept);
        kept = NULL;
    }
    close(root_fd);
    return kept;
}

void mh_kept_index_close(mh_kept_index *kept)
{
    if (!kept)
        return;
    unmap(kept);
    mh_free(kept->made);
    mh_free(kept->path);
    mh_free(kept->folder);
    mh_free(kept);
}

void mh_kept_index_forget(const mh_kept_index *kept)
{
    if (kept->path)
        (void)unlink(kept->path);
}

/* --- headers of pictures --- */

mh_status mh_kept_index_add_headers(mh_kept_index *kept, mh_header_reader *read, void *context,
                                    mh_error *err)
{
    const mh_index *index = &kept->index;
    uint8_t *made = NULL;
    uint64_t size = 0;
    if (index->pictures)
        return MH_OK;
    mh_index_picture *headers = mh_calloc(index->file_count + 1u, sizeof *headers);
    mh_status status = headers ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for headers");
    for (uint32_t i = 0; i < index->file_count && status == MH_OK; i++)
        status = read(context, index, i, &headers[i], err);
    if (status == MH_OK) {
        const mh_index_parts parts = {
            .built_ns = index->built_ns,
            .flags = index->flags,
            .sections = {
                [MH_INDEX_ROOT] = {index->root, index->root_bytes},
                [MH_INDEX_DIRECTORIES] = {index->directories,
                                          index->directory_count * sizeof *index->directories},
                [MH_INDEX_FILES] = {index->files, index->file_count * sizeof *index->files},
                [MH_INDEX_CLASSES] = {index->classes, index->class_count * sizeof *index->classes},
                [MH_INDEX_HEADERS] = {headers, index->file_count * sizeof *headers},
                [MH_INDEX_PATHS] = {index->paths, index->paths_bytes},
                [MH_INDEX_NAMES] = {index->names, index->names_bytes}}};
        status = mh_index_write(&made, &size, &parts, err);
    }
    mh_free(headers);
    MH_TRY(status);
    MH_TRY(adopt(kept, made, size, err));
    mh_error unkept;
    (void)!keep(kept, false, &unkept); /* its file was written when it was named */
    return MH_OK;
}
