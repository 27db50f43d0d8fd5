/* event_lines.h - events as lines of JSON (docs/events.md), kept until they are written together
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_METRICS_EVENT_LINES_H
#define MH_METRICS_EVENT_LINES_H

#include "sys/thread_clock.h"

#include <stdbool.h>
#include <stddef.h>

/* Lines that are not written yet. All zero: none. One thread at a time. */
typedef struct mh_lines {
    char *text;
    size_t used, room;
    size_t begun;   /* where the last line begins */
    bool cut;       /* there was no memory for a part of it */
    uint64_t taken; /* when mh_lines_due last said yes */
    uint32_t forks; /* mh_fork_generation when they were begun */
} mh_lines;

/* A line is begun, given its keys and ended. Without memory for all of it a line is dropped: events
 * may be lost. The head of an event that took from one reading to another:
 * {"event":"wait","t":1,"ns":2,"cpu":1... */
void mh_lines_begin(mh_lines *lines, const char *event, mh_reading began, mh_reading ended);
void mh_lines_begin_at(mh_lines *lines, const char *event, uint64_t t, uint64_t ns); /* no CPU */
void mh_lines_put(mh_lines *lines, const char *key, long long value);
void mh_lines_end(mh_lines *lines);
void mh_lines_append(mh_lines *lines, const mh_lines *others); /* whole lines */

/* All lines, which are then forgotten: the text lasts until the next line begins. Not ended by 0;
 * NULL where there never was a line. A forked child gets none of its parent's. */
const char *mh_lines_take_text(mh_lines *lines, size_t *out_bytes);

/* True a few times a second, or when there are many: writing is dear in a loop that comes to it
 * once in some milliseconds and finds the caches cold. */
bool mh_lines_due(mh_lines *lines, uint64_t now_ns);

void mh_lines_free(mh_lines *lines);

#endif
