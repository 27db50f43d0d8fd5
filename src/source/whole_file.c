/* whole_file.c - open, read, close
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/whole_file.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NOCTTY)

uint64_t mh_file_version(const struct stat *about)
{
    uint64_t version = (uint64_t)about->st_ino * UINT64_C(0x9E3779B97F4A7C15);
    version ^=
        (uint64_t)about->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)about->st_mtim.tv_nsec;
    version = version * UINT64_C(0xD6E8FEB86659FD93) ^ (uint64_t)about->st_size;
    return version ? version : 1;
}

mh_status mh_file_fail_open(mh_error *err, const char *name)
{
    mh_status code = errno == ENOENT || errno == ENOTDIR ? MH_ERR_NOT_FOUND : MH_ERR_IO;
    code = mh_fail_sys(err, code, errno, "cannot open %s", name);
    return mh_error_at(err, code, name, MH_NOWHERE);
}

/* Kernels without openat2 or RESOLVE_CACHED say so, and then every name may wait. */
static int open_file(const char *name, bool only_cached)
{
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_CACHED};
    if (!only_cached)
        return open(name, OPEN_FLAGS);
    long fd = syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EINVAL))
        errno = EAGAIN;
    return (int)fd;
}

static mh_status check(int fd, const mh_object *object, const mh_read *read, uint64_t *size,
                       mh_error *err)
{
    struct stat about;
    if (fstat(fd, &about) < 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot read %s", object->name);
    if (!S_ISREG(about.st_mode))
        return mh_fail(err, MH_ERR_INVALID, "%s is not a regular file", object->name);
    if (object->version && object->version != mh_file_version(&about))
        return mh_fail(err, MH_ERR_IO, "%s changed since the dataset was opened: open it again",
                       object->name);
    *size = (uint64_t)about.st_size;
    if (*size > read->size)
        return mh_fail(err, MH_ERR_CORRUPT, "%s has %llu bytes, and %llu at most can be right",
                       object->name, (unsigned long long)*size, (unsigned long long)read->size);
    return MH_OK;
}

static mh_status read_bytes(int fd, const mh_object *object, uint8_t *into, uint64_t size,
                            bool only_cached, mh_error *err)
{
    for (uint64_t done = 0; done < size;) {
        struct iovec place = {.iov_base = into + done, .iov_len = size - done};
        ssize_t got = only_cached ? preadv2(fd, &place, 1, (off_t)done, RWF_NOWAIT)
                                  : preadv2(fd, &place, 1, (off_t)done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (only_cached && (got < 0 || (uint64_t)got < size - done))
            return MH_AGAIN;
        unsigned long long at = done;
        if (got < 0)
            return mh_fail_sys(err, MH_ERR_IO, errno, "cannot read %s at byte %llu", object->name,
                               at);
        if (got == 0)
            return mh_fail(err, MH_ERR_IO, "%s ends at byte %llu: it had %llu when it was opened",
                           object->name, at, (unsigned long long)size);
        done += (uint64_t)got;
    }
    return MH_OK;
}

mh_status mh_file_read_whole(const mh_object *object, const mh_read *read, bool only_cached,
                             uint64_t *got, mh_error *err)
{
    uint64_t size = 0;
    int fd = open_file(object->name, only_cached);
    if (fd < 0)
        return only_cached && errno == EAGAIN ? MH_AGAIN : mh_file_fail_open(err, object->name);
    mh_status status = check(fd, object, read, &size, err);
    if (status == MH_OK)
        status = read_bytes(fd, object, read->into, size, only_cached, err);
    if (status != MH_OK && status != MH_AGAIN)
        (void)mh_error_at(err, status, object->name, MH_NOWHERE);
    close(fd);
    *got = size;
    return status;
}
