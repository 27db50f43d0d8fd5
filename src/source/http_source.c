/* http_source.c - what is behind http(s) addresses
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "source/remote.h"
#include "source/url.h"

#include <string.h>

static mh_status http_address(void *context, const mh_request *request, mh_attempt *attempt,
                              mh_error *err)
{
    mh_url url;
    (void)context;
    const char *from = *request->redirected ? request->redirected : request->name;
    mh_attempt_clear(attempt);
    if (!mh_url_parse(&url, from))
        return mh_fail(err, MH_ERR_INVALID, "%.200s has no host: write https://HOST/PATH",
                       request->shown);
    bool fits = mh_url_escape(attempt->url, sizeof attempt->url, from) &&
                (!*request->if_match || mh_attempt_header(attempt, "If-Match", request->if_match));
    return fits ? MH_OK : mh_fail(err, MH_ERR_INVALID, "%.200s... is too long", request->shown);
}

static mh_status http_place_open(void **out, const mh_storage *storage, mh_error *err)
{
    static int nothing; /* an address says all by itself */
    (void)storage;
    (void)err;
    *out = &nothing;
    return MH_OK;
}

static void http_place_close(void *place)
{
    (void)place;
}

const mh_remote_type mh_remote_http = {
    .source = &mh_source_http,
    .addressing = {.address = http_address},
    .open = http_place_open,
    .close = http_place_close,
};

static mh_status http_stat(mh_object *object, const mh_source_options *options, mh_error *err)
{
    return mh_remote_stat(&mh_remote_http, object, options, err);
}

static mh_status http_get(const char *name, const mh_source_options *options, uint64_t most,
                          uint8_t *into, uint64_t *got, mh_error *err)
{
    return mh_remote_get(&mh_remote_http, name, options, most, into, got, err);
}

static mh_status http_open(mh_source **out, const mh_objects *objects,
                           const mh_source_options *options, mh_error *err)
{
    return mh_remote_source_open(out, &mh_remote_http, objects, options, err);
}

const mh_source_type mh_source_http = {
    .name = "http",
    .schemes = "http https",
    .what = "http(s) addresses, with ranges",
    .stat = http_stat,
    .get = http_get,
    .open = http_open,
    .read = mh_remote_read,
    .submit = mh_remote_submit,
    .stats = mh_remote_stats,
    .close = mh_remote_source_close,
};
