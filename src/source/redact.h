/* redact.h - taking secrets out of whatever is shown: messages, names, logs
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every text that comes from a URL, a header or a server goes through here before anybody sees it.
 * Pure functions.
 */
#ifndef MH_SOURCE_REDACT_H
#define MH_SOURCE_REDACT_H

#include <stddef.h>

/* A URL without user, password, query and fragment; cut to fit. Other texts as they are. */
void mh_redact_url(char *out, size_t room, const char *url);

/* In place, and never longer: values behind names that carry secrets ("Signature=", "X-Amz-...:",
 * "token=") become "***", and URLs lose user, password and query. */
void mh_redact(char *text);

/* In place: every occurrence of `secret` becomes "***". Secrets of fewer than 4 bytes are left. */
void mh_redact_secret(char *text, const char *secret);

#endif
