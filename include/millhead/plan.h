/* plan.h - pure functions that answer "how many?" before anything runs
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_PLAN_H
#define MILLHEAD_PLAN_H

#include <millhead/diagnose.h>
#include <millhead/error.h>
#include <millhead/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number any field of mh_plan_cpus_options may have. */
#define MH_PLAN_MOST 1000000

typedef struct mh_plan_cpus_options {
    size_t struct_size; /* set by mh_plan_cpus_options_init */
    int cpus;           /* 0: the CPUs this process may use (affinity and cgroup quota) */
    int gpus;           /* 0 counts as one consumer */
    int ranks;          /* training processes on the machine; 0: one per GPU, at least one */
} mh_plan_cpus_options;

typedef struct mh_plan_cpus {
    int cpus;            /* as given, or as found */
    int gpus;            /* as given */
    int ranks;           /* as given, or as derived */
    int reserved;        /* CPUs kept for the training processes */
    int workers_per_gpu; /* loader workers for each GPU (or for the one consumer) */
    int total;           /* workers on the whole machine */
} mh_plan_cpus;

/* Fills *options with defaults. Any thread. */
MH_API void mh_plan_cpus_options_init_sized(mh_plan_cpus_options *options, size_t struct_size);
static inline void mh_plan_cpus_options_init(mh_plan_cpus_options *options)
{
    mh_plan_cpus_options_init_sized(options, sizeof *options);
}

/* Splits CPUs between training processes and loader workers: with G GPUs (at least one consumer)
 * 2*G CPUs are reserved where there are 4*G or more, else G; the rest is shared evenly between the
 * GPUs, at least one worker each.
 * More ranks than GPUs: every rank needs CPUs of its own, so `ranks` takes the place of G in the
 * reservation; the rest is still shared between the GPUs, with at least one worker for every rank.
 * A rank's own share is total / ranks. Fewer ranks than GPUs change nothing: a GPU has to be fed
 * whichever process drives it. *out is untouched on failure. Any thread.
 * Errors: MH_ERR_INVALID for NULL, a number below 0 or above MH_PLAN_MOST, or options that
 * were not initialised; MH_ERR_UNSUPPORTED for options of a newer version (millhead.h). */
MH_API MH_MUST_CHECK mh_status mh_plan_cpus_make(mh_plan_cpus *out,
                                                 const mh_plan_cpus_options *options,
                                                 mh_error *err);

/* --- chunks: what a sample takes from a chunked array --- */

#define MH_PLAN_DIMENSIONS 32

/* A sample that lies well and one that lies badly: on as few chunks as can be, and on as many. */
typedef struct mh_plan_chunks {
    uint64_t min_chunks, max_chunks;
    uint64_t min_bytes, max_bytes; /* of whole chunks, as they are read and decoded */
} mh_plan_chunks;

/* A sample of sample[0] x sample[1] x ... items that may begin anywhere in an array of chunks of
 * chunk[0] x chunk[1] x ...: along a dimension it touches ceil(s/c) chunks at least and
 * ceil((s-1)/c) + 1 at most; bytes are those of whole chunks. *out is untouched on failure. Any
 * thread. Errors: MH_ERR_INVALID for NULL, no dimension or more than MH_PLAN_DIMENSIONS, a size of
 * 0, and numbers that do not fit 64 bits; the message names which. */
MH_API MH_MUST_CHECK mh_status mh_plan_chunks_make(mh_plan_chunks *out, const uint64_t *sample,
                                                   const uint64_t *chunk, size_t dimensions,
                                                   uint64_t item_bytes, mh_error *err);

/* --- chunks of a store: what its windows cost in an order, and which chunks would be better --- */

#define MH_PLAN_STORE_ROWS 4

typedef struct mh_plan_store_options {
    size_t struct_size;    /* set by mh_plan_store_options_init */
    mh_shuffle shuffle;    /* the order */
    uint64_t memory_bytes; /* of the loader; a tenth of it is taken to be for batches. 0: a quarter
                              of what is available, as loaders take it */
} mh_plan_store_options;

