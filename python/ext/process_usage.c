/* process_usage.c - what processes, the machine and its GPUs use, as dicts with the keys of
 * docs/events.md SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "module.h"
#include "observe/gpu.h"
#include "observe/usage.h"

/* Puts dict[key] = value, whose reference it takes; what was not read gets no key. */
static bool put(PyObject *dict, const char *key, PyObject *value)
{
    bool done = value && PyDict_SetItemString(dict, key, value) == 0;
    Py_XDECREF(value);
    return done;
}

static bool put_count(PyObject *dict, const char *key, uint64_t value)
{
    return value == MH_NOT_READ || put(dict, key, PyLong_FromUnsignedLongLong(value));
}

static bool put_share(PyObject *dict, const char *key, double value)
{
    return value < 0 || put(dict, key, PyFloat_FromDouble(value));
}

/* The dict when all went well, else NULL. */
static PyObject *finished(PyObject *dict, bool well)
{
    if (!well)
        Py_CLEAR(dict);
    return dict;
}

PyObject *mh_core_usage(PyObject *module, PyObject *arguments)
{
    int pid, pss = 1;
    mh_process_usage usage;
    mh_error err;
    mh_status status;
    if (!PyArg_ParseTuple(arguments, "i|p:usage", &pid, &pss))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mh_usage_process(&usage, pid, pss, "", &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(PyModule_GetState(module), &err);
    PyObject *dict = PyDict_New();
    return finished(dict,
                    dict && put(dict, "pid", PyLong_FromLong(pid)) &&
                        put_count(dict, "cpu", usage.cpu_ns) &&
                        put_count(dict, "delay", usage.delay_ns) &&
                        put_count(dict, "rss", usage.stat.rss_bytes) &&
                        put_count(dict, "pss", usage.pss_bytes) &&
                        put_count(dict, "rss_file", usage.rss_file_bytes) &&
                        put_count(dict, "pss_file", usage.pss_file_bytes) &&
                        put_count(dict, "read", usage.read_bytes) &&
                        put_count(dict, "threads", usage.stat.threads) &&
                        put(dict, "state", PyUnicode_FromStringAndSize(&usage.stat.state, 1)) &&
                        (!usage.locked || put(dict, "lock", PyLong_FromLong(1))) &&
                        put_count(dict, "started", usage.stat.started_ticks));
}

PyObject *mh_core_locked(PyObject *module, PyObject *argument)
{
    long pid = PyLong_AsLong(argument);
    if (pid == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(mh_usage_locked((int)pid, ""));
}

PyObject *mh_core_system(PyObject *module, PyObject *unused)
{
    mh_busiest_disk *disk = &((mh_module *)PyModule_GetState(module))->disk;
    mh_system_usage usage;
    Py_BEGIN_ALLOW_THREADS
    mh_usage_system(&usage, "");
    Py_END_ALLOW_THREADS
    mh_busiest_disk_look(disk, &usage);
    PyObject *dict = PyDict_New();
    return finished(dict, dict && put_count(dict, "cpus", usage.cpus) &&
                              put_count(dict, "busy", usage.busy_ns) &&
                              put_count(dict, "idle", usage.idle_ns) &&
                              put_count(dict, "iowait", usage.iowait_ns) &&
                              put_count(dict, "disk_read", disk->read_bytes) &&
                              put_count(dict, "disk_busy", disk->busy_ns) &&
                              put_count(dict, "net_read", usage.net_read_bytes) &&
                              put_count(dict, "psi_cpu", usage.psi_cpu_ns) &&
                              put_count(dict, "psi_io", usage.psi_io_ns) &&
                              put_count(dict, "psi_memory", usage.psi_memory_ns) &&
                              put_count(dict, "available", usage.available_bytes));
}

static PyObject *gpu_of(const mh_gpu_usage *gpu)
{
    PyObject *dict = PyDict_New();
    return finished(dict, dict && put_count(dict, "device", gpu->device) &&
                              put_share(dict, "util", gpu->util) &&
                              put_share(dict, "memory_util", gpu->memory_util) &&
                              put_share(dict, "watts", gpu->watts) &&
                              put_share(dict, "watts_limit", gpu->watts_limit) &&
                              put_count(dict, "memory", gpu->memory_bytes) &&
                              put_count(dict, "memory_total", gpu->memory_total_bytes));
}

PyObject *mh_core_gpus(PyObject *module, PyObject *unused)
{
    mh_gpu_usage gpus[MH_GPUS_MOST];
    size_t count;
    Py_BEGIN_ALLOW_THREADS
    count = mh_gpu_read(gpus, MH_GPUS_MOST);
    Py_END_ALLOW_THREADS
    PyObject *list = PyList_New(0);
    bool well = list;
    for (size_t at = 0; well && at < count; at++) {
        PyObject *dict = gpu_of(&gpus[at]);
        well = dict && PyList_Append(list, dict) == 0;
        Py_XDECREF(dict);
    }
    return finished(list, well);
}

PyObject *mh_core_children(PyObject *module, PyObject *argument)
{
    long pid = PyLong_AsLong(argument);
    int *pids;
    size_t count;
    mh_error err;
    mh_status status;
    if (pid == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = mh_usage_children(&pids, &count, (int)pid, "", &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(PyModule_GetState(module), &err);
    PyObject *list = PyList_New((Py_ssize_t)count);
    bool well = list;
    for (size_t at = 0; well && at < count; at++) {
        PyObject *number = PyLong_FromLong(pids[at]);
        well = number && PyList_SetItem(list, (Py_ssize_t)at, number) == 0;
    }
    mh_free(pids);
    return finished(list, well);
}
