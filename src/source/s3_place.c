/* s3_place.c - where buckets are and who asks for them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/s3_place.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/text.h"
#include "source/credentials.h"
#include "source/redact.h"
#include "source/url.h"
#include "sys/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#define FRESH_S 2 /* whoever is refused so soon was signed before */

typedef struct s3_place {
    /* set at open, then read-only */
    mh_storage storage;
    char scheme[8], host[300], prefix[200]; /* prefix: of an endpoint with a path */
    char region[MH_REGION_ROOM];
    bool aws; /* no endpoint was given */
    /* the transport thread's */
    mh_sigv4_day day;
    mh_thread refresher;
    /* under the lock */
    struct {
        pthread_mutex_t lock;
        mh_credentials credentials;
        mh_requests *watcher;
        bool refreshing;
        bool forced;   /* a server does not take these */
        bool failed;   /* the last attempt to get new ones */
        int64_t again; /* after a failure, or because of a server; seconds since 1970 */
        mh_error why;  /* it failed */
    } sync;
} s3_place;

/* --- names --- */

mh_status mh_s3_split(const char *name, size_t *out_bucket, const char **out_key, mh_error *err)
{
    if (strncasecmp(name, "s3://", 5) != 0)
        return mh_fail(err, MH_ERR_INVALID, "%.200s is not s3://BUCKET/KEY", name);
    size_t bucket = strcspn(name + 5, "/");
    if (bucket == 0 || bucket > 255)
        return mh_fail(err, MH_ERR_INVALID, "%.200s has no bucket: write s3://BUCKET/KEY", name);
    *out_bucket = bucket;
    *out_key = name + 5 + bucket + (name[5 + bucket] == '/');
    return MH_OK;
}

/* --- opening --- */

static const char *first_of(const char *a, const char *b, const char *c)
{
    return a && *a ? a : b && *b ? b : c && *c ? c : NULL;
}

/* The host as a client sends it: without the port that belongs to the scheme. */
static bool take_host(s3_place *self, const mh_url *url)
{
    bool secure = mh_url_is_scheme(url, "https");
    const char *usual = secure ? ":443" : ":80";
    size_t length = url->host_length, port = strlen(usual);
    if (!secure && !mh_url_is_scheme(url, "http"))
        return false;
    if (length > port && memcmp(url->host + length - port, usual, port) == 0)
        length -= port;
    size_t prefix = strcspn(url->rest, "?#");
    while (prefix && url->rest[prefix - 1] == '/')
        prefix--;
    if (length >= sizeof self->host || prefix >= sizeof self->prefix)
        return false;
    memcpy(self->scheme, secure ? "https" : "http", secure ? 6 : 5);
    memcpy(self->host, url->host, length);
    memcpy(self->prefix, url->rest, prefix);
    return true;
}

static mh_status find_endpoint(s3_place *self, mh_error *err)
{
    char setting[512];
    mh_url url;
    const char *given = first_of(self->storage.endpoint_url, getenv("AWS_ENDPOINT_URL_S3"),
                                 getenv("AWS_ENDPOINT_URL"));
    if (!given && mh_credentials_setting(&self->storage, "endpoint_url", setting, sizeof setting))
        given = setting;
    if (!given) {
        self->aws = true;
        memcpy(self->scheme, "https", 6);
        (void)snprintf(self->host, sizeof self->host, "s3.%s.amazonaws.com", self->region);
        return MH_OK;
    }
    if (mh_url_parse(&url, given) && take_host(self, &url))
        return MH_OK;
    return mh_fail(err, MH_ERR_INVALID, "endpoint_url must be http(s)://HOST[:PORT]");
}

static mh_status find_credentials(s3_place *self, mh_credentials *out, mh_error *err)
{
    return mh_credentials_find(out, &self->storage, mh_remote_call, self->storage.ca_file, err);
}

