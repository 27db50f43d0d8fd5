/* progress.h - one line on a terminal that says how far a command is, and how long it still takes
 * SPDX-License-Identifier: Apache-2.0
 *
 * Written to standard error, over and over in place, and removed at the end. Nothing is written
 * where that is no terminal, where TERM is "dumb", or for what is done within a second.
 */
#ifndef MILLHEAD_CLI_PROGRESS_H
#define MILLHEAD_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mh_progress {
    char what[64]; /* "reading run" */
    double began;  /* seconds */
    double share;  /* that was shown */
    bool terminal, shown;
} mh_progress;

/* Begins; WHAT and NAME ("reading", a path) are what the line starts with. */
void mh_progress_begin(mh_progress *progress, const char *what, const char *name);

/* So much is done, 0..1. What was shown is not taken back where it turns out to be less. */
void mh_progress_show(mh_progress *progress, double share);

/* The same as what mh_run_read and mh_page_add call; always 0: go on. */
int mh_progress_bytes(void *progress, uint64_t bytes, uint64_t all);

/* Removes the line. */
void mh_progress_end(mh_progress *progress);

#endif
