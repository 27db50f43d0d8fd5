/* diagnose.h - what a run waited for, why, and what to change
 * SPDX-License-Identifier: Apache-2.0
 *
 * Three steps, each usable alone: read a run or a log (mh_run_read), replay it under other settings
 * (mh_replay), judge it (mh_verdict_make). The last two are pure functions.
 */
#ifndef MILLHEAD_DIAGNOSE_H
#define MILLHEAD_DIAGNOSE_H

#include <millhead/error.h>
#include <millhead/probe.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One list: code, slug. docs/verdicts/SLUG.md explains each. */
#define MH_CAUSE_LIST(X)                                                                           \
    X(MH_CAUSE_DEVICE, "device-bound")                                                             \
    X(MH_CAUSE_CPU, "cpu-bound")                                                                   \
    X(MH_CAUSE_PYTHON, "python-bound")                                                             \
    X(MH_CAUSE_DISK, "disk-bound")                                                                 \
    X(MH_CAUSE_LATENCY, "latency-bound")                                                           \
    X(MH_CAUSE_COLLATE, "collate-bound")                                                           \
    X(MH_CAUSE_MAIN, "main-bound")                                                                 \
    X(MH_CAUSE_TAIL, "tail-bound")                                                                 \
    X(MH_CAUSE_OVERSUBSCRIBED, "oversubscribed")                                                   \
    X(MH_CAUSE_MEMORY, "memory-growth")                                                            \
    X(MH_CAUSE_STARTUP, "startup-bound")                                                           \
    X(MH_CAUSE_STRAGGLER, "straggler")                                                             \
    X(MH_CAUSE_UNCLEAR, "unclear")

typedef enum mh_cause {
#define MH_CAUSE_ENUM(code, slug) code,
    MH_CAUSE_LIST(MH_CAUSE_ENUM)
#undef MH_CAUSE_ENUM
        MH_CAUSE_COUNT
} mh_cause;

/* The slug ("cpu-bound"); never NULL, any value accepted. Any thread. */
MH_API const char *mh_cause_name(mh_cause cause);

/* A duration that was not measured. */
#define MH_NOT_MEASURED UINT64_MAX

/* What one batch cost, in delivery order. Times in ns. May get new fields at its end: reach one of
 * an array by mh_facts_batch. */
typedef struct mh_batch_cost {
    uint64_t wait;         /* the consumer waited for it */
    uint64_t wait_cpu;     /* of it the consumer's thread was on a CPU, or MH_NOT_MEASURED */
    uint64_t wait_delay;   /* of it runnable and waiting for a CPU */
    uint64_t step;         /* the consumer worked on it, until it asked for the next */
    uint64_t step_train;   /* the part of step known to be training, or MH_NOT_MEASURED */
    uint64_t step_cpu;     /* consumer's thread on a CPU during step, or MH_NOT_MEASURED */
    uint64_t step_delay;   /* consumer's thread runnable and waiting for a CPU during step */
    uint64_t fetch;        /* getting the samples, or MH_NOT_MEASURED */
    uint64_t fetch_cpu;    /* of it on a CPU, or MH_NOT_MEASURED */
    uint64_t fetch_delay;  /* of it waiting for a CPU; the rest is blocked */
    uint64_t fetch_excess; /* of it what slow samples (above 5 medians) took above the median */
    uint64_t collate;      /* or MH_NOT_MEASURED */
    uint64_t collate_cpu;  /* of it on a CPU, or MH_NOT_MEASURED */
    uint64_t collate_delay;
    uint64_t transfer;   /* from the end of collate until the consumer had it, less the time it
                            lay ready before it was asked for */
    uint64_t order;      /* of the wait: the consumer asked the sampler for the order of a later
                            batch, which a worker makes; 0: for less than can be told */
    uint64_t read_bytes; /* from storage */
    uint32_t samples;
    uint32_t epoch;    /* from 0 */
    int32_t worker;    /* -1: the consumer itself */
    uint32_t first;    /* 1: the first batch of its epoch; its wait counts as start-up */
    uint64_t step_own; /* CPU time of the consumer's own work beside training; 0: not measured */
    uint64_t fetch_helpers;   /* CPU time of the process's other threads during fetch; 0: none, or
                                 not measured */
    uint64_t collate_helpers; /* the same during collate */
} mh_batch_cost;

