/* _excess.c - workers with too much memory: a Station says so, a Channel makes their place ready
 * SPDX-License-Identifier: Apache-2.0
 */
#include "_channel.h"
#include "_station.h"
#include "workers/guard.h"

#include <malloc.h>

/* --- a worker's end --- */

PyObject *mh_station_own_memory(PyObject *object, PyObject *arguments)
{
    unsigned long long most;
    int at_once = 0;
    uint64_t bytes;
    if (!PyArg_ParseTuple(arguments, "K|p:own_memory", &most, &at_once))
        return NULL;
    bytes = mh_own_memory_over(&((station_object *)object)->memory, most, at_once, "");
    return PyLong_FromUnsignedLongLong(bytes);
}

PyObject *mh_station_give_back(PyObject *object, PyObject *unused)
{
    (void)object, (void)unused;
#ifdef __GLIBC__
    Py_BEGIN_ALLOW_THREADS(void) malloc_trim(0);
    Py_END_ALLOW_THREADS
#endif
        Py_RETURN_NONE;
}

PyObject *mh_station_excess(PyObject *object, PyObject *arguments)
{
    int leaves;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(arguments, "pK:excess", &leaves, &bytes))
        return NULL;
    mh_control_say_excess(((station_object *)object)->control,
                          leaves ? MH_EXCESS_LEAVES : MH_EXCESS_STAYS, bytes);
    Py_RETURN_NONE;
}

PyObject *mh_station_guard(PyObject *object, PyObject *most)
{
    unsigned long long bytes = PyLong_AsUnsignedLongLong(most);
    if (PyErr_Occurred())
        return NULL;
    mh_guard_arm(((station_object *)object)->control, bytes);
    Py_RETURN_NONE;
}

PyObject *mh_station_enter(PyObject *object, PyObject *unused)
{
    (void)object, (void)unused;
    mh_guard_enter();
    Py_RETURN_NONE;
}

/* Pieces of a result in its worker's spill memory, in the order they were placed. */
static unsigned pieces_of(const mh_result *result, mh_spill *spill)
{
    bool state = result->state_bytes > MH_STATE_BYTES;
    bool batch = result->kind == MH_RESULT_GENERAL || result->kind == MH_RESULT_ERROR ||
                 result->kind == MH_RESULT_PART;
    if (spill && state)
        mh_spill_inherit(spill, result->state_offset, result->state_bytes);
    if (spill && batch)
        mh_spill_inherit(spill, result->spill_offset, result->spill_bytes);
    return (unsigned)state + (unsigned)batch;
}

void mh_station_inherit(station_object *self, uint32_t worker)
{
    mh_ring_counts counts;
    mh_control_counts(self->control, worker, &counts);
    if (counts.results_put == 0)
        return;
    uint64_t unread = 0;
    for (uint64_t n = counts.results_read; n < counts.results_put; n++)
        unread += pieces_of(mh_control_result_sent(self->control, n), NULL);
    const mh_result *last = mh_control_result_sent(self->control, counts.results_put - 1);
    mh_spill_begin_at(self->spill, last->spill_placed - unread);
    for (uint64_t n = counts.results_read; n < counts.results_put; n++)
        (void)pieces_of(mh_control_result_sent(self->control, n), self->spill);
}

/* --- the consumer's end --- */

PyObject *mh_channel_excess(PyObject *object, PyObject *arguments)
{
    static const char *const words[] = {"", "leaves", "ended", "stays"};
    channel_object *self = (channel_object *)object;
    mh_excess_view view;
    unsigned first = 0;
    if (!PyArg_ParseTuple(arguments, "|I:excess", &first))
        return NULL;
    for (uint32_t w = first; self->control && w < self->worker_count; w++)
        if (mh_control_excess(self->control, w, &view))
            return Py_BuildValue("(IsKK)", w, words[view.excess], (unsigned long long)view.bytes,
                                 (unsigned long long)view.results_put);
    Py_RETURN_NONE;
}

PyObject *mh_channel_excess_seen(PyObject *object, PyObject *argument)
{
    channel_object *self = (channel_object *)object;
    unsigned number = (unsigned)PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred() || !mh_channel_worker(self, number))
        return NULL;
    mh_control_excess_seen(self->control, number);
    Py_RETURN_NONE;
}

PyObject *mh_channel_succeed(PyObject *object, PyObject *argument)
{
    channel_object *self = (channel_object *)object;
    unsigned number = (unsigned)PyLong_AsUnsignedLong(argument);
    channel_worker *worker = PyErr_Occurred() ? NULL : mh_channel_worker(self, number);
    if (!worker)
        return NULL;
    worker->generation = 0; /* it has no schema yet */
    mh_control_succeed(self->control, number);
    Py_RETURN_NONE;
}
