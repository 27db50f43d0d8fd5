/* timeline.h - when things happened in a run, in memory that does not grow with it
 * SPDX-License-Identifier: Apache-2.0
 *
 * A lane is one kind of thing of one worker or of the loop. What is added to it is kept three ways:
 * exact sums; bins of equal width over the whole run, which double their width when the run
 * outgrows them; and single spans: the first ones of the run until the room is used up, and of each
 * lane the longest ones, so that what is rare and long is never lost in a bin. A series is a
 * quantity over time (CPUs, bytes) in the same bins. Plain memory, one thread at a time.
 */
#ifndef MH_REPORT_TIMELINE_H
#define MH_REPORT_TIMELINE_H

#include "diagnose/records.h"
#include <stdbool.h>

#define MH_TIMELINE_BINS 4096
#define MH_TIMELINE_LONGEST 16 /* of each lane */
#define MH_TIMELINE_LANES 2048 /* what comes after so many is counted, not drawn */
#define MH_TIMELINE_ROWS 512   /* workers of a higher number share the last row */

/* One list: kind, its name in the page's data. */
#define MH_LANE_LIST(X)                                                                            \
    X(MH_LANE_SETUP, "setup")                                                                      \
    X(MH_LANE_FETCH, "fetch")                                                                      \
    X(MH_LANE_SAMPLE, "sample")                                                                    \
    X(MH_LANE_COLLATE, "collate")                                                                  \
    X(MH_LANE_TRANSFER, "transfer")                                                                \
    X(MH_LANE_READ, "read")                                                                        \
    X(MH_LANE_DECODE, "decode")                                                                    \
    X(MH_LANE_PLACE, "place")                                                                      \
    X(MH_LANE_STORAGE, "storage")                                                                  \
    X(MH_LANE_WAIT, "wait")                                                                        \
    X(MH_LANE_TRAIN, "train")                                                                      \
    X(MH_LANE_EPOCH, "epoch")

typedef enum mh_lane_kind {
#define X(kind, name) kind,
    MH_LANE_LIST(X)
#undef X
        MH_LANE_KINDS
} mh_lane_kind;

/* One list: series, its name in the page's data. */
#define MH_SERIES_LIST(X)                                                                          \
    X(MH_SERIES_CPU_MAIN, "cpu_main")                                                              \
    X(MH_SERIES_CPU_WORKERS, "cpu_workers")                                                        \
    X(MH_SERIES_CPU_MACHINE, "cpu_machine")                                                        \
    X(MH_SERIES_MEMORY_MAIN, "memory_main")                                                        \
    X(MH_SERIES_MEMORY_WORKERS, "memory_workers")                                                  \
    X(MH_SERIES_MEMORY_AVAILABLE, "memory_available")                                              \
    X(MH_SERIES_DISK_READ, "disk_read")                                                            \
    X(MH_SERIES_NET_READ, "net_read")                                                              \
    X(MH_SERIES_GPU, "gpu_util")

typedef enum mh_series {
#define X(series, name) series,
    MH_SERIES_LIST(X)
#undef X
        MH_SERIES_COUNT
} mh_series;

const char *mh_lane_name(mh_lane_kind kind);
const char *mh_series_name(mh_series series);

typedef struct mh_bin {
    double covered; /* ns of it that spans lie over; more than its width where they overlap */
    float longest;  /* ns: of the spans that touch it */
    uint32_t count; /* spans that begin in it */
} mh_bin;

typedef struct mh_span {
    uint64_t begin, ns;
    int64_t about; /* the batch or sample it is of; -1: none; or how many tasks it holds */
    uint32_t lane; /* its number */
} mh_span;

typedef struct mh_lane {
    mh_record_key key; /* loader, kind, worker, 0 */
    uint64_t count, total, max;
    uint64_t tasks; /* in its spans; where they have none, as count */
    mh_bin *bins;
    mh_span longest[MH_TIMELINE_LONGEST]; /* in no order */
    uint32_t longest_count;
} mh_lane;

/* Single spans, the first `most` of them. */
typedef struct mh_spans {
    mh_span *items;
    size_t count, room, most;
    uint64_t until; /* spans that begin earlier are all there; UINT64_MAX: all are */
} mh_spans;

typedef struct mh_timeline {
    uint64_t base, width; /* of the bins; the base is a multiple of the width */
    uint64_t first, last; /* of all that was added */
    mh_records lanes;     /* of mh_lane */
    uint64_t left_out;    /* spans for which there was no lane any more */
    mh_spans work, loop;  /* of workers; of the loop */
    uint32_t cpus;        /* of the machine; 0: not known */
    double *series[MH_SERIES_COUNT];
    uint64_t series_first[MH_SERIES_COUNT], series_last[MH_SERIES_COUNT];
} mh_timeline;

/* At most `spans` single spans of workers and as many of the loop. */
void mh_timeline_init(mh_timeline *timeline, size_t spans);
void mh_timeline_deinit(mh_timeline *timeline);

/* Adds what a worker (-1: the loop) did. 0: no memory. */
MH_MUST_CHECK int mh_timeline_add(mh_timeline *timeline, uint32_t loader, mh_lane_kind kind,
                                  int64_t worker, uint64_t begin, uint64_t ns, int64_t about);

/* Adds `amount`, evenly spread from begin to end: a process's CPU time, or bytes times ns.
 * 0: no memory. */
MH_MUST_CHECK int mh_timeline_weigh(mh_timeline *timeline, mh_series series, uint64_t begin,
                                    uint64_t end, double amount);

/* The mean of a series over the bins [bin, bin + many), as far as it was seen; NAN: not at all. No
 * more CPUs than there are: the kernel counts them in ticks, some a little late. */
double mh_timeline_mean(const mh_timeline *timeline, mh_series series, size_t bin, size_t many);

/* Where the single spans of a lane are: among the workers', or the loop's. */
const mh_spans *mh_lane_spans(const mh_timeline *timeline, const mh_lane *lane);

/* Whether a span stands for many tasks of a native loader. */
static inline bool mh_lane_has_tasks(mh_lane_kind kind)
{
    return kind == MH_LANE_READ || kind == MH_LANE_DECODE || kind == MH_LANE_PLACE ||
           kind == MH_LANE_STORAGE;
}

static inline mh_lane *mh_timeline_lane(const mh_timeline *timeline, size_t number)
{
    return mh_records_at(&timeline->lanes, number);
}

static inline mh_lane_kind mh_lane_kind_of(const mh_lane *lane)
{
    return (mh_lane_kind)lane->key.epoch;
}

#endif