/* The processes and the machine over the steady part of a run; 0 where not sampled. */
typedef struct mh_usage_sum {
    uint64_t wall_ns;    /* how long it was sampled; 0: not at all */
    double machine_cpus; /* CPUs the machine has; 0: as many as the run was allowed */
    double busy_cpus;    /* CPUs busy on the whole machine, on average */
    double loader_cpus;  /* CPUs used by the consumer and its workers */
    double loader_delay; /* threads of theirs that waited for a CPU, on average */
    double iowait_cpus;
    double disk_busy;          /* share of time the busiest disk was busy, 0..1 */
    double disk_read_per_s;    /* bytes */
    double net_read_per_s;     /* bytes */
    double memory_per_s;       /* growth of PSS of consumer and workers, bytes per second, robust;
                                  of the consumer's RSS where workers are started anew */
    double memory_first_bytes; /* PSS when the steady part began */
    double memory_last_bytes;
    double memory_share_up; /* share of the sampled intervals in which it clearly grew, 0..1 */
    uint64_t memory_ns;     /* from the first look at memory to the last */
    double memory_available_bytes;
    double gpu_util; /* 0..1; negative: no device sampled */

    /* CPUs used by the consumer's process, all its threads, and by all workers: their sum is
     * loader_cpus. */
    double main_cpus, workers_cpus;
    double workers_delay; /* the workers' part of loader_delay */
    /* What the threads were seen doing, as shares of the looks taken at them, 0..1. The workers'
     * shares are means over the workers. A view from outside is made of these alone; the events
     * of a run give only the _disk ones (state "D") and workers_locked. */
    double main_data;       /* the consumer's thread waited on the loader's queue or pipe; negative:
                               what it waited on could not be seen */
    double main_disk;       /* it was in uninterruptible sleep (state D) */
    double workers_run;     /* running, or runnable */
    double workers_disk;    /* in uninterruptible sleep */
    double workers_idle;    /* waited for the next order (poll or read of their index queue) */
    double workers_blocked; /* slept in anything else: a socket, a timer, a lock */
    double workers_locked;  /* no share but a number: workers that waited for a lock that processes
                               share, on average */
    double memory_even; /* of four equal parts of memory_ns, the least growth from one to the next
                           over the largest, 0..1: 1 is a steady slope, 0 a step or a plateau */
} mh_usage_sum;

/* A rank's time per step, summed over the run (from step timers or its loader's events). May get
 * new fields at its end: reach one of an array by mh_facts_rank. */
typedef struct mh_rank_cost {
    uint32_t rank;
    char host[64];
    uint64_t steps;
    uint64_t own;  /* ns not spent waiting for others: data, forward, update, ... */
    uint64_t data; /* of it data */
    uint64_t forward, backward, update; /* of it, where a step timer told them apart; else 0 */
    uint64_t waiting;                   /* ns in barriers and collectives, as far as measured */
    uint64_t total;
} mh_rank_cost;

typedef enum mh_vantage {
    MH_VANTAGE_INSIDE,  /* events of the loader itself */
    MH_VANTAGE_OUTSIDE, /* only what /proc says about its processes */
    MH_VANTAGE_LOG,     /* a log of another tool */
} mh_vantage;

/* What a probe says about where the samples lie, for one reader; 0: not known. */
typedef struct mh_storage {
    double sequential_per_s; /* bytes */
    double random_per_s;     /* bytes, in small reads */
    double random_s;         /* seconds of one small read */
    int network;             /* 1: by a network, where several readers get more */
} mh_storage;

