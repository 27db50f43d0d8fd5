/* consumer_end.h - a ConsumerEnd's insides, for the files that implement its methods
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PYTHON_CONSUMER_END_H
#define MH_PYTHON_CONSUMER_END_H

#include "metrics/events.h"
#include "module.h"
#include "sys/memory.h"
#include "workers/control.h"

typedef struct pending_task {
    uint64_t position;
    PyObject *index;
    mh_slot *slot; /* granted for the batch, or NULL */
    /* the schema the slot was granted for: the ConsumerEnd may learn another one meanwhile */
    PyObject *structure;
    PyObject *schema; /* structure, pickled */
    uint32_t generation;
    mh_slot *carrier; /* of an index too large for the ring, or NULL */
} pending_task;

/* A batch on the board. */
typedef struct board_batch {
    pending_task task;
    bool used;
    bool whole; /* all its samples are done */
} board_batch;

typedef struct consumer_end_worker {
    uint32_t number;
    pending_task *tasks; /* number n at n % depth; [taken, put) are under way */
    uint64_t put;
    uint64_t taken;
    uint32_t generation; /* of the schema it was sent last */
    bool new_epoch;      /* its next task is the first of one */
    mh_memory spill;
    mh_event_ring *events;
} consumer_end_worker;

typedef struct consumer_end_object {
    PyObject ob_base;
    mh_control *control;
    PyObject *pool;
    PyObject *dumps; /* pickles an index that is not a list of ints */
    mh_meter *meter;
    mh_memory metrics;
    consumer_end_worker *workers;
    board_batch *batches; /* one for each entry of the board, or NULL */
    bool board;           /* whether there is one */
    bool cleared;         /* by the garbage collector: as good as closed */
    uint32_t worker_count;
    uint32_t depth;     /* places in each worker's rings */
    uint32_t under_way; /* batches asked for at a time */
    /* the schema: what a batch looks like */
    PyObject *structure;
    PyObject *schema; /* structure, pickled */
    uint32_t generation;
    uint64_t copied_bytes;
    uint64_t pickled_bytes;
    uint64_t copied_out; /* batches copied because the user holds too many */
    uint64_t skipped;    /* samples that could not be loaded, and the first one, in words */
    uint64_t replaced;
    char fault[MH_FAULT_BYTES];
    uint32_t fork_generation;
    int busy;         /* calls under way that use the memory: close waits for a later day */
    mh_result result; /* the one being taken, out of the worker's reach; without its state */
} consumer_end_object;

/* --- consumer_end.c --- */

/* False with an exception: closed, or another process's. */
bool mh_consumer_end_is_open(const consumer_end_object *self);

/* The worker of that number, or NULL with an exception: not open, or no such worker. */
consumer_end_worker *mh_consumer_end_worker(consumer_end_object *self, unsigned number);
consumer_end_worker *mh_consumer_end_worker_of(PyObject *self, PyObject *number);

/* Gives the meter what a worker said about slow samples. */
void mh_consumer_end_events(consumer_end_object *self, const consumer_end_worker *worker);

/* --- received_batch.c --- */

/* The batch in a task's slot, which is the tensors' or free afterwards. */
PyObject *mh_consumer_end_batch(consumer_end_object *self, pending_task *task,
                                const mh_leaf *leaves, uint32_t leaf_count);

/* The pieces of a pickled result, each in memory of its own. The worker may use theirs again. */
PyObject *mh_consumer_end_parts(consumer_end_object *self, consumer_end_worker *worker,
                                const mh_result *result);

/* The state that came with self->result, as bytes; None where none did. A short one is in the
 * result that the worker shares. */
PyObject *mh_consumer_end_state(consumer_end_object *self, consumer_end_worker *worker,
                                const mh_result *shared);

/* --- pending_tasks.c --- */

/* Begins a task and grants it a slot, if there is a schema (`slot`: and it is wanted). */
void mh_pending_task_begin(consumer_end_object *self, pending_task *task, uint64_t position,
                           PyObject *index, bool slot);

/* Fills what an entry has besides its payload. `schema`: the one of its slot goes with it. */
void mh_pending_task_fill(mh_task *entry, const pending_task *task, uint32_t samples,
                          uint64_t sample, bool schema);

/* Writes index and, if entry->schema_bytes says so, the schema. False with an exception. */
bool mh_pending_task_write(consumer_end_object *self, mh_task *entry, pending_task *task);

/* Gives up all that a task holds. */
void mh_pending_task_end(pending_task *task);

/* What the garbage collector sees of a task, and clears of it. Its slots stay as they are: workers
 * may still write into them. */
int mh_pending_task_visit(const pending_task *task, visitproc visit, void *arg);
void mh_pending_task_clear(pending_task *task);

/* --- consumer_board.c: methods of a ConsumerEnd with a board --- */

PyObject *mh_consumer_end_publish(PyObject *object, PyObject *arguments);
PyObject *mh_consumer_end_receive(PyObject *object, PyObject *worker);
PyObject *mh_consumer_end_build(PyObject *object, PyObject *position);
PyObject *mh_consumer_end_drop(PyObject *object, PyObject *position);

/* The batch of that position on the board, or NULL. */
board_batch *mh_board_batch_find(const consumer_end_object *self, uint64_t position);

/* Forgets all batches on the board. */
void mh_board_batches_end(consumer_end_object *self);

/* --- memory_limit.c: methods for workers with too much memory --- */

PyObject *mh_consumer_end_over_limit(PyObject *object, PyObject *arguments);
PyObject *mh_consumer_end_succeed(PyObject *object, PyObject *worker);

#endif
