/* stage.c - copying data to a local directory, for Python
 * SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"

#include <millhead/storage.h>

/* Signals are looked at between parts, so that Ctrl-C ends a long copy. */
static int interrupted(void *thread, double share)
{
    (void)share;
    PyThreadState **saved = thread;
    PyEval_RestoreThread(*saved);
    int stop = PyErr_CheckSignals() < 0;
    *saved = PyEval_SaveThread();
    return stop;
}

PyObject *mh_core_stage(PyObject *self, PyObject *arguments)
{
    PyObject *from, *to;
    const char *storage;
    unsigned in_flight;
    mh_error err;
    mh_stage_options options;
    mh_stage_report report;
    if (!PyArg_ParseTuple(arguments, "O&O&zI:stage", PyUnicode_FSConverter, &from,
                          PyUnicode_FSConverter, &to, &storage, &in_flight))
        return NULL;
    mh_stage_options_init(&options);
    mh_stage_report_init(&report);
    const char *source = PyBytes_AsString(from), *target = PyBytes_AsString(to);
    PyThreadState *thread = PyEval_SaveThread();
    options.storage = storage;
    options.in_flight = in_flight;
    options.progress = interrupted;
    options.progress_arg = &thread;
    mh_status status = mh_stage(source, target, &options, &report, &err);
    PyEval_RestoreThread(thread);
    Py_DECREF(from);
    Py_DECREF(to);
    if (status != MH_OK)
        return PyErr_Occurred() ? NULL : mh_raise(PyModule_GetState(self), &err);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "files", report.files, "bytes", report.bytes,
                         "copied", report.copied, "copied_bytes", report.copied_bytes, "skipped",
                         report.skipped);
}