/* Fills *out; 0 for what was not measured. Any thread. */
MH_API void mh_storage_of(mh_storage *out, const mh_probe *probe);

/* A function, and how much of a stage's time was spent in it. Seen by looking at the stack every
 * few milliseconds: waiting counts as computing does. */
typedef struct mh_hot {
    char stage[8];      /* "fetch", "collate", "loop" (between steps) or "train" */
    char function[128]; /* "PIL.ImageFile.ImageFile.load" */
    char place[64];     /* the user's line that led there, "data.py:31"; empty: none of theirs */
    char code[104];     /* its text, cut where it is long */
    double share;       /* of the stage's time, 0..1 */
} mh_hot;

#define MH_HOT_MOST 16

/* What the threads of a native loader did; samples 0: not a native loader, or nothing was reported.
 */
typedef struct mh_native_sum {
    int threads, in_flight;
    uint64_t samples;    /* that were made */
    uint64_t cpu_ns;     /* reading what is at hand, decoding and placing */
    uint64_t reads;      /* that were waited for */
    uint64_t latency_ns; /* that they took, summed */
    uint64_t bytes;      /* that were read; 0: not known */
    /* Of the waits, but for the first of each epoch: what the batch that was due still needed. */
    uint64_t wait_read_ns, wait_decode_ns, wait_place_ns;
    uint64_t map_ns, pin_ns; /* map= and pinning took, of all batches */
    /* Of data behind URLs: requests that were made; reads that the cache answered, and not; bytes
     * of those it did, which were checked, and of what it removed. */
    uint64_t requests, cache_hits, cache_misses, cache_bytes, cache_evicted;
} mh_native_sum;

/* Everything the verdict is made from. */
typedef struct mh_facts {
    size_t struct_size; /* set by mh_facts_init */
    mh_vantage vantage;
    const mh_batch_cost *batches; /* owned by whoever made the facts */
    size_t batch_count;
    size_t batch_stride; /* bytes from one batch to the next, set by mh_facts_init */

    /* The loader's settings; -1: not known. */
    int workers, prefetch, batch_size, in_order, persistent, pin_memory;
    int by_sample;  /* 1: workers share the samples of a batch (dispatch="sample"); 0 otherwise */
    int cpus;       /* CPUs the run was allowed */
    char start[16]; /* "fork", ... */
    char kind[16];  /* "torch", "millhead", "native", "iterable", "earthmover" */

    uint64_t batch_bytes; /* of the largest batch that was looked at; 0: not known */
    uint64_t batch_texts; /* bytes of its strings, which a worker pickles; 0: none, or not known */
    uint64_t setup_ns;    /* making iterators, over all epochs, or the log's set-up */
    uint64_t setup_order_ns; /* of it, with workers, asking the sampler for the first orders */
    uint64_t between_ns;     /* from the end of an epoch until the next one's iterator is made */
    uint64_t epochs;
    uint64_t run_ns;                /* first event to last */
    uint64_t probes, probes_native; /* see docs/events.md; 0: not probed */
    uint64_t sample_median_ns;      /* 0: not measured */
    uint64_t sample_p99_ns, sample_max_ns;
    uint64_t samples_slow;  /* samples above 5 medians */
    uint64_t samples_timed; /* all of them, those too short for an event of their own included */
    mh_usage_sum usage;
    mh_storage storage;
    const mh_rank_cost *ranks; /* more than one: a distributed run */
    size_t rank_count;
    size_t rank_stride; /* bytes from one rank to the next, set by mh_facts_init */
    mh_native_sum native;
    mh_hot hot[MH_HOT_MOST]; /* the largest share first */
    size_t hot_count;
    uint64_t other_ns; /* waits and steps of other loaders of the run, which no fix here changes */
    int iterable;      /* 1: a stream, which more workers may only repeat; 0: not, or not known */
    char dataset[64];  /* its class; empty: not known */
    char place[64];    /* the user's line that iterates it, "train.py:31"; or empty */
    double loop_io;    /* share of the steps in which the loop waited for a network or a program */
    double rival;      /* CPUs that other threads of Python's used while the loop worked */
    char rival_name[128]; /* what it ran most of the time */
    /* Other loaders made like this one, each iterated once: one that is made anew for every epoch.
     * How many, all their time, and of it set-up and the waits for first batches. */
    uint64_t remade, remade_ns, remade_start_ns;
} mh_facts;

