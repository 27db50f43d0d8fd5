/* worker_board.c - a worker's end of batches on the board: take a run, write its rows, say that it
 * is done SPDX-License-Identifier: Apache-2.0
 */
#include "sys/clock.h"
#include "worker_end.h"

#include <time.h>

/* The run's indices: a part of the batch's. */
static PyObject *indices_in(worker_end_object *self)
{
    const mh_task *task = self->run.task;
    Py_ssize_t first = (Py_ssize_t)self->run.first;
    Py_ssize_t count = (Py_ssize_t)self->run.count;
    const uint8_t *payload = mh_worker_end_take(self, task);
    if (!payload)
        return NULL;
    if (task->flags & MH_TASK_SCHEMA && self->generation != task->generation)
        mh_worker_end_learn(self, task, payload);
    if (task->flags & MH_TASK_INTS) {
        const int64_t *numbers = (const int64_t *)(const void *)payload;
        if ((uint64_t)(first + count) <= task->index_bytes / sizeof *numbers)
            return mh_worker_end_ints(numbers + first, count);
        return PyErr_Format(mh_module_of(self)->error, "a run beyond its batch");
    }
    if (!self->indices || self->indices_position != task->position) {
        Py_CLEAR(self->indices); /* unpickling runs the collector */
        self->indices = mh_worker_end_unpickle(self, payload, task->index_bytes);
        self->indices_position = task->position;
    }
    return self->indices ? PyList_GetSlice(self->indices, first, first + count) : NULL;
}

PyObject *mh_worker_end_claim(PyObject *object, PyObject *unused)
{
    worker_end_object *self = (worker_end_object *)object;
    bool claimed = false;
    if (!mh_control_board(self->control))
        return PyErr_Format(PyExc_RuntimeError, "this worker's loader has no board");
    while (!claimed) {
        Py_BEGIN_ALLOW_THREADS
        claimed =
            mh_control_run_wait(self->control, self->sample_ns, MH_WORKER_SLICE_NS, &self->run);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return NULL;
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
static bool await_room(worker_end_object *self)
{
    const struct timespec pause = {.tv_nsec = 500000};
    while (!mh_control_result_room(self->control) && !mh_control_stopped(self->control)) {
        Py_BEGIN_ALLOW_THREADS
        nanosleep(&pause, NULL);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return false;
    }
    return true;
}

/* Whoever finishes a batch says so. */
static bool run_finish(worker_end_object *self, uint32_t marks, const mh_leaf *leaves,
                       uint32_t leaf_count)
{
    if (self->run.count == 0)
        return true; /* it is finished, and an exception came in between */
    uint64_t spent_ns = (mh_clock_ns() - self->run_began_ns) / self->run.count + 1;
    self->sample_ns = self->sample_ns ? (3 * self->sample_ns + spent_ns) / 4 : spent_ns;
    self->samples = self->run.count;
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
        mh_worker_end_publish(self, result, MH_RESULT_WHOLE, mh_clock_ns());
    }
    mh_control_run_done(self->control);
    return true;
}

PyObject *mh_worker_end_rows(PyObject *object, PyObject *samples)
{
    worker_end_object *self = (worker_end_object *)object;
    mh_leaf leaves[MH_LEAVES_MAX];
    if (!mh_worker_end_has_slot(self) || !PyList_Check(samples) || PyList_Size(samples) == 0 ||
        PyList_Size(samples) > (Py_ssize_t)self->run.count)
        Py_RETURN_FALSE;
    mh_control_set_state(self->control, MH_WORKER_COLLATING);
    mh_sink sink = mh_worker_end_sink(self, leaves);
    sink.in_worker = sink.uniform = true;
    sink.into.first = self->run.first;
    sink.into.rows = self->task.count;
    PyObject *structure = mh_collate(&sink, samples);
    if (!structure) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_FALSE;
    }
    int same = mh_batch_tree_same(self->structure, structure);
    Py_DECREF(structure);
    if (same < 0 || (same && !run_finish(self, 0, leaves, sink.into.leaf_count)))
        return NULL;
    return PyBool_FromLong(same);
}

PyObject *mh_worker_end_part(PyObject *object, PyObject *pieces)
{
    worker_end_object *self = (worker_end_object *)object;
    if (!PyList_Check(pieces))
        return PyErr_Format(PyExc_TypeError, "part([pickle, buffer or tensor, ...])");
    if (!await_room(self))
        return NULL;
    if (!mh_control_stopped(self->control) && !mh_worker_end_send(self, pieces, MH_RESULT_PART))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *mh_worker_end_finish(PyObject *object, PyObject *apart)
{
    int is_apart = PyObject_IsTrue(apart);
    if (is_apart < 0 ||
        !run_finish((worker_end_object *)object, is_apart ? MH_RUN_APART : 0, NULL, 0))
        return NULL;
    Py_RETURN_NONE;
}
