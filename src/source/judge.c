/* judge.c - what an answer of a server means, and what to do next
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/judge.h"

#include "base/error.h"
#include "source/redact.h"
#include "source/xml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- versions --- */

/* Without quotes: some servers list ETags without them. */
static uint64_t mixed(uint64_t state, const char *text)
{
    for (; *text; text++)
        if (*text != '"')
            state = (state ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return state;
}

uint64_t mh_etag_version(const char *etag)
{
    if (strncmp(etag, "W/", 2) == 0)
        etag += 2;
    if (!*etag)
        return 0;
    uint64_t version = mixed(UINT64_C(0xcbf29ce484222325), etag);
    return version ? version : 1;
}

uint64_t mh_answer_version(const mh_exchange *exchange)
{
    if (*exchange->etag)
        return mh_etag_version(exchange->etag);
    if (!*exchange->modified)
        return 0;
    uint64_t version = mixed(UINT64_C(0xcbf29ce484222325), exchange->modified) ^
                       exchange->total * UINT64_C(0x9E3779B97F4A7C15);
    return version ? version : 1;
}

/* --- no answer --- */

static const char *proxy_variable(void)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy",
                                        "ALL_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return names[i];
    }
    return NULL;
}

static void fail_no_server(const char *shown, const char *problem, mh_error *err)
{
    const char *proxy = proxy_variable();
    (void)mh_fail(err, MH_ERR_IO, "cannot reach the server of %.200s: %.120s: check the host%s%s",
                  shown, problem, proxy ? ", the network and the proxy in " : " and the network",
                  proxy ? proxy : "");
}

static mh_answer_kind judge_unanswered(const mh_exchange *exchange, const mh_expected *expected,
                                       mh_error *err)
{
    const char *shown = expected->shown;
    char problem[sizeof exchange->problem];
    memcpy(problem, exchange->problem, sizeof problem);
    problem[sizeof problem - 1] = '\0';
    mh_redact(problem);
    switch (exchange->outcome) {
    case MH_OUTCOME_NO_SERVER:
        fail_no_server(shown, problem, err);
        return MH_ANSWER_FAULT;
    case MH_OUTCOME_UNTRUSTED:
        (void)mh_fail(err, MH_ERR_IO,
                      "%.200s: the server's certificate does not verify (%.120s): give its CA in "
                      "SSL_CERT_FILE or the storage option ca_file",
                      shown, problem);
        return MH_ANSWER_BAD;
    case MH_OUTCOME_SILENT:
        /* not MH_ERR_TIMEOUT, which says of a loader that its batch is still to come */
        (void)mh_fail(err, MH_ERR_IO,
                      "%.200s: the server is silent after %llu bytes: raise the storage option "
                      "timeout if it is only slow",
                      shown, (unsigned long long)exchange->came);
        return MH_ANSWER_FAULT;
    case MH_OUTCOME_LINK_LOCAL:
        (void)mh_fail(err, MH_ERR_INVALID,
                      "%.200s leads to a link-local address: set the storage option "
                      "link_local=true if that is meant",
                      shown);
        return MH_ANSWER_BAD;
    case MH_OUTCOME_UNRANGED:
        (void)mh_fail(err, MH_ERR_UNSUPPORTED,
                      "%.200s: the server gives whole objects only, no ranges: copy it with "
                      "millhead stage first",
                      shown);
        return MH_ANSWER_FAULT; /* perhaps a proxy did: it is asked again */
    case MH_OUTCOME_FAILED:
        (void)mh_fail(err, MH_ERR_IO, "%.200s: %.150s", shown, problem);
        return MH_ANSWER_BAD;
    default:
        (void)mh_fail(err, MH_ERR_IO, "%.200s: the answer ends after %llu bytes: %.120s", shown,
                      (unsigned long long)exchange->came, problem);
        return MH_ANSWER_FAULT;
    }
}

/* --- errors of S3, by their code --- */

typedef struct s3_problem {
    const char *code;
    mh_answer_kind kind;
    mh_status status;
    const char *todo;
} s3_problem;

