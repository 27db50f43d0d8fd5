/* http.c - http(s) by libcurl, declared by hand and loaded when it is there
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/http.h"

#include "base/alloc.h"
#include "base/error.h"
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define URL_BYTES 2048
#define MOST_REDIRECTS 5L
#define BUFFER_BYTES (256L << 10) /* a fast network in few calls */

/* Numbers of curl's interface, which never change. */
enum {
    CURLE_OK = 0,
    CURLE_WRITE_ERROR = 23,
    CURLE_HTTP_RETURNED_ERROR = 22,
    CURLE_OPERATION_TIMEDOUT = 28,
    CURLE_ABORTED_BY_CALLBACK = 42,
    CURL_ERROR_SIZE = 256,
    CURL_GLOBAL_DEFAULT = 3,
    CURLPROTO_HTTP_AND_HTTPS = 3,
    CURLOPT_LOW_SPEED_LIMIT = 19,
    CURLOPT_LOW_SPEED_TIME = 20,
    CURLOPT_NOPROGRESS = 43,
    CURLOPT_FAILONERROR = 45,
    CURLOPT_FOLLOWLOCATION = 52,
    CURLOPT_MAXREDIRS = 68,
    CURLOPT_BUFFERSIZE = 98,
    CURLOPT_NOSIGNAL = 99,
    CURLOPT_CONNECTTIMEOUT_MS = 156,
    CURLOPT_PROTOCOLS = 181,
    CURLOPT_REDIR_PROTOCOLS = 182,
    CURLOPT_WRITEDATA = 10001,
    CURLOPT_URL = 10002,
    CURLOPT_RANGE = 10007,
    CURLOPT_ERRORBUFFER = 10010,
    CURLOPT_USERAGENT = 10018,
    CURLOPT_HEADERDATA = 10029,
    CURLOPT_XFERINFODATA = 10057,
    CURLOPT_WRITEFUNCTION = 20011,
    CURLOPT_HEADERFUNCTION = 20079,
    CURLOPT_XFERINFOFUNCTION = 20219,
    CURLINFO_EFFECTIVE_URL = 0x100001,
    CURLINFO_RESPONSE_CODE = 0x200002,
    CURLINFO_NUM_CONNECTS = 0x20001a,
    CURLINFO_PRETRANSFER_TIME_T = 0x600035,
};

static struct {
    pthread_once_t once;
    bool there;
    int (*global_init)(long);
    void *(*init)(void);
    int (*set)(void *, int, ...);
    int (*perform)(void *);
    int (*info)(void *, int, ...);
    void (*cleanup)(void *);
    const char *(*name_of)(int);
} curl = {.once = PTHREAD_ONCE_INIT};

struct mh_http {
    void *easy;
    char url[URL_BYTES], shown[URL_BYTES];
    char problem[CURL_ERROR_SIZE];
    /* of the request under way */
    const mh_http_request *request;
    mh_http_answer *answer;
    mh_http_wish wish;
};

