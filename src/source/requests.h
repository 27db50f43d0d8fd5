/* requests.h - requests that are made until they succeed or patience ends
 * SPDX-License-Identifier: Apache-2.0
 *
 * Above a transport, below the sources: it keeps a number of requests under way, repeats those that
 * fail, slows down when a server says so, asks twice where an answer is late, follows redirects and
 * keeps credentials fresh. Nearly everything happens on the transport's thread.
 */
#ifndef MH_SOURCE_REQUESTS_H
#define MH_SOURCE_REQUESTS_H

#include "source/judge.h"
#include "source/sigv4.h"
#include "source/source.h"
#include "source/transport.h"

#define MH_SEGMENTS_MOST 64u
#define MH_HEADERS_ROOM 6144 /* all headers of one request */

typedef struct mh_request mh_request;

/* What it takes to make one attempt; written anew for each. */
typedef struct mh_attempt {
    char url[MH_URL_ROOM];
    char lines[MH_HEADERS_ROOM];
    size_t lines_used;
    const char *headers[MH_HEADERS_MOST + 1]; /* lines of it, then NULL */
    size_t header_count;
    mh_exchange exchange;
    mh_request *request;
    bool active;
    uint8_t *buffer; /* of a second attempt beside the first: its bytes; NULL: they go in place */
    mh_segment whole_buffer;
} mh_attempt;

struct mh_request {
    /* --- what is wanted; set by whoever makes it --- */
    const char *method;
    char name[MH_NAME_MOST];    /* of the object, or the bucket or host that is asked */
    const mh_query_pair *query; /* of S3's calls */
    size_t query_count;
    bool ranged;
    uint64_t first, room; /* as in mh_exchange */
    mh_segment segments[MH_SEGMENTS_MOST];
    size_t segment_count;
    char if_match[MH_ETAG_ROOM]; /* "": whatever version is there */
    mh_expected expected;        /* `shown` and `s3` are filled here */
    /* On the transport's thread; err is NULL where the answer, in request->answer, is good. Then
     * the request is the maker's again, who may not begin it from there. */
    void (*over)(mh_request *request, const mh_error *err);
    void *context;

    /* --- the answer --- */
    const mh_exchange *answer;

    /* --- requests.c's; 0 at first --- */
    mh_request *next, *previous;
    char shown[512];
    mh_attempt first_try, second_try; /* the second beside the first, where that is late */
    char redirected[MH_URL_ROOM];     /* "": not */
    uint32_t attempts, redirects;
    bool refreshed; /* with credentials that are fresh */
    uint64_t began_ns, due_ns;
};

/* How objects become URLs, and who is asking. One for http, one for S3. */
typedef struct mh_addressing {
    bool s3;
    /* Fills url and headers of the attempt, anew for each attempt. MH_ERR_INVALID. */
    mh_status (*address)(void *context, const mh_request *request, mh_attempt *attempt,
                         mh_error *err);
    /* Whether requests have to wait for fresh credentials; begins to get them where they are due or
     * `now` says so. *failed: there are none, *err says why. (optional) */
    bool (*waits)(void *context, bool now, bool *failed, mh_error *err);
    /* Takes this place's own secrets out of a message. (optional) */
    void (*redact)(void *context, char *text);
    void *context;
} mh_addressing;

typedef struct mh_requests_options {
    const mh_transport_type *transport;
    const mh_addressing *addressing; /* outlives the requests */
    uint32_t in_flight;
    uint32_t timeout_ms; /* of one request with all its repeats */
    bool link_local;
    const char *ca_file;
    /* The next request, whenever one more may be under way; NULL: none now. On the transport's
     * thread. (optional) */
    mh_request *(*take)(void *context);
    void *context;
} mh_requests_options;

typedef struct mh_requests_stats {
    uint64_t begun, retried, hedged, bytes;
    uint32_t in_flight_peak;
} mh_requests_stats;

typedef struct mh_requests mh_requests;

MH_MUST_CHECK mh_status mh_requests_open(mh_requests **out, const mh_requests_options *options,
                                         mh_error *err);

/* Ends the thread. What was added or taken and is not over ends with MH_ERR_CLOSED, on the calling
 * thread. NULL allowed. */
void mh_requests_close(mh_requests *requests);

/* Makes a request that is over fit to be used again. The rest is set by whoever makes it. */
void mh_request_reset(mh_request *request);

/* Any thread. A single request, before those that are taken. */
void mh_requests_add(mh_requests *requests, mh_request *request);

/* Any thread. There is something to take now, or credentials are fresh. */
void mh_requests_wake(mh_requests *requests);

/* Any thread. */
void mh_requests_stats_read(mh_requests *requests, mh_requests_stats *out);

#endif
