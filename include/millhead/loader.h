/* loader.h - a dataset in batches: read, decoded and placed by threads of the library
 * SPDX-License-Identifier: Apache-2.0
 *
 *     mh_loader_options options;
 *     mh_loader_options_init(&options);
 *     options.batch_size = 64;
 *     options.shuffle = MH_SHUFFLE_ALL;
 *     mh_loader *loader;
 *     if (mh_loader_open(&loader, data, &options, &err) != MH_OK) ...
 *     while ((status = mh_loader_next(loader, &batch, &err)) == MH_OK) {
 *         train(mh_batch_array(batch, 0)->data);
 *         mh_batch_unref(batch);
 *     }
 *     mh_loader_close(loader);
 *
 * The order of samples depends on seed and epoch alone. Rank r of R takes every R-th sample of each
 * global batch (but for MH_SHUFFLE_BLOCKS). Threads, prefetch and memory change how fast batches
 * come, never what is in them.
 */
#ifndef MILLHEAD_LOADER_H
#define MILLHEAD_LOADER_H

#include <millhead/dataset.h>
#include <millhead/leg.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mh_shuffle {
    MH_SHUFFLE_NONE,  /* sample k at position k */
    MH_SHUFFLE_ALL,   /* a full shuffle, computed: no memory, any position at once */
    MH_SHUFFLE_TORCH, /* the order of torch's DistributedSampler for (seed, epoch) */
    /* Samples that lie close together come close in time, mixed with those of a few other places:
     * each chunk is read and decoded once, or little more often. Each rank has blocks of its own,
     * so the order of a rank depends on the number of ranks; a sample's position does not. */
    MH_SHUFFLE_BLOCKS,
    MH_SHUFFLE_KINDS
} mh_shuffle;

/* What becomes of a sample that is corrupt, not supported or missing. Failures of reading always
 * are errors: else what is delivered would depend on the network. */
typedef enum mh_on_error {
    MH_ON_ERROR_RAISE,   /* next() fails in place of its batch */
    MH_ON_ERROR_SKIP,    /* its batch is shorter */
    MH_ON_ERROR_REPLACE, /* another, which follows from seed, epoch and position, is in its place */
    MH_ON_ERROR_KINDS
} mh_on_error;

typedef struct mh_loader_options {
    size_t struct_size;
    uint64_t batch_size; /* samples of one rank in a batch; default 1 */
    mh_shuffle shuffle;
    uint64_t seed;
    uint64_t epoch;         /* the first one */
    uint64_t rank, world;   /* default 0 of 1 */
    uint64_t start;         /* samples of the first epoch, of all ranks, that are done already */
    int drop_last;          /* only full batches */
    int uneven;             /* ranks may have one sample more than others: nothing is repeated */
    uint64_t limit_batches; /* per epoch, those before `start` among them; 0: all */
    int threads;            /* that read and place; 0: none, next() does it; -1: as plan.h says */
    uint32_t in_flight;     /* reads under way at a time; 0: 16 */
    uint32_t prefetch;      /* batches ready or under way beyond the one in use, more of them
                               where they are small; 0: 2 */
    uint64_t memory_bytes;  /* most for batches and reads; 0: a quarter of what is available */
    const char *simulate;   /* a slow link: "latency=30ms,bandwidth=100MB/s,errors=0.1%"; or NULL */
    mh_on_error on_error;
    /* An epoch of these samples alone, in this order where nothing shuffles them; NULL: of all. Not
     * with MH_SHUFFLE_BLOCKS. Read by mh_loader_open only. */
    const uint64_t *subset;
    uint64_t subset_count;
    /* One for each sample (of the subset): an epoch is as many draws by weight, with replacement,
     * that follow from seed, epoch and position. Only with MH_SHUFFLE_NONE. NULL: no draws. */
    const double *weights;
    uint64_t weight_count;
} mh_loader_options;

MH_API void mh_loader_options_init_sized(mh_loader_options *options, size_t size);
static inline void mh_loader_options_init(mh_loader_options *options)
{
    mh_loader_options_init_sized(options, sizeof *options);
}

/* One thread at a time; mh_loader_stats_read from any. After a fork the
 * child's copy is inert: calls fail with MH_ERR_FORKED, close does nothing. */
typedef struct mh_loader mh_loader;

/* Starts the threads; the first batches are under way when it returns. Holds its own reference of
 * the dataset. *out is untouched on failure. Errors: MH_ERR_INVALID (an option, named),
 * MH_ERR_NOMEM (with the memory that one batch needs and what is allowed). */
MH_API MH_MUST_CHECK mh_status mh_loader_open(mh_loader **out, mh_dataset *dataset,
                                              const mh_loader_options *options, mh_error *err);

/* Ends the threads and frees what no batch holds. Batches stay the caller's. NULL allowed. */
MH_API void mh_loader_close(mh_loader *loader);

/* Batches of this rank in an epoch, of one that begins at its start. */
MH_API uint64_t mh_loader_batches(const mh_loader *loader);

/* The batch after the last one. It is the caller's until mh_batch_unref, writable, never
 * overwritten. MH_END once at the end of each epoch; the next call begins the next epoch. An error
 * belongs to the batch that was due: the next call goes on behind it. Engine errors (MH_ERR_NOMEM,
 * MH_ERR_CLOSED, MH_ERR_FORKED) stay. */
