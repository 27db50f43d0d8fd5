/* net_curl.c - libmillhead-net.so: http(s) by libcurl
 * SPDX-License-Identifier: Apache-2.0
 */
/* CURLOPT_PROTOCOLS is deprecated, but what came after it is not known to libcurl before 7.85, and
 * a wheel meets whichever is installed. */
#define CURL_DISABLE_DEPRECATION
#include "source/net.h"
#include "source/net_transport.h"

#include "base/alloc.h"
#include "base/error.h"
#include "source/redact.h"
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define URL_BYTES 2048
#define MOST_REDIRECTS 5L
#define BUFFER_BYTES (256L << 10) /* a fast network in few calls */

struct mh_http {
    CURL *easy;
    char url[URL_BYTES], shown[URL_BYTES];
    char problem[CURL_ERROR_SIZE];
    /* of the request under way */
    const mh_http_request *request;
    mh_http_answer *answer;
    mh_http_wish wish;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool begun;

static void begin(void)
{
    begun = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

bool mh_net_begin(void)
{
    (void)pthread_once(&once, begin);
    return begun;
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

static int on_progress(void *argument, curl_off_t all, curl_off_t now, curl_off_t send_all,
                       curl_off_t sent)
{
    (void)all;
    (void)now;
    (void)send_all;
    (void)sent;
    return ask(argument) != MH_HTTP_ON;
}

/* --- requests --- */

/* Options that are the same for every request. */
static bool set_up(mh_http *http)
{
    const struct {
        CURLoption option;
        long value;
    } numbers[] = {
        {CURLOPT_NOSIGNAL, 1},
        {CURLOPT_NOPROGRESS, 0},
        {CURLOPT_FAILONERROR, 1},
        {CURLOPT_FOLLOWLOCATION, 1},
        {CURLOPT_MAXREDIRS, MOST_REDIRECTS},
        {CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS},
        {CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS},
        {CURLOPT_BUFFERSIZE, BUFFER_BYTES},
        {CURLOPT_CONNECTTIMEOUT_MS, MH_HTTP_PATIENCE_S * 1000L},
        {CURLOPT_LOW_SPEED_LIMIT, 1},
        {CURLOPT_LOW_SPEED_TIME, MH_HTTP_PATIENCE_S},
    };
    CURL *easy = http->easy;
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        if (curl_easy_setopt(easy, numbers[at].option, numbers[at].value) != CURLE_OK)
            return false;
    return curl_easy_setopt(easy, CURLOPT_USERAGENT, "millhead/" MH_VERSION) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, http->problem) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, http) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, http) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_XFERINFODATA, http) == CURLE_OK;
}

static void close_one(mh_http *http)
{
    curl_easy_cleanup(http->easy);
    mh_free(http);
}

static mh_status open_one(mh_http **out, const char *url, mh_error *err)
{
    if (strlen(url) >= URL_BYTES)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "a URL of %zu characters, more than %d",
                       strlen(url), URL_BYTES - 1);
    mh_http *http = mh_net_begin() ? mh_calloc(1, sizeof *http) : NULL;
    if (http)
        http->easy = curl_easy_init();
    if (!http || !http->easy) {
        mh_free(http);
        return mh_fail(err, MH_ERR_NOMEM, "no memory to read a URL");
    }
    (void)snprintf(http->url, sizeof http->url, "%s", url);
    mh_redact_url(http->shown, sizeof http->shown, url);
    if (!set_up(http)) {
        close_one(http);
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "libcurl %s is too old: it lacks an option that millhead needs",
                       curl_version_info(CURLVERSION_NOW)->version);
    }
    *out = http;
    return MH_OK;
}

static mh_status fail(const mh_http *http, CURLcode code, long status, mh_error *err)
{
    if (code == CURLE_HTTP_RETURNED_ERROR && status == 416)
        return mh_fail(err, MH_ERR_NOT_FOUND, "%.300s is empty", http->shown);
    if (code == CURLE_HTTP_RETURNED_ERROR)
        return mh_fail(err, status == 404 || status == 410 ? MH_ERR_NOT_FOUND : MH_ERR_IO,
                       "%.300s: the server answers %ld", http->shown, status);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return mh_fail(err, MH_ERR_TIMEOUT, "%.300s: no answer for %d seconds", http->shown,
                       MH_HTTP_PATIENCE_S);
    return mh_fail(err, MH_ERR_IO, "cannot read %.300s: %.150s", http->shown,
                   *http->problem ? http->problem : curl_easy_strerror(code));
}

/* Where redirects led is where later requests go at once. */
static void remember_place(mh_http *http)
{
    char *url = NULL;
    if (curl_easy_getinfo(http->easy, CURLINFO_EFFECTIVE_URL, &url) == CURLE_OK && url &&
        strlen(url) < URL_BYTES && strcmp(url, http->url) != 0) {
        (void)snprintf(http->url, sizeof http->url, "%s", url);
        mh_redact_url(http->shown, sizeof http->shown, url);
    }
}

static mh_status get_one(mh_http *http, const mh_http_request *request, mh_http_answer *answer,
                         mh_error *err)
{
    char range[64];
    long status = 0, connects = 0;
    curl_off_t connected_us = 0;
    *answer = (mh_http_answer){0};
    http->request = request;
    http->answer = answer;
    http->wish = MH_HTTP_ON;
    *http->problem = '\0';
    (void)snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)request->offset,
                   (unsigned long long)(request->offset + request->bytes - 1));
    (void)curl_easy_setopt(http->easy, CURLOPT_URL, http->url);
    (void)curl_easy_setopt(http->easy, CURLOPT_RANGE, range);
    CURLcode code = curl_easy_perform(http->easy);
    (void)curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
    if (http->wish == MH_HTTP_STOP)
        return mh_fail(err, MH_ERR_CLOSED, "stopped");
    bool ended = code == CURLE_WRITE_ERROR || code == CURLE_ABORTED_BY_CALLBACK;
    if (code != CURLE_OK && !(ended && http->wish == MH_HTTP_ENOUGH))
        return fail(http, code, status, err);
    if (ended && answer->came == 0)
        return MH_OK; /* before it was answered */
    if (status != 200 && status != 206)
        return mh_fail(err, MH_ERR_IO, "%.300s: the server answers %ld", http->shown, status);
    if (curl_easy_getinfo(http->easy, CURLINFO_NUM_CONNECTS, &connects) == CURLE_OK &&
        connects > 0 &&
        curl_easy_getinfo(http->easy, CURLINFO_PRETRANSFER_TIME_T, &connected_us) == CURLE_OK)
        answer->connected_ns = (uint64_t)connected_us * 1000;
    answer->ranged = status == 206;
    remember_place(http);
    return MH_OK;
}

static const char *shown_one(const mh_http *http)
{
    return http->shown;
}

const mh_net mh_net_curl = {
    .version = MH_NET_VERSION,
    .open = open_one,
    .get = get_one,
    .shown = shown_one,
    .close = close_one,
    .transport = &mh_transport_curl,
};
