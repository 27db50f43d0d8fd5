/* http.c - addresses, and the way to the library that reads them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/http.h"

#include "base/error.h"
#include "source/net.h"
#include <ctype.h>
#include <string.h>
#include <strings.h>

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

mh_status mh_http_open(mh_http **out, const char *url, mh_error *err)
{
    if (!is_http(url))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "'%.200s' is not an http:// or https:// URL", url);
    const mh_net *table = mh_net_load(err);
    return table ? table->open(out, url, err) : MH_ERR_UNSUPPORTED;
}

/* Whoever has an mh_http has loaded it. */
mh_status mh_http_get(mh_http *http, const mh_http_request *request, mh_http_answer *answer,
                      mh_error *err)
{
    return mh_net_load(NULL)->get(http, request, answer, err);
}

const char *mh_http_shown(const mh_http *http)
{
    return mh_net_load(NULL)->shown(http);
}

void mh_http_close(mh_http *http)
{
    if (http)
        mh_net_load(NULL)->close(http);
}
