/* _channel.h - a Channel's insides, for the files that implement its methods
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PYTHON_CHANNEL_H
#define MH_PYTHON_CHANNEL_H

#include "_module.h"
#include "metrics/events.h"
#include "sys/memory.h"
#include "workers/control.h"

typedef struct task_note {
    uint64_t position;
    PyObject *index;
    mh_slot *slot;       /* granted for the batch, or NULL */
    PyObject *structure; /* the slot was granted for, and its generation */
    uint32_t generation;
    mh_slot *carrier; /* of an index too large for the ring, or NULL */
} task_note;

/* A batch on the board. */
typedef struct post_note {
    task_note task;
    bool used;
    bool whole; /* all its samples are done */
} post_note;

typedef struct channel_worker {
    task_note *notes; /* number n at n % depth; [taken, put) are under way */
    uint64_t put;
    uint64_t taken;
    uint32_t generation; /* of the schema it was sent last */
    bool new_epoch;      /* its next task is the first of one */
    mh_memory spill;
    mh_event_ring *events;
} channel_worker;

typedef struct channel_object {
    PyObject ob_base;
    mh_control *control;
    PyObject *pool;
    PyObject *dumps; /* pickles an index that is not a list of ints */
    mh_meter *meter;
    mh_memory metrics;
    channel_worker *workers;
    post_note *posts; /* one for each entry of the board, or NULL */
    bool board;       /* whether there is one */
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
} channel_object;

/* --- _channel.c --- */

/* The worker of that number, or NULL with an exception: closed, or no such worker. */
channel_worker *mh_channel_worker(channel_object *self, unsigned number);

/* Notes a task and grants it a slot, if there is a schema (`slot`: and it is wanted). */
void mh_channel_note(channel_object *self, task_note *note, uint64_t position, PyObject *index,
                     bool slot);

/* Fills what a task has besides its payload. */
void mh_channel_fill(const channel_object *self, mh_task *task, const task_note *note,
                     uint32_t samples, uint64_t sample);

/* Writes index and, if task->schema_bytes says so, schema. False with an exception. */
bool mh_channel_write(channel_object *self, mh_task *task, task_note *note);

/* Ends what a note holds on to. */
void mh_channel_note_end(task_note *note);

/* The batch in a note's slot, which is the tensors' or free afterwards. The leaves are another
 * process's word, and checked. */
PyObject *mh_channel_batch(channel_object *self, task_note *note, const mh_leaf *leaves,
                           uint32_t leaf_count);

/* The pieces of a pickled result, each in memory of its own. */
PyObject *mh_channel_pieces(channel_object *self, channel_worker *worker, const mh_result *result);

/* Gives the meter what a worker said about slow samples. */
void mh_channel_events(channel_object *self, unsigned number);

/* --- _posts.c: methods of a Channel with a board --- */

PyObject *mh_channel_post(PyObject *object, PyObject *arguments);
PyObject *mh_channel_receive(PyObject *object, PyObject *worker);
PyObject *mh_channel_build(PyObject *object, PyObject *position);
PyObject *mh_channel_drop(PyObject *object, PyObject *position);

/* The batch of that position on the board, or NULL. */
post_note *mh_post_find(const channel_object *self, uint64_t position);

/* Forgets all batches on the board. */
void mh_posts_end(channel_object *self);

/* --- _excess.c: methods for workers with too much memory --- */

PyObject *mh_channel_excess(PyObject *object, PyObject *arguments);
PyObject *mh_channel_excess_seen(PyObject *object, PyObject *worker);
PyObject *mh_channel_succeed(PyObject *object, PyObject *worker);

#endif
