/* remote.c - a place on the network and the requests to it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/remote.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/text.h"
#include "source/net.h"
#include "source/redact.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

mh_status mh_remote_open(mh_remote *out, const mh_remote_type *type,
                         const mh_source_options *options, mh_request *(*take)(void *context),
                         void *context, mh_error *err)
{
    mh_storage storage;
    *out = (mh_remote){.type = type, .addressing = type->addressing};
    const mh_net *net = mh_net_load(err);
    if (!net)
        return MH_ERR_UNSUPPORTED;
    MH_TRY(mh_storage_read(&storage, options->storage, err));
    mh_status status = type->open(&out->place, &storage, err);
    out->addressing.context = out->place;
    if (status == MH_OK) {
        const mh_requests_options requests = {
            .transport = net->transport,
            .addressing = &out->addressing,
            .in_flight = options->in_flight,
            .timeout_ms = (uint32_t)(storage.timeout_s * 1000),
            .link_local = storage.link_local,
            .ca_file = storage.ca_file,
            .take = take,
            .context = context,
        };
        status = mh_requests_open(&out->requests, &requests, err);
    }
    if (status == MH_OK && type->watch)
        type->watch(out->place, out->requests);
    mh_storage_wipe(&storage);
    return status;
}

void mh_remote_close(mh_remote *remote)
{
    if (remote->place && remote->type->watch)
        remote->type->watch(remote->place, NULL);
    mh_requests_close(remote->requests);
    if (remote->place)
        remote->type->close(remote->place);
    *remote = (mh_remote){0};
}

/* --- headers --- */

void mh_attempt_clear(mh_attempt *attempt)
{
    attempt->headers[0] = NULL;
    attempt->header_count = attempt->lines_used = 0;
}

bool mh_attempt_header(mh_attempt *attempt, const char *name, const char *value)
{
    size_t used = attempt->lines_used;
    if (attempt->header_count == MH_HEADERS_MOST || used == sizeof attempt->lines)
        return false;
    mh_text line = mh_text_in(attempt->lines + used, sizeof attempt->lines - used);
    mh_text_put(&line, name);
    mh_text_put(&line, ": ");
    mh_text_put(&line, value);
    if (line.cut)
        return false;
    attempt->headers[attempt->header_count++] = line.data;
    attempt->headers[attempt->header_count] = NULL;
    attempt->lines_used += line.used + 1;
    return true;
}

/* --- single requests while datasets open --- */

/* Kept between calls, because connections are dear, until whoever opens a dataset is done with it;
 * one place at a time. */
static struct {
    pthread_mutex_t lock;
    mh_remote remote; /* type NULL: none */
    char *storage;    /* the text it was opened with */
    uint32_t fork_generation;
    uint64_t stamp; /* of what was asked */
} opener = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A thread that held the lock when the process was forked is not here: then the lock is new. */
static void lock_opener(void)
{
    static _Atomic uint32_t generation;
    uint32_t known = atomic_load(&generation), now = mh_fork_generation();
    if (known != now && atomic_compare_exchange_strong(&generation, &known, now))
        pthread_mutex_init(&opener.lock, NULL);
    pthread_mutex_lock(&opener.lock);
}

static void forget_locked(void)
{
    if (opener.remote.type && opener.fork_generation == mh_fork_generation())
        mh_remote_close(&opener.remote);
    opener.remote = (mh_remote){0};
    if (opener.storage)
        explicit_bzero(opener.storage, strlen(opener.storage));
    mh_free(opener.storage);
    opener.storage = NULL;
}

uint64_t mh_source_rest(void)
{
    lock_opener();
    forget_locked();
    uint64_t stamp = opener.stamp;
    opener.stamp = 0;
    pthread_mutex_unlock(&opener.lock);
    return stamp;
}

/* Objects and their versions, in any order. */
static void add_stamp_locked(const mh_request *request)
{
    uint64_t version = request->answer ? mh_answer_version(request->answer) : 0;
    opener.stamp |= UINT64_C(1) << 63; /* never 0 */
    opener.stamp += (mh_etag_version(request->name) ^ version) * UINT64_C(0xD6E8FEB86659FD93);
}