/* Fills *facts: nothing is known. Any thread. */
MH_API void mh_facts_init_sized(mh_facts *facts, size_t struct_size, size_t batch_stride,
                                size_t rank_stride);
static inline void mh_facts_init(mh_facts *facts)
{
    mh_facts_init_sized(facts, sizeof *facts, sizeof(mh_batch_cost), sizeof(mh_rank_cost));
}

/* Batch or rank `at`, which must be below the count. The facts of a run that was read may come from
 * a library whose structs are larger than the program's: never index the arrays themselves. */
static inline const mh_batch_cost *mh_facts_batch(const mh_facts *facts, size_t at)
{
    return (const mh_batch_cost *)(const void *)((const char *)facts->batches +
                                                 at * facts->batch_stride);
}
static inline const mh_rank_cost *mh_facts_rank(const mh_facts *facts, size_t at)
{
    return (const mh_rank_cost *)(const void *)((const char *)facts->ranks +
                                                at * facts->rank_stride);
}

/* The first of a stage, or the one that follows `after`, the largest share first; NULL: no more.
 * The facts' own. Any thread. */
MH_API const mh_hot *mh_hot_next(const mh_facts *facts, const char *stage, const mh_hot *after);

/* Settings for a replay; _init takes them from the facts. Costs are scaled by the factors. */
typedef struct mh_replay_options {
    size_t struct_size;          /* set by mh_replay_options_init */
    int workers, prefetch, cpus; /* workers 0: the consumer fetches itself */
    int in_order;
    double fetch_cpu, fetch_blocked, collate, transfer; /* factors; 1: as measured, 0: free */
    double step_main; /* factor for the consumer's own work in a step (not training) */
    double startup;   /* factor for making iterators and starting workers */
    double others;    /* threads of other processes that want a CPU all the time */
    int ranks;        /* runs like this one at the same time on the same CPUs; 0: 1 */
    int clip_excess;  /* 1: slow samples take a median sample's time */
    int free_startup; /* 1: workers stay: start-up costs nothing after the first epoch */
} mh_replay_options;

typedef struct mh_replay_result {
    uint64_t total_ns;   /* the whole run */
    uint64_t wait_ns;    /* of it the consumer waited for batches, start-up left out */
    uint64_t startup_ns; /* of it set-up, and first batches for what starting workers took */
    uint64_t step_ns;
    uint64_t gap_ns;   /* of wait_ns: with workers, for first batches of all epochs but the first */
    uint64_t delay_ns; /* threads of the run were runnable and waited for a CPU, summed */
} mh_replay_result;

/* Fills *options with the run's own settings: a replay of what was. Any thread. */
MH_API void mh_replay_options_init_sized(mh_replay_options *options, size_t struct_size,
                                         const mh_facts *facts);
static inline void mh_replay_options_init(mh_replay_options *options, const mh_facts *facts)
{
    mh_replay_options_init_sized(options, sizeof *options, facts);
}

/* Plays the run again: workers that take batches in turn, prefetch x workers under way, delivery in
 * order or not, CPUs shared by all that want one (docs/verdicts/README.md). No clock, no
 * randomness; a million batches take about half a second. Memory: what it allocates it frees. *out
 * is untouched on failure. Errors: MH_ERR_INVALID (no batches, a setting or factor that cannot be),
 * MH_ERR_NOMEM. Any thread. */
