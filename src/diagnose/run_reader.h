/* run_reader.h - a run being read: its events on the way to facts
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each part looks at the events it cares about (its `_event`), keeps what it needs, and is asked
 * for the facts when all files have been read (its `_facts`). One thread at a time.
 */
#ifndef MH_DIAGNOSE_RUN_READER_H
#define MH_DIAGNOSE_RUN_READER_H

#include "diagnose/records.h"
#include "metrics/log.h"
#include <millhead/diagnose.h>
#include <stdbool.h>

/* --- samples.c: how long single samples took --- */

typedef struct mh_sample_time {
    uint64_t ns;
    uint32_t work; /* whose sample it is: a record number, or whatever the caller counts */
} mh_sample_time;

typedef struct mh_samples {
    mh_sample_time *items;
    size_t count, room;
} mh_samples;

MH_MUST_CHECK int mh_samples_add(mh_samples *samples, uint64_t ns, uint32_t work);

/* Median, quantiles and slow samples into the facts. There were `all` samples; those not in the
 * list were shorter than any that is, and took `rest_ns` together. Calls `excess` for each slow one
 * with what it took above the median; 0: it does not count as slow. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_samples_facts(const mh_samples *samples, uint64_t all, uint64_t rest_ns,
                                         mh_facts *facts,
                                         int (*excess)(void *, uint32_t work, uint64_t ns),
                                         void *argument, mh_error *err);

/* --- usages.c: what processes and the machine used --- */

/* Of two looks closer than this the second is left to the next: the kernel counts in ticks of 10
 * ms, and over 2 ms one tick is 5 CPUs. */
#define MH_LOOKS_APART_NS UINT64_C(200000000)

typedef struct mh_usage_look {
    uint64_t t, cpu, delay, pss, rss, memory;
    uint32_t pid;
    float locked;          /* share of the time it was found waiting for a lock that is shared */
    uint8_t is_main, disk; /* disk: in uninterruptible sleep */
} mh_usage_look;

typedef struct mh_system_look {
    uint64_t t, busy, iowait, disk_read, disk_busy, net_read, available;
    uint32_t cpus;
} mh_system_look;

typedef struct mh_usages {
    mh_usage_look *looks;
    size_t look_count, look_room;
    mh_system_look *systems;
    size_t system_count, system_room;
    double gpu_util;
    uint64_t gpu_looks;
} mh_usages;

MH_MUST_CHECK int mh_usages_event(mh_usages *usages, const mh_log_event *event);
/* Sums from `steady` on (ns of the events' clock) until the work `ended`. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_usages_facts(mh_usages *usages, uint64_t steady, uint64_t ended,
                                        mh_usage_sum *out, mh_error *err);
void mh_usages_deinit(mh_usages *usages);

/* --- ranksums.c: every rank's sums --- */

typedef struct mh_rank_sums {
    mh_rank_cost cost;                        /* of it host, rank and steps */
    uint64_t wait, step;                      /* of its loaders */
    uint64_t first_wait, first_data;          /* of the first step: start-up */
    uint64_t data, backward, waiting, phases; /* of its step timer; phases: all of them */
    int64_t last_step;
    uint64_t timer_steps;
} mh_rank_sums;

typedef struct mh_ranks {
    mh_rank_sums *items;
    size_t count, room;
} mh_ranks;

/* A file begins: its events are this rank's, until a header says otherwise. */
MH_MUST_CHECK int mh_ranks_begin(mh_ranks *ranks, uint32_t rank);
void mh_ranks_event(mh_ranks *ranks, const mh_log_event *event);
/* The costs, to be freed with mh_free; *out stays NULL with less than two ranks. */
MH_MUST_CHECK mh_status mh_ranks_facts(const mh_ranks *ranks, mh_rank_cost **out, size_t *count,
                                       mh_error *err);

/* --- batches.c: our own events --- */

typedef struct mh_loader_seen {
    uint32_t loader;
    int workers, prefetch, batch_size, in_order, persistent, pin_memory, cpus;
    int by_sample, iterable;
    char start[16], kind[16], dataset[64], place[64];
    uint64_t wait_ns, first_wait_ns; /* all waits; the first of an iterator, the last one's */
    uint64_t setup_ns, first_setup_ns, setup_order_ns;
    uint64_t between_ns, ended_t;  /* ended_t: of the epoch before */
    uint64_t setup_t, setup_epoch; /* of the last iterator that was made */
    uint64_t total_ns;             /* waits and steps */
    uint64_t batch_bytes;          /* of the largest that was told */
    uint64_t batch_texts;          /* the same */
    uint64_t waited;               /* batches */
    mh_native_sum native;
    int set_up;
} mh_loader_seen;

/* What a loader's workers did, all of it. */
typedef struct mh_work_sum {
    double samples, fetch, fetch_cpu, fetch_delay, fetch_helpers, read;
    double collate, collate_cpu, collate_delay, collate_helpers;
    int no_cpu;
} mh_work_sum;

typedef struct mh_batches {
    mh_records waits; /* wait_record of batches.c */
    mh_records works; /* work_record */
    mh_samples samples;
    mh_work_sum sum; /* of the loader that was chosen */
    mh_loader_seen *loaders;
    size_t loader_count, loader_room;
    uint64_t first_t, last_t; /* of all events */
    uint64_t worked_t;        /* the end of the last one about loading or training */
    int seen;                 /* anything timed */
} mh_batches;

