/* file.c - files: what is in the page cache at once, the rest by a pool of threads that wait
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "source/read_queue.h"
#include "source/whole_file.h"
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
    _Atomic int fd; /* and 1; 0: not open. So that memory of zeros, touched nowhere, will do */
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

static mh_status file_stat(mh_object *object, const mh_source_options *options, mh_error *err)
{
    struct stat about;
    (void)options;
    if (stat(object->name, &about) < 0)
        return mh_file_fail_open(err, object->name);
    if (!S_ISREG(about.st_mode))
        return mh_fail(err, MH_ERR_INVALID, "%s is not a regular file", object->name);
    object->size = (uint64_t)about.st_size;
    object->version = mh_file_version(&about);
    return MH_OK;
}

static mh_status file_get(const char *name, const mh_source_options *options, uint64_t most,
                          uint8_t *into, uint64_t *got, mh_error *err)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    (void)options;
    if (fd < 0)
        return mh_file_fail_open(err, name);
    ssize_t last = 1;
    uint64_t done = 0;
    while (done < most && last != 0) {
        last = pread(fd, into + done, most - done, (off_t)done);
        if (last < 0 && errno != EINTR)
            break;
        done += last > 0 ? (uint64_t)last : 0;
    }
    mh_status status =
        last < 0 ? mh_fail_sys(err, MH_ERR_IO, errno, "cannot read %s", name) : MH_OK;
    close(fd);
    *got = done;
    return status;
}

/* --- open files --- */

static mh_status open_checked(const mh_object *object, int *out, mh_error *err)
{
    struct stat about;
    int fd = open(object->name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return mh_file_fail_open(err, object->name);
    if (fstat(fd, &about) == 0 &&
        (!object->version || object->version == mh_file_version(&about))) {
        *out = fd;
        return MH_OK;
    }
    close(fd);
    (void)mh_fail(err, MH_ERR_IO, "%s changed since the dataset was opened: open it again",
                  object->name);
    return mh_error_at(err, MH_ERR_IO, object->name, MH_NOWHERE);
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
            close(file->fd - 1);
            file->fd = 0;
            return place;
        }
    }
    return self->files_most;
}

static mh_status file_open_locked(file_source *self, uint32_t object, mh_error *err)
{
    int fd = -1;
    char name[MH_NAME_MOST];
    const mh_object about = mh_object_at(self->objects, object, name);
    MH_TRY(open_checked(&about, &fd, err));
    uint32_t place = place_locked(self);
    if (place == self->files_most) {
        close(fd);
        return mh_fail(err, MH_ERR_IO, "%u files are being read at a time: raise ulimit -n",
                       self->files_most);
    }
    self->sync.opened[place] = object;
    self->sync.files[object].fd = fd + 1;
    return MH_OK;
}