static const s3_problem s3_problems[] = {
    {"InvalidAccessKeyId", MH_ANSWER_BAD, MH_ERR_IO,
     "the server does not know this access key: check key= or AWS_ACCESS_KEY_ID"},
    {"SignatureDoesNotMatch", MH_ANSWER_BAD, MH_ERR_IO,
     "the secret does not belong to the access key: check secret= or AWS_SECRET_ACCESS_KEY"},
    {"ExpiredToken", MH_ANSWER_EXPIRED, MH_ERR_IO,
     "the session token has expired: get a new one and set token= or AWS_SESSION_TOKEN"},
    {"InvalidToken", MH_ANSWER_EXPIRED, MH_ERR_IO,
     "the session token is not valid: check token= or AWS_SESSION_TOKEN"},
    {"TokenRefreshRequired", MH_ANSWER_EXPIRED, MH_ERR_IO,
     "the session token has to be renewed: get a new one and set token= or AWS_SESSION_TOKEN"},
    {"RequestTimeTooSkewed", MH_ANSWER_BAD, MH_ERR_IO,
     "this machine's clock differs too much from the server's: set the clock"},
    {"NoSuchBucket", MH_ANSWER_BAD, MH_ERR_NOT_FOUND,
     "there is no such bucket: check its name, endpoint_url= and region="},
    {"NoSuchKey", MH_ANSWER_BAD, MH_ERR_NOT_FOUND, "there is no such object"},
    {"InvalidObjectState", MH_ANSWER_BAD, MH_ERR_IO,
     "the object is in an archive (Glacier): restore it first"},
    {"RequestTimeout", MH_ANSWER_FAULT, MH_ERR_IO, "the server timed out"},
    {"SlowDown", MH_ANSWER_THROTTLE, MH_ERR_IO, "the server asks for fewer requests"},
};

static mh_answer_kind judge_region(const mh_expected *expected, const char *region, mh_error *err)
{
    if (*region)
        (void)mh_fail(err, MH_ERR_IO, "%.200s: the bucket is in another region: set region=%.60s",
                      expected->shown, region);
    else
        (void)mh_fail(err, MH_ERR_IO,
                      "%.200s: the bucket is in another region: set region= to the bucket's",
                      expected->shown);
    return MH_ANSWER_BAD;
}

static mh_answer_kind judge_denied(const mh_expected *expected, mh_error *err)
{
    (void)mh_fail(err, MH_ERR_IO, "%.200s: access denied: %s", expected->shown,
                  expected->signed_request
                      ? "these credentials may not read it: check the bucket's policy and profile="
                      : "it is not public: give key= and secret=, or a profile");
    err->sys_errno = EACCES;
    return MH_ANSWER_BAD;
}

/* Whether the code says more than the status; then *out is what to do. */
static bool judge_s3_code(const mh_exchange *exchange, const mh_expected *expected,
                          mh_answer_kind *out, mh_error *err)
{
    char code[64] = "", region[64] = "";
    if (!mh_xml_find(exchange->text, exchange->text_size, "Code", code, sizeof code))
        return false;
    (void)mh_xml_find(exchange->text, exchange->text_size, "Region", region, sizeof region);
    for (size_t i = 0; i < sizeof s3_problems / sizeof *s3_problems; i++)
        if (strcmp(s3_problems[i].code, code) == 0) {
            (void)mh_fail(err, s3_problems[i].status, "%.200s: %s", expected->shown,
                          s3_problems[i].todo);
            *out = s3_problems[i].kind;
            return true;
        }
    if (strcmp(code, "AuthorizationHeaderMalformed") == 0 ||
        strcmp(code, "PermanentRedirect") == 0 || strcmp(code, "TemporaryRedirect") == 0 ||
        strcmp(code, "IllegalLocationConstraintException") == 0) {
        *out = judge_region(expected, *exchange->region ? exchange->region : region, err);
        return true;
    }
    return false;
}

/* --- an answer that is no success --- */

static mh_answer_kind judge_status(const mh_exchange *exchange, const mh_expected *expected,
                                   mh_error *err)
{
    mh_answer_kind kind;
    int status = exchange->status;
    if (expected->s3 && judge_s3_code(exchange, expected, &kind, err))
        return kind;
    if (status >= 300 && status < 400 && *exchange->region)
        return judge_region(expected, exchange->region, err);
    if (status >= 300 && status < 400 && *exchange->location)
        return MH_ANSWER_REDIRECT;
    if (status == 404 || status == 410) {
        (void)mh_fail(err, MH_ERR_NOT_FOUND, "there is no %.300s", expected->shown);
        return MH_ANSWER_BAD;
    }
    if (status == 412) {
        (void)mh_fail(err, MH_ERR_IO, "%.200s changed while it was read: open it again",
                      expected->shown);
        return MH_ANSWER_CHANGED;
    }
    if (status == 401 || status == 403)
        return judge_denied(expected, err);
    char code[64] = "";
    if (expected->s3)
        (void)mh_xml_find(exchange->text, exchange->text_size, "Code", code, sizeof code);
    (void)mh_fail(err, MH_ERR_IO, "%.200s: the server answers %d%s%s", expected->shown, status,
                  *code ? " " : "", code);
    if (status == 429 || status == 503)
        return MH_ANSWER_THROTTLE;
    return status >= 500 || status == 408 ? MH_ANSWER_FAULT : MH_ANSWER_BAD;
}

