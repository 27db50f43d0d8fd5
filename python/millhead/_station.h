/* _station.h - a Station's insides, for the files that implement its methods
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PYTHON_STATION_H
#define MH_PYTHON_STATION_H

#include "_module.h"
#include "metrics/events.h"
#include "sys/memory.h"
#include "sys/own_memory.h"
#include "workers/board.h"
#include "workers/spill.h"

/* How long one sleep for a task lasts before Python gets a look at signals. */
#define MH_STATION_SLICE_NS UINT64_C(1000000000)

typedef struct station_object {
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
    uint64_t fetch_began_ns;
    uint64_t fetch_ns;
    uint32_t offset;  /* of the sample being fetched */
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
} station_object;

/* --- _station.c --- */

/* Takes a task over, without its payload. Where that begins, or NULL with an exception. */
const uint8_t *mh_station_take(station_object *self, const mh_task *task);

/* Learns the schema behind the index of a payload. */
void mh_station_learn(station_object *self, const mh_task *task, const uint8_t *payload);

PyObject *mh_station_ints(const int64_t *numbers, Py_ssize_t count);
PyObject *mh_station_unpickle(station_object *self, const uint8_t *data, uint32_t bytes);

/* Whether the task has a slot and the schema is the one it was sized for. */
bool mh_station_has_slot(const station_object *self);

/* Where a batch goes: into the task's slot, its leaves to `leaves`. */
mh_sink mh_station_sink(station_object *self, mh_leaf *leaves);

/* Fills the rest of a result and publishes it. */
void mh_station_publish(station_object *self, mh_result *result, mh_result_kind kind,
                        uint64_t began_ns);

/* Says how long fetching took. */
void mh_station_say_fetched(station_object *self);

/* Sends [pickle, buffer or tensor, ...]; there must be room. False with an exception. */
bool mh_station_send(station_object *self, PyObject *pieces, mh_result_kind kind);

/* --- _runs.c: methods of a Station with a board --- */

PyObject *mh_station_claim(PyObject *object, PyObject *unused);
PyObject *mh_station_rows(PyObject *object, PyObject *samples);
PyObject *mh_station_part(PyObject *object, PyObject *pieces);
PyObject *mh_station_finish(PyObject *object, PyObject *apart);

/* --- _excess.c: methods of a Station with a limit on its memory --- */

PyObject *mh_station_own_memory(PyObject *object, PyObject *arguments);
PyObject *mh_station_give_back(PyObject *object, PyObject *unused);
PyObject *mh_station_excess(PyObject *object, PyObject *arguments);
PyObject *mh_station_guard(PyObject *object, PyObject *most);
PyObject *mh_station_enter(PyObject *object, PyObject *unused);

/* What another process of the same worker has sent and nobody has read stays where it lies. */
void mh_station_inherit(station_object *self, uint32_t worker);

#endif
