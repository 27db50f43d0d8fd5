/* log.h - lines of a log turned into events: our own (docs/events.md) and Earthmover's
 * SPDX-License-Identifier: Apache-2.0
 *
 * Bytes are fed in pieces of any size; every whole object goes to a callback at once, so a log
 * of any length takes the memory of its longest line, and of that MH_LOG_LINE_BYTES at most. One
 * thread at a time.
 */
#ifndef MH_METRICS_LOG_H
#define MH_METRICS_LOG_H

#include "base/json.h"
#include <millhead/error.h>

#define MH_LOG_VERSION 1 /* of docs/events.md: earlier ones are read, later ones refused */
#define MH_LOG_LINE_BYTES ((size_t)16 << 20) /* a longer line is passed over and counted as bad */

/* One list: kind, the name in the log. */
#define MH_LOG_KIND_LIST(X)                                                                        \
    X(MH_LOG_OTHER, "")                                                                            \
    X(MH_LOG_HEADER, "header")                                                                     \
    X(MH_LOG_LOADER, "loader")                                                                     \
    X(MH_LOG_SETUP, "setup")                                                                       \
    X(MH_LOG_WAIT, "wait")                                                                         \
    X(MH_LOG_STEP, "step")                                                                         \
    X(MH_LOG_EPOCH, "epoch")                                                                       \
    X(MH_LOG_FETCH, "fetch")                                                                       \
    X(MH_LOG_SAMPLE, "sample")                                                                     \
    X(MH_LOG_COLLATE, "collate")                                                                   \
    X(MH_LOG_ORDER, "order")                                                                       \
    X(MH_LOG_STAGES, "stages")                                                                     \
    X(MH_LOG_READ, "read")                                                                         \
    X(MH_LOG_DECODE, "decode")                                                                     \
    X(MH_LOG_PLACE, "place")                                                                       \
    X(MH_LOG_STORAGE, "storage")                                                                   \
    X(MH_LOG_HOT, "hot")                                                                           \
    X(MH_LOG_PHASE, "phase")                                                                       \
    X(MH_LOG_USAGE, "usage")                                                                       \
    X(MH_LOG_SYSTEM, "system")                                                                     \
    X(MH_LOG_GPU, "gpu")                                                                           \
    X(MH_LOG_ERROR, "error")                                                                       \
    X(MH_LOG_END, "end")                                                                           \
    X(MH_LOG_RUN_START, "run start")                                                               \
    X(MH_LOG_RUN_END, "run end")                                                                   \
    X(MH_LOG_SETUP_START, "setup start")                                                           \
    X(MH_LOG_SETUP_END, "setup end")                                                               \
    X(MH_LOG_GET_START, "get-batch start")                                                         \
    X(MH_LOG_GET_END, "get-batch end")                                                             \
    X(MH_LOG_EPOCH_START, "epoch start")                                                           \
    X(MH_LOG_EPOCH_END, "epoch end")                                                               \
    X(MH_LOG_TRAIN_START, "training start")                                                        \
    X(MH_LOG_TRAIN_END, "training end")

typedef enum mh_log_kind {
#define X(kind, name) kind,
    MH_LOG_KIND_LIST(X)
#undef X
        MH_LOG_KINDS
} mh_log_kind;

/* The keys of events that hold whole numbers (or true and false), reals, and texts: fields of
 * mh_log_event of the same names. */
#define MH_LOG_WHOLE_LIST(X)                                                                       \
    X(t)                                                                                           \
    X(ns)                                                                                          \
    X(cpu)                                                                                         \
    X(delay)                                                                                       \
    X(loader)                                                                                      \
    X(epoch)                                                                                       \
    X(batch)                                                                                       \
    X(worker)                                                                                      \
    X(nth)                                                                                         \
    X(samples)                                                                                     \
    X(bytes)                                                                                       \
    X(texts)                                                                                       \
    X(train)                                                                                       \
    X(batches)                                                                                     \
    X(complete)                                                                                    \
    X(pid)                                                                                         \
    X(read)                                                                                        \
    X(probes)                                                                                      \
    X(native)                                                                                      \
    X(helpers)                                                                                     \
    X(order)                                                                                       \
    X(index)                                                                                       \
    X(idx)                                                                                         \
    X(step)                                                                                        \
    X(rss)                                                                                         \
    X(pss)                                                                                         \
    X(rss_file)                                                                                    \
    X(pss_file)                                                                                    \
    X(threads)                                                                                     \
    X(in_flight)                                                                                   \
    X(reads)                                                                                       \
    X(latency)                                                                                     \
    X(tasks)                                                                                       \
    X(requests)                                                                                    \
    X(cache_hits)                                                                                  \
    X(cache_misses)                                                                                \
    X(cache_bytes)                                                                                 \
    X(cache_evicted)                                                                               \
    X(wait_read)                                                                                   \
    X(wait_decode)                                                                                 \
    X(wait_place)                                                                                  \
    X(pin)                                                                                         \
    X(map)                                                                                         \
    X(cpus)                                                                                        \
    X(busy)                                                                                        \
    X(idle)                                                                                        \
    X(iowait)                                                                                      \
    X(disk_read)                                                                                   \
    X(disk_busy)                                                                                   \
    X(net_read)                                                                                    \
    X(psi_cpu)                                                                                     \
    X(psi_io)                                                                                      \
    X(psi_memory)                                                                                  \
    X(available)                                                                                   \
    X(device)                                                                                      \
    X(memory)                                                                                      \
    X(memory_total)                                                                                \
    X(version)                                                                                     \
    X(rank)                                                                                        \
    X(world)                                                                                       \
    X(workers)                                                                                     \
    X(prefetch)                                                                                    \
    X(batch_size)                                                                                  \
    X(in_order)                                                                                    \
    X(persistent)                                                                                  \
    X(pin_memory)                                                                                  \
    X(iterable)                                                                                    \
    X(io)                                                                                          \
    X(own)
