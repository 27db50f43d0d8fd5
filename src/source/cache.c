/* cache.c - a source that keeps on disk what another source has read
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the page cache has is given at once. Threads of its own read the rest from disk, pass on
 * what is missing and write what came: a read is over when its bytes are kept, because then its
 * memory belongs to somebody else.
 */
#include "source/cache.h"

#include "base/alloc.h"
#include "base/error.h"
#include "source/cache_dir.h"
#include "source/storage.h"
#include "sys/clock.h"
#include "sys/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define THREADS_MOST 8u
#define LOOK_NS UINT64_C(5000000)        /* how often to look whether another process is done */
#define PATIENCE_NS UINT64_C(2000000000) /* with another process; then we fetch it ourselves */

typedef enum job_step {
    JOB_LOOK,  /* on disk, and for who fetches it */
    JOB_CHECK, /* the object's version is asked for; then JOB_LOOK again */
    JOB_STORE, /* it came: keep it, and tell */
} job_step;

typedef struct cache_job {
    struct cache_job *next;
    mh_read read;
    mh_read_done *done;
    void *context;
    mh_cache_key key;
    job_step step;
    int part; /* the entry that is to be written; below 0: none */
    uint64_t got, due_ns, patience_ns;
    bool checked, failed;
    mh_error err;
    struct cache_source *source;
} cache_job;

typedef struct cache_source {
    mh_source base;
    /* set at open, then read-only */
    mh_source *inner;
    const mh_objects *objects;
    mh_cache_dir *dir;
    uint64_t stamp;
    bool check_each; /* keys get their version from the object's answer */
    /* under the lock */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t work;
        pthread_cond_t rested;   /* closing, and nobody submits to the inner source any more */
        cache_job *first, *last; /* to be done now */
        cache_job *later;        /* another process is at it */
        cache_job *spare;
        mh_thread threads[THREADS_MOST];
        uint32_t thread_count, idle;
        uint32_t looking; /* threads that may submit to the inner source */
        bool closing;     /* nothing is begun any more */
        bool ending;      /* threads end when nothing is left */
    } sync;
} cache_source;

/* --- jobs --- */

static void queue_locked(cache_source *self, cache_job *job)
{
    job->next = NULL;
    if (self->sync.first)
        self->sync.last->next = job;
    else
        self->sync.first = job;
    self->sync.last = job;
    pthread_cond_signal(&self->sync.work);
}

static void queue(cache_source *self, cache_job *job)
{
    pthread_mutex_lock(&self->sync.lock);
    queue_locked(self, job);
    pthread_mutex_unlock(&self->sync.lock);
}

static void tell(cache_source *self, cache_job *job)
{
    job->done(job->context, job->read.tag, job->failed ? 0 : job->got,
              job->failed ? &job->err : NULL);
    pthread_mutex_lock(&self->sync.lock);
    job->next = self->sync.spare;
    self->sync.spare = job;
    pthread_mutex_unlock(&self->sync.lock);
}

static void fail_job(cache_job *job, const mh_error *err)
{
    job->failed = true;
    job->err = *err;
}

static void make_key(const cache_source *self, const mh_read *read, mh_cache_key *out)
{
    char name[MH_NAME_MOST];
    const mh_object object = mh_object_at(self->objects, read->object, name);
    const uint64_t version = object.version ? object.version : self->stamp;
    mh_cache_key_make(out, object.name, read->whole, read->offset, read->size,
                      self->check_each ? 0 : version);
}

/* --- fetching --- */

/* On a thread of the inner source: must not block. */
static void inner_done(void *context, void *tag, uint64_t got, const mh_error *err)
{
    cache_source *self = context;
    cache_job *job = tag;
    if (job->step == JOB_CHECK) { /* where it failed the fetch will say why */
        job->step = JOB_LOOK;
        job->checked = true;
        queue(self, job);
        return;
    }
    job->got = got;
    if (err)
        fail_job(job, err);
    job->step = JOB_STORE;
    if (job->part < 0)
        tell(self, job);
    else
        queue(self, job);
}

static void fetch(cache_source *self, cache_job *job)
{
    mh_error err;
    mh_read read = job->read;
    read.tag = job;
    if (self->check_each)
        read.version = &job->key.version;
    if (job->step == JOB_CHECK)
        read.size = 0;
    if (mh_source_submit(self->inner, &read, 1, inner_done, self, &err) != MH_OK)
        inner_done(self, job, 0, &err);
}

static void look_again_later(cache_source *self, cache_job *job, uint64_t now)
{
    job->due_ns = now + LOOK_NS;
    pthread_mutex_lock(&self->sync.lock);
    job->next = self->sync.later;
    self->sync.later = job;
    pthread_cond_signal(&self->sync.work);
    pthread_mutex_unlock(&self->sync.lock);
}

