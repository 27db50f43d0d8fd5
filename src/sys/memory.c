/* memory.c - memory for batches, shared by memfd or private, and the limits it must respect
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/memory.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "sys/parse.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Kept free for everything else that the group or the machine is about to allocate. */
#define RESERVE_BYTES (UINT64_C(64) << 20)

/* How much one fallocate backs: some 20 ms, the longest a signal waits. */
#define STEP_BYTES ((size_t)64 << 20)

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void mh_memory_room_read(mh_memory_room *out, const char *root)
{
    char path[MH_PARSE_PATH_BYTES];
    size_t length;
    uint64_t total = MH_NO_LIMIT, available = MH_NO_LIMIT;
    mh_cgroup_limits limits;
    if (snprintf(path, sizeof path, "%s/proc/meminfo", root) < (int)sizeof path) {
        char *text = mh_file_read_text(path, &length);
        if (text) {
            (void)mh_parse_field(text, length, "MemTotal", &total);
            (void)mh_parse_field(text, length, "MemAvailable", &available);
        }
        mh_free(text);
    }
    mh_cgroup_read(&limits, root);
    out->total_bytes = least(total, limits.memory_max_bytes);
    out->machine_bytes = available;
    out->group_bytes = limits.memory_available_bytes;
    available = least(available, limits.memory_available_bytes);
    if (available != MH_NO_LIMIT)
        available = available > RESERVE_BYTES ? available - RESERVE_BYTES : 0;
    out->available_bytes = available;
}

