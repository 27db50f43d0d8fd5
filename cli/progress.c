/* progress.c - how far a command is, on a terminal
 * SPDX-License-Identifier: Apache-2.0
 */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR_COLUMNS = 20 };

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void mh_progress_begin(mh_progress *progress, const char *what, const char *name)
{
    const char *terminal = getenv("TERM");
    /* The end of a long path says more than its beginning. */
    size_t length = strlen(name), most = 40;
    (void)snprintf(progress->what, sizeof progress->what, "%s %s%s", what,
                   length > most ? "..." : "", length > most ? name + length - most : name);
    for (char *at = progress->what; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?'; /* a name moves no cursor */
    progress->began = now_s();
    progress->terminal = isatty(STDERR_FILENO) && !(terminal && strcmp(terminal, "dumb") == 0);
    progress->share = 0;
    progress->shown = false;
}

void mh_progress_show(mh_progress *progress, double share)
{
    static const char full[BAR_COLUMNS + 1] = "====================";
    double since = now_s() - progress->began;
    if (!progress->terminal || since < 1 || !(share > 0))
        return;
    if (share > 1)
        share = 1;
    if (share < progress->share)
        share = progress->share;
    progress->share = share;
    (void)fprintf(stderr, "\r%s [%-*.*s] %3.0f %%, %.0f s left\033[K", progress->what, BAR_COLUMNS,
                  (int)(share * BAR_COLUMNS), full, 100 * share, since * (1 - share) / share);
    (void)fflush(stderr);
    progress->shown = true;
}

int mh_progress_bytes(void *progress, uint64_t bytes, uint64_t all)
{
    if (all)
        mh_progress_show(progress, (double)bytes / (double)all);
    return 0;
}

void mh_progress_end(mh_progress *progress)
{
    if (progress->shown)
        (void)fprintf(stderr, "\r\033[K");
    progress->share = 0;
    progress->shown = false;
}