mh_status mh_s3_place_open(void **out, const mh_storage *storage, mh_error *err)
{
    s3_place *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a place on the network");
    self->storage = *storage;
    pthread_mutex_init(&self->sync.lock, NULL);
    mh_credentials_region(storage, self->region);
    mh_status status = find_endpoint(self, err);
    if (status == MH_OK)
        status = find_credentials(self, &self->sync.credentials, err);
    if (status != MH_OK) {
        mh_s3_place_close(self);
        return status;
    }
    *out = self;
    return MH_OK;
}

void mh_s3_place_close(void *place)
{
    s3_place *self = place;
    mh_thread_join(&self->refresher);
    pthread_mutex_destroy(&self->sync.lock);
    explicit_bzero(self, sizeof *self);
    mh_free(self);
}

void mh_s3_watch(void *place, mh_requests *requests)
{
    s3_place *self = place;
    pthread_mutex_lock(&self->sync.lock);
    self->sync.watcher = requests;
    pthread_mutex_unlock(&self->sync.lock);
}

/* --- fresh credentials --- */

static void take_fresh_locked(s3_place *self, const mh_credentials *fresh)
{
    self->sync.credentials = *fresh;
    self->sync.forced = self->sync.failed = false;
    self->sync.again = fresh->got + FRESH_S;
}

/* The next attempt comes after a tenth of the time that is left: thousands of jobs that lost the
 * same service do not ask it all the time. */
static void note_failure_locked(s3_place *self, const mh_error *err)
{
    int64_t now = (int64_t)time(NULL), left = self->sync.credentials.expires - now;
    self->sync.failed = true;
    self->sync.why = *err;
    mh_error_prefix(&self->sync.why, "no fresh credentials");
    self->sync.again = now + (left > 10 ? left / 10 : 1);
}

static void *refresh_thread(void *argument)
{
    s3_place *self = argument;
    mh_credentials fresh;
    mh_error err = {0};
    mh_status status = find_credentials(self, &fresh, &err);
    pthread_mutex_lock(&self->sync.lock);
    self->sync.refreshing = false;
    if (status == MH_OK)
        take_fresh_locked(self, &fresh);
    else
        note_failure_locked(self, &err);
    if (self->sync.watcher)
        mh_requests_wake(self->sync.watcher);
    pthread_mutex_unlock(&self->sync.lock);
    explicit_bzero(&fresh, sizeof fresh);
    return NULL;
}

/* On the transport's thread, which starts and joins the refresher. */
static void start_refresh_locked(s3_place *self)
{
    mh_error err;
    self->sync.refreshing = true;
    pthread_mutex_unlock(&self->sync.lock);
    mh_thread_join(&self->refresher); /* the one before, which is over */
    mh_status status =
        mh_thread_start(&self->refresher, "millhead-keys", refresh_thread, self, &err);
    pthread_mutex_lock(&self->sync.lock);
    if (status != MH_OK) {
        self->sync.refreshing = false;
        note_failure_locked(self, &err);
    }
}

bool mh_s3_waits(void *place, bool now, bool *failed, mh_error *err)
{
    s3_place *self = place;
    pthread_mutex_lock(&self->sync.lock);
    const mh_credentials *credentials = &self->sync.credentials;
    int64_t time_now = (int64_t)time(NULL);
    bool ended = credentials->expires && time_now >= credentials->expires;
    bool due = mh_credentials_due(credentials, time_now);
    if (now && (self->sync.failed || time_now >= self->sync.again))
        self->sync.forced = true;
    bool may = !self->sync.failed || time_now >= self->sync.again;
    if (!self->sync.refreshing && (due || self->sync.forced) && may)
        start_refresh_locked(self);
    bool needed = ended || self->sync.forced;
    bool waits = self->sync.refreshing && needed;
    *failed = !self->sync.refreshing && self->sync.failed && needed;
    if (*failed) {
        *err = self->sync.why;
        self->sync.forced = false; /* those who waited know it; the next may try again */
    }
    pthread_mutex_unlock(&self->sync.lock);
    return waits;
}

