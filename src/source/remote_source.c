/* remote_source.c - reads of objects on a network, turned into requests
 * SPDX-License-Identifier: Apache-2.0
 *
 * A read is one request, or part of one, or several: neighbours are joined where the gap between
 * them costs less than a request, and large ones are split, since one connection is slower than
 * many.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "source/object_versions.h"
#include "source/remote.h"

#include <pthread.h>
#include <string.h>

#define PART_BYTES (UINT64_C(8) << 20) /* what stores advise for one request */
#define SPLIT_BYTES (2 * PART_BYTES)   /* larger reads are split */
#define JOIN_BYTES                                                                                 \
    (UINT64_C(2) << 20) /* most of a joined request: a connection's share of a link */
#define GAP_BYTES (UINT64_C(64) << 10) /* comes faster than a first byte does, on any link */
#define JOIN_LOOK 128u                 /* reads that are looked at for joining */
#define RESTARTS_MOST 3u

/* A read that was split. */
typedef struct split_read {
    mh_read read;
    mh_read_done *done;
    void *context;
    uint64_t got;
    uint32_t left; /* parts that are not over */
    uint32_t restarts;
    bool failed, changed;
    mh_error err;
    char etag[MH_ETAG_ROOM]; /* of the first part's answer; all others must have it */
} split_read;

/* One piece that some request will bring. */
typedef struct want {
    struct want *next;
    mh_read read;
    mh_read_done *done;
    void *context;
    split_read *split; /* NULL: the read is whole */
    bool head;         /* the first part of a whole object whose size nobody knows */
} want;

typedef struct want_list {
    want *first, *last;
} want_list;

/* A request and the pieces it brings. */
typedef struct fetch {
    mh_request request; /* the first member */
    want *wants;
    uint8_t byte; /* of an object whose version is asked for */
    struct fetch *next;
} fetch;

typedef struct remote_source {
    mh_source base;
    /* set at open, then read-only */
    const mh_objects *objects;
    mh_remote remote;
    /* under the lock */
    struct {
        pthread_mutex_t lock;
        want_list queue;
        want *spare;
        fetch *spare_fetches;
        mh_object_versions versions;
        bool closing;
    } sync;
} remote_source;

/* --- wants --- */

static void queue_want(want_list *list, want *added)
{
    added->next = NULL;
    if (list->first)
        list->last->next = added;
    else
        list->first = added;
    list->last = added;
}

static want *new_want_locked(remote_source *self)
{
    want *taken = self->sync.spare;
    if (!taken)
        return mh_calloc(1, sizeof *taken);
    self->sync.spare = taken->next;
    *taken = (want){0};
    return taken;
}

static void free_want_locked(remote_source *self, want *gone)
{
    gone->next = self->sync.spare;
    self->sync.spare = gone;
}

/* Parts of a split read from `from` to `end`, of nearly equal sizes. False: no memory; then none
 * is queued. */
static bool queue_parts_locked(remote_source *self, split_read *split, uint64_t from, uint64_t end)
{
    want_list parts = {NULL, NULL};
    uint64_t count = (end - from + PART_BYTES - 1) / PART_BYTES, size = end - from;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t first = size * i / count, last = size * (i + 1) / count;
        want *part = new_want_locked(self);
        if (!part) {
            while (parts.first) {
                part = parts.first;
                parts.first = part->next;
                free_want_locked(self, part);
            }
            return false;
        }
        part->split = split;
        part->read = split->read;
        part->read.whole = 0;
        part->read.offset = from + first;
        part->read.size = last - first;
        part->read.into = split->read.into + (from + first - split->read.offset);
        queue_want(&parts, part);
    }
    while (parts.first) {
        want *part = parts.first;
        parts.first = part->next;
        queue_want(&self->sync.queue, part);
        split->left++;
    }
    return true;
}

static bool queue_read_locked(remote_source *self, const mh_read *read, mh_read_done *done,
                              void *context)
{
    if (read->size > SPLIT_BYTES) {
        split_read *split = mh_calloc(1, sizeof *split);
        if (!split)
            return false;
        *split = (split_read){.read = *read, .done = done, .context = context};
        want *head = read->whole ? new_want_locked(self) : NULL;
        if (head) {
            head->split = split;
            head->head = true;
            head->read = *read;
            head->read.size = PART_BYTES;
            split->left = 1;
            queue_want(&self->sync.queue, head);
            return true;
        }
        if (!read->whole &&
            queue_parts_locked(self, split, read->offset, read->offset + read->size))
            return true;
        mh_free(split);
        return false;
    }
    want *one = new_want_locked(self);
    if (!one)
        return false;
    one->read = *read;
    one->done = done;
    one->context = context;
    queue_want(&self->sync.queue, one);
    return true;
}

