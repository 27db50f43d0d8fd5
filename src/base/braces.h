/* braces.h - names with ranges of numbers: "train-{000..099}.npy" is a hundred of them
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_BASE_BRACES_H
#define MH_BASE_BRACES_H

#include <millhead/error.h>
#include <stdbool.h>

/* Whether there is a range in it: two numbers in braces, with two dots between them. */
bool mh_braces_has(const char *text);

/* Adds the names that `text` stands for to a list of *count names, which grows; the first range
 * changes last. Numbers are as wide as the wider one where one of them begins with a 0. What is no
 * range stays as it is. Free with mh_braces_free, also on failure. MH_ERR_INVALID: a range that
 * goes down, over `most` names in the list, a name of 4096 bytes; MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_braces_expand(char ***list, size_t *count, const char *text, size_t most,
                                         mh_error *err);
/* Adds one name as it is. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_braces_add(char ***list, size_t *count, const char *text, mh_error *err);
void mh_braces_free(char **list, size_t count);

#endif
