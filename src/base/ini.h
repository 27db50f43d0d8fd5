/* ini.h - files of sections with "key = value" lines, as ~/.aws/credentials is
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BASE_INI_H
#define MH_BASE_INI_H

#include <stdbool.h>
#include <stddef.h>

/* The value of `key` in "[section]", without blanks around it, into `out` of `room` bytes. Where
 * the key is there twice, the last one counts. False: it is not there, or does not fit. Lines that
 * begin with '#' or ';', and lines that are indented (nested settings), are passed over. Pure;
 * `text` need not end in NUL. */
bool mh_ini_find(const char *text, size_t size, const char *section, const char *key, char *out,
                 size_t room);

/* Whether there is such a section. */
bool mh_ini_has(const char *text, size_t size, const char *section);

#endif