/* What an epoch costs with some chunks, were all of them there. */
typedef struct mh_store_chunks {
    uint64_t chunk[MH_DIMS_MOST];       /* 0: no array has the dimension */
    double chunk_bytes;                 /* decoded; of the array with the largest chunks */
    double sample_chunks, sample_bytes; /* that a sample alone reads and decodes, mean */
    double reads;                       /* of the epoch: a chunk each */
    double decoded_bytes, unique_bytes; /* of the epoch; each chunk once */
    double memory_bytes;                /* the loader's, from which on more changes nothing */
} mh_store_chunks;

typedef struct mh_plan_store {
    uint64_t samples;
    uint32_t dims;
    const char *names[MH_DIMS_MOST]; /* the dataset's */
    uint64_t window[MH_DIMS_MOST];
    double useful_bytes;   /* of a sample */
    uint64_t memory_bytes; /* that was counted on: the options', or what was found */
    mh_store_chunks stored;
    size_t row_count; /* chunks that would be better or not, from small ones to large ones */
    size_t best;      /* which of them; nothing where there are none */
    mh_store_chunks rows[MH_PLAN_STORE_ROWS];
} mh_plan_store;

/* Fills *options with defaults: no shuffle. Any thread. */
MH_API void mh_plan_store_options_init_sized(mh_plan_store_options *options, size_t struct_size);
static inline void mh_plan_store_options_init(mh_plan_store_options *options)
{
    mh_plan_store_options_init_sized(options, sizeof *options);
}

/* Computes what the windows of a dataset cost, exactly where the memory is enough, else at most.
 * Then does so for other chunks of the same arrays. *out is untouched on failure. Any thread.
 * Errors: MH_ERR_INVALID for NULL or an order that is none, MH_ERR_UNSUPPORTED where the data is
 * not made of chunks, MH_ERR_NOMEM. */
MH_API MH_MUST_CHECK mh_status mh_plan_store_make(mh_plan_store *out, const mh_dataset *dataset,
                                                  const mh_plan_store_options *options,
                                                  mh_error *err);

/* --- memory: what batches that wait for their turn take --- */

/* No limit is known. */
#define MH_PLAN_NO_LIMIT UINT64_MAX

typedef struct mh_plan_memory_options {
    size_t struct_size;       /* set by mh_plan_memory_options_init */
    uint64_t batch_bytes;     /* at least 1 */
    int workers;              /* loader workers of a rank */
    int prefetch;             /* batches ahead for each worker, as torch's prefetch_factor */
    int ranks;                /* training processes on the machine */
    uint64_t available_bytes; /* 0: what there is now, of the machine and of the cgroup */
} mh_plan_memory_options;

typedef struct mh_plan_memory {
    uint64_t batches;         /* a rank's: workers x prefetch + 3; one without workers */
    uint64_t needed_bytes;    /* of all ranks */
    uint64_t available_bytes; /* as given, or the smaller of the next two less a reserve of 64 MiB;
                                 MH_PLAN_NO_LIMIT: could not be read */
    uint64_t machine_bytes;   /* MemAvailable; MH_PLAN_NO_LIMIT: not read */
    uint64_t cgroup_bytes;    /* what the control group leaves; MH_PLAN_NO_LIMIT: no limit */
    int fits;                 /* needed <= available */
    int most_prefetch;        /* the largest that fits, up to MH_PLAN_MOST; 0: none does */
    int most_workers;         /* the most that fit at this prefetch; 0: none */
} mh_plan_memory;

/* Fills *options with defaults: one rank, prefetch 2, no worker, no batch. Any thread. */
MH_API void mh_plan_memory_options_init_sized(mh_plan_memory_options *options, size_t struct_size);
static inline void mh_plan_memory_options_init(mh_plan_memory_options *options)
{
    mh_plan_memory_options_init_sized(options, sizeof *options);
}

