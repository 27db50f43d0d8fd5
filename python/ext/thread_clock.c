/* thread_clock.c - Clock: what the calling thread's time is spent on
 * SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"

typedef struct clock_object {
    PyObject ob_base;
    mh_thread_clock clock;
} clock_object;

static PyObject *clock_read(PyObject *self, PyObject *unused)
{
    mh_reading reading = mh_clock_read(&((clock_object *)self)->clock);
    return Py_BuildValue("(KKL)", (unsigned long long)reading.now, (unsigned long long)reading.cpu,
                         (long long)reading.delay);
}

static PyObject *clock_close(PyObject *self, PyObject *unused)
{
    mh_clock_close(&((clock_object *)self)->clock);
    Py_RETURN_NONE;
}

static PyObject *clock_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, ":Clock", names))
        return NULL;
    return mh_object_new(type);
}

static void clock_dealloc(PyObject *self)
{
    mh_clock_close(&((clock_object *)self)->clock);
    mh_object_free(self);
}

static PyMethodDef clock_methods[] = {
    {"read", clock_read, METH_NOARGS,
     "(now, cpu, delay): CLOCK_MONOTONIC, and what the calling thread has spent on a CPU and "
     "waiting for one, in ns; delay -1: the kernel does not tell."},
    {"close", clock_close, METH_NOARGS, "Close its files; the next question opens them again."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot clock_slots[] = {
    {Py_tp_doc, "Clock(): what the calling thread's time is spent on."},
    {Py_tp_new, clock_new},
    {Py_tp_dealloc, clock_dealloc},
    {Py_tp_methods, clock_methods},
    {0, NULL},
};

MH_TYPE_SPEC(clock, "Clock", clock_object, 0);