/* Nothing but the object's version is asked for. */
static bool is_check(const want *asked)
{
    return asked->read.version && !asked->read.size && !asked->split;
}

/* --- joining --- */

/* Adds the want's bytes to the request, in order of their places. */
static void add_segment(mh_request *request, const mh_read *read)
{
    size_t at = request->segment_count++;
    for (; at > 0 && request->segments[at - 1].from > read->offset; at--)
        request->segments[at] = request->segments[at - 1];
    request->segments[at] = (mh_segment){read->offset, read->size, read->into};
}

static bool may_join(const mh_read *a, const want *b, uint64_t from, uint64_t end)
{
    const mh_read *read = &b->read;
    uint64_t last = read->offset + read->size;
    if (read->object != a->object || read->whole || b->split || !read->size)
        return false;
    bool behind = read->offset >= end && read->offset - end <= GAP_BYTES;
    bool before = last <= from && from - last <= GAP_BYTES;
    uint64_t low = before ? read->offset : from, high = behind ? last : end;
    return (behind || before) && high - low <= JOIN_BYTES;
}

/* Takes neighbours of the fetch's first want out of the queue. */
static void join_locked(remote_source *self, fetch *fetched)
{
    mh_request *request = &fetched->request;
    const mh_read *first = &fetched->wants->read;
    uint64_t from = first->offset, end = from + first->size;
    bool joined = true;
    while (joined && request->segment_count < MH_SEGMENTS_MOST) {
        unsigned looked = 0;
        joined = false;
        want *before = NULL, *next;
        for (want *at = self->sync.queue.first; at && looked < JOIN_LOOK; at = next, looked++) {
            next = at->next;
            if (request->segment_count == MH_SEGMENTS_MOST || !may_join(first, at, from, end)) {
                before = at;
                continue;
            }
            if (before)
                before->next = next;
            else
                self->sync.queue.first = next;
            if (!next)
                self->sync.queue.last = before;
            at->next = fetched->wants;
            fetched->wants = at;
            add_segment(request, &at->read);
            from = at->read.offset < from ? at->read.offset : from;
            end = at->read.offset + at->read.size > end ? at->read.offset + at->read.size : end;
            joined = true;
        }
    }
    for (size_t i = 0; i < request->segment_count; i++)
        request->segments[i].from -= from;
    request->first = from;
    request->room = end - from;
}

/* --- requests --- */

static void fetch_over(mh_request *request, const mh_error *err);

/* The name, and which version of the object will do. */
static void describe_locked(remote_source *self, fetch *fetched, const want *first)
{
    mh_request *request = &fetched->request;
    const mh_object object = mh_object_at(self->objects, first->read.object, request->name);
    if (object.name != request->name) {
        size_t length = strnlen(object.name, sizeof request->name - 1);
        memcpy(request->name, object.name, length);
        request->name[length] = '\0';
    }
    request->expected.version = object.version;
    const char *etag = NULL;
    if (first->split && *first->split->etag)
        etag = first->split->etag;
    else if (!first->read.whole && !is_check(first))
        etag = mh_object_versions_find(&self->sync.versions, first->read.object);
    if (etag && !request->expected.version)
        request->expected.version = mh_etag_version(etag);
    if (etag && strncmp(etag, "W/", 2) != 0) /* a weak one never matches */
        memcpy(request->if_match, etag, strlen(etag) + 1);
}

static mh_request *take_request(void *context)
{
    remote_source *self = context;
    pthread_mutex_lock(&self->sync.lock);
    want *first = self->sync.queue.first;
    fetch *fetched = first ? self->sync.spare_fetches : NULL;
    if (fetched)
        self->sync.spare_fetches = fetched->next;
    if (first && !fetched)
        fetched = mh_calloc(1, sizeof *fetched);
    if (!fetched) { /* nothing to do, or no memory: what is under way will give some back */
        pthread_mutex_unlock(&self->sync.lock);
        return NULL;
    }
    self->sync.queue.first = first->next;
    first->next = NULL;
    fetched->wants = first;
    mh_request *request = &fetched->request;
    request->method = "GET";
    request->over = fetch_over;
    request->context = self;
    request->ranged = !first->read.whole || first->head || is_check(first);
    request->expected.whole = first->read.whole && !first->head && !is_check(first);
    request->expected.first_bytes = first->head || is_check(first);
    describe_locked(self, fetched, first);
    add_segment(request, &first->read);
    if (is_check(first)) {
        request->first = 0;
        request->room = 1;
        request->segments[0] = (mh_segment){0, 1, &fetched->byte};
    } else if (first->read.whole || first->split || !first->read.size) {
        request->first = request->segments[0].from;
        request->room = first->read.size;
        request->segments[0].from = 0;
    } else {
        join_locked(self, fetched);
    }
    pthread_mutex_unlock(&self->sync.lock);
    return request;
}

