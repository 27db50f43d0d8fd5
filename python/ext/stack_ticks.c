/* stack_ticks.c - has a function of Python's called, every few milliseconds, where the program is
 * SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"
#include "observe/ticks.h"

static PyObject *callback; /* who looks at the stack; the main thread's */

/* Between two instructions of the program, with the lock of the interpreter. Whoever looks at the
 * stack sees the function that runs, or that waits for the native call it made. */
static void look(mh_stage stage, uint64_t ns, int blocked)
{
    if (!callback)
        return;
    PyObject *done = PyObject_CallFunction(callback, "iKO", (int)stage, (unsigned long long)ns,
                                           blocked ? Py_True : Py_False);
    if (!done && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        PyErr_SetInterrupt(); /* Ctrl-C came just then: the program gets it in a moment */
    PyErr_Clear();
    Py_XDECREF(done);
}

static int answer(void *unused)
{
    mh_stage stage;
    uint64_t ns;
    if (mh_ticks_answer(&stage, &ns))
        look(stage, ns, 1);
    return 0;
}

void mh_look_computed(uint64_t cpu_ns)
{
    mh_stage stage;
    uint64_t ns;
    if (mh_ticks_computed(cpu_ns, &stage, &ns))
        look(stage, ns, 0);
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
