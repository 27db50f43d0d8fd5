/* memory_limit.c - workers with too much memory: a WorkerEnd says so, a ConsumerEnd makes their
 * place ready SPDX-License-Identifier: Apache-2.0
 */
#include "consumer_end.h"
#include "worker_end.h"
#include "workers/guard.h"

#include <malloc.h>

/* --- a worker's end --- */

PyObject *mh_worker_end_own_memory(PyObject *object, PyObject *arguments)
{
    unsigned long long most;
    int at_once = 0;
    if (!PyArg_ParseTuple(arguments, "K|p:own_memory", &most, &at_once))
        return NULL;
    uint64_t bytes = mh_own_memory_over(&((worker_end_object *)object)->memory, most, at_once, "");
    return PyLong_FromUnsignedLongLong(bytes);
}

PyObject *mh_worker_end_give_back(PyObject *object, PyObject *unused)
{
#ifdef __GLIBC__
    Py_BEGIN_ALLOW_THREADS
    malloc_trim(0);
    Py_END_ALLOW_THREADS
#endif
    Py_RETURN_NONE;
}

PyObject *mh_worker_end_over_limit(PyObject *object, PyObject *arguments)
{
    int leaves;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(arguments, "pK:over_limit", &leaves, &bytes))
        return NULL;
    mh_control_set_over_limit(((worker_end_object *)object)->control,
                              leaves ? MH_OVER_LIMIT_LEAVES : MH_OVER_LIMIT_STAYS, bytes);
    Py_RETURN_NONE;
}

PyObject *mh_worker_end_guard(PyObject *object, PyObject *most)
{
    unsigned long long bytes = PyLong_AsUnsignedLongLong(most);
    if (PyErr_Occurred())
        return NULL;
    mh_guard_arm(((worker_end_object *)object)->control, bytes);
    Py_RETURN_NONE;
}

PyObject *mh_worker_end_enter(PyObject *object, PyObject *unused)
{
    mh_guard_enter();
    Py_RETURN_NONE;
}

/* --- the consumer's end --- */

PyObject *mh_consumer_end_over_limit(PyObject *object, PyObject *arguments)
{
    static const char *const words[] = {"", "leaves", "ended", "stays"};
    consumer_end_object *self = (consumer_end_object *)object;
    mh_over_limit_view view;
    unsigned first = 0;
    if (!PyArg_ParseTuple(arguments, "|I:over_limit", &first))
        return NULL;
    for (uint32_t w = first; self->control && w < self->worker_count; w++) {
        if (!mh_control_over_limit(self->control, w, &view))
            continue;
        if (view.over_limit == MH_OVER_LIMIT_STAYS)
            mh_control_over_limit_seen(self->control, w);
        return Py_BuildValue("(IsKK)", w, words[view.over_limit], (unsigned long long)view.bytes,
                             (unsigned long long)view.results_put);
    }
    Py_RETURN_NONE;
}

PyObject *mh_consumer_end_succeed(PyObject *object, PyObject *argument)
{
    consumer_end_worker *worker = mh_consumer_end_worker_of(object, argument);
    if (!worker)
        return NULL;
    worker->generation = 0; /* the next process has no schema yet */
    mh_control_replace_worker(((consumer_end_object *)object)->control, worker->number);
    Py_RETURN_NONE;
}