/* --- what became of them --- */

/* All parts are over. Gives the split to be told and freed, or NULL where it goes on. */
static split_read *split_ended_locked(remote_source *self, split_read *split)
{
    bool again = split->failed && split->changed && split->read.whole &&
                 split->restarts < RESTARTS_MOST && !self->sync.closing;
    want *head = again ? new_want_locked(self) : NULL;
    if (!head)
        return split;
    split->restarts++;
    split->failed = split->changed = false;
    split->etag[0] = '\0';
    split->got = 0;
    split->left = 1;
    head->split = split;
    head->head = true;
    head->read = split->read;
    head->read.size = PART_BYTES;
    queue_want(&self->sync.queue, head);
    return NULL;
}

/* The first part of a whole object came, and with it the size of all of it. */
static void head_came_locked(remote_source *self, split_read *split, const mh_exchange *answer)
{
    uint64_t total = answer->total == MH_SIZE_UNKNOWN ? answer->came : answer->total;
    memcpy(split->etag, answer->etag, sizeof split->etag);
    split->got = answer->came;
    if (answer->came >= total)
        return;
    if (total > split->read.size) {
        split->failed = true;
        (void)mh_fail(&split->err, MH_ERR_CORRUPT,
                      "an object has %llu bytes, more than the %llu "
                      "it may have",
                      (unsigned long long)total, (unsigned long long)split->read.size);
    } else if (!queue_parts_locked(self, split, answer->came, total)) {
        split->failed = true;
        (void)mh_fail(&split->err, MH_ERR_NOMEM, "no memory for the parts of an object");
    }
}

/* A part of a split read is over. Gives the split if that was the last part. */
static split_read *part_over_locked(remote_source *self, const want *part,
                                    const mh_exchange *answer, const mh_error *err)
{
    split_read *split = part->split;
    if (err && !split->failed) {
        split->failed = true;
        split->err = *err;
    }
    if (err && err->code == MH_ERR_IO && strstr(err->message, " changed "))
        split->changed = true;
    if (!err && part->head)
        head_came_locked(self, split, answer);
    else if (!err)
        split->got += part->read.size;
    if (--split->left)
        return NULL;
    return split_ended_locked(self, split);
}

/* An object is never a mix of versions: the first answer decides. */
static bool is_same_version_locked(remote_source *self, const want *first,
                                   const mh_exchange *answer)
{
    if (first->read.whole || first->split || is_check(first) || !*answer->etag)
        return true;
    const char *known = mh_object_versions_find(&self->sync.versions, first->read.object);
    if (known)
        return strcmp(known, answer->etag) == 0;
    /* without memory to remember it, versions of the list still are compared */
    (void)mh_object_versions_add(&self->sync.versions, first->read.object, answer->etag);
    return true;
}

static void tell(const mh_read *read, mh_read_done *done, void *context, uint64_t got,
                 const mh_error *err)
{
    done(context, read->tag, err ? 0 : got, err);
}

/* `done` is called without the lock, and before the want is used again. */
static void want_over(remote_source *self, want *gone, const mh_exchange *answer,
                      const mh_error *err)
{
    split_read *ended = NULL;
    if (!gone->split)
        tell(&gone->read, gone->done, gone->context,
             gone->read.whole && answer ? answer->came : gone->read.size, err);
    pthread_mutex_lock(&self->sync.lock);
    if (gone->split)
        ended = part_over_locked(self, gone, answer, err);
    free_want_locked(self, gone);
    pthread_mutex_unlock(&self->sync.lock);
    if (!ended)
        return;
    tell(&ended->read, ended->done, ended->context, ended->got, ended->failed ? &ended->err : NULL);
    mh_free(ended);
}

