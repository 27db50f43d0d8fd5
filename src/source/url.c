/* url.c - the parts of http(s) and s3 addresses
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/url.h"

#include "base/text.h"

#include <ctype.h>
#include <strings.h>

bool mh_url_parse(mh_url *out, const char *text)
{
    const char *slashes = strstr(text, "://");
    if (!slashes || slashes == text)
        return false;
    for (const char *at = text; at < slashes; at++)
        if (!isalnum((unsigned char)*at) && !strchr("+-.", *at))
            return false;
    const char *host = slashes + 3;
    size_t authority = strcspn(host, "/?#");
    const char *rest = host + authority, *user_end = memrchr(host, '@', authority);
    if (user_end)
        host = user_end + 1;
    *out = (mh_url){.scheme = text,
                    .scheme_length = (size_t)(slashes - text),
                    .host = host,
                    .host_length = (size_t)(rest - host),
                    .rest = rest};
    return out->host_length > 0 && host[0] != ':';
}

bool mh_url_is_scheme(const mh_url *url, const char *scheme)
{
    return strlen(scheme) == url->scheme_length &&
           strncasecmp(url->scheme, scheme, url->scheme_length) == 0;
}

bool mh_url_resolve(char *out, size_t room, const char *base, const char *location)
{
    mh_url from, to;
    mh_text text = mh_text_in(out, room);
    if (!mh_url_parse(&from, base))
        return false;
    bool absolute = mh_url_parse(&to, location);
    if (!absolute) {
        mh_text_put_bytes(&text, from.scheme, from.scheme_length);
        mh_text_put(&text, ":");
        if (strncmp(location, "//", 2) != 0) {
            mh_text_put(&text, "//");
            mh_text_put_bytes(&text, from.host, from.host_length);
            size_t path = strcspn(from.rest, "?#");
            const char *slash = path ? memrchr(from.rest, '/', path) : NULL;
            if (*location != '/')
                mh_text_put_bytes(&text, slash ? from.rest : "/",
                                  slash ? (size_t)(slash + 1 - from.rest) : 1);
        }
    }
    mh_text_put(&text, location);
    if (text.cut || !mh_url_parse(&to, out))
        return false;
    bool secure = mh_url_is_scheme(&to, "https");
    return secure || (mh_url_is_scheme(&to, "http") && !mh_url_is_scheme(&from, "https"));
}

bool mh_url_escape(char *out, size_t room, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    mh_text url = mh_text_in(out, room);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        const char hex[3] = {'%', digits[c >> 4], digits[c & 15]};
        bool keep = c > 0x20 && c < 0x7f && !strchr("\"<>\\^`{|}", c);
        mh_text_put_bytes(&url, keep ? text : hex, keep ? 1 : 3);
    }
    return !url.cut;
}