/* What the batches of all ranks take: each rank keeps slots for workers x prefetch batches that are
 * under way and for 3 that the loop holds. The samples that workers hold while they make a batch,
 * and the processes themselves, come on top. *out is untouched on failure. Any thread.
 * Errors: MH_ERR_INVALID for NULL, options that were not initialised, numbers out of range (workers
 * 0 to MH_PLAN_MOST, prefetch and ranks from 1), no batch_bytes, or more bytes than 64 bits hold.
 */
MH_API MH_MUST_CHECK mh_status mh_plan_memory_make(mh_plan_memory *out,
                                                   const mh_plan_memory_options *options,
                                                   mh_error *err);

/* --- threads: loader workers times streaming threads times ranks --- */

/* How chunks are streamed inside a dataset; the names are Dask's schedulers. */
#define MH_PLAN_MODE_LIST(X)                                                                       \
    X(MH_PLAN_SINGLE, "single-threaded") /* in the thread that asks for a sample */                \
    X(MH_PLAN_THREADS, "threads")        /* a pool in every process that loads */                  \
    X(MH_PLAN_CLUSTER, "cluster")        /* processes of their own, with threads */

typedef enum mh_plan_mode {
#define MH_PLAN_MODE_ENUM(code, name) code,
    MH_PLAN_MODE_LIST(MH_PLAN_MODE_ENUM)
#undef MH_PLAN_MODE_ENUM
        MH_PLAN_MODE_COUNT
} mh_plan_mode;

/* "threads"; never NULL, any value accepted. Any thread. */
MH_API const char *mh_plan_mode_name(mh_plan_mode mode);

typedef struct mh_plan_threads_options {
    size_t struct_size; /* set by mh_plan_threads_options_init */
    int cpus;           /* 0: those this process may use */
    int ranks;          /* training processes on the machine */
    int workers;        /* loader workers of a rank; 0: the rank loads itself */
    mh_plan_mode mode;
    int threads;         /* of a pool or of a cluster's worker; 0: as advised */
    int cluster_workers; /* of one cluster; 0: as advised */
    int shared;          /* 1: one cluster for all ranks, else one for each */
} mh_plan_threads_options;

/* What suits so many CPUs and ranks. */
typedef struct mh_plan_threads_advice {
    int threads_least, threads_most;      /* of the pool of a rank that loads itself */
    int cluster_workers, cluster_threads; /* of a rank's own cluster, at most */
    int shared_workers, shared_threads;   /* of one cluster for all ranks */
} mh_plan_threads_advice;

typedef struct mh_plan_threads {
    int cpus, threads, cluster_workers; /* as given, found or advised; 1 thread and no cluster's
                                           worker where the mode has none */
    int reserved;      /* CPUs kept for the training processes, as in mh_plan_cpus */
    int64_t loaders;   /* processes that load samples: ranks x workers, or the ranks */
    int64_t streaming; /* threads that stream: in all pools, or in all clusters */
    int64_t total;     /* threads that may want a CPU at once, the training's own left out */
    int crowded;       /* total > cpus */
    int nested;        /* several workers of a rank, and several threads that stream for each */
    int most_workers;  /* of a rank, so that all fit beside what is reserved, at least 0 */
    mh_plan_threads_advice advice;
} mh_plan_threads;

/* Fills *options with defaults: one rank, no worker, single-threaded. Any thread. */
MH_API void mh_plan_threads_options_init_sized(mh_plan_threads_options *options,
                                               size_t struct_size);
static inline void mh_plan_threads_options_init(mh_plan_threads_options *options)
{
    mh_plan_threads_options_init_sized(options, sizeof *options);
}

/* Counts. Single-threaded, the total is that of the processes that load; with pools each of them
 * has one, which works while it waits; a cluster's threads come on top of loader workers. The
 * advice: with R ranks on C CPUs a pool of up to C / R threads, at most 8 and not less than half of
 * it; a rank's own cluster of up to 2 workers with up to 4 threads; or one cluster on the CPUs that
 * the ranks leave. *out is untouched on failure. Any thread. Errors: MH_ERR_INVALID for NULL,
 * options that were not initialised, an unknown mode, or numbers out of range (0 or, for ranks, 1
 * to MH_PLAN_MOST). */
