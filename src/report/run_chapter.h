/* run_chapter.h - what the report says about one run
 * SPDX-License-Identifier: Apache-2.0
 *
 * A chapter is read in one pass over the events and keeps no batch: sums and quantiles are taken
 * of all of them, pictures from a timeline. One thread at a time.
 */
#ifndef MH_REPORT_RUN_CHAPTER_H
#define MH_REPORT_RUN_CHAPTER_H

#include "report/timeline.h"
#include <millhead/report.h>

#define MH_CHAPTER_NAME 120

/* A line of the stage table. Times in seconds. */
typedef struct mh_stage_line {
    const char *name; /* static memory */
    uint64_t count;
    double total, mean, p50, p99, max;
    double share; /* of the run's time; of a worker's stage, of all workers' time together */
    bool of_workers;
} mh_stage_line;

#define MH_STAGES_MOST 12
/* Waits in bins of a quarter of a power of two, from 1 us on; what is shorter is in the first. */
#define MH_WAIT_BINS 128

typedef struct mh_wait_picture {
    uint64_t bins[MH_WAIT_BINS];
    double p90, p95, p999; /* besides those of mh_wait_stats; seconds */
    double std;
    uint64_t
        linear[100]; /* from 0 to linear_end, as numpy.histogram counts; the rest is left out */
    double linear_end;
} mh_wait_picture;

/* Samples per second, and how much they differ between parts of the run. */
typedef struct mh_rate {
    double mean, std; /* std NAN: one part only */
    unsigned parts;
    bool epochs; /* the parts are epochs; else tenths of the only one */
} mh_rate;

typedef struct mh_chapter {
    char name[MH_CHAPTER_NAME];
    bool named; /* by a benchmark: it stays */
    char *path;
    mh_verdict verdict;
    mh_facts facts; /* without batches; with ranks */
    mh_rank_cost *ranks;
    mh_wait_stats waits;
    mh_wait_picture wait_picture;
    mh_stage_line stages[MH_STAGES_MOST];
    size_t stage_count;
    mh_rate rate;
    double average_sample; /* seconds; 0: not measured */
    uint64_t bad_lines, events;
    double setup_s;
    uint32_t loader; /* whose lanes are drawn */
    mh_timeline timeline;
} mh_chapter;

/* The last `parts` of the path of a run, its events file not counted, into MH_CHAPTER_NAME bytes.
 */
void mh_chapter_name(char *name, const char *path, unsigned parts);

/* Reads the run at `path`, keeping at most `spans` single spans of workers and of the loop each.
 * On failure there is nothing to free. Errors: as mh_run_read. */
MH_MUST_CHECK mh_status mh_chapter_read(mh_chapter **out, const char *path, size_t spans,
                                        int (*progress)(void *, uint64_t, uint64_t),
                                        void *progress_argument, mh_error *err);
void mh_chapter_free(mh_chapter *chapter); /* NULL is allowed */

/* Where bin `at` of the waits begins, in seconds; it ends where the next begins. */
double mh_wait_bin_begin(size_t at);

#endif
