/* control.h - the block of shared memory through which a consumer and its workers talk
 * SPDX-License-Identifier: Apache-2.0
 *
 * One memfd: a header, then for each worker its own block on its own cache lines, a ring of tasks
 * (written by the consumer, read by the worker) and a ring of results (the other way). Each ring
 * has one writer and one reader, an entry is published by one store of a counter, and there is no
 * lock, so a process killed between any two instructions leaves nothing locked and nothing half
 * visible.
 *
 *     consumer                                                worker w
 *     task_begin .. fill .. task_publish  --- task ring --->   task_wait .. task_done
 *     result_wait .. result_done          <-- result ring ---  result_begin .. fill ..
 * result_publish
 *
 * Sleeping is on two futexes: done_seq (the consumer; bumped by every result it waits for) and each
 * worker's task_seq. A sleeper announces itself first, so that nobody pays for a wake-up that no
 * one needs.
 */
#ifndef MH_WORKERS_CONTROL_H
#define MH_WORKERS_CONTROL_H

#include "batch/leaf.h"
#include "mh_config.h"

#include <millhead/error.h>
#include <stdbool.h>

#define MH_TASK_PAYLOAD_BYTES ((size_t)64 * 1024)
/* Generator and hook state that travels with a result: Python's random (2.5 KB), numpy's (2.5 KB)
 * and torch's (5 KB) fit, as text. */
#define MH_STATE_BYTES ((size_t)16 * 1024)
/* What happened to the first sample of a batch that could not be loaded, in words. */
#define MH_FAULT_BYTES ((size_t)256)
#define MH_ANY_WORKER UINT32_MAX

enum mh_task_flags {
    MH_TASK_INTS = 1,    /* payload: int64 sample indices */
    MH_TASK_PICKLED = 2, /* payload: a pickled index of any kind */
    MH_TASK_OUTSIDE = 4, /* the payload lies in the pool's memory, not in the entry */
    MH_TASK_SCHEMA = 8,  /* the payload is followed by the schema of `generation`, pickled */
    MH_TASK_EPOCH = 16,  /* the worker's first task of an epoch after its first */
    MH_TASK_STATE = 32,  /* the result should bring the worker's state */
};

typedef struct mh_task {
    uint64_t position;     /* batch number, counted by the consumer; never reused */
    uint32_t first;        /* offset in the batch of the first sample asked for */
    uint32_t count;        /* samples asked for */
    uint64_t sample;       /* position in the epoch of the first sample asked for */
    uint64_t key;          /* of the epoch: what its samples' generators are seeded from */
    uint32_t flags;        /* enum mh_task_flags */
    uint32_t generation;   /* of the schema the slot was sized for; 0: none yet */
    uint64_t slot_offset;  /* in the pool's memory */
    uint64_t slot_bytes;   /* 0: no slot granted, take the general path */
    uint64_t outside;      /* MH_TASK_OUTSIDE: where in the pool's memory */
    uint32_t index_bytes;  /* the first part of the payload */
    uint32_t schema_bytes; /* the second */
    uint8_t payload[MH_TASK_PAYLOAD_BYTES];
} mh_task;

typedef enum mh_result_kind {
    MH_RESULT_NONE,
    MH_RESULT_SLOT,    /* the batch lies in the slot of its task */
    MH_RESULT_GENERAL, /* pickled, with its buffers, in the worker's spill memory */
    MH_RESULT_ERROR,   /* a pickled exception, likewise */
    MH_RESULT_END,     /* nothing: the worker's stream of samples has ended */
    MH_RESULT_PART,    /* of a batch on the board: pickled, about one run */
    MH_RESULT_WHOLE,   /* of a batch on the board: all its samples are done, see marks */
} mh_result_kind;

/* The position of a worker's word that is about no batch: it has not claimed a run yet. */
#define MH_NO_BATCH UINT64_MAX

typedef struct mh_result {
    uint64_t position; /* or MH_NO_BATCH, with MH_RESULT_PART */
    uint32_t kind;     /* mh_result_kind */
    uint32_t leaf_count;
    uint32_t generation;
    uint32_t state_bytes;
    uint32_t samples;  /* in the batch: fewer than asked for at the end of a stream */
    uint32_t skipped;  /* samples that could not be loaded: left out of the batch, */
    uint32_t replaced; /* or others in their place */
    uint32_t marks;    /* MH_RESULT_WHOLE: enum mh_run_marks */
    uint64_t spill_offset;
    uint64_t spill_bytes;
    uint64_t state_offset; /* in the worker's spill memory, of a state beyond MH_STATE_BYTES */
    uint64_t spill_placed; /* pieces that all processes of this worker placed there until now */
    uint64_t pickled_bytes;
    uint64_t published_ns; /* set by result_publish */
    uint64_t fetch_ns;
    uint64_t collate_ns;
    mh_leaf leaves[MH_LEAVES_MAX];
    char fault[MH_FAULT_BYTES]; /* UTF-8, ended by 0; only where some were skipped or replaced */
    uint8_t state[MH_STATE_BYTES];
} mh_result;