MH_API MH_MUST_CHECK mh_status mh_replay(mh_replay_result *out, const mh_facts *facts,
                                         const mh_replay_options *options, mh_error *err);

#define MH_VERDICT_OTHERS 24
#define MH_VERDICT_LINES 12
#define MH_VERDICT_LINE 400

typedef struct mh_stage_shares { /* of the steady time, 0..1; they add up to 1 */
    double train;                /* the step, less main */
    double main;                 /* the consumer's own work between steps */
    double wait_cpu;             /* waiting while the samples' code ran on a CPU */
    double wait_run;             /* waiting while it waited for a CPU */
    double wait_blocked;         /* waiting while it was blocked: disk, network, sleep */
    double wait_collate;
    double wait_transfer;
    double wait_other; /* waiting, and no event tells for what */
    double wait_order; /* waiting while the loop asked the sampler for the order of a batch */
} mh_stage_shares;

/* Of a native loader, what the waiting was for: parts of the steady time, which wait_other is
 * without. */
typedef struct mh_native_shares {
    double wait_read, wait_decode, wait_place, wait_pin, wait_map;
} mh_native_shares;

typedef struct mh_suspect {
    mh_cause cause;
    double gain; /* run time now / run time after its own fix, by replay; 1: nothing to win */
} mh_suspect;

/* The fix as settings, so that a program can try it; -1: leave as it is. */
typedef struct mh_fix {
    int workers, prefetch, in_order, persistent;
    int millhead; /* 1: take millhead's DataLoader in place of torch's */
    double cost;  /* the cause's cost made this many times as large; 1: only settings change */
    int threads, in_flight; /* of a native loader */
    int cache; /* 1: give one, where it has none. The gain is that of the epochs after the first */
} mh_fix;

typedef struct mh_verdict {
    size_t struct_size; /* set by mh_verdict_init */
    mh_cause cause;
    double predicted_gain;    /* run time now / run time after the fix; 1: nothing to win */
    double device_wait_share; /* of the whole steady time, 0..1 */
    double idle_device_s;     /* seconds */
    mh_stage_shares stages;
    mh_suspect others[MH_VERDICT_OTHERS]; /* that also matter, the largest first */
    size_t other_count;
    char fix[MH_VERDICT_LINE];
    mh_fix fix_settings; /* what predicted_gain was replayed with */
    double replay_off;   /* |replayed / measured run time - 1|: the trust in the numbers */
    char evidence[MH_VERDICT_LINES][MH_VERDICT_LINE];
    size_t evidence_count;
    char warnings[MH_VERDICT_LINES][MH_VERDICT_LINE];
    size_t warning_count;
    double possible_gain; /* what the fix wins at most, where it depends on what was not measured: a
                             server that answers more at once. At least predicted_gain */
    mh_native_shares native;
    double epoch_start_s; /* seconds in which the loop waited at the starts of epochs, which are in
                             no share above: making iterators, and first batches */
    double epoch_start_share; /* of the whole run, 0..1 */
} mh_verdict;

/* Fills *verdict as one on nothing: unclear, and what to measure. Any thread. */
MH_API void mh_verdict_init_sized(mh_verdict *verdict, size_t struct_size);
static inline void mh_verdict_init(mh_verdict *verdict)
{
    mh_verdict_init_sized(verdict, sizeof *verdict);
}

/* Judges. *out must have been initialised. Pure; batch_count 0 with a sampled usage is judged from
 * outside. Facts with little in them give MH_CAUSE_UNCLEAR and what to measure next in `fix`. *out
 * is untouched on failure. Errors: MH_ERR_INVALID, MH_ERR_UNSUPPORTED, MH_ERR_NOMEM. Any thread. */