#define MH_LOG_REAL_LIST(X)                                                                        \
    X(lock)                                                                                        \
    X(util)                                                                                        \
    X(memory_util)                                                                                 \
    X(watts)                                                                                       \
    X(watts_limit)                                                                                 \
    X(time)                                                                                        \
    X(duration)
#define MH_LOG_TEXT_LIST(X)                                                                        \
    X(event)                                                                                       \
    X(schema)                                                                                      \
    X(host)                                                                                        \
    X(kind)                                                                                        \
    X(start)                                                                                       \
    X(dispatch)                                                                                    \
    X(name)                                                                                        \
    X(role)                                                                                        \
    X(state)                                                                                       \
    X(stage)                                                                                       \
    X(place)                                                                                       \
    X(code)                                                                                        \
    X(dataset)                                                                                     \
    X(what)

#define MH_LOG_NONE INT64_MIN /* a whole number that is not there */

/* Valid during the callback. An Earthmover event has its time and duration in t and ns too, and
 * its `locals` among the fields, under our names. */
typedef struct mh_log_event {
    mh_log_kind is;
    struct {
#define X(name) int64_t name; /* or MH_LOG_NONE */
        MH_LOG_WHOLE_LIST(X)
#undef X
    };
    struct {
#define X(name) double name; /* or NAN */
        MH_LOG_REAL_LIST(X)
#undef X
    };
    struct {
#define X(name) mh_json_token name; /* or one with length 0 */
        MH_LOG_TEXT_LIST(X)
#undef X
    };
} mh_log_event;

/* A whole number, or `otherwise` where it is not there or negative. */
static inline uint64_t mh_log_or(int64_t value, uint64_t otherwise)
{
    return value < 0 ? otherwise : (uint64_t)value;
}

/* MH_OK, or what ends the reading, with the reason in err. */
typedef mh_status (*mh_log_fn)(void *argument, const mh_log_event *event, mh_error *err);

typedef struct mh_log_counts {
    uint64_t bytes;
    uint64_t lines;
    uint64_t
        bad_lines; /* not exactly one JSON object; what objects they hold is told all the same */
    uint64_t first_bad; /* its number from 1; 0: none */
    uint64_t events;    /* objects with a name we know */
} mh_log_counts;

typedef struct mh_log mh_log;

/* The caller closes it. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_log_open(mh_log **out, mh_log_fn event, void *argument, mh_error *err);

/* The next bytes. Fails with MH_ERR_UNSUPPORTED at a header of a later version, with MH_ERR_NOMEM,
 * or as the callback does; the line is in the message. */
MH_MUST_CHECK mh_status mh_log_feed(mh_log *log, const char *bytes, size_t size, mh_error *err);

/* There are no more: a last line without newline counts, unless it is empty. */
MH_MUST_CHECK mh_status mh_log_finish(mh_log *log, mh_error *err);

const mh_log_counts *mh_log_counted(const mh_log *log);
void mh_log_close(mh_log *log); /* NULL is allowed */

/* Opens, feeds a whole file as far as it is written now, and finishes. `progress` as mh_run_read.
 */
typedef int (*mh_log_progress)(void *argument, uint64_t bytes, uint64_t all);
MH_MUST_CHECK mh_status mh_log_read_file(const char *path, mh_log_fn event, void *argument,
                                         mh_log_progress progress, void *progress_argument,
                                         mh_log_counts *out_counts, mh_error *err);

#endif