/* --- a success: are these the bytes that were asked for? --- */

static mh_answer_kind judge_length(const mh_exchange *exchange, const mh_expected *expected,
                                   mh_error *err)
{
    bool open_end = expected->whole || expected->first_bytes;
    uint64_t there = exchange->total;
    uint64_t wanted = exchange->room;
    if (open_end && there != UINT64_MAX)
        wanted = there > exchange->first ? there - exchange->first : 0;
    if (wanted > exchange->room)
        wanted = exchange->room;
    if (exchange->came == wanted || (open_end && there == UINT64_MAX))
        return MH_ANSWER_GOOD;
    if (there != UINT64_MAX && !open_end && exchange->first + exchange->room > there) {
        (void)mh_fail(err, MH_ERR_IO, "%.200s ends at byte %llu: open it again", expected->shown,
                      (unsigned long long)there);
        return MH_ANSWER_CHANGED;
    }
    (void)mh_fail(err, MH_ERR_IO, "%.200s: %llu bytes came where %llu were asked for",
                  expected->shown, (unsigned long long)exchange->came, (unsigned long long)wanted);
    return MH_ANSWER_FAULT;
}

static mh_answer_kind judge_success(const mh_exchange *exchange, const mh_expected *expected,
                                    mh_error *err)
{
    uint64_t version = mh_answer_version(exchange);
    if (strcmp(exchange->method, "HEAD") == 0)
        return MH_ANSWER_GOOD;
    if (exchange->encoded) {
        (void)mh_fail(err, MH_ERR_UNSUPPORTED,
                      "%.200s: the server sends it compressed (Content-Encoding): store it without",
                      expected->shown);
        return MH_ANSWER_FAULT;
    }
    if ((exchange->status == 206 || exchange->range_first != UINT64_MAX) &&
        exchange->range_first != exchange->first) {
        (void)mh_fail(err, MH_ERR_IO, "%.200s: the server sends another range than byte %llu on",
                      expected->shown, (unsigned long long)exchange->first);
        return MH_ANSWER_FAULT;
    }
    if (expected->version && version && version != expected->version) {
        (void)mh_fail(err, MH_ERR_IO, "%.200s changed since the dataset was opened: open it again",
                      expected->shown);
        return MH_ANSWER_CHANGED;
    }
    if (expected->whole && exchange->total != UINT64_MAX && exchange->total > exchange->room) {
        (void)mh_fail(err, MH_ERR_CORRUPT, "%.200s has %llu bytes, more than the %llu it may have",
                      expected->shown, (unsigned long long)exchange->total,
                      (unsigned long long)exchange->room);
        return MH_ANSWER_BAD;
    }
    return judge_length(exchange, expected, err);
}

mh_answer_kind mh_answer_judge(const mh_exchange *exchange, const mh_expected *expected,
                               mh_error *err)
{
    if (exchange->outcome == MH_OUTCOME_TOO_LONG) {
        if (expected->whole) {
            (void)mh_fail(err, MH_ERR_CORRUPT, "%.200s has more than the %llu bytes it may have",
                          expected->shown, (unsigned long long)exchange->room);
            return MH_ANSWER_BAD;
        }
        if (expected->first_bytes)
            return MH_ANSWER_GOOD;
    }
    if (exchange->outcome != MH_OUTCOME_ANSWERED)
        return judge_unanswered(exchange, expected, err);
    if (exchange->status == 200 || exchange->status == 206)
        return judge_success(exchange, expected, err);
    /* a range of an object without bytes cannot be satisfied, and that is all of it */
    if (exchange->status == 416 && (expected->whole || expected->first_bytes) &&
        exchange->first == 0)
        return MH_ANSWER_GOOD;
    if (exchange->status == 416) {
        (void)mh_fail(err, MH_ERR_IO, "%.200s ends before byte %llu: open it again",
                      expected->shown, (unsigned long long)exchange->first);
        return MH_ANSWER_CHANGED;
    }
    return judge_status(exchange, expected, err);
}