MH_API MH_MUST_CHECK mh_status mh_verdict_make(mh_verdict *out, const mh_facts *facts,
                                               mh_error *err);

/* Waits as users know them: first batches of the run left out, epoch gaps included. Seconds. */
typedef struct mh_wait_stats {
    uint64_t count;
    double mean, p50, p99, max;
} mh_wait_stats;

/* A run or log, read. Opaque: it owns the facts. */
typedef struct mh_run mh_run;

/* Reads a run directory, an events file, or a log of Earthmover's. Progress is told, when not NULL,
 * with bytes read and bytes in all; a non-zero answer stops with MH_ERR_CLOSED.
 * On failure *out is untouched. The caller closes it. Errors: MH_ERR_NOT_FOUND, MH_ERR_IO,
 * MH_ERR_CORRUPT (nothing in it is an event), MH_ERR_UNSUPPORTED (a later version, named),
 * MH_ERR_NOMEM. One thread at a time. */
MH_API MH_MUST_CHECK mh_status mh_run_read(mh_run **out, const char *path,
                                           int (*progress)(void *, uint64_t, uint64_t),
                                           void *progress_arg, mh_error *err);
/* Where the run's samples lie: the verdict then tells what that gives. The probe is not kept. */
MH_API void mh_run_set_probe(mh_run *run, const mh_probe *probe);
MH_API const mh_facts *mh_run_facts(const mh_run *run);
MH_API mh_wait_stats mh_run_waits(const mh_run *run);
MH_API uint64_t mh_run_bad_lines(const mh_run *run);
/* Seconds of set-up: the log's own, or making the first iterator and its first batch. */
MH_API double mh_run_setup_s(const mh_run *run);
MH_API void mh_run_close(mh_run *run); /* NULL is allowed */

/* --- the system checklist --- */

typedef enum mh_check_state { MH_CHECK_PASS, MH_CHECK_WARN, MH_CHECK_FAIL } mh_check_state;

typedef struct mh_check {
    const char *item; /* "open-files"; static memory */
    mh_check_state state;
    char found[MH_VERDICT_LINE];
    char todo[MH_VERDICT_LINE]; /* empty when it passed */
} mh_check;

#define MH_CHECKS_MOST 24

/* Looks at what a training process started here and now would find around it: limits, CPUs, memory,
 * mounts, clock, variables, GPUs. Fills out[] and returns how many items there are; 0: no memory.
 * mh_check and MH_CHECKS_MOST stay as they are in every version that ends in .so.0.
 * One thread at a time. */
MH_API size_t mh_checks_run(mh_check out[MH_CHECKS_MOST]);

/* --- a running process --- */

/* What was seen of one. Opaque: it owns the facts. */
typedef struct mh_live mh_live;

/* Looks at a training process for `seconds`, without stopping or changing anything in it: inside,
 * where one of millhead's loaders runs there with workers, else from outside, by what its torch
 * workers and its main thread are seen doing. `progress` is told, when not NULL, the share done;
 * a non-zero answer stops with MH_ERR_CLOSED. On failure *out is untouched. The caller closes it.
 * Errors: MH_ERR_NOT_FOUND (no such process, or it ended at once), MH_ERR_IO (another user's),
 * MH_ERR_UNSUPPORTED (it has no loader with workers; the message names children that have),
 * MH_ERR_INVALID, MH_ERR_NOMEM. One thread at a time. */
MH_API MH_MUST_CHECK mh_status mh_live_look(mh_live **out, int pid, double seconds,
                                            int (*progress)(void *, double), void *progress_arg,
                                            mh_error *err);
MH_API const mh_facts *mh_live_facts(const mh_live *live);
MH_API mh_wait_stats mh_live_waits(const mh_live *live); /* count 0: not seen from outside */
/* What was seen, in words, line by line; NULL after the last. */
MH_API const char *mh_live_note(const mh_live *live, size_t at);
MH_API void mh_live_close(mh_live *live); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
