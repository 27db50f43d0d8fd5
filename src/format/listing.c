/* listing.c - what lies in a folder, as an index
 * SPDX-License-Identifier: Apache-2.0
 *
 * A queue of directories: each is dated, then listed, so that a change in between shows at the next
 * look. Then all is sorted, and what counts as a sample becomes the index (listed.c).
 */
#include "format/listing.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/listed.h"
#include "source/whole_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t changed_ns(const struct stat *about)
{
    return (int64_t)about->st_mtim.tv_sec * 1000000000 + about->st_mtim.tv_nsec;
}

bool mh_listing_is_picture(const char *name)
{
    /* those that torchvision's ImageFolder takes */
    static const char *const suffixes[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                           ".pgm", ".tif",  ".tiff", ".webp"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcasecmp(dot, suffixes[i]) == 0)
            return true;
    return false;
}

/* --- what was listed before --- */

static bool is_recent(const mh_index *index, uint32_t directory)
{
    return index->directories[directory].changed_ns > index->built_ns - MH_LISTING_RECENT_NS;
}

static bool directory_holds(const mh_index *index, uint32_t directory, const struct stat *about)
{
    const mh_index_directory *known = &index->directories[directory];
    return known->changed_ns == changed_ns(about) && known->inode == (uint64_t)about->st_ino &&
           known->device == (uint64_t)about->st_dev && !is_recent(index, directory);
}

bool mh_listing_holds(const mh_index *index, int root_fd)
{
    for (uint32_t i = 0; i < index->directory_count; i++) {
        struct stat about;
        const char *path = mh_index_path(index, i);
        int failed = *path ? fstatat(root_fd, path, &about, 0) : fstat(root_fd, &about);
        if (failed || !directory_holds(index, i, &about))
            return false;
    }
    return true;
}

/* --- listing --- */

static mh_status fail_directory(const mh_listed *listed, const mh_listed_directory *directory,
                                const char *what, int number, mh_error *err)
{
    const char *path = listed->paths.text + directory->path;
    return mh_fail_sys(err, number == ENOMEM ? MH_ERR_NOMEM : MH_ERR_IO, number, "cannot %s %s%s%s",
                       what, listed->root, *path ? "/" : "", path);
}

/* A directory that is linked to from below itself would be listed for ever. */
static bool is_loop(const mh_listed *listed, const mh_listed_directory *directory)
{
    for (uint32_t above = directory->parent;; above = listed->directories[above].parent) {
        const mh_listed_directory *other = &listed->directories[above];
        if (other == directory)
            return false;
        if (other->inode == directory->inode && other->device == directory->device)
            return true;
        if (other->parent == above)
            return false;
    }
}

static mh_status add_entry(mh_listed *listed, uint32_t number, int fd, const struct dirent *entry,
                           mh_error *err)
{
    struct stat about;
    if (entry->d_name[0] == '.')
        return MH_OK;
    if (entry->d_type == DT_DIR)
        return mh_listed_add_directory(listed, number, entry->d_name, err);
    if (entry->d_type != DT_REG && entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return MH_OK;
    if (fstatat(fd, entry->d_name, &about, 0) < 0) /* a link to nothing: whoever reads it is told */
        return mh_listed_add_file(listed, entry->d_name, 0, 0, err);
    if (S_ISDIR(about.st_mode))
        return mh_listed_add_directory(listed, number, entry->d_name, err);
    if (!S_ISREG(about.st_mode))
        return MH_OK;
    return mh_listed_add_file(listed, entry->d_name, (uint64_t)about.st_size,
                              mh_file_version(&about), err);
}

static mh_status list_entries(mh_listed *listed, uint32_t number, DIR *stream, mh_error *err)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry && errno)
            return fail_directory(listed, &listed->directories[number], "list", errno, err);
        if (!entry)
            return MH_OK;
        MH_TRY(add_entry(listed, number, dirfd(stream), entry, err));
    }
}