void mh_batches_init(mh_batches *batches);
MH_MUST_CHECK int mh_batches_event(mh_batches *batches, const mh_log_event *event);
void mh_batches_deinit(mh_batches *batches);

/* --- hot_code.c: where the time of a stage goes --- */

typedef struct mh_hot_seen {
    mh_hot hot; /* its share is found in the end */
    uint32_t loader;
    int io; /* it waited for a network or another program */
    double ns;
} mh_hot_seen;

typedef struct mh_hots {
    mh_hot_seen *items;
    size_t count, room;
} mh_hots;

MH_MUST_CHECK int mh_hots_event(mh_hots *hots, const mh_log_event *event);
/* Those of one loader into the facts. */
void mh_hots_facts(mh_hots *hots, uint32_t loader, mh_facts *facts);
void mh_hots_deinit(mh_hots *hots);

/* --- earthmover.c: Earthmover's events --- */

typedef struct mh_earth_mark {
    uint64_t t, ns; /* ns: the duration it tells, or MH_NOT_MEASURED */
    uint32_t batch; /* UINT32_MAX: not told */
    uint32_t order; /* in the log */
    mh_log_kind is;
} mh_earth_mark;

typedef struct mh_earth_get { /* one sample */
    uint64_t begin, ns;
    uint32_t pid;
} mh_earth_get;

typedef struct mh_earth {
    mh_earth_mark *marks;
    size_t mark_count, mark_room;
    mh_earth_get *gets;
    size_t get_count, get_room;
    uint64_t setup_start, setup_ns; /* MH_NOT_MEASURED: not seen */
    uint64_t first_t, last_t;
    int workers, prefetch, batch_size, persistent, pin_memory; /* -1: not told */
    int seen, ended;
} mh_earth;

void mh_earth_init(mh_earth *earth);
MH_MUST_CHECK int mh_earth_event(mh_earth *earth, const mh_log_event *event);
void mh_earth_deinit(mh_earth *earth);

/* --- run.c --- */

/* Sees a run while it is read, to keep what the facts do not hold: its pictures. Of several ranks
 * only the one that is kept batch by batch is reported. */
typedef struct mh_run_observer {
    void *argument;
    /* Every event in the order of the file. MH_OK, or what ends the reading. */
    mh_status (*event)(void *argument, const mh_log_event *event, mh_error *err);
    /* A rank without a batch: forget its events. */
    void (*forget)(void *argument);
    /* In the end every batch of the facts: it was asked for at `t`. 0: no memory. */
    int (*batch)(void *argument, uint64_t t, const mh_batch_cost *cost);
} mh_run_observer;

struct mh_run {
    mh_facts facts;
    const mh_run_observer *observer; /* while it is read; or NULL */
    uint32_t loader;                 /* the number of the loader the facts are of */
    uint64_t *sorted_waits;          /* those of `waits`, in ns */
    uint64_t events;
    mh_batch_cost *batches;
    mh_rank_cost *ranks;
    mh_wait_stats waits;
    uint64_t bad_lines;
    uint64_t first_bad;
    double setup_s;
    size_t other_loaders;
    uint64_t other_loaders_ns;
    int cut; /* the end of the run was not written */
};

/* Batches, settings, samples and set-up into the run; *steady is when the first batch was there.
 * MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_batches_facts(mh_batches *batches, mh_run *run, uint64_t *steady,
                                         mh_error *err);
MH_MUST_CHECK mh_status mh_earth_facts(mh_earth *earth, mh_run *run, mh_error *err);

/* Calls `file` for each events file of a run directory in the order of ranks, or for the one file
 * that `path` is, until one fails. MH_ERR_NOT_FOUND, MH_ERR_IO, MH_ERR_NOMEM. */
typedef mh_status (*mh_run_file_fn)(void *argument, const char *path, uint32_t rank, mh_error *err);
MH_MUST_CHECK mh_status mh_run_each_file(const char *path, mh_run_file_fn file, void *argument,
                                         mh_error *err);

/* How large those files are together. Errors: as mh_run_each_file. */
MH_MUST_CHECK mh_status mh_run_bytes(const char *path, uint64_t *bytes, mh_error *err);

/* As mh_run_read, with somebody looking on. */
MH_MUST_CHECK mh_status mh_run_read_observed(mh_run **out, const char *path,
                                             const mh_run_observer *observer,
                                             mh_log_progress progress, void *progress_argument,
                                             mh_error *err);

/* Tells the observer, if there is one, of a batch. 0: no memory. */
int mh_run_tell(const mh_run *run, uint64_t t, const mh_batch_cost *cost);

/* The statistics of `count` waits in ns, which are put in order. */
mh_wait_stats mh_waits_of(uint64_t *waits, size_t count);

/* --- memory_growth.c --- */

typedef struct mh_memory_point {
    double t;          /* s */
    double bytes;      /* of all processes */
    double main_bytes; /* of the training process alone; 0: not known */
    uint64_t set;      /* which processes there were: the sum of mh_process_mark() */
} mh_memory_point;

/* A number for a process; the sum of several tells sets of processes apart. */
uint64_t mh_process_mark(uint32_t pid);

/* Fills what out->memory_ has, from points in the order of their times, which are changed. */
void mh_memory_growth(mh_memory_point *points, size_t count, mh_usage_sum *out);

#endif
