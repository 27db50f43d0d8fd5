/* worker_end.h - a WorkerEnd's insides, for the files that implement its methods
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PYTHON_WORKER_END_H
#define MH_PYTHON_WORKER_END_H

#include "metrics/events.h"
#include "module.h"
#include "sys/memory.h"
#include "sys/own_memory.h"
#include "workers/board.h"
#include "workers/spill.h"

/* How long one sleep for a task lasts before Python gets a look at signals. */
#define MH_WORKER_SLICE_NS UINT64_C(1000000000)

typedef struct worker_end_object {
    PyObject ob_base;
    mh_control *control;
    mh_spill *spill;
    mh_memory pool;
    mh_memory metrics;
    mh_event_ring *events;
    PyObject *loads; /* unpickles an index or a schema */
    PyObject *structure;
    uint32_t generation;
    mh_task task; /* the one in hand, without its payload */
    uint64_t fetch_ns;
    uint32_t samples; /* in the batch */
    uint32_t skipped; /* of it, see mh_result */
    uint32_t replaced;
    char fault[MH_FAULT_BYTES];
    PyObject *state; /* bytes for the next result to bring, or NULL */
    uint64_t state_offset;
    uint64_t batches; /* sent */
    mh_own_memory memory;
    /* with a board: the run in hand, and what a sample takes */
    mh_board_run run;
    PyObject *indices; /* of a whole batch, unpickled: other runs of it need them too */
    uint64_t indices_position;
    uint64_t run_began_ns;
    uint64_t sample_ns;
} worker_end_object;

/* --- worker_end.c --- */

/* Takes a task over, without its payload. Where that begins, or NULL with an exception. */
const uint8_t *mh_worker_end_take(worker_end_object *self, const mh_task *task);

/* Learns the schema behind the index of a payload. */
void mh_worker_end_learn(worker_end_object *self, const mh_task *task, const uint8_t *payload);

PyObject *mh_worker_end_ints(const int64_t *numbers, Py_ssize_t count);
PyObject *mh_worker_end_unpickle(worker_end_object *self, const uint8_t *data, uint32_t bytes);

/* Whether the task has a slot and the schema is the one it was sized for. */
bool mh_worker_end_has_slot(const worker_end_object *self);

/* Where a batch goes: into the task's slot, its leaves to `leaves`. */
mh_sink mh_worker_end_sink(worker_end_object *self, mh_leaf *leaves);

/* Fills the rest of a result and publishes it. */
void mh_worker_end_publish(worker_end_object *self, mh_result *result, mh_result_kind kind,
                           uint64_t began_ns);

/* Sends [pickle, buffer or tensor, ...]; there must be room. False with an exception. */
bool mh_worker_end_send(worker_end_object *self, PyObject *pieces, mh_result_kind kind);

/* --- worker_board.c: methods of a WorkerEnd with a board --- */

PyObject *mh_worker_end_claim(PyObject *object, PyObject *unused);
PyObject *mh_worker_end_rows(PyObject *object, PyObject *samples);
PyObject *mh_worker_end_part(PyObject *object, PyObject *pieces);
PyObject *mh_worker_end_finish(PyObject *object, PyObject *apart);

/* --- memory_limit.c: methods of a WorkerEnd with a limit on its memory --- */

PyObject *mh_worker_end_own_memory(PyObject *object, PyObject *arguments);
PyObject *mh_worker_end_give_back(PyObject *object, PyObject *unused);
PyObject *mh_worker_end_over_limit(PyObject *object, PyObject *arguments);
PyObject *mh_worker_end_guard(PyObject *object, PyObject *most);
PyObject *mh_worker_end_enter(PyObject *object, PyObject *unused);

#endif
