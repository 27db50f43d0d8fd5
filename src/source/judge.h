/* judge.h - what an answer of a server means, and what to do next
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure: an exchange that is over and what was expected of it, in; what to do and the words for the
 * user, out.
 */
#ifndef MH_SOURCE_JUDGE_H
#define MH_SOURCE_JUDGE_H

#include "source/transport.h"

typedef enum mh_answer_kind {
    MH_ANSWER_GOOD,
    MH_ANSWER_FAULT,    /* ask again: it may pass */
    MH_ANSWER_THROTTLE, /* ask again, and ask less often */
    MH_ANSWER_REDIRECT, /* ask there */
    MH_ANSWER_EXPIRED,  /* ask again with fresh credentials */
    MH_ANSWER_CHANGED,  /* the object is another now: *err says so */
    MH_ANSWER_BAD,      /* it will not get better: *err says why */
} mh_answer_kind;

/* What is known of the object before the answer. */
typedef struct mh_expected {
    const char *shown; /* its name without secrets, for messages */
    bool s3;           /* errors are XML of S3 */
    bool whole;        /* however many bytes there are up to the room */
    bool first_bytes;  /* as many bytes as there are up to the room; the object may have more */
    bool signed_request;
    uint64_t version; /* of mh_answer_version; 0: any */
} mh_expected;

/* *err is filled for every kind but GOOD and REDIRECT: also a fault has words, for when patience
 * ends. */
mh_answer_kind mh_answer_judge(const mh_exchange *exchange, const mh_expected *expected,
                               mh_error *err);

/* A number for the version of the object that an answer is about: from its ETag, or else from its
 * date and size; 0: the server says nothing about it. */
uint64_t mh_answer_version(const mh_exchange *exchange);

/* The same from an ETag, as listings have it. */
uint64_t mh_etag_version(const char *etag);

#endif
