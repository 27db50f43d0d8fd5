/* fetch_samples.c - getting samples out of a dataset, each of them timed
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fetch_samples.h"
#include "sys/stopwatch.h"

/* Places for samples at first: a stream may be asked for far more than it has. */
#define FIRST_ROOM 1024

/* Samples that are fetched, in an array: a batch of cheap ones feels what a list costs. */
typedef struct fetched_items {
    PyObject **sample;
    Py_ssize_t count, room;
} fetched_items;

static bool items_add(fetched_items *items, PyObject *sample)
{
    if (items->count == items->room) {
        size_t room = 2 * (size_t)items->room;
        PyObject **larger = PyMem_Realloc(items->sample, room * sizeof *larger);
        if (!larger) {
            Py_DECREF(sample);
            PyErr_NoMemory();
            return false;
        }
        items->sample = larger;
        items->room = (Py_ssize_t)room;
    }
    items->sample[items->count++] = sample;
    return true;
}

static void items_free(fetched_items *items)
{
    for (Py_ssize_t i = 0; i < items->count; i++)
        Py_DECREF(items->sample[i]);
    PyMem_Free(items->sample);
}

/* Appends them to a list, an exception that is set notwithstanding, and gives them up. */
static bool items_to_list(fetched_items *items, PyObject *list)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    bool good = true;
    for (Py_ssize_t i = 0; good && i < items->count; i++)
        good = PyList_Append(list, items->sample[i]) == 0;
    items_free(items);
    if (!type)
        return good;
    PyErr_Restore(type, value, traceback);
    return false;
}

/* The loop. An exception is set where one came; what was fetched before it is in out. */
static void fetch_items(mh_fetch *fetch, fetched_items *out)
{
    out->room = fetch->count < FIRST_ROOM ? fetch->count : FIRST_ROOM;
    out->sample = PyMem_Malloc((size_t)out->room * sizeof(PyObject *));
    if (!out->sample) {
        PyErr_NoMemory();
        return;
    }
    mh_stopwatch watch = mh_stopwatch_start();
    fetch->began_ns = watch.began_ns;
    for (Py_ssize_t i = 0; i < fetch->count; i++) {
        PyObject *index = NULL;
        if (fetch->indices) {
            if (i >= PyList_Size(fetch->indices))
                break;                                            /* user code shortened the list */
            index = Py_NewRef(PyList_GetItem(fetch->indices, i)); /* and may take it out of it */
        }
        if (fetch->begins)
            fetch->begins(fetch->listener, fetch->first + i);
        PyObject *sample = index ? PyObject_GetItem(fetch->from, index) : PyIter_Next(fetch->from);
        uint64_t long_ns = mh_stopwatch_lap(&watch);
        if (long_ns && (sample || PyErr_Occurred()))
            fetch->was_slow(fetch->listener, fetch->first + i, index, long_ns);
        Py_XDECREF(index);
        if (!sample || !items_add(out, sample))
            break;
    }
}

bool mh_fetch_samples(mh_fetch *fetch)
{
    fetched_items fetched = {0};
    fetch_items(fetch, &fetched);
    return items_to_list(&fetched, fetch->samples);
}

bool mh_fetch_arguments(mh_fetch *fetch, PyObject *arguments)
{
    PyObject *wanted;
    if (!PyArg_ParseTuple(arguments, "OOnO!:fetch", &fetch->from, &wanted, &fetch->first,
                          &PyList_Type, &fetch->samples))
        return false;
    fetch->indices = PyList_Check(wanted) ? wanted : NULL;
    fetch->count = fetch->indices ? PyList_Size(wanted) : PyLong_AsSsize_t(wanted);
    return !PyErr_Occurred();
}

/* --- methods of a Meter --- */

static void offer_slow(void *meter, Py_ssize_t number, PyObject *index, uint64_t ns)
{
    if (PyErr_Occurred())
        return;
    PyObject *item = index ? Py_NewRef(index) : PyLong_FromSsize_t(number);
    if (item)
        mh_meter_offer(meter, ns, item, -1);
    Py_XDECREF(item);
}

PyObject *mh_meter_fetch(PyObject *meter, PyObject *arguments)
{
    mh_fetch fetch = {.listener = meter, .was_slow = offer_slow};
    if (!mh_fetch_arguments(&fetch, arguments) || !mh_fetch_samples(&fetch))
        return NULL;
    Py_RETURN_NONE;
}

/* Fetches and collates. Where that fails or is declined, the samples are in fetch->samples. */
static PyObject *load_batch(const mh_module *module, mh_fetch *fetch)
{
    mh_sink sink = {.module = module};
    PyObject *batch = NULL;
    fetched_items fetched = {0};
    fetch_items(fetch, &fetched);
    if (!PyErr_Occurred())
        batch = mh_collate_items(&sink, fetched.sample, fetched.count);
    if (batch)
        items_free(&fetched);
    else if (items_to_list(&fetched, fetch->samples))
        batch = Py_NewRef(Py_NotImplemented);
    return batch;
}

/* One step of a loader without workers. index_out gets the index, and samples what was fetched if
 * there is no batch, so that the caller can say where an exception arose or collate in its own way.
 */
PyObject *mh_meter_load(PyObject *meter, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4 || !PyIter_Check(arguments[0]) || !PyList_Check(arguments[2]) ||
        !PyList_Check(arguments[3]))
        return PyErr_Format(PyExc_TypeError, "load(sampler, dataset, index_out, samples)");
    mh_fetch fetch = {
        .listener = meter, .was_slow = offer_slow, .from = arguments[1], .samples = arguments[3]};
    ((mh_meter *)meter)->wait_began_ns = mh_clock_ns();
    PyObject *index = PyIter_Next(arguments[0]);
    if (!index) {
        if (!PyErr_Occurred())
            PyErr_SetNone(PyExc_StopIteration);
        return NULL;
    }
    int status = PyList_Append(arguments[2], index);
    Py_DECREF(index); /* index_out holds it */
    if (status < 0)
        return NULL;
    if (!Py_IS_TYPE(index, &PyList_Type))
        Py_RETURN_NOTIMPLEMENTED;
    fetch.indices = index;
    fetch.count = PyList_Size(index);
    PyObject *batch = load_batch(mh_module_of(meter), &fetch);
    if (batch && batch != Py_NotImplemented)
        mh_meter_loaded((mh_meter *)meter, (uint64_t)PyList_Size(index));
    return batch;
}