MH_API MH_MUST_CHECK mh_status mh_plan_threads_make(mh_plan_threads *out,
                                                    const mh_plan_threads_options *options,
                                                    mh_error *err);

/* --- what if: a measured run under other settings --- */

typedef struct mh_plan_whatif_options {
    size_t struct_size;   /* set by mh_plan_whatif_options_init */
    int gpus;             /* accelerators, each with a loader like the run's */
    int workers;          /* of each; -1: as in the run */
    int prefetch;         /* 0: as in the run, and more where it is needed */
    int batch_size;       /* 0: as in the run */
    int cpus;             /* of the machine, all its own; 0: as many as the run was allowed */
    double step_s;        /* seconds the device works on a batch; 0: as in the run, in proportion
                             to the batch size */
    uint64_t batch_bytes; /* of a batch of batch_size; 0: as in the run, in proportion to the batch
                             size; no memory is planned where that does not tell it */
} mh_plan_whatif_options;

/* One set of settings and what comes of it; rates are of all accelerators together. */
typedef struct mh_whatif_point {
    int gpus, workers, prefetch;
    double batch_size; /* a mean, where the run's batches differ */
    double step_s;     /* the loop works on a batch */
    double wait_share; /* of the time, the loop waits for batches: 0..1 */
    double samples_per_s;
    double cpus_busy;
    double read_bytes_per_s;      /* from storage */
    double delivered_bytes_per_s; /* 0: not known */
    uint64_t memory_bytes;        /* of batches, as mh_plan_memory counts; 0: not known */
} mh_whatif_point;

typedef struct mh_plan_whatif {
    mh_whatif_point measured; /* what was */
    mh_whatif_point asked;    /* the options, what was not given as in the run */
    mh_whatif_point needed;   /* with the doctor's workers, and the prefetch it takes then */
    int enough;               /* 1: needed waits for MH_WHATIF_WAIT at most; 0: more workers and
                                 prefetch would not change it */
    int cpus;                 /* counted with; 0: not known, CPUs are no limit */
    double others;            /* threads of other processes that took CPUs from the run, and count
                                 on; 0 where the options name the CPUs */
    double making_cpu_s;      /* of one measured batch: fetch and collate, on a CPU */
    double making_blocked_s;  /* waiting for disk, network, sleep */
    double replay_off;        /* |replayed / measured time of a batch - 1| */
    uint64_t batches;         /* measured ones behind it all, first ones of epochs left out */
} mh_plan_whatif;

/* Waiting for this share of the time counts as not waiting. */
#define MH_WHATIF_WAIT 0.02

/* Fills *options with defaults: one accelerator, everything as in the run. Any thread. */
MH_API void mh_plan_whatif_options_init_sized(mh_plan_whatif_options *options, size_t struct_size);
static inline void mh_plan_whatif_options_init(mh_plan_whatif_options *options)
{
    mh_plan_whatif_options_init_sized(options, sizeof *options);
}

/* From what batches cost in a run, what other settings would give: replays of its steady part
 * (mh_replay), the CPUs shared by all accelerators. Making a batch and reading for it grow with the
 * batch size. A step time that is given changes the time the device takes, not the loop's own work.
 * Blocked time is taken as it was: a disk that gets full is not foreseen, compare read_bytes_per_s
 * with what it gives. *out is untouched on failure. Any thread. Errors: MH_ERR_INVALID for NULL,
 * options or facts that were not initialised, numbers out of range, more memory than 64 bits count;
 * MH_ERR_UNSUPPORTED where the run does not tell what making its batches took; MH_ERR_NOMEM. */
MH_API MH_MUST_CHECK mh_status mh_plan_whatif_make(mh_plan_whatif *out, const mh_facts *facts,
                                                   const mh_plan_whatif_options *options,
                                                   mh_error *err);

#ifdef __cplusplus
}
#endif
#endif