void mh_s3_redact(void *place, char *text)
{
    s3_place *self = place;
    pthread_mutex_lock(&self->sync.lock);
    mh_redact_secret(text, self->sync.credentials.secret);
    mh_redact_secret(text, self->sync.credentials.token);
    mh_redact_secret(text, self->sync.credentials.key);
    pthread_mutex_unlock(&self->sync.lock);
}

/* --- addresses --- */

/* A name that is part of a host's: AWS's certificates have no place for a dot more. */
static bool is_host_name(const char *bucket, size_t length, bool dots)
{
    for (size_t i = 0; i < length; i++) {
        char c = bucket[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || (dots && c == '.')))
            return false;
    }
    return length >= 3 && length <= 63;
}

static bool is_virtual(const s3_place *self, const char *bucket, size_t length)
{
    if (self->storage.path_style)
        return false;
    if (self->storage.virtual_host)
        return is_host_name(bucket, length, true);
    return self->aws && is_host_name(bucket, length, false);
}

static bool put_signature(s3_place *self, const mh_request *request, mh_attempt *attempt,
                          const char *host, const char *target)
{
    mh_sigv4_headers headers;
    const mh_sigv4_request what = {.method = request->method,
                                   .host = host,
                                   .target = target,
                                   .region = self->region,
                                   .service = "s3",
                                   .when = (int64_t)time(NULL)};
    pthread_mutex_lock(&self->sync.lock);
    const mh_credentials *credentials = &self->sync.credentials;
    bool good = credentials->anonymous;
    if (!good) {
        const mh_sigv4_keys keys = {credentials->key, credentials->secret, credentials->token};
        good = mh_sigv4_sign(&headers, &self->day, &what, &keys) &&
               mh_attempt_header(attempt, "x-amz-date", headers.date) &&
               mh_attempt_header(attempt, "x-amz-content-sha256", MH_SIGV4_NO_BODY) &&
               mh_attempt_header(attempt, "Authorization", headers.authorization) &&
               (!*credentials->token ||
                mh_attempt_header(attempt, "x-amz-security-token", credentials->token));
    }
    pthread_mutex_unlock(&self->sync.lock);
    return good;
}

mh_status mh_s3_address(void *place, const mh_request *request, mh_attempt *attempt, mh_error *err)
{
    s3_place *self = place;
    char path[MH_NAME_MOST + 512], target[MH_URL_ROOM], host[600];
    const char *key = "";
    size_t bucket = 0;
    mh_attempt_clear(attempt);
    if (*request->redirected) { /* elsewhere: never with what only this place may see */
        memcpy(attempt->url, request->redirected, strlen(request->redirected) + 1);
        return MH_OK;
    }
    MH_TRY(mh_s3_split(request->name, &bucket, &key, err));
    const char *name = request->name + strlen("s3://");
    bool as_host = is_virtual(self, name, bucket);
    (void)snprintf(host, sizeof host, "%.*s%s%s", as_host ? (int)bucket : 0, name,
                   as_host ? "." : "", self->host);
    bool has_key = !request->query_count;
    (void)snprintf(path, sizeof path, "%s%s%.*s%s%s", self->prefix, as_host ? "" : "/",
                   as_host ? 0 : (int)bucket, name, has_key || as_host ? "/" : "",
                   has_key ? key : "");
    bool fits =
        mh_sigv4_target(target, sizeof target, path, request->query, request->query_count) &&
        snprintf(attempt->url, sizeof attempt->url, "%s://%s%s", self->scheme, host, target) <
            (int)sizeof attempt->url &&
        (!*request->if_match || mh_attempt_header(attempt, "If-Match", request->if_match)) &&
        put_signature(self, request, attempt, host, target);
    return fits ? MH_OK
                : mh_fail(err, MH_ERR_INVALID, "%.200s is too long, or its credentials are",
                          request->shown);
}
