/* wait_meter.c - how long the consumer waited, and which samples were slowest
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fetch_samples.h"
#include "sys/clock.h"

#include <string.h>

void mh_meter_offer(mh_meter *meter, uint64_t ns, PyObject *index, int worker)
{
    Py_XDECREF(mh_slowest_offer(&meter->slowest, ns, Py_NewRef(index), worker));
}

void mh_meter_end_wait(mh_meter *meter)
{
    mh_histogram_add(&meter->wait, meter->wait_began_ns ? mh_clock_ns() - meter->wait_began_ns : 0);
    meter->wait_began_ns = 0;
}

void mh_meter_loaded(mh_meter *meter, uint64_t samples)
{
    mh_meter_end_wait(meter);
    meter->loaded_batches++;
    meter->loaded_samples += samples;
}

static PyObject *meter_begin_wait(PyObject *self, PyObject *unused)
{
    ((mh_meter *)self)->wait_began_ns = mh_clock_ns();
    Py_RETURN_NONE;
}

static PyObject *meter_end_wait(PyObject *self, PyObject *unused)
{
    mh_meter_end_wait((mh_meter *)self);
    Py_RETURN_NONE;
}

/* All of it, so that what comes later can be told from what was. */
static PyObject *meter_waits_so_far(PyObject *self, PyObject *unused)
{
    return PyBytes_FromStringAndSize((const char *)&((mh_meter *)self)->wait, sizeof(mh_histogram));
}

static PyObject *meter_wait_ms(PyObject *self, PyObject *args)
{
    mh_histogram later, earlier;
    const mh_histogram *wait = &((mh_meter *)self)->wait;
    PyObject *before = NULL;
    if (!PyArg_ParseTuple(args, "|S", &before))
        return NULL;
    if (before && PyBytes_Size(before) != sizeof earlier)
        return PyErr_Format(PyExc_ValueError, "wait_ms() takes what waits_so_far() gave");
    if (before) {
        memcpy(&earlier, PyBytes_AsString(before), sizeof earlier);
        mh_histogram_since(&later, wait, &earlier);
        wait = &later;
    }
    double total = (double)wait->total / 1e6;
    return Py_BuildValue("{s:K,s:d,s:d,s:d,s:d,s:d}", "count", (unsigned long long)wait->count,
                         "mean", wait->count ? total / (double)wait->count : 0.0, "p50",
                         (double)mh_histogram_quantile(wait, 0.5) / 1e6, "p99",
                         (double)mh_histogram_quantile(wait, 0.99) / 1e6, "max",
                         (double)wait->max / 1e6, "total", total);
}

static PyObject *meter_slowest(PyObject *self, PyObject *unused)
{
    const mh_meter *meter = (mh_meter *)self;
    PyObject *list = PyList_New(meter->slowest.count);
    for (int i = 0; list && i < meter->slowest.count; i++) {
        const mh_slow_sample *slow = &meter->slowest.samples[i];
        PyObject *entry = Py_BuildValue("{s:O,s:d,s:i}", "index", slow->key, "ms",
                                        (double)slow->ns / 1e6, "worker", slow->worker);
        if (!entry || PyList_SetItem(list, i, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *meter_take_loaded(PyObject *self, PyObject *unused)
{
    mh_meter *meter = (mh_meter *)self;
    unsigned long long batches = meter->loaded_batches, samples = meter->loaded_samples;
    meter->loaded_batches = meter->loaded_samples = 0;
    return Py_BuildValue("KK", batches, samples);
}

static int meter_clear(PyObject *self)
{
    mh_meter *meter = (mh_meter *)self;
    while (meter->slowest.count > 0)
        Py_DECREF(meter->slowest.samples[--meter->slowest.count].key);
    return 0;
}

static PyObject *meter_begin_again(PyObject *self, PyObject *unused)
{
    meter_clear(self);
    memset(&((mh_meter *)self)->wait, 0, sizeof(mh_histogram));
    Py_RETURN_NONE;
}

static int meter_traverse(PyObject *self, visitproc visit, void *arg)
{
    const mh_meter *meter = (mh_meter *)self;
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < meter->slowest.count; i++)
        Py_VISIT(meter->slowest.samples[i].key);
    return 0;
}

static void meter_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    meter_clear(self);
    mh_object_free(self);
}

static PyMethodDef meter_methods[] = {
    {"fetch", mh_meter_fetch, METH_VARARGS,
     "fetch(dataset, indices, first, samples): append dataset[i] for each index to samples, the "
     "first of them number first; with a count for indices the next items of an iterator, fewer "
     "where it ends."},
    {"load", (PyCFunction)(void (*)(void))mh_meter_load, METH_FASTCALL,
     "load(sampler, dataset, index_out, samples): the next batch, or NotImplemented where the "
     "caller must fetch or collate."},
    {"begin_wait", meter_begin_wait, METH_NOARGS, "The consumer begins to wait."},
    {"end_wait", meter_end_wait, METH_NOARGS, "It has its batch: record how long it waited."},
    {"wait_ms", meter_wait_ms, METH_VARARGS,
     "wait_ms([so_far]): the consumer's waits, or those since waits_so_far(): count, mean, p50, "
     "..."},
    {"waits_so_far", meter_waits_so_far, METH_NOARGS, "What wait_ms() is told to leave out."},
    {"take_loaded", meter_take_loaded, METH_NOARGS,
     "(batches, samples) that load() gave since this was last asked."},
    {"slowest", meter_slowest, METH_NOARGS, "The slowest samples, slowest first."},
    {"clear", meter_begin_again, METH_NOARGS, "Forget everything."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot meter_slots[] = {
    {Py_tp_doc, "Waits and slowest samples of one loader."},
    {Py_tp_methods, meter_methods},
    {Py_tp_traverse, meter_traverse},
    {Py_tp_clear, meter_clear},
    {Py_tp_dealloc, meter_dealloc},
    {0, NULL},
};

MH_TYPE_SPEC(meter, "Meter", mh_meter, Py_TPFLAGS_HAVE_GC);
