/* diagnosis.c - diagnose(): a run or log read and judged, as the text of `millhead doctor --json`;
 * replay(): what it would have taken with other settings
 * SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"

#include <millhead/millhead.h>

/* Called now and then while the interpreter is free for others: has the user pressed Ctrl-C? */
static int interrupted(void *argument, uint64_t bytes, uint64_t all)
{
    PyThreadState **thread = argument;
    (void)bytes;
    (void)all;
    PyEval_RestoreThread(*thread);
    int answer = PyErr_CheckSignals();
    *thread = PyEval_SaveThread();
    return answer;
}

static mh_status diagnose(char **out, const char *path, PyThreadState **thread, mh_error *err)
{
    mh_run *run = NULL;
    mh_verdict verdict;
    mh_status status = mh_run_read(&run, path, interrupted, thread, err);
    mh_verdict_init(&verdict);
    if (status == MH_OK)
        status = mh_run_judge(&verdict, run, err);
    if (status == MH_OK) {
        mh_wait_stats waits = mh_run_waits(run);
        status = mh_diagnosis_json(out, &verdict, mh_run_facts(run), &waits, mh_run_bad_lines(run),
                                   mh_run_setup_s(run), err);
    }
    mh_run_close(run);
    return status;
}

PyObject *mh_core_diagnose(PyObject *self, PyObject *path)
{
    PyObject *encoded, *answer = NULL;
    char *text = NULL;
    mh_error err;
    if (!PyUnicode_FSConverter(path, &encoded))
        return NULL;
    const char *name = PyBytes_AsString(encoded);
    PyThreadState *thread = PyEval_SaveThread();
    mh_status status = diagnose(&text, name, &thread, &err);
    PyEval_RestoreThread(thread);
    if (status == MH_OK)
        answer = PyUnicode_FromString(text);
    else if (!PyErr_Occurred()) /* Ctrl-C has set its own */
        (void)mh_raise(PyModule_GetState(self), &err);
    mh_text_free(text);
    Py_DECREF(encoded);
    return answer;
}

/* --- replay ----------------------------------------------------------------------------------- */

/* The seconds of one replay, start-up left out; NULL with an exception. `setting` is a tuple of
 * workers, prefetch and in_order. */
static PyObject *replayed(PyObject *self, const mh_facts *facts, PyObject *setting)
{
    mh_replay_options options;
    mh_replay_result result;
    mh_error err;
    mh_replay_options_init(&options, facts);
    if (!PyArg_ParseTuple(setting, "iip:replay", &options.workers, &options.prefetch,
                          &options.in_order))
        return NULL;
    if (mh_replay(&result, facts, &options, &err) != MH_OK)
        return mh_raise(PyModule_GetState(self), &err);
    return PyFloat_FromDouble((double)(result.total_ns - result.startup_ns) / 1e9);
}

static PyObject *replayed_all(PyObject *self, const mh_facts *facts, PyObject *settings)
{
    Py_ssize_t count = PyList_Size(settings);
    PyObject *answer = PyList_New(count);
    for (Py_ssize_t at = 0; answer && at < count; at++) {
        PyObject *seconds = replayed(self, facts, PyList_GetItem(settings, at));
        if (!seconds || PyList_SetItem(answer, at, seconds) < 0)
            Py_CLEAR(answer);
    }
    return answer;
}

PyObject *mh_core_replay(PyObject *self, PyObject *arguments)
{
    PyObject *encoded, *settings, *answer = NULL;
    mh_run *run = NULL;
    mh_error err;
    if (!PyArg_ParseTuple(arguments, "O&O!:replay", PyUnicode_FSConverter, &encoded, &PyList_Type,
                          &settings))
        return NULL;
    const char *name = PyBytes_AsString(encoded);
    PyThreadState *thread = PyEval_SaveThread();
    mh_status status = mh_run_read(&run, name, interrupted, &thread, &err);
    PyEval_RestoreThread(thread);
    if (status == MH_OK)
        answer = replayed_all(self, mh_run_facts(run), settings);
    else if (!PyErr_Occurred())
        (void)mh_raise(PyModule_GetState(self), &err);
    mh_run_close(run);
    Py_DECREF(encoded);
    return answer;
}
