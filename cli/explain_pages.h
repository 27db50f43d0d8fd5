/* explain_pages.h - docs/verdicts/, put into the command by tools/embed-pages
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_EXPLAIN_PAGES_H
#define MILLHEAD_CLI_EXPLAIN_PAGES_H

#include <stddef.h>

typedef struct mh_explain_page {
    const char *name; /* "cpu-bound" */
    const char *text; /* Markdown; its first line is "# cpu-bound: what it is in a sentence" */
} mh_explain_page;

extern const mh_explain_page mh_explain_pages[];
extern const size_t mh_explain_page_count;

#endif
