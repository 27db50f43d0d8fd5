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

PyObject *mh_core_probe_start(PyObject *module, PyObject *unused)
{
    bool started = mh_native_share_runs() ? mh_native_share_again() : mh_native_share_start();
    return PyBool_FromLong(started);
}

PyObject *mh_core_probe_take(PyObject *module, PyObject *unused)
{
    uint64_t probes, native;
    mh_native_share_counts(&probes, &native);
    return Py_BuildValue("(KK)", (unsigned long long)probes, (unsigned long long)native);
}