/* All of it from what was listed before: files, and the directories in it. */
static mh_status take_over(mh_listed *listed, uint32_t number, const mh_known *known,
                           uint32_t old_number, mh_error *err)
{
    const mh_index *old = known->index;
    const mh_index_directory *directory = &old->directories[old_number];
    for (uint32_t i = 0; i < directory->file_count; i++) {
        const mh_index_file *file = &old->files[directory->first_file + i];
        MH_TRY(mh_listed_add_file(listed, old->names + file->name, file->size, file->version, err));
    }
    for (uint32_t child = known->first_child[old_number]; child != MH_KNOWN_NONE;
         child = known->next_child[child]) {
        const char *path = mh_index_path(old, child);
        const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        MH_TRY(mh_listed_add_directory(listed, number, name, err));
    }
    return MH_OK;
}

static mh_status list_directory(mh_listed *listed, uint32_t number, int fd, const mh_known *known,
                                mh_error *err)
{
    struct stat about;
    mh_listed_directory *directory = &listed->directories[number];
    if (fstat(fd, &about) < 0)
        return fail_directory(listed, directory, "look at", errno, err);
    directory->changed_ns = changed_ns(&about);
    directory->inode = (uint64_t)about.st_ino;
    directory->device = (uint64_t)about.st_dev;
    directory->first_file = listed->file_count;
    if (is_loop(listed, directory))
        return mh_fail(err, MH_ERR_INVALID, "%s/%s is linked to itself: remove the link",
                       listed->root, listed->paths.text + directory->path);
    uint32_t old = mh_known_find(known, listed->paths.text + directory->path);
    if (old != MH_KNOWN_NONE && directory_holds(known->index, old, &about))
        return take_over(listed, number, known, old, err);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *stream = own < 0 ? NULL : fdopendir(own);
    if (!stream) {
        mh_status status = fail_directory(listed, directory, "list", errno, err);
        if (own >= 0)
            close(own);
        return status;
    }
    mh_status status = list_entries(listed, number, stream, err);
    closedir(stream);
    return status;
}

static mh_status list_all(mh_listed *listed, int root_fd, const mh_known *known, mh_error *err)
{
    MH_TRY(mh_listed_add_directory(listed, 0, "", err));
    for (uint32_t number = 0; number < listed->directory_count; number++) {
        const char *path = listed->paths.text + listed->directories[number].path;
        int fd = openat(root_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return fail_directory(listed, &listed->directories[number], "open", errno, err);
        mh_status status = list_directory(listed, number, fd, known, err);
        close(fd);
        if (status != MH_OK)
            return status;
        mh_listed_directory *directory = &listed->directories[number];
        directory->file_count = listed->file_count - directory->first_file;
    }
    return MH_OK;
}

/* --- the whole --- */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static mh_status make_once(uint8_t **out, uint64_t *out_size, int root_fd, const char *root,
                           uint64_t root_bytes, const mh_index *old, bool plain,
                           uint32_t *out_flags, mh_error *err)
{
    mh_listed listed = {.root = root + strlen(root) + 1, .built_ns = now_ns(), .plain = plain};
    mh_known known = {0};
    mh_status status = mh_known_make(&known, old, err);
    if (status == MH_OK)
        status = list_all(&listed, root_fd, &known, err);
    if (status == MH_OK)
        status = mh_listed_to_index(&listed, root, root_bytes, out, out_size, out_flags, err);
    mh_known_free(&known);
    mh_listed_free(&listed);
    return status;
}

/* An index has the files that count and no others: where others would count now, such as texts once
 * the last picture is gone, what was listed before does not say enough. */
mh_status mh_listing_make(uint8_t **out, uint64_t *out_size, int root_fd, const char *root,
                          uint64_t root_bytes, const mh_index *old, bool plain, mh_error *err)
{
    uint32_t flags = 0;
    uint8_t *made = NULL;
    MH_TRY(make_once(&made, out_size, root_fd, root, root_bytes, old, plain, &flags, err));
    if (old && (flags | MH_INDEX_PLAIN) != (old->flags | MH_INDEX_PLAIN)) {
        mh_free(made);
        MH_TRY(make_once(&made, out_size, root_fd, root, root_bytes, NULL, plain, &flags, err));
    }
    *out = made;
    return MH_OK;
}