static mh_status open_locked(const mh_remote_type *type, const mh_source_options *options,
                             mh_error *err)
{
    const char *storage = options->storage ? options->storage : "";
    bool same = opener.remote.type == type && opener.fork_generation == mh_fork_generation() &&
                strcmp(opener.storage, storage) == 0;
    if (same)
        return MH_OK;
    forget_locked();
    opener.storage = mh_calloc(strlen(storage) + 1, 1);
    if (!opener.storage)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for storage options");
    memcpy(opener.storage, storage, strlen(storage));
    const mh_source_options few = {.in_flight = 16, .storage = options->storage};
    mh_status status = mh_remote_open(&opener.remote, type, &few, NULL, NULL, err);
    opener.fork_generation = mh_fork_generation();
    if (status != MH_OK) {
        mh_remote_close(&opener.remote);
        forget_locked();
    }
    return status;
}

typedef struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    mh_status status;
    mh_error *err;
} waiting;

static void ask_over(mh_request *request, const mh_error *err)
{
    waiting *wait = request->context;
    pthread_mutex_lock(&wait->lock);
    wait->status = err ? err->code : MH_OK;
    if (err && wait->err)
        *wait->err = *err;
    wait->over = true;
    pthread_cond_signal(&wait->ended);
    pthread_mutex_unlock(&wait->lock);
}

mh_status mh_remote_ask(const mh_remote_type *type, const mh_source_options *options,
                        mh_request *request, mh_error *err)
{
    char shown[256];
    waiting wait = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    wait.err = err;
    request->over = ask_over;
    request->context = &wait;
    lock_opener(); /* one at a time: opening is not where time goes */
    mh_status status = open_locked(type, options, err);
    if (status == MH_OK) {
        mh_requests_add(opener.remote.requests, request);
        pthread_mutex_lock(&wait.lock);
        while (!wait.over)
            pthread_cond_wait(&wait.ended, &wait.lock);
        pthread_mutex_unlock(&wait.lock);
        status = wait.status;
        add_stamp_locked(request);
    } else {
        mh_redact_url(shown, sizeof shown, request->name);
        mh_error_prefix(err, "%.200s", shown);
    }
    pthread_mutex_unlock(&opener.lock);
    return status;
}

/* --- stat and get --- */

static mh_status new_request(mh_request **out, const char *name, mh_error *err)
{
    mh_request *request = mh_calloc(1, sizeof *request);
    if (!request)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a request");
    if (strlen(name) >= sizeof request->name) {
        mh_free(request);
        return mh_fail(err, MH_ERR_INVALID, "a name of more than %u bytes", MH_NAME_MOST - 1);
    }
    memcpy(request->name, name, strlen(name) + 1);
    request->method = "GET";
    *out = request;
    return MH_OK;
}

/* The first bytes, and what the answer says about all of them. */
static mh_status get_first(const mh_remote_type *type, const char *name,
                           const mh_source_options *options, uint64_t most, uint8_t *into,
                           uint64_t *got, mh_object *about, mh_error *err)
{
    mh_request *request = NULL;
    MH_TRY(new_request(&request, name, err));
    request->ranged = true;
    request->room = most;
    request->segments[0] = (mh_segment){0, most, into};
    request->segment_count = 1;
    request->expected.first_bytes = true;
    mh_status status = mh_remote_ask(type, options, request, err);
    if (status == MH_OK) {
        const mh_exchange *answer = request->answer;
        bool empty = answer->status == 416;
        *got = answer->came;
        about->size = empty ? 0 : answer->total;
        about->version = mh_answer_version(answer);
    }
    mh_free(request);
    return status;
}

mh_status mh_remote_stat(const mh_remote_type *type, mh_object *object,
                         const mh_source_options *options, mh_error *err)
{
    uint8_t byte;
    uint64_t got = 0;
    mh_object about = {0};
    MH_TRY(get_first(type, object->name, options, 1, &byte, &got, &about, err));
    object->size = about.size;
    object->version = about.version;
    return MH_OK;
}

mh_status mh_remote_get(const mh_remote_type *type, const char *name,
                        const mh_source_options *options, uint64_t most, uint8_t *into,
                        uint64_t *got, mh_error *err)
{
    mh_object about = {0};
    *got = 0;
    if (most == 0)
        return MH_OK;
    return get_first(type, name, options, most, into, got, &about, err);
}
