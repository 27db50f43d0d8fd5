/* suggest.h - "did you mean": the known name that a mistyped one is closest to
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_SUGGEST_H
#define MILLHEAD_CLI_SUGGEST_H

#include <stddef.h>

/* The name most like `given`, one of names[]; NULL where none is close enough to be meant. */
const char *mh_cli_closest(const char *given, const char *const *names, size_t count);

/* What to do about an unknown name: "did you mean 'doctor'?", or `otherwise`. The text is kept
 * until the next call. */
const char *mh_cli_did_you_mean(const char *given, const char *const *names, size_t count,
                                const char *otherwise);

#endif