static void curl_load(void)
{
    void *library = dlopen("libcurl.so.4", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        library = dlopen("libcurl-gnutls.so.4", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return;
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"curl_global_init", &curl.global_init}, {"curl_easy_init", &curl.init},
        {"curl_easy_setopt", &curl.set},         {"curl_easy_perform", &curl.perform},
        {"curl_easy_getinfo", &curl.info},       {"curl_easy_cleanup", &curl.cleanup},
        {"curl_easy_strerror", &curl.name_of},
    };
    for (size_t at = 0; at < sizeof symbols / sizeof *symbols; at++) {
        *(void **)symbols[at].place = dlsym(library, symbols[at].name);
        if (!*(void **)symbols[at].place)
            return;
    }
    curl.there = curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* --- addresses --- */

static size_t scheme_length(const char *path)
{
    size_t length = 0;
    if (!isalpha((unsigned char)*path))
        return 0;
    while (isalnum((unsigned char)path[length]) || (path[length] && strchr("+-.", path[length])))
        length++;
    return strncmp(path + length, "://", 3) == 0 ? length : 0;
}

bool mh_http_is_url(const char *path)
{
    return scheme_length(path) > 0;
}

static bool is_http(const char *url)
{
    size_t length = scheme_length(url);
    return (length == 4 && strncasecmp(url, "http", 4) == 0) ||
           (length == 5 && strncasecmp(url, "https", 5) == 0);
}

/* Without user, password, query and fragment. */
static void show_url(char out[URL_BYTES], const char *url)
{
    size_t before = scheme_length(url) + strlen("://");
    const char *host = url + before, *user_end = NULL;
    size_t length = strcspn(host, "?#");
    for (const char *at = host; at < host + strcspn(host, "/?#"); at++)
        if (*at == '@')
            user_end = at;
    if (user_end) {
        length -= (size_t)(user_end + 1 - host);
        host = user_end + 1;
    }
    (void)snprintf(out, URL_BYTES, "%.*s%.*s", (int)before, url, (int)length, host);
}

/* --- what curl calls --- */

static mh_http_wish ask(mh_http *http)
{
    const mh_http_request *request = http->request;
    uint64_t came = http->answer->came;
    if (http->wish != MH_HTTP_ON)
        return http->wish;
    if (came > request->bytes)
        http->wish = MH_HTTP_ENOUGH;
    else if (came < request->bytes && request->listen) /* else it ends, and the connection stays */
        http->wish = request->listen(request->argument, came);
    return http->wish;
}

/* "content-range: bytes 0-4095/123456" */
static size_t on_header(const char *line, size_t one, size_t length, void *argument)
{
    static const char name[] = "content-range:";
    mh_http *http = argument;
    char text[128];
    (void)snprintf(text, sizeof text, "%.*s", (int)(one * length), line);
    if (strncmp(text, "HTTP/", 5) == 0) { /* a redirect's headers are of no interest */
        http->answer->ranged = false;
        http->answer->total = 0;
    } else if (strncasecmp(text, name, sizeof name - 1) == 0) {
        const char *total = strchr(text, '/');
        http->answer->total = total ? strtoull(total + 1, NULL, 10) : 0;
    }
    return one * length;
}

static size_t on_data(const char *data, size_t one, size_t length, void *argument)
{
    mh_http *http = argument;
    (void)data;
    http->answer->came += one * length;
    /* less than what came ends the transfer */
    return ask(http) == MH_HTTP_ON ? one * length : 0;
}

static int on_progress(void *argument, int64_t all, int64_t now, int64_t send_all, int64_t sent)
{
    (void)all;
    (void)now;
    (void)send_all;
    (void)sent;
    return ask(argument) != MH_HTTP_ON;
}

/* --- requests --- */

mh_status mh_http_open(mh_http **out, const char *url, mh_error *err)
{
    if (!is_http(url))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "'%.200s' is no http:// or https:// address", url);
    if (strlen(url) >= URL_BYTES)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "an address of %zu characters", strlen(url));
    (void)pthread_once(&curl.once, curl_load);
    mh_http *http = curl.there ? mh_calloc(1, sizeof *http) : NULL;
    if (!curl.there) {
        (void)mh_fail(err, MH_ERR_UNSUPPORTED, "an address is read by libcurl, which is not here");
        if (err)
            err->sys_errno = ENOPKG;
        return MH_ERR_UNSUPPORTED;
    }
    if (http)
        http->easy = curl.init();
    if (!http || !http->easy) {
        mh_free(http);
        return mh_fail(err, MH_ERR_NOMEM, "no memory to read an address");
    }
    (void)snprintf(http->url, sizeof http->url, "%s", url);
    show_url(http->shown, url);
    const struct {
        int option;
        long value;
    } numbers[] = {
        {CURLOPT_NOSIGNAL, 1},
        {CURLOPT_NOPROGRESS, 0},
        {CURLOPT_FAILONERROR, 1},
        {CURLOPT_FOLLOWLOCATION, 1},
        {CURLOPT_MAXREDIRS, MOST_REDIRECTS},
        {CURLOPT_PROTOCOLS, CURLPROTO_HTTP_AND_HTTPS},
        {CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTP_AND_HTTPS},
        {CURLOPT_BUFFERSIZE, BUFFER_BYTES},
        {CURLOPT_CONNECTTIMEOUT_MS, MH_HTTP_PATIENCE_S * 1000L},
        {CURLOPT_LOW_SPEED_LIMIT, 1},
        {CURLOPT_LOW_SPEED_TIME, MH_HTTP_PATIENCE_S},
    };
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        (void)curl.set(http->easy, numbers[at].option, numbers[at].value);
    (void)curl.set(http->easy, CURLOPT_USERAGENT, "millhead/" MH_VERSION);
    (void)curl.set(http->easy, CURLOPT_ERRORBUFFER, http->problem);
    (void)curl.set(http->easy, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl.set(http->easy, CURLOPT_HEADERDATA, http);
    (void)curl.set(http->easy, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl.set(http->easy, CURLOPT_WRITEDATA, http);
    (void)curl.set(http->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl.set(http->easy, CURLOPT_XFERINFODATA, http);
    *out = http;
    return MH_OK;
}

static mh_status fail(const mh_http *http, int code, long status, mh_error *err)
{
    if (code == CURLE_HTTP_RETURNED_ERROR && status == 416)
        return mh_fail(err, MH_ERR_NOT_FOUND, "%.300s has nothing in it", http->shown);
    if (code == CURLE_HTTP_RETURNED_ERROR)
        return mh_fail(err, status == 404 || status == 410 ? MH_ERR_NOT_FOUND : MH_ERR_IO,
                       "%.300s: the server answers %ld", http->shown, status);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return mh_fail(err, MH_ERR_TIMEOUT, "%.300s: no answer for %d seconds", http->shown,
                       MH_HTTP_PATIENCE_S);
    return mh_fail(err, MH_ERR_IO, "cannot read %.300s: %.150s", http->shown,
                   *http->problem ? http->problem : curl.name_of(code));
}

/* Where redirects led is where later requests go at once. */
static void remember_place(mh_http *http)
{
    const char *url = NULL;
    if (curl.info(http->easy, CURLINFO_EFFECTIVE_URL, &url) == CURLE_OK && url &&
        strlen(url) < URL_BYTES && strcmp(url, http->url) != 0) {
        (void)snprintf(http->url, sizeof http->url, "%s", url);
        show_url(http->shown, url);
    }
}

mh_status mh_http_get(mh_http *http, const mh_http_request *request, mh_http_answer *answer,
                      mh_error *err)
{
    char range[64];
    long status = 0, connects = 0;
    int64_t connected_us = 0;
    *answer = (mh_http_answer){0};
    http->request = request;
    http->answer = answer;
    http->wish = MH_HTTP_ON;
    *http->problem = '\0';
    (void)snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)request->offset,
                   (unsigned long long)(request->offset + request->bytes - 1));
    (void)curl.set(http->easy, CURLOPT_URL, http->url);
    (void)curl.set(http->easy, CURLOPT_RANGE, range);
    int code = curl.perform(http->easy);
    (void)curl.info(http->easy, CURLINFO_RESPONSE_CODE, &status);
    if (http->wish == MH_HTTP_STOP)
        return mh_fail(err, MH_ERR_CLOSED, "stopped");
    bool ended = code == CURLE_WRITE_ERROR || code == CURLE_ABORTED_BY_CALLBACK;
    if (code != CURLE_OK && !(ended && http->wish == MH_HTTP_ENOUGH))
        return fail(http, code, status, err);
    if (ended && answer->came == 0)
        return MH_OK; /* before it was answered */
    if (status != 200 && status != 206)
        return mh_fail(err, MH_ERR_IO, "%.300s: the server answers %ld", http->shown, status);
    if (curl.info(http->easy, CURLINFO_NUM_CONNECTS, &connects) == CURLE_OK && connects > 0 &&
        curl.info(http->easy, CURLINFO_PRETRANSFER_TIME_T, &connected_us) == CURLE_OK)
        answer->connected_ns = (uint64_t)connected_us * 1000;
    answer->ranged = status == 206;
    remember_place(http);
    return MH_OK;
}

const char *mh_http_shown(const mh_http *http)
{
    return http->shown;
}

void mh_http_close(mh_http *http)
{
    if (!http)
        return;
    curl.cleanup(http->easy);
    mh_free(http);
}