typedef enum mh_worker_state {
    MH_WORKER_STARTING,
    MH_WORKER_IDLE,
    MH_WORKER_FETCHING,
    MH_WORKER_COLLATING,
    MH_WORKER_SENDING,
    MH_WORKER_LEFT, /* ended in good order */
} mh_worker_state;

/* What a worker does that has more memory than it may. */
typedef enum mh_over_limit {
    MH_OVER_LIMIT_NONE,
    MH_OVER_LIMIT_LEAVES, /* it has left between two batches: another process may take its place */
    MH_OVER_LIMIT_ENDED,  /* it was ended in the middle of a batch, which is to be made again */
    MH_OVER_LIMIT_STAYS,  /* it goes on, since nobody could take its place */
} mh_over_limit;

typedef struct mh_over_limit_view {
    mh_over_limit over_limit;
    uint64_t bytes;       /* that it had */
    uint64_t results_put; /* by all processes of this worker */
} mh_over_limit_view;

/* What a worker was doing, readable at any time and after its death. */
typedef struct mh_worker_view {
    mh_worker_state state;
    int pid;
    uint64_t position; /* task it has or had in hand */
    uint32_t offset;   /* sample of that task: stored before each __getitem__ */
    uint64_t busy_ns;  /* with a task in hand, since it started */
    uint64_t heartbeat_ns;
    uint64_t tasks;
    uint32_t threads; /* the most it has said it had; 0 before it said anything */
} mh_worker_view;

typedef struct mh_control mh_control;
typedef struct mh_board mh_board; /* board.h */
typedef struct mh_board_run mh_board_run;

typedef struct mh_control_size {
    uint32_t workers;
    uint32_t depth;     /* tasks and results that fit into each worker's rings */
    uint32_t under_way; /* batches asked for at a time, of all workers together */
    uint32_t board;     /* 1: they are on a board, any sample for any worker; or 0 */
} mh_control_size;

/* The consumer's side. Errors: MH_ERR_INVALID (a number that is 0 or too large), MH_ERR_NOMEM,
 * MH_ERR_IO. */
MH_MUST_CHECK mh_status mh_control_open(mh_control **out, const mh_control_size *size,
                                        mh_error *err);

/* Worker `worker`'s side of a block another process opened; the descriptor stays the caller's.
 * Errors: MH_ERR_CORRUPT for a block of another version or size, MH_ERR_INVALID, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_control_attach(mh_control **out, int fd, uint32_t worker, mh_error *err);

/* A third one's side, for looking only: the block is mapped read-only, nothing in it changes and
 * nobody notices. The functions under "onlooker" and mh_control_view may be called. Errors as
 * mh_control_attach. */
MH_MUST_CHECK mh_status mh_control_look(mh_control **out, int fd, mh_error *err);

/* Unmaps and frees this side; says nothing to the other. NULL allowed; inert after a fork. */
void mh_control_close(mh_control *control);

int mh_control_fd(const mh_control *control);
uint32_t mh_control_workers(const mh_control *control);
mh_board *mh_control_board(const mh_control *control); /* NULL where there is none */

/* --- consumer --- */

/* Says whose block it is: those of one loader have the same number, whatever it is. */
void mh_control_set_loader(mh_control *control, uint64_t loader);

/* The entry to fill for the worker's next task, or NULL when its ring is full. */
mh_task *mh_control_task_begin(mh_control *control, uint32_t worker);
/* Makes the entry of task_begin visible and wakes the worker. */
void mh_control_task_publish(mh_control *control, uint32_t worker);

/* Opens an entry of the board (mh_board_publish) and wakes all workers that sleep. */
void mh_control_publish_batch(mh_control *control, uint32_t entry, bool again);

/* The oldest result of a worker, or NULL. It stays valid until result_done. */
const mh_result *mh_control_result_peek(mh_control *control, uint32_t worker);
void mh_control_result_done(mh_control *control, uint32_t worker);

/* Sleeps until `worker` (or any: MH_ANY_WORKER) has a result, at most timeout_ns. Looks for a few
 * microseconds before it sleeps. Returns 1 when there is one. */
int mh_control_result_wait(mh_control *control, uint32_t worker, uint64_t timeout_ns);

/* Says that one more result of the worker whose bytes lay in its spill memory is read. */
void mh_control_spill_done(mh_control *control, uint32_t worker);

/* Tells every worker to end after what it has in hand. */
void mh_control_stop(mh_control *control);

void mh_control_view(const mh_control *control, uint32_t worker, mh_worker_view *out);

/* Whether the worker has said that it has too much memory. */
bool mh_control_over_limit(const mh_control *control, uint32_t worker, mh_over_limit_view *out);

/* Forgets what the worker said about its memory. */
void mh_control_over_limit_seen(mh_control *control, uint32_t worker);

