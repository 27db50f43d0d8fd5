/* sigv4.h - signing requests to S3: AWS Signature Version 4
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions. A request is signed over exactly the bytes that are sent: its target is encoded
 * once, by mh_sigv4_target, and the same text goes into the URL and into the signature.
 */
#ifndef MH_SOURCE_SIGV4_H
#define MH_SOURCE_SIGV4_H

#include "base/sha256.h"
#include <stdbool.h>

/* A parameter of the query, not encoded. */
typedef struct mh_query_pair {
    const char *name, *value;
} mh_query_pair;

#define MH_QUERY_PAIRS_MOST 16

/* "/bucket/key%20name?list-type=2&prefix=a%2Fb": the path encoded once, the query encoded and
 * sorted. False: it does not fit into `room`, or there are too many pairs. */
bool mh_sigv4_target(char *out, size_t room, const char *path, const mh_query_pair *query,
                     size_t query_count);

/* RFC 3986: all but letters, digits and "-._~" become %XX; '/' stays where `keep_slash`. False: it
 * does not fit. */
bool mh_percent_encode(char *out, size_t room, const char *text, bool keep_slash);

/* Who signs. Texts are the caller's. */
typedef struct mh_sigv4_keys {
    const char *key, *secret;
    const char *token; /* of a session; NULL or "": none */
} mh_sigv4_keys;

/* What is signed: a request without a body. */
typedef struct mh_sigv4_request {
    const char *method;
    const char *host;   /* as the Host header has it: with the port where it is not the default */
    const char *target; /* of mh_sigv4_target */
    const char *region;
    const char *service; /* "s3" */
    int64_t when;        /* seconds since 1970, from 1970 to 9999 */
} mh_sigv4_request;

/* The key derived from secret, day, region and service: the same for all requests of a day. Zeroed
 * at first; one thread at a time. */
typedef struct mh_sigv4_day {
    uint8_t of[MH_SHA256_BYTES]; /* what it was derived from */
    uint8_t key[MH_SHA256_BYTES];
} mh_sigv4_day;

/* The headers that a signed request carries, besides x-amz-security-token with the token. */
typedef struct mh_sigv4_headers {
    char date[17];           /* x-amz-date */
    char authorization[512]; /* Authorization */
} mh_sigv4_headers;

/* x-amz-content-sha256 of every request: the hash of no body. */
#define MH_SIGV4_NO_BODY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* False: key or region are too long for a header. */
bool mh_sigv4_sign(mh_sigv4_headers *out, mh_sigv4_day *day, const mh_sigv4_request *request,
                   const mh_sigv4_keys *keys);

#endif
