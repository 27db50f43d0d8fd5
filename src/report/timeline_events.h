/* timeline_events.h - events of a run on their way to a timeline
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_REPORT_TIMELINE_EVENTS_H
#define MH_REPORT_TIMELINE_EVENTS_H

#include "diagnose/run_reader.h"
#include "report/timeline.h"

/* How long something took that happens a few times only. */
typedef struct mh_rare {
    uint32_t loader;
    mh_lane_kind kind; /* setup or epoch */
    uint64_t ns;
} mh_rare;

typedef struct mh_gather {
    mh_timeline *timeline;
    size_t spans;
    mh_records looks; /* the last look at each process, device and the machine */
    mh_records rows;  /* Earthmover's processes, and the row each is drawn in */
    int64_t row_workers;
    uint64_t earth_open[2]; /* when its setup and its epoch began; UINT64_MAX: not told */
    uint32_t row_count;
    uint64_t row_used[MH_TIMELINE_ROWS]; /* when each was last drawn in */
    uint64_t looked, looked_before;      /* the last two looks at a main process; 0: none */
    uint64_t shared[2]; /* of a worker and of a main process: memory that is others' too */
    int64_t batches;    /* reported so far */
    mh_rare *rare;
    size_t rare_count, rare_room;
} mh_gather;

/* The timeline is the caller's. */
void mh_gather_init(mh_gather *gather, mh_timeline *timeline, size_t spans);
void mh_gather_deinit(mh_gather *gather);

/* For mh_run_read_observed; the gatherer must not move meanwhile. */
mh_run_observer mh_gather_observer(mh_gather *gather);

#endif