size_t mh_memory_map_most(uint32_t shares)
{
    struct rlimit limit;
    mh_memory_room room;
    mh_memory_room_read(&room, "");
    uint64_t most = least(room.total_bytes, (UINT64_C(16) << 40) / (shares ? shares : 1));
    /* A forked worker has its parent's maps and its own: together they may take a quarter. */
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        most = least(most, limit.rlim_cur / 16 / (shares ? shares : 1));
    return (size_t)most;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Up to whole pages; SIZE_MAX pages down rather than wrapping to nothing. */
static size_t page_round(size_t bytes)
{
    size_t page = page_bytes();
    if (bytes > SIZE_MAX - page)
        return SIZE_MAX / page * page;
    return (bytes + page - 1) / page * page;
}

/* NORESERVE: the map is as large as the memory of the machine and mostly never touched. */
static void *memory_map(int fd, size_t bytes)
{
    int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* The largest map the kernel agrees to; NULL with errno where not even `floor` fits. */
static uint8_t *map_largest(int fd, size_t *bytes, size_t floor)
{
    if (*bytes < floor)
        *bytes = floor;
    uint8_t *base = memory_map(fd, *bytes);
    while (!base && *bytes > floor) {
        *bytes = page_round(*bytes / 2);
        if (*bytes < floor)
            *bytes = floor;
        base = memory_map(fd, *bytes);
    }
    return base;
}

mh_status mh_memory_create(mh_memory *out, const char *name, size_t map_bytes, size_t least_bytes,
                           mh_error *err)
{
    size_t floor = page_round(least_bytes ? least_bytes : 1);
    size_t bytes = page_round(map_bytes);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot create shared memory %s", name);
    uint8_t *base = map_largest(fd, &bytes, floor);
    if (!base) {
        int failed = errno;
        (void)close(fd);
        return mh_fail_sys(err, MH_ERR_NOMEM, failed,
                           "no address space for %.1f MB of shared memory %s", (double)bytes / 1e6,
                           name);
    }
    *out = (mh_memory){.fd = fd, .base = base, .map_bytes = bytes};
    return MH_OK;
}

mh_status mh_memory_create_private(mh_memory *out, size_t map_bytes, size_t least_bytes,
                                   mh_error *err)
{
    size_t bytes = page_round(map_bytes);
    uint8_t *base = map_largest(-1, &bytes, page_round(least_bytes ? least_bytes : 1));
    if (!base)
        return mh_fail_sys(err, MH_ERR_NOMEM, errno, "no address space for %.1f MB of memory",
                           (double)bytes / 1e6);
    *out = (mh_memory){.fd = -1, .base = base, .map_bytes = bytes};
    return MH_OK;
}

mh_status mh_memory_attach(mh_memory *out, int fd, size_t map_bytes, mh_error *err)
{
    struct stat about;
    size_t bytes = page_round(map_bytes ? map_bytes : 1);
    /* Not below 3: user code may close or reopen the standard descriptors. */
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot duplicate shared memory's descriptor");
    uint8_t *base = NULL;
    mh_status code = MH_ERR_IO;
    if (fstat(own, &about) == 0) {
        base = memory_map(own, bytes);
        /* these speak of the descriptor, all others of the address space */
        code = errno == ENODEV || errno == EACCES || errno == EPERM ? MH_ERR_IO : MH_ERR_NOMEM;
    }
    if (!base) {
        int failed = errno;
        (void)close(own);
        return mh_fail_sys(err, code, failed, "cannot map %.1f MB of shared memory",
                           (double)bytes / 1e6);
    }
    size_t size = about.st_size > 0 ? (size_t)about.st_size : 0;
    *out = (mh_memory){
        .fd = own, .base = base, .map_bytes = bytes, .size_bytes = size < bytes ? size : bytes};
    return MH_OK;
}

/* Touches the pages now, where the kernel can: a first touch costs microseconds a page. */
static void touch(uint8_t *start, size_t bytes)
{
    (void)madvise(start, bytes, MADV_HUGEPAGE);
    (void)madvise(start, bytes, MADV_POPULATE_WRITE);
}

/* Backs one step. Signals are held back meanwhile: the kernel undoes an interrupted fallocate, so
 * under a profiler's timer a retry alone might never get to its end. Returns 0 or an errno. */
static int back_step(int fd, size_t offset, size_t bytes)
{
    sigset_t all, before;
    int failed;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do
        failed = fallocate(fd, 0, (off_t)offset, (off_t)bytes) == 0 ? 0 : errno;
    while (failed == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static mh_status memory_refuse(mh_error *err, int sys_errno, uint64_t needed, uint64_t available)
{
    const char *format =
        "shared memory: %.1f MB needed, %.1f MB available; use fewer workers, less "
        "prefetching or smaller batches";
    double needed_mb = (double)needed / 1e6, available_mb = (double)available / 1e6;
    return sys_errno ? mh_fail_sys(err, MH_ERR_NOMEM, sys_errno, format, needed_mb, available_mb)
                     : mh_fail(err, MH_ERR_NOMEM, format, needed_mb, available_mb);
}

/* All or nothing: what earlier steps of a refused growth took goes back. */
static void memory_unback(mh_memory *memory, size_t offset, size_t end)
{
    if (end > memory->size_bytes)
        (void)!ftruncate(memory->fd, (off_t)memory->size_bytes);
    mh_memory_release_range(memory, offset, end - offset);
}

mh_status mh_memory_back(mh_memory *memory, size_t offset, size_t bytes, mh_error *err)
{
    mh_memory_room room;
    mh_memory_room_read(&room, "");
    if (bytes > room.available_bytes)
        return memory_refuse(err, 0, bytes, room.available_bytes);
    if (offset > memory->map_bytes || bytes > memory->map_bytes - offset)
        return memory_refuse(err, 0, bytes,
                             offset < memory->map_bytes ? memory->map_bytes - offset : 0);
    size_t end = offset + bytes;
    if (memory->fd < 0)
        touch(memory->base + offset, bytes);
    for (size_t at = offset; memory->fd >= 0 && at < end;) {
        size_t step = end - at < STEP_BYTES ? end - at : STEP_BYTES;
        int failed = back_step(memory->fd, at, step);
        if (failed) {
            memory_unback(memory, offset, end);
            if (failed == ENOSPC || failed == ENOMEM)
                return memory_refuse(err, failed, bytes, room.available_bytes);
            return mh_fail_sys(err, MH_ERR_IO, failed, "cannot grow shared memory to %.1f MB",
                               (double)end / 1e6);
        }
        at += step;
    }
    if (end > memory->size_bytes)
        memory->size_bytes = end;
    return MH_OK;
}

mh_status mh_memory_grow(mh_memory *memory, size_t size_bytes, mh_error *err)
{
    size_t before = memory->size_bytes;
    return size_bytes <= before
               ? MH_OK
               : mh_memory_back(memory, before, page_round(size_bytes) - before, err);
}

void mh_memory_release_range(mh_memory *memory, size_t offset, size_t bytes)
{
    size_t page = page_bytes();
    if (offset >= memory->size_bytes)
        return;
    if (bytes > memory->size_bytes - offset)
        bytes = memory->size_bytes - offset;
    size_t end = (offset + bytes) / page * page;
    size_t start = page_round(offset);
    if (start >= end)
        return;
    if (memory->fd < 0) {
        (void)madvise(memory->base + start, end - start, MADV_DONTNEED);
        return;
    }
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    while (fallocate(memory->fd, mode, (off_t)start, (off_t)(end - start)) != 0 && errno == EINTR)
        continue;
}

void mh_memory_close(mh_memory *memory)
{
    /* The address decides, so that an all-zero struct does not close standard input. */
    if (!memory || !memory->base)
        return;
    (void)munmap(memory->base, memory->map_bytes);
    if (memory->fd >= 0)
        (void)close(memory->fd);
    *memory = (mh_memory){.fd = -1};
}

void mh_memory_refresh(mh_memory *memory)
{
    struct stat file;
    if (fstat(memory->fd, &file) == 0 && file.st_size > 0) {
        size_t bytes = (size_t)file.st_size;
        memory->size_bytes = bytes < memory->map_bytes ? bytes : memory->map_bytes;
    }
}

static bool is_backed(const mh_memory *memory, uint64_t offset, uint64_t bytes)
{
    return offset <= memory->size_bytes && bytes <= memory->size_bytes - offset;
}

bool mh_memory_has(mh_memory *memory, uint64_t offset, uint64_t bytes)
{
    if (!is_backed(memory, offset, bytes))
        mh_memory_refresh(memory);
    return is_backed(memory, offset, bytes);
}
