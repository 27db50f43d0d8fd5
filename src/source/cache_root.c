/* cache_root.c - opening a cache directory: is it ours, is it local, how much is in it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/cache_files.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

/* File systems whose locks and renames other machines may not see in time. */
static bool is_network(int fd)
{
    static const uint32_t types[] = {
        0x6969,     /* NFS */
        0x517B,     /* SMB */
        0xFF534D42, /* CIFS */
        0xFE534D42, /* SMB2 */
        0x00C36400, /* Ceph */
        0x0BD00BD0, /* Lustre */
        0x47504653, /* GPFS */
        0x01021997, /* 9P */
        0x65735546, /* FUSE: nobody knows what is behind it */
        0x5346414F, /* AFS */
        0x19830326, /* BeeGFS */
    };
    struct statfs about;
    if (fstatfs(fd, &about) != 0)
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((uint32_t)about.f_type == types[i])
            return true;
    return false;
}

static mh_status check_directory(int fd, const char *path, mh_error *err)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot use the cache %.200s", path);
    if (about.st_uid != geteuid())
        return mh_fail(err, MH_ERR_INVALID,
                       "the cache %.200s belongs to another user: give a directory of your own",
                       path);
    if (about.st_mode & 022)
        return mh_fail(err, MH_ERR_INVALID,
                       "others may write to the cache %.200s: chmod 700 it, or give another", path);
    if (is_network(fd))
        return mh_fail(err, MH_ERR_INVALID,
                       "the cache %.200s is on a network file system: give a local directory",
                       path);
    return MH_OK;
}

static mh_status map_ledger(mh_cache_root *root, const char *path, mh_error *err)
{
    struct stat about;
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    root->ledger_fd = openat(root->fd, "ledger", flags, 0600);
    if (root->ledger_fd < 0 || fstat(root->ledger_fd, &about) != 0 ||
        ((uint64_t)about.st_size < sizeof *root->ledger &&
         ftruncate(root->ledger_fd, sizeof *root->ledger) != 0))
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write into the cache %.200s", path);
    if (about.st_uid != geteuid())
        return mh_fail(err, MH_ERR_INVALID, "the ledger of the cache %.200s is not yours", path);
    /* its blocks must be there, or a full disk would be a SIGBUS */
    int failure = posix_fallocate(root->ledger_fd, 0, sizeof *root->ledger);
    if (failure)
        return mh_fail_sys(err, MH_ERR_IO, failure, "cannot write into the cache %.200s", path);
    void *map =
        mmap(NULL, sizeof *root->ledger, PROT_READ | PROT_WRITE, MAP_SHARED, root->ledger_fd, 0);
    if (map == MAP_FAILED)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot map the ledger of %.200s", path);
    root->ledger = map;
    return MH_OK;
}

mh_status mh_cache_root_open(mh_cache_root *out, const char *path, bool make, mh_error *err)
{
    *out = (mh_cache_root){.fd = -1, .ledger_fd = -1};
    if (make && mkdir(path, 0700) != 0 && errno != EEXIST)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot make the cache %.200s", path);
    out->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->fd < 0)
        return mh_fail_sys(err, errno == ENOENT ? MH_ERR_NOT_FOUND : MH_ERR_IO, errno,
                           "cannot open the cache %.200s", path);
    mh_status status = check_directory(out->fd, path, err);
    if (status == MH_OK)
        status = map_ledger(out, path, err);
    if (status != MH_OK) {
        mh_cache_root_close(out);
        return status;
    }
    if (out->ledger->magic != MH_CACHE_MAGIC) {
        mh_cache_recount(out);
        out->ledger->magic = MH_CACHE_MAGIC;
    }
    return MH_OK;
}

void mh_cache_root_close(mh_cache_root *root)
{
    if (root->ledger)
        (void)munmap(root->ledger, sizeof *root->ledger);
    if (root->ledger_fd >= 0)
        close(root->ledger_fd);
    if (root->fd >= 0)
        close(root->fd);
    *root = (mh_cache_root){.fd = -1, .ledger_fd = -1};
}