static void fetch_over(mh_request *request, const mh_error *err)
{
    remote_source *self = request->context;
    fetch *fetched = (fetch *)request;
    want *wants = fetched->wants, *next;
    mh_error changed;
    const mh_exchange *answer = err ? NULL : request->answer;
    pthread_mutex_lock(&self->sync.lock);
    if (!err && !is_same_version_locked(self, wants, answer)) {
        (void)mh_fail(&changed, MH_ERR_IO, "%.200s changed while it was read: open it again",
                      request->shown);
        err = &changed;
    }
    pthread_mutex_unlock(&self->sync.lock);
    for (want *at = wants; at; at = next) {
        const mh_read *read = at->split ? &at->split->read : &at->read;
        next = at->next;
        if (read->version && answer)
            *read->version = mh_answer_version(answer);
        want_over(self, at, answer, err);
    }
    pthread_mutex_lock(&self->sync.lock);
    mh_request_reset(request);
    fetched->wants = NULL;
    fetched->next = self->sync.spare_fetches;
    self->sync.spare_fetches = fetched;
    pthread_mutex_unlock(&self->sync.lock);
}

/* --- the source --- */

mh_status mh_remote_submit(mh_source *source, const mh_read *reads, size_t count,
                           mh_read_done *done, void *context, mh_error *err)
{
    remote_source *self = (remote_source *)source;
    size_t queued = 0;
    pthread_mutex_lock(&self->sync.lock);
    bool closing = self->sync.closing;
    while (!closing && queued < count && queue_read_locked(self, &reads[queued], done, context))
        queued++;
    pthread_mutex_unlock(&self->sync.lock);
    if (closing)
        return mh_fail(err, MH_ERR_CLOSED, "the source is closed");
    mh_requests_wake(self->remote.requests);
    if (queued == count)
        return MH_OK;
    if (queued == 0)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu reads", count);
    mh_error none;
    (void)mh_fail(&none, MH_ERR_NOMEM, "no memory for %zu reads", count);
    for (; queued < count; queued++) /* all were accepted: some fail */
        done(context, reads[queued].tag, 0, &none);
    return MH_OK;
}

typedef struct sync_read {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    uint64_t got;
    mh_status status;
    mh_error *err;
} sync_read;

static void sync_over(void *context, void *tag, uint64_t got, const mh_error *err)
{
    sync_read *wait = context;
    (void)tag;
    pthread_mutex_lock(&wait->lock);
    wait->got = got;
    wait->status = err ? err->code : MH_OK;
    if (err && wait->err)
        *wait->err = *err;
    wait->over = true;
    pthread_cond_signal(&wait->ended);
    pthread_mutex_unlock(&wait->lock);
}

mh_status mh_remote_read(mh_source *source, const mh_read *read, uint64_t *got, mh_error *err)
{
    sync_read wait = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER, .err = err};
    MH_TRY(mh_remote_submit(source, read, 1, sync_over, &wait, err));
    pthread_mutex_lock(&wait.lock);
    while (!wait.over)
        pthread_cond_wait(&wait.ended, &wait.lock);
    pthread_mutex_unlock(&wait.lock);
    *got = wait.got;
    return wait.status;
}

void mh_remote_stats(mh_source *source, mh_source_stats *out)
{
    remote_source *self = (remote_source *)source;
    mh_requests_stats stats;
    mh_requests_stats_read(self->remote.requests, &stats);
    out->requests = stats.begun;
    out->retried = stats.retried;
    out->hedged = stats.hedged;
    out->request_bytes = stats.bytes;
    out->in_flight_peak = stats.in_flight_peak;
}

void mh_remote_source_close(mh_source *source)
{
    remote_source *self = (remote_source *)source;
    mh_error closed;
    pthread_mutex_lock(&self->sync.lock);
    self->sync.closing = true;
    pthread_mutex_unlock(&self->sync.lock);
    mh_remote_close(&self->remote); /* ends what is under way */
    (void)mh_fail(&closed, MH_ERR_CLOSED, "the source was closed");
    while (self->sync.queue.first) { /* nobody else is here any more */
        want *at = self->sync.queue.first;
        self->sync.queue.first = at->next;
        want_over(self, at, NULL, &closed);
    }
    for (want *at = self->sync.spare, *next; at; at = next) {
        next = at->next;
        mh_free(at);
    }
    for (fetch *at = self->sync.spare_fetches, *next; at; at = next) {
        next = at->next;
        mh_free(at);
    }
    mh_object_versions_free(&self->sync.versions);
    pthread_mutex_destroy(&self->sync.lock);
    mh_free(self);
}

mh_status mh_remote_source_open(mh_source **out, const mh_remote_type *type,
                                const mh_objects *objects, const mh_source_options *options,
                                mh_error *err)
{
    remote_source *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a source");
    self->base.type = type->source;
    self->objects = objects;
    pthread_mutex_init(&self->sync.lock, NULL);
    mh_status status = mh_remote_open(&self->remote, type, options, take_request, self, err);
    if (status != MH_OK) {
        mh_remote_source_close(&self->base);
        return status;
    }
    *out = &self->base;
    return MH_OK;
}