/* A descriptor of the object, given back with file_release. */
static mh_status file_acquire(file_source *self, uint32_t object, int *out, mh_error *err)
{
    open_file *file = &self->sync.files[object];
    if (self->all_open && (*out = atomic_load_explicit(&file->fd, memory_order_acquire) - 1) >= 0)
        return MH_OK;
    pthread_mutex_lock(&self->sync.lock);
    mh_status status = file->fd ? MH_OK : file_open_locked(self, object, err);
    if (status == MH_OK) {
        file->users++;
        *out = file->fd - 1;
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

static mh_status fail_short(const file_source *self, const mh_read *read, uint64_t at,
                            mh_error *err)
{
    char name[MH_NAME_MOST];
    const mh_object object = mh_object_at(self->objects, read->object, name);
    if (object.size == MH_SIZE_UNKNOWN)
        (void)mh_fail(err, MH_ERR_IO, "%s ends at byte %llu", object.name, (unsigned long long)at);
    else
        (void)mh_fail(err, MH_ERR_IO,
                      "%s ends at byte %llu: it had %llu when the dataset was opened", object.name,
                      (unsigned long long)at, (unsigned long long)object.size);
    return mh_error_at(err, MH_ERR_IO, object.name, at);
}

static mh_status read_all(const file_source *self, int fd, const mh_read *read, mh_error *err)
{
    uint64_t done = 0;
    while (done < read->size) {
        ssize_t got = pread(fd, read->into + done, read->size - done, (off_t)(read->offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int failure = errno;
            char name[MH_NAME_MOST];
            const mh_object object = mh_object_at(self->objects, read->object, name);
            (void)mh_fail_sys(err, MH_ERR_IO, failure, "cannot read %s at byte %llu", object.name,
                              (unsigned long long)(read->offset + done));
            return mh_error_at(err, MH_ERR_IO, object.name, read->offset + done);
        }
        if (got == 0)
            return fail_short(self, read, read->offset + done, err);
        done += (uint64_t)got;
    }
    return MH_OK;
}

static mh_status read_whole(const file_source *self, const mh_read *read, bool only_cached,
                            uint64_t *got, mh_error *err)
{
    char name[MH_NAME_MOST];
    const mh_object object = mh_object_at(self->objects, read->object, name);
    mh_status status = mh_file_read_whole(&object, read, only_cached, got, err);
    bool changed = status == MH_ERR_NOT_FOUND || (status == MH_ERR_IO && err->sys_errno == 0);
    if (changed && self->objects->changed)
        self->objects->changed(self->objects->context);
    return status;
}

static mh_status file_read(mh_source *source, const mh_read *read, uint64_t *got, mh_error *err)
{
    file_source *self = (file_source *)source;
    int fd;
    if (read->whole)
        return read_whole(self, read, false, got, err);
    MH_TRY(file_acquire(self, read->object, &fd, err));
    mh_status status = read_all(self, fd, read, err);
    file_release(self, read->object);
    *got = read->size;
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
    return ((read->offset + read->object) * UINT64_C(0x9E3779B97F4A7C15)) >> 58 == 0;
}

/* A file system that cannot say what is in memory is left to the threads, unless all of it is. */
static mh_status read_if_cached(const file_source *self, int fd, const mh_read *read, mh_error *err)
{
    struct iovec into = {.iov_base = read->into, .iov_len = read->size};
    ssize_t got = preadv2(fd, &into, 1, (off_t)read->offset, RWF_NOWAIT);
    if (got == (ssize_t)read->size)
        return MH_OK;
    bool asked = got >= 0 || errno != EOPNOTSUPP;
    return asked || !in_memory(fd) ? MH_AGAIN : read_all(self, fd, read, err);
}

static mh_status part_now(file_source *self, const mh_read *read, bool ask, mh_error *err)
{
    int fd;
    MH_TRY(file_acquire(self, read->object, &fd, err));
    mh_status status = ask ? read_if_cached(self, fd, read, err) : read_all(self, fd, read, err);
    file_release(self, read->object);
    return status;
}

/* Only what the page cache has. Asking costs a tenth of such a read: once many have been there,
 * only one in 64 asks, until one is missing. */
static mh_status file_try_now(mh_source *source, const mh_read *read, uint64_t *got, mh_error *err)
{
    file_source *self = (file_source *)source;
    uint32_t hits = atomic_load_explicit(&self->hits, memory_order_relaxed);
    bool ask = hits < HITS_MANY || is_probe(read);
    *got = read->size;
    mh_status status =
        read->whole ? read_whole(self, read, ask, got, err) : part_now(self, read, ask, err);
    if (status == MH_AGAIN)
        atomic_store_explicit(&self->hits, 0, memory_order_relaxed);
    else if (status == MH_OK && hits < HITS_MANY) /* some may be lost between threads */
        atomic_store_explicit(&self->hits, hits + 1, memory_order_relaxed);
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
        uint64_t got = 0;
        mh_status status = closing ? mh_fail(&err, MH_ERR_CLOSED, "the source was closed")
                                   : file_read(&self->base, &taken->read, &got, &err);
        taken->done(taken->context, taken->read.tag, got, status == MH_OK ? NULL : &err);
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

static mh_status file_open(mh_source **out, const mh_objects *objects,
                           const mh_source_options *options, mh_error *err)
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
    self->base.type = &mh_source_file;
    self->objects = objects;
    self->files_most = files_most;
    self->all_open = objects->count <= self->files_most;
    self->threads_most = options->in_flight < THREADS_MOST ? options->in_flight : THREADS_MOST;
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
    for (uint32_t i = 0; i < self->sync.open_count; i++) {
        open_file *file = &self->sync.files[self->sync.opened[i]];
        if (file->fd)
            close(file->fd - 1);
        file->fd = 0; /* a place may stand twice for one that was opened again */
    }
    pthread_cond_destroy(&self->sync.work);
    pthread_mutex_destroy(&self->sync.lock);
    mh_read_queue_free(&self->sync.queue);
    mh_free(self->sync.files);
    mh_free(self->sync.opened);
    mh_free(self);
}

const mh_source_type mh_source_file = {
    .name = "file",
    .what = "files of this machine and of what is mounted",
    .stat = file_stat,
    .get = file_get,
    .open = file_open,
    .try_now = file_try_now,
    .read = file_read,
    .submit = file_submit,
    .close = file_close,
};
