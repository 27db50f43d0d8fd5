/* http.h - reading pieces of a file behind an http(s) address, by libmillhead-net.so
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_HTTP_H
#define MH_SOURCE_HTTP_H

#include <millhead/error.h>
#include <stdbool.h>

/* A connection that is kept for one address. One thread at a time. */
typedef struct mh_http mh_http;

/* What a listener says about going on. */
typedef enum mh_http_wish {
    MH_HTTP_ON,
    MH_HTTP_ENOUGH, /* end the request; what came is good */
    MH_HTTP_STOP,   /* end it as MH_ERR_CLOSED */
} mh_http_wish;

typedef struct mh_http_request {
    uint64_t offset, bytes; /* the range that is asked for; it ends when so many bytes came */
    /* Called, when not NULL, with the bytes that came so far, for every piece of data and about
     * once a second without any. */
    mh_http_wish (*listen)(void *argument, uint64_t came);
    void *argument;
} mh_http_request;

typedef struct mh_http_answer {
    bool ranged;           /* the server gave the range; else the file from its start */
    uint64_t total;        /* bytes of the whole file; 0: not told */
    uint64_t came;         /* bytes of it that came and were thrown away */
    uint64_t connected_ns; /* of the request went to making the connection; 0: it was there */
} mh_http_answer;

/* `url` is copied. Errors: MH_ERR_UNSUPPORTED (neither http nor https; with sys_errno ENOPKG:
 * libcurl is not installed, ELIBACC: libmillhead-net.so is not, or is of another version, ENOSYS:
 * built without libcurl), MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_http_open(mh_http **out, const char *url, mh_error *err);

/* One request. Redirects are followed, and remembered for the requests to come. Silence is taken
 * for MH_HTTP_PATIENCE_S seconds. Errors: MH_ERR_NOT_FOUND (404, 410, or nothing in the file),
 * MH_ERR_IO, MH_ERR_TIMEOUT, MH_ERR_CLOSED. */
#define MH_HTTP_PATIENCE_S 10
MH_MUST_CHECK mh_status mh_http_get(mh_http *http, const mh_http_request *request,
                                    mh_http_answer *answer, mh_error *err);

/* Where the last request ended, without what may be secret: user, password and query. */
const char *mh_http_shown(const mh_http *http);
void mh_http_close(mh_http *http); /* NULL is allowed */

/* Whether a path is a URL: SCHEME://... */
bool mh_http_is_url(const char *path);

#endif
