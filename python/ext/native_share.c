/* native_share.c - whether Python code or native code keeps the main thread busy, as Python sees it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/native_share.h"
#include "module.h"

/* The signal's handler in Python: its number and the frame are of no interest. */
PyObject *mh_core_probe_answer(PyObject *module, PyObject *arguments)
{
    mh_look_computed(mh_native_share_answer());
    Py_RETURN_NONE;
}

/* Has Python call mh_core_probe_answer for the signal. False where the program uses it already. */
static bool set_pythons_handler(PyObject *module)
{
    bool done = false;
    int number = mh_native_share_signal();
    PyObject *signals = PyImport_ImportModule("signal");
    PyObject *answer = PyObject_GetAttrString(module, "probe_answer");
    PyObject *before = signals ? PyObject_CallMethod(signals, "getsignal", "i", number) : NULL;
    PyObject *unused = signals ? PyObject_GetAttrString(signals, "SIG_DFL") : NULL;
    if (answer && before && unused) {
        int free = PyObject_RichCompareBool(before, unused, Py_EQ);
        int ours = PyObject_RichCompareBool(before, answer, Py_EQ);
        PyObject *set = free > 0 || ours > 0
                            ? PyObject_CallMethod(signals, "signal", "iO", number, answer)
                            : NULL;
        done = set != NULL;
        Py_XDECREF(set);
    }
    Py_XDECREF(signals);
    Py_XDECREF(answer);
    Py_XDECREF(before);
    Py_XDECREF(unused);
    PyErr_Clear(); /* not the main thread: it cannot be looked at from here */
    return done;
}

PyObject *mh_core_probe_stop(PyObject *module, PyObject *unused)
{
    mh_native_share_stop();
    Py_RETURN_NONE;
}

PyObject *mh_core_probe_pause(PyObject *module, PyObject *unused)
{
    mh_native_share_pause();
    Py_RETURN_NONE;
}

/* The interpreter resets the handlers that Python set at its end: the signal would kill. */
static bool stop_at_exit(PyObject *module)
{
    static bool registered;
    if (registered)
        return true;
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *stop = PyObject_GetAttrString(module, "probe_stop");
    PyObject *done = atexit && stop ? PyObject_CallMethod(atexit, "register", "O", stop) : NULL;
    Py_XDECREF(atexit);
    Py_XDECREF(stop);
    Py_XDECREF(done);
    registered = done != NULL;
    return registered;
}

PyObject *mh_core_probe_start(PyObject *module, PyObject *unused)
{
    if (mh_native_share_runs())
        return PyBool_FromLong(set_pythons_handler(module) && mh_native_share_again());
    if (!stop_at_exit(module))
        return NULL;
    return PyBool_FromLong(set_pythons_handler(module) && mh_native_share_start());
}

PyObject *mh_core_probe_take(PyObject *module, PyObject *unused)
{
    uint64_t probes;
    uint64_t native;
    mh_native_share_counts(&probes, &native);
    return Py_BuildValue("(KK)", (unsigned long long)probes, (unsigned long long)native);
}