static void look(cache_source *self, cache_job *job)
{
    if (self->check_each && !job->checked && mh_cache_dir_has(self->dir, &job->key)) {
        job->step = JOB_CHECK;
        fetch(self, job);
        return;
    }
    if (mh_cache_dir_read(self->dir, &job->key, job->read.into, job->read.size, true, &job->got) ==
        MH_CACHE_HIT) {
        tell(self, job);
        return;
    }
    uint64_t now = mh_clock_ns();
    if (!job->patience_ns)
        job->patience_ns = now + PATIENCE_NS;
    job->part = mh_cache_dir_begin(self->dir, &job->key);
    if (job->part == -1 && now < job->patience_ns)
        look_again_later(self, job, now);
    else
        fetch(self, job);
}

static void store(cache_source *self, cache_job *job)
{
    const bool keep = !job->failed && (job->key.version || !self->check_each);
    mh_cache_dir_end(self->dir, &job->key, job->part, keep ? job->read.into : NULL, job->got);
    tell(self, job);
}

/* --- the threads --- */

static cache_job *take_due_locked(cache_source *self, uint64_t now)
{
    for (cache_job **at = &self->sync.later; *at; at = &(*at)->next) {
        cache_job *job = *at;
        if (job->due_ns <= now || self->sync.closing) {
            *at = job->next;
            return job;
        }
    }
    cache_job *job = self->sync.first;
    if (job)
        self->sync.first = job->next;
    return job;
}

static void wait_locked(cache_source *self)
{
    self->sync.idle++;
    if (self->sync.later) {
        uint64_t due = mh_clock_ns() + LOOK_NS;
        const struct timespec until = {.tv_sec = (time_t)(due / 1000000000u),
                                       .tv_nsec = (long)(due % 1000000000u)};
        (void)pthread_cond_timedwait(&self->sync.work, &self->sync.lock, &until);
    } else {
        pthread_cond_wait(&self->sync.work, &self->sync.lock);
    }
    self->sync.idle--;
}

static void *cache_thread(void *argument)
{
    cache_source *self = argument;
    pthread_mutex_lock(&self->sync.lock);
    for (;;) {
        cache_job *job = take_due_locked(self, mh_clock_ns());
        const bool closing = self->sync.closing, looks = job && job->step == JOB_LOOK && !closing;
        if (!job && self->sync.ending)
            break;
        if (!job) {
            wait_locked(self);
            continue;
        }
        self->sync.looking += looks;
        pthread_mutex_unlock(&self->sync.lock);
        if (job->step == JOB_STORE) {
            store(self, job);
        } else if (closing) {
            mh_error err;
            (void)mh_fail(&err, MH_ERR_CLOSED, "the source was closed");
            fail_job(job, &err);
            tell(self, job);
        } else {
            look(self, job);
        }
        pthread_mutex_lock(&self->sync.lock);
        self->sync.looking -= looks;
        if (self->sync.closing && !self->sync.looking)
            pthread_cond_signal(&self->sync.rested);
    }
    pthread_mutex_unlock(&self->sync.lock);
    return NULL;
}

static mh_status start_threads_locked(cache_source *self, size_t jobs, mh_error *err)
{
    mh_status status = MH_OK;
    for (size_t spare = self->sync.idle;
         spare < jobs && self->sync.thread_count < THREADS_MOST && status == MH_OK; spare++) {
        mh_thread *thread = &self->sync.threads[self->sync.thread_count];
        status = mh_thread_start(thread, "millhead-cache", cache_thread, self, err);
        self->sync.thread_count += status == MH_OK;
    }
    return self->sync.thread_count ? MH_OK : status;
}

/* --- the source --- */

static cache_job *new_job_locked(cache_source *self)
{
    cache_job *job = self->sync.spare;
    if (!job)
        return mh_calloc(1, sizeof *job);
    self->sync.spare = job->next;
    job->failed = job->checked = false;
    job->patience_ns = job->got = 0;
    return job;
}

static mh_status cache_submit(mh_source *source, const mh_read *reads, size_t count,
                              mh_read_done *done, void *context, mh_error *err)
{
    cache_source *self = (cache_source *)source;
    cache_job *made = NULL;
    size_t jobs = 0;
    pthread_mutex_lock(&self->sync.lock);
    mh_status status = self->sync.closing ? mh_fail(err, MH_ERR_CLOSED, "the source is closed")
                                          : start_threads_locked(self, count, err);
    for (; status == MH_OK && jobs < count; jobs++) {
        cache_job *job = new_job_locked(self);
        if (!job) {
            status = mh_fail(err, MH_ERR_NOMEM, "no memory for %zu reads", count);
            break;
        }
        job->next = made;
        made = job;
    }
    pthread_mutex_unlock(&self->sync.lock);
    for (cache_job *job = made; status == MH_OK && job; job = job->next) {
        job->read = reads[--jobs];
        job->done = done;
        job->context = context;
        job->step = JOB_LOOK;
        job->part = -2;
        job->source = self;
        make_key(self, &job->read, &job->key);
    }
    pthread_mutex_lock(&self->sync.lock);
    for (cache_job *job = made, *next; job; job = next) {
        next = job->next;
        if (status == MH_OK) {
            queue_locked(self, job);
        } else {
            job->next = self->sync.spare;
            self->sync.spare = job;
        }
    }
    pthread_mutex_unlock(&self->sync.lock);
    return status;
}

