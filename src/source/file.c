/* file.c - files: what is in the page cache at once, the rest by a pool of threads that wait
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "source/read_queue.h"
#include "sys/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define THREADS_MOST 64u
#define FILES_LEAST 16u  /* open at a time, whatever the limit on descriptors is */
#define FILES_MOST 4096u /* more brings nothing */
#define HITS_MANY 256u   /* reads from the page cache in a row after which it is trusted */

/* A file that is or was open. With fewer files than may be open none is ever closed before the
 * source is; else they make room in turn, but never one that is being read. */
typedef struct open_file {
    _Atomic int fd; /* -1: not open */
    uint32_t users; /* reads under way; counted only where files are closed */
} open_file;

typedef struct file_source {
    mh_source base;
    /* set at open, then read-only */
    const mh_objects *objects;
    uint32_t files_most;
    uint32_t threads_most;
    bool all_open;         /* every file may stay open */
    _Atomic uint32_t hits; /* reads in a row that the page cache had, up to HITS_MANY */
    /* under the lock */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t work;
        open_file *files; /* one for each object */
        uint32_t *opened; /* objects that are open: room for files_most */
        uint32_t open_count;
        uint32_t hand; /* where in `opened` the search for one to close goes on */
        mh_read_queue queue;
        mh_thread threads[THREADS_MOST];
        uint32_t thread_count;
        uint32_t idle;
        bool closing;
    } sync;
} file_source;

/* --- what a file is --- */

static uint64_t version_of(const struct stat *about)
{
    uint64_t version = (uint64_t)about->st_ino * UINT64_C(0x9E3779B97F4A7C15);
    version ^=
        (uint64_t)about->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)about->st_mtim.tv_nsec;
    return version * UINT64_C(0xD6E8FEB86659FD93) ^ (uint64_t)about->st_size;
}

static mh_status fail_open(mh_error *err, const char *name)
{
    mh_status code = errno == ENOENT || errno == ENOTDIR ? MH_ERR_NOT_FOUND : MH_ERR_IO;
    return mh_fail_sys(err, code, errno, "cannot open %s", name);
}

static mh_status file_stat(mh_object *object, mh_error *err)
{
    struct stat about;
    if (stat(object->name, &about) < 0)
        return fail_open(err, object->name);
    if (!S_ISREG(about.st_mode))
        return mh_fail(err, MH_ERR_INVALID, "%s is not a regular file", object->name);
    object->size = (uint64_t)about.st_size;
    object->version = version_of(&about);
    return MH_OK;
}

/* --- open files --- */