typedef struct mh_batch mh_batch;
MH_API MH_MUST_CHECK mh_status mh_loader_next(mh_loader *loader, mh_batch **out, mh_error *err);

/* The same, but MH_ERR_TIMEOUT when nothing came in time; the batch is still due. */
MH_API MH_MUST_CHECK mh_status mh_loader_next_within(mh_loader *loader, uint64_t timeout_ns,
                                                     mh_batch **out, mh_error *err);

/* The next call of next() begins `epoch` at `start` samples of all ranks, whatever is under way. */
MH_API MH_MUST_CHECK mh_status mh_loader_seek(mh_loader *loader, uint64_t epoch, uint64_t start,
                                              mh_error *err);

/* The same for MH_SHUFFLE_BLOCKS, where other numbers of ranks had a part of the epoch: what is
 * left by those `legs` is shared out anew. Positions go on from the samples of all legs.
 * MH_ERR_INVALID: another shuffle; legs that make no sense. */
MH_API MH_MUST_CHECK mh_status mh_loader_seek_legs(mh_loader *loader, uint64_t epoch,
                                                   const mh_leg *legs, uint32_t count,
                                                   mh_error *err);

/* Where the loop is: the epoch, and its samples of all ranks that have been delivered. */
MH_API void mh_loader_position(const mh_loader *loader, uint64_t *out_epoch, uint64_t *out_samples);

typedef struct mh_loader_stats {
    size_t struct_size;
    uint64_t batches, samples, bytes_read;
    uint64_t reads_now, reads_waited; /* found in the page cache; handed to an I/O thread */
    uint64_t wait_ns, wait_most_ns;   /* that next() waited */
    uint64_t read_ns;                 /* of all threads, for what was in the page cache */
    uint64_t waited_ns;               /* of all reads that were handed to an I/O thread, summed */
    uint64_t decode_ns, place_ns;     /* of all threads */
    uint64_t placed;                  /* samples made of units; those ahead of the loop too */
    uint64_t skipped, replaced;       /* samples, by on_error */
    uint64_t units_fetched, units_decoded, units_refetched; /* fetched again after an eviction */
    uint64_t units_bytes_peak;                              /* memory of units at a time */
    uint64_t slots_peak;         /* batches ready or under way at a time */
    uint64_t batches_copied_out; /* because the caller holds many */
    int threads;
    uint32_t in_flight;
    uint64_t requests, requests_retried, requests_hedged; /* to a network; asked a second time */
    uint64_t requests_peak;                               /* under way at a time */
    uint64_t cache_hits, cache_misses, cache_bytes;       /* reads from disk; bytes of them */
    uint64_t cache_written_bytes, cache_evicted_bytes, cache_corrupt;
    uint64_t cpu_ns; /* of the threads, and of next() with their work; 0 without threads */
    /* Of wait_ns, but for the first batch of each epoch: what the batch still needed. */
    uint64_t wait_read_ns, wait_decode_ns, wait_place_ns;
} mh_loader_stats;
MH_API void mh_loader_stats_init_sized(mh_loader_stats *stats, size_t size);
static inline void mh_loader_stats_init(mh_loader_stats *stats)
{
    mh_loader_stats_init_sized(stats, sizeof *stats);
}
/* Any thread. */
MH_API void mh_loader_stats_read(const mh_loader *loader, mh_loader_stats *stats);

/* --- reading without a loader --- */

/* Reads `count` samples by number, in that order and repeated as they are, on the calling thread.
 * The batch is the caller's and all its positions are 0. Any number of threads, forked children
 * too: each process opens the files for itself. *out is untouched on failure. Errors:
 * MH_ERR_INVALID (no sample has the number), MH_ERR_IO, MH_ERR_NOT_FOUND, MH_ERR_NOMEM. */
MH_API MH_MUST_CHECK mh_status mh_dataset_read(mh_dataset *dataset, const uint64_t *numbers,
                                               size_t count, mh_batch **out, mh_error *err);

/* --- a batch --- */

/* One field of a batch: dims dimensions, the first of them the samples; dense, row by row. Of a
 * ragged field all values lie one after the other, in one dimension: those of sample i from
 * offsets[i] to offsets[i + 1], in the shape that shapes has from i * sample_dims on. */
typedef struct mh_array {
    const char *name;
    mh_dtype dtype;
    uint32_t dims;
    int64_t shape[MH_DIMS_MOST + 1];
    void *data;
    uint64_t bytes;
    const int64_t *offsets; /* NULL: not ragged */
    const int64_t *shapes;
    uint32_t sample_dims;
} mh_array;

/* Samples in it, the number of each in the dataset, and its position in the epoch, of all ranks.
 * The lists are valid as long as the batch. */
MH_API uint64_t mh_batch_samples(const mh_batch *batch);
MH_API const uint64_t *mh_batch_numbers(const mh_batch *batch);
MH_API const uint64_t *mh_batch_positions(const mh_batch *batch);

/* Field number `at`, in order of name; NULL beyond the last. Valid as long as the batch. */
MH_API const mh_array *mh_batch_array(const mh_batch *batch, size_t at);

/* References: the memory is reused once the last one is gone, on any thread, also after the loader
 * was closed. unref accepts NULL. */
MH_API mh_batch *mh_batch_ref(mh_batch *batch);
MH_API void mh_batch_unref(mh_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
