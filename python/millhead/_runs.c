/* _runs.c - a worker's end of batches on the board: take a run, write its rows, say that it is done
 * SPDX-License-Identifier: Apache-2.0
 */
#include "_station.h"
#include "sys/clock.h"

#include <time.h>

/* The run's indices: a part of the batch's. */
static PyObject *indices_in(station_object *self)
{
    const mh_task *task = self->run.task;
    Py_ssize_t first = (Py_ssize_t)self->run.first;
    Py_ssize_t count = (Py_ssize_t)self->run.count;
    const uint8_t *payload = mh_station_take(self, task);
    if (!payload)
        return NULL;
    if (task->flags & MH_TASK_SCHEMA && self->generation != task->generation)
        mh_station_learn(self, task, payload);
    if (task->flags & MH_TASK_INTS) {
        const int64_t *numbers = (const int64_t *)(const void *)payload;
        if ((uint64_t)(first + count) <= task->index_bytes / sizeof *numbers)
            return mh_station_ints(numbers + first, count);
        return PyErr_Format(mh_module_of((PyObject *)self)->error, "a run beyond its batch");
    }
    if (!self->indices || self->indices_position != task->position) {
        Py_XDECREF(self->indices);
        self->indices = mh_station_unpickle(self, payload, task->index_bytes);
        self->indices_position = task->position;
    }
    return self->indices ? PyList_GetSlice(self->indices, first, first + count) : NULL;
}

PyObject *mh_station_claim(PyObject *object, PyObject *unused)
{
    (void)unused;
    station_object *self = (station_object *)object;
    bool claimed = false;
    while (!claimed) {
        Py_BEGIN_ALLOW_THREADS claimed =
            mh_control_run_wait(self->control, self->sample_ns, MH_STATION_SLICE_NS, &self->run);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return NULL;
        if (!claimed && mh_control_stopped(self->control)) {
            mh_control_set_state(self->control, MH_WORKER_LEFT);
            Py_RETURN_NONE;
        }
    }
    self->fetch_ns = 0;
    self->skipped = self->replaced = 0;
    PyObject *indices = indices_in(self);
    if (!indices)
        return NULL;
    self->run_began_ns = mh_clock_ns();
    return Py_BuildValue("(NIIKK)", indices, self->run.first, self->task.count,
                         (unsigned long long)self->task.sample, (unsigned long long)self->task.key);
}

/* Waits until a result can be sent: the consumer may be away for long. */
static bool await_room(station_object *self)
{
    const struct timespec pause = {.tv_nsec = 500000};
    while (!mh_control_result_room(self->control) && !mh_control_stopped(self->control)) {
        Py_BEGIN_ALLOW_THREADS nanosleep(&pause, NULL);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return false;
    }
    return true;
}

/* Whoever finishes a batch says so. */
static bool run_finish(station_object *self, uint32_t marks, const mh_leaf *leaves,
                       uint32_t leaf_count)
{
    if (self->run.count == 0)
        return true; /* it is finished, and an exception came in between */
    uint64_t spent_ns = (mh_clock_ns() - self->run_began_ns) / self->run.count + 1;
    self->sample_ns = self->sample_ns ? (3 * self->sample_ns + spent_ns) / 4 : spent_ns;
    self->samples = self->run.count;
    mh_station_say_fetched(self);
    uint32_t all_marks = 0;
    bool last = mh_board_finish(mh_control_board(self->control), &self->run, marks, leaves,
                                leaf_count, &all_marks);
    self->run.count = 0;
    if (last) {
        if (!await_room(self))
            return false;
        if (mh_control_stopped(self->control))
            return true;
        mh_result *result = mh_control_result_begin(self->control);
        result->leaf_count = 0;
        result->pickled_bytes = 0;
        result->marks = all_marks;
        mh_station_publish(self, result, MH_RESULT_WHOLE, mh_clock_ns());
    }
    mh_control_run_done(self->control);
    return true;
}

PyObject *mh_station_rows(PyObject *object, PyObject *samples)
{
    station_object *self = (station_object *)object;
    mh_leaf leaves[MH_LEAVES_MAX];
    if (!mh_station_has_slot(self) || !PyList_Check(samples) || PyList_Size(samples) == 0 ||
        PyList_Size(samples) > (Py_ssize_t)self->run.count)
        Py_RETURN_FALSE;
    mh_control_set_state(self->control, MH_WORKER_COLLATING);
    mh_sink sink = mh_station_sink(self, leaves);
    sink.in_worker = sink.uniform = true;
    sink.first = self->run.first;
    sink.rows = self->task.count;
    PyObject *structure = mh_collate(&sink, samples);
    if (!structure) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_FALSE;
    }
    int same = mh_tree_same(self->structure, structure);
    Py_DECREF(structure);
    if (same < 0 || (same && !run_finish(self, 0, leaves, sink.leaf_count)))
        return NULL;
    return PyBool_FromLong(same);
}

PyObject *mh_station_part(PyObject *object, PyObject *pieces)
{
    station_object *self = (station_object *)object;
    if (!PyList_Check(pieces))
        return PyErr_Format(PyExc_TypeError, "part([pickle, buffer or tensor, ...])");
    if (!await_room(self))
        return NULL;
    if (!mh_control_stopped(self->control) && !mh_station_send(self, pieces, MH_RESULT_PART))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *mh_station_finish(PyObject *object, PyObject *apart)
{
    int is_apart = PyObject_IsTrue(apart);
    if (is_apart < 0 || !run_finish((station_object *)object, is_apart ? MH_RUN_APART : 0, NULL, 0))
        return NULL;
    Py_RETURN_NONE;
}