static mh_status open_checked(const mh_object *object, int *out, mh_error *err)
{
    struct stat about;
    int fd = open(object->name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail_open(err, object->name);
    if (fstat(fd, &about) == 0 && version_of(&about) == object->version) {
        *out = fd;
        return MH_OK;
    }
    close(fd);
    return mh_fail(err, MH_ERR_IO, "%s changed since the dataset was opened: open it again",
                   object->name);
}

/* A place in `opened` for one more; files_most where all are being read. */
static uint32_t place_locked(file_source *self)
{
    if (self->sync.open_count < self->files_most)
        return self->sync.open_count++;
    for (uint32_t tried = 0; tried < self->files_most; tried++) {
        uint32_t place = self->sync.hand++ % self->files_most;
        open_file *file = &self->sync.files[self->sync.opened[place]];
        if (file->users == 0) {
            close(file->fd);
            file->fd = -1;
            return place;
        }
    }
    return self->files_most;
}

static mh_status file_open_locked(file_source *self, uint32_t object, mh_error *err)
{
    int fd = -1;
    MH_TRY(open_checked(&self->objects->list[object], &fd, err));
    uint32_t place = place_locked(self);
    if (place == self->files_most) {
        close(fd);
        return mh_fail(err, MH_ERR_IO, "%u files are being read at a time: raise ulimit -n",
                       self->files_most);
    }
    self->sync.opened[place] = object;
    self->sync.files[object].fd = fd;
    return MH_OK;
}

/* A descriptor of the object, given back with file_release. */
static mh_status file_acquire(file_source *self, uint32_t object, int *out, mh_error *err)
{
    open_file *file = &self->sync.files[object];
    if (self->all_open && (*out = atomic_load_explicit(&file->fd, memory_order_acquire)) >= 0)
        return MH_OK;
    pthread_mutex_lock(&self->sync.lock);
    mh_status status = file->fd >= 0 ? MH_OK : file_open_locked(self, object, err);
    if (status == MH_OK) {
        file->users++;
        *out = file->fd;
    }
    pthread_mutex_unlock(&self->sync.lock);
    return status;
}

static void file_release(file_source *self, uint32_t object)
{
    if (self->all_open)
        return;
    pthread_mutex_lock(&self->sync.lock);
    self->sync.files[object].users--;
    pthread_mutex_unlock(&self->sync.lock);
}

/* --- reading --- */

static mh_status fail_short(mh_error *err, const mh_object *object, uint64_t offset)
{
    return mh_fail(err, MH_ERR_IO, "%s ends at byte %llu: it had %llu when the dataset was opened",
                   object->name, (unsigned long long)offset, (unsigned long long)object->size);
}

static mh_status read_all(file_source *self, int fd, const mh_read *read, mh_error *err)
{
    const mh_object *object = &self->objects->list[read->object];
    uint64_t done = 0;
    while (done < read->size) {
        ssize_t got = pread(fd, read->into + done, read->size - done, (off_t)(read->offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        unsigned long long at = read->offset + done;
        if (got < 0)
            return mh_fail_sys(err, MH_ERR_IO, errno, "cannot read %s at byte %llu", object->name,
                               at);
        if (got == 0)
            return fail_short(err, object, at);
        done += (uint64_t)got;
    }
    return MH_OK;
}

static mh_status file_read(mh_source *source, const mh_read *read, mh_error *err)
{
    file_source *self = (file_source *)source;
    int fd;
    MH_TRY(file_acquire(self, read->object, &fd, err));
    mh_status status = read_all(self, fd, read, err);
    file_release(self, read->object);
    return status;
}

/* Whether the file system has no disk behind it. */
static bool in_memory(int fd)
{
    struct statfs about;
    return fstatfs(fd, &about) == 0 && (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC);
}

/* One read in 64, chosen by its place. */
static bool is_probe(const mh_read *read)
{
    return (read->offset * UINT64_C(0x9E3779B97F4A7C15)) >> 58 == 0;
}

/* Only what the page cache has; a file system that cannot say so is left to the threads. Asking
 * costs a tenth of such a read: once many have been there, only one in 64 asks, until one is
 * missing. */
static mh_status file_try_now(mh_source *source, const mh_read *read, mh_error *err)
{
    file_source *self = (file_source *)source;
    uint32_t hits = atomic_load_explicit(&self->hits, memory_order_relaxed);
    int fd;
    MH_TRY(file_acquire(self, read->object, &fd, err));
    mh_status status = MH_OK;
    if (hits >= HITS_MANY && !is_probe(read)) {
        status = read_all(self, fd, read, err);
    } else {
        struct iovec into = {.iov_base = read->into, .iov_len = read->size};
        ssize_t got = preadv2(fd, &into, 1, (off_t)read->offset, RWF_NOWAIT);
        bool asked = got >= 0 || errno != EOPNOTSUPP;
        if (got != (ssize_t)read->size)
            status = asked || !in_memory(fd) ? MH_AGAIN : read_all(self, fd, read, err);
        if (status == MH_AGAIN)
            atomic_store_explicit(&self->hits, 0, memory_order_relaxed);
        else if (hits < HITS_MANY) /* some may be lost between threads: it is not exact */
            atomic_store_explicit(&self->hits, hits + 1, memory_order_relaxed);
    }
    file_release(self, read->object);
    return status;
}

/* --- the threads --- */

static void *file_thread(void *argument)
{
    file_source *self = argument;
    pthread_mutex_lock(&self->sync.lock);
    for (;;) {
        while (!self->sync.queue.first && !self->sync.closing) {
            self->sync.idle++;
            pthread_cond_wait(&self->sync.work, &self->sync.lock);
            self->sync.idle--;
        }
        mh_queued_read *taken = mh_read_queue_take(&self->sync.queue);
        if (!taken)
            break;
        bool closing = self->sync.closing;
        pthread_mutex_unlock(&self->sync.lock);
        mh_error err;
        mh_status status = closing ? mh_fail(&err, MH_ERR_CLOSED, "the source was closed")
                                   : file_read(&self->base, &taken->read, &err);
        taken->done(taken->context, taken->read.tag, status == MH_OK ? NULL : &err);
        pthread_mutex_lock(&self->sync.lock);
        mh_read_queue_over(&self->sync.queue, taken);
    }
    pthread_mutex_unlock(&self->sync.lock);
    return NULL;
}

/* One thread more where all are busy. Without any, reads cannot be accepted. */
static mh_status thread_for_locked(file_source *self, size_t reads, mh_error *err)
{
    mh_status status = MH_OK;
    for (size_t spare = self->sync.idle;
         spare < reads && self->sync.thread_count < self->threads_most; spare++) {
        mh_thread *thread = &self->sync.threads[self->sync.thread_count];
        status = mh_thread_start(thread, "millhead-read", file_thread, self, err);
        if (status != MH_OK)
            break;
        self->sync.thread_count++;
    }
    return self->sync.thread_count > 0 ? MH_OK : status;
}

static mh_status file_submit(mh_source *source, const mh_read *reads, size_t count,
                             mh_read_done *done, void *context, mh_error *err)
{
    file_source *self = (file_source *)source;
    pthread_mutex_lock(&self->sync.lock);
    mh_status status = self->sync.closing ? mh_fail(err, MH_ERR_CLOSED, "the source is closed")
                                          : thread_for_locked(self, count, err);
    if (status == MH_OK && !mh_read_queue_add(&self->sync.queue, reads, count, done, context))
        status = mh_fail(err, MH_ERR_NOMEM, "no memory for %zu reads", count);
    if (status == MH_OK)
        pthread_cond_broadcast(&self->sync.work);
    pthread_mutex_unlock(&self->sync.lock);
    return status;
}

/* --- opening and closing --- */

/* A quarter of the descriptors the process may have: the program needs some, too. */
static uint32_t files_allowed(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return FILES_LEAST;
    rlim_t quarter = limit.rlim_cur / 4;
    if (quarter > FILES_MOST)
        return FILES_MOST;
    return quarter < FILES_LEAST ? FILES_LEAST : (uint32_t)quarter;
}

static mh_status file_open(mh_source **out, const mh_objects *objects, uint32_t in_flight,
                           mh_error *err)
{
    file_source *self = mh_calloc(1, sizeof *self);
    open_file *files = mh_calloc(objects->count, sizeof *files);
    uint32_t files_most = files_allowed();
    uint32_t *opened = mh_calloc(files_most, sizeof *opened);
    if (!self || !files || !opened) {
        mh_free(self);
        mh_free(files);
        mh_free(opened);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %u files", objects->count);
    }
    for (uint32_t i = 0; i < objects->count; i++)
        atomic_init(&files[i].fd, -1);
    self->base.type = &mh_source_file;
    self->objects = objects;
    self->files_most = files_most;
    self->all_open = objects->count <= self->files_most;
    self->threads_most = in_flight < THREADS_MOST ? in_flight : THREADS_MOST;
    self->sync.files = files;
    self->sync.opened = opened;
    pthread_mutex_init(&self->sync.lock, NULL);
    pthread_cond_init(&self->sync.work, NULL);
    *out = &self->base;
    return MH_OK;
}

static void file_close(mh_source *source)
{
    file_source *self = (file_source *)source;
    pthread_mutex_lock(&self->sync.lock);
    self->sync.closing = true;
    pthread_cond_broadcast(&self->sync.work);
    pthread_mutex_unlock(&self->sync.lock);
    for (uint32_t i = 0; i < self->sync.thread_count; i++)
        mh_thread_join(&self->sync.threads[i]);
    for (uint32_t i = 0; i < self->objects->count; i++)
        if (self->sync.files[i].fd >= 0)
            close(self->sync.files[i].fd);
    pthread_cond_destroy(&self->sync.work);
    pthread_mutex_destroy(&self->sync.lock);
    mh_read_queue_free(&self->sync.queue);
    mh_free(self->sync.files);
    mh_free(self->sync.opened);
    mh_free(self);
}

const mh_source_type mh_source_file = {
    .name = "file",
    .stat = file_stat,
    .open = file_open,
    .try_now = file_try_now,
    .read = file_read,
    .submit = file_submit,
    .close = file_close,
};
