/* stack_ticks.c - has a function of Python's called, every few milliseconds, where the program is
 * SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"
#include "observe/ticks.h"

static PyObject *callback; /* who looks at the stack; the main thread's */

/* Between two instructions of the program, with the lock of the interpreter. Whoever looks at the
 * stack sees the function that runs, or that waits for the native call it made. */
static int answer(void *unused)
{
    mh_stage stage;
    uint64_t ns;
    if (!mh_ticks_answer(&stage, &ns) || !callback)
        return 0;
    PyObject *done = PyObject_CallFunction(callback, "iK", (int)stage, (unsigned long long)ns);
    Py_XDECREF(done);
    if (done)
        return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1; /* Ctrl-C came just then: it is the program's */
    PyErr_Clear();
    return 0;
}

static int ask(void)
{
    return Py_AddPendingCall(answer, NULL);
}

PyObject *mh_core_ticks_start(PyObject *module, PyObject *function)
{
    PyObject *before = callback;
    callback = Py_NewRef(function);
    Py_XDECREF(before);
    return PyBool_FromLong(mh_ticks_start(ask));
}

PyObject *mh_core_ticks_stop(PyObject *module, PyObject *unused)
{
    mh_ticks_stop();
    Py_CLEAR(callback);
    Py_RETURN_NONE;
}

PyObject *mh_core_ticks_stage(PyObject *module, PyObject *number)
{
    long stage = PyLong_AsLong(number);
    if (stage == -1 && PyErr_Occurred())
        return NULL;
    if (stage < MH_STAGE_NONE || stage >= MH_STAGE_COUNT) {
        PyErr_Format(PyExc_ValueError, "unknown stage %ld", stage);
        return NULL;
    }
    mh_ticks_stage((mh_stage)stage);
    Py_RETURN_NONE;
}