static mh_status cache_try_now(mh_source *source, const mh_read *read, uint64_t *got, mh_error *err)
{
    cache_source *self = (cache_source *)source;
    mh_cache_key key;
    (void)err;
    if (self->check_each)
        return MH_AGAIN;
    make_key(self, read, &key);
    return mh_cache_dir_read(self->dir, &key, read->into, read->size, false, got) == MH_CACHE_HIT
               ? MH_OK
               : MH_AGAIN;
}

/* Waits for the inner source, and keeps what it gives. */
static mh_status cache_read(mh_source *source, const mh_read *read, uint64_t *got, mh_error *err)
{
    cache_source *self = (cache_source *)source;
    mh_cache_key key;
    mh_read asked = *read;
    make_key(self, read, &key);
    if (self->check_each) {
        asked.version = &key.version;
        asked.size = 0;
        if (mh_cache_dir_has(self->dir, &key)) /* where it fails the fetch will say why */
            (void)!mh_source_read(self->inner, &asked, got, err);
        asked.size = read->size;
    }
    if (mh_cache_dir_read(self->dir, &key, read->into, read->size, true, got) == MH_CACHE_HIT)
        return MH_OK;
    int part = mh_cache_dir_begin(self->dir, &key);
    mh_status status = mh_source_read(self->inner, &asked, got, err);
    const bool keep = status == MH_OK && (key.version || !self->check_each);
    if (part >= 0)
        mh_cache_dir_end(self->dir, &key, part, keep ? read->into : NULL, *got);
    return status;
}

static void cache_stats(mh_source *source, mh_source_stats *out)
{
    cache_source *self = (cache_source *)source;
    mh_cache_stats own;
    mh_source_stats_read(self->inner, out);
    mh_cache_dir_stats(self->dir, &own);
    out->cache_hits = own.hits;
    out->cache_misses = own.misses;
    out->cache_hit_bytes = own.hit_bytes;
    out->cache_written_bytes = own.written_bytes;
    out->cache_evicted_bytes = own.evicted_bytes;
    out->cache_corrupt = own.corrupt;
}

static void cache_close(mh_source *source)
{
    cache_source *self = (cache_source *)source;
    pthread_mutex_lock(&self->sync.lock);
    self->sync.closing = true;
    pthread_cond_broadcast(&self->sync.work);
    while (self->sync.looking)
        pthread_cond_wait(&self->sync.rested, &self->sync.lock);
    pthread_mutex_unlock(&self->sync.lock);
    mh_source_close(self->inner); /* what it had under way is to be told now */
    pthread_mutex_lock(&self->sync.lock);
    self->sync.ending = true;
    pthread_cond_broadcast(&self->sync.work);
    pthread_mutex_unlock(&self->sync.lock);
    for (uint32_t i = 0; i < self->sync.thread_count; i++)
        mh_thread_join(&self->sync.threads[i]);
    for (cache_job *job = self->sync.spare, *next; job; job = next) {
        next = job->next;
        mh_free(job);
    }
    mh_cache_dir_close(self->dir);
    pthread_cond_destroy(&self->sync.rested);
    pthread_cond_destroy(&self->sync.work);
    pthread_mutex_destroy(&self->sync.lock);
    mh_free(self);
}

static const mh_source_type cache_type = {
    .name = "cache",
    .try_now = cache_try_now,
    .read = cache_read,
    .submit = cache_submit,
    .stats = cache_stats,
    .close = cache_close,
};

/* --- opening --- */

/* A dataset's space: the endpoint, its first object and how many there are. */
static mh_status name_space(char *out, size_t room, const mh_objects *objects,
                            const mh_source_options *options, mh_error *err)
{
    mh_storage storage;
    char name[MH_NAME_MOST] = "";
    MH_TRY(mh_storage_read(&storage, options->storage, err));
    mh_object first = {.name = ""};
    if (objects->count)
        first = mh_object_at(objects, 0, name);
    (void)snprintf(out, room, "%s%s%s", first.name, *storage.endpoint_url ? " at " : "",
                   storage.endpoint_url);
    mh_storage_wipe(&storage);
    return MH_OK;
}

mh_status mh_source_cache(mh_source **out, mh_source *inner, const mh_objects *objects,
                          const mh_source_options *options, mh_error *err)
{
    char space[MH_NAME_MOST + 600];
    mh_cache_dir *dir = NULL;
    MH_TRY(name_space(space, sizeof space, objects, options, err));
    MH_TRY(mh_cache_dir_open(&dir, options->cache, space, err));
    cache_source *self = mh_calloc(1, sizeof *self);
    if (!self) {
        mh_cache_dir_close(dir);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a cache");
    }
    self->base.type = &cache_type;
    self->inner = inner;
    self->objects = objects;
    self->dir = dir;
    self->stamp = options->stamp;
    self->check_each = options->cache_check_each;
    pthread_condattr_t monotonic;
    pthread_mutex_init(&self->sync.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->sync.work, &monotonic);
    pthread_cond_init(&self->sync.rested, NULL);
    pthread_condattr_destroy(&monotonic);
    *out = &self->base;
    return MH_OK;
}