/* Makes the worker's place ready for another process, which goes on where this one stopped: a task
 * that it took and sent no result of is the next one's first. The old process must have left
 * (MH_OVER_LIMIT_LEAVES) or ended. */
void mh_control_replace_worker(mh_control *control, uint32_t worker);

/* --- worker --- */

/* Sleeps until there is a task or the consumer stops, at most timeout_ns; NULL when there is none.
 * The entry stays valid until task_done. */
const mh_task *mh_control_task_wait(mh_control *control, uint64_t timeout_ns);
void mh_control_task_done(mh_control *control);
int mh_control_stopped(const mh_control *control);

/* Sleeps until it has claimed a run from the board or the consumer stops, at most timeout_ns; false
 * when it has none. `sample_ns` as for mh_board_claim. */
bool mh_control_run_wait(mh_control *control, uint64_t sample_ns, uint64_t timeout_ns,
                         mh_board_run *out);

/* The run is finished (mh_board_finish), whether or not there was a result to send. */
void mh_control_run_done(mh_control *control);

/* Whether there is room for a result. With tasks there always is: a consumer never has more than
 * `depth` of them with one worker. With the board a consumer that is away may leave the ring full.
 */
bool mh_control_result_room(const mh_control *control);

/* The entry for the next result; there must be room. */
mh_result *mh_control_result_begin(mh_control *control);
void mh_control_result_publish(mh_control *control);

/* How many spilled results the consumer has read, in order. */
uint64_t mh_control_spill_read(const mh_control *control);

/* Result number `number` of this worker, whichever process sent it: one of the last `depth`. */
const mh_result *mh_control_result_sent(const mh_control *control, uint64_t number);

/* Says that the worker has more memory than it may, and wakes the consumer. After
 * MH_OVER_LIMIT_LEAVES and MH_OVER_LIMIT_ENDED the process must not touch the block again. Any
 * thread. */
void mh_control_set_over_limit(mh_control *control, mh_over_limit over_limit, uint64_t bytes);

/* What the worker is doing now, for mh_control_view. */
void mh_control_set_state(mh_control *control, mh_worker_state state);
void mh_control_set_sample(mh_control *control, uint32_t offset);
void mh_control_set_threads(mh_control *control, uint32_t threads); /* the largest is kept */

/* --- onlooker --- */

uint32_t mh_control_depth(const mh_control *control);
uint32_t mh_control_under_way(const mh_control *control);
bool mh_control_has_board(const mh_control *control);
uint64_t mh_control_loader(const mh_control *control);

/* Whether the consumer sleeps until a result comes. */
bool mh_control_consumer_waits(const mh_control *control);

/* Counters of a worker's rings: each only grows, and what lies between two is under way. */
typedef struct mh_ring_counts {
    uint64_t tasks_put, tasks_read;
    uint64_t results_put, results_read;
} mh_ring_counts;

void mh_control_counts(const mh_control *control, uint32_t worker, mh_ring_counts *out);

/* What result number `number` of a worker said about itself. */
typedef struct mh_result_note {
    uint64_t position;
    uint32_t kind; /* mh_result_kind */
    uint32_t samples;
    uint64_t published_ns, fetch_ns, collate_ns;
} mh_result_note;

/* False when it is not there yet, or when its place in the ring has another's by now. */
bool mh_control_result_note(const mh_control *control, uint32_t worker, uint64_t number,
                            mh_result_note *out);

/* --- tests --- */

/* Places where an entry changes its state, in the order a task meets them. With test hooks a test
 * names one, and the process that reaches it for the nth time raises the signal there. */
#define MH_POINT_LIST(X)                                                                           \
    X(MH_POINT_TASK_WRITTEN, "task-written")                                                       \
    X(MH_POINT_TASK_PUBLISHED, "task-published")                                                   \
    X(MH_POINT_TASK_TAKEN, "task-taken")                                                           \
    X(MH_POINT_SAMPLE, "sample")                                                                   \
    X(MH_POINT_TASK_DONE, "task-done")                                                             \
    X(MH_POINT_RESULT_BEGUN, "result-begun")                                                       \
    X(MH_POINT_RESULT_WRITTEN, "result-written")                                                   \
    X(MH_POINT_RESULT_PUBLISHED, "result-published")                                               \
    X(MH_POINT_RESULT_TAKEN, "result-taken")                                                       \
    X(MH_POINT_RESULT_DONE, "result-done")

typedef enum mh_point {
#define MH_POINT_ENUM(id, name) id,
    MH_POINT_LIST(MH_POINT_ENUM)
#undef MH_POINT_ENUM
        MH_POINT_COUNT
} mh_point;

#if MH_TEST_HOOKS
/* Arms one point: `text` is "NAME:NTH:SIGNAL" ("result-written:3:9"). MH_ERR_INVALID otherwise. */
MH_MUST_CHECK mh_status mh_point_arm(const char *text, mh_error *err);
#endif

#endif
