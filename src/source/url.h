/* url.h - the parts of http(s) and s3 addresses
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_SOURCE_URL_H
#define MH_SOURCE_URL_H

#include <stdbool.h>
#include <stddef.h>

/* Points into the text. */
typedef struct mh_url {
    const char *scheme, *host, *rest; /* host without user, with the port; rest: "/path?query" */
    size_t scheme_length, host_length;
} mh_url;

/* False: it is not SCHEME://HOST... */
bool mh_url_parse(mh_url *out, const char *text);

bool mh_url_is_scheme(const mh_url *url, const char *scheme);

/* Where a Location leads from `base`, into `out`. False: to no http(s) address, from https to http,
 * or it does not fit. */
bool mh_url_resolve(char *out, size_t room, const char *base, const char *location);

/* The URL with what may not be in one (blanks, control characters, bytes above ASCII) encoded. What
 * is encoded already stays. False: it does not fit. */
bool mh_url_escape(char *out, size_t room, const char *text);

#endif
