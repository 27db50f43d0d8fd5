/* _meter.c - how long the consumer waited, and which samples were slowest
 * SPDX-License-Identifier: Apache-2.0
 */
#include "_module.h"
#include "sys/clock.h"

#include <string.h>

void mh_meter_offer(mh_meter *meter, uint64_t ns, PyObject *index, int worker)
{
    if (meter->slow_count == MH_SLOWEST && ns <= meter->slowest[MH_SLOWEST - 1].ns)
        return;
    int at = meter->slow_count;
    if (at == MH_SLOWEST) {
        at--;
        Py_DECREF(meter->slowest[at].index);
    } else {
        meter->slow_count++;
    }
    for (; at > 0 && meter->slowest[at - 1].ns < ns; at--)
        meter->slowest[at] = meter->slowest[at - 1];
    meter->slowest[at] = (mh_slow_sample){ns, Py_NewRef(index), worker};
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
    (void)unused;
    ((mh_meter *)self)->wait_began_ns = mh_clock_ns();
    Py_RETURN_NONE;
}

static PyObject *meter_end_wait(PyObject *self, PyObject *unused)
{
    (void)unused;
    mh_meter_end_wait((mh_meter *)self);
    Py_RETURN_NONE;
}

static PyObject *meter_wait_ms(PyObject *self, PyObject *unused)
{
    (void)unused;
    const mh_histogram *wait = &((mh_meter *)self)->wait;
    double total = (double)wait->total / 1e6;
    return Py_BuildValue("{s:K,s:d,s:d,s:d,s:d,s:d}", "count", (unsigned long long)wait->count,
                         "mean", wait->count ? total / (double)wait->count : 0.0, "p50",
                         (double)mh_histogram_quantile(wait, 0.5) / 1e6, "p99",
                         (double)mh_histogram_quantile(wait, 0.99) / 1e6, "max",
                         (double)wait->max / 1e6, "total", total);
}

static PyObject *meter_slowest(PyObject *self, PyObject *unused)
{
    (void)unused;
    const mh_meter *meter = (mh_meter *)self;
    PyObject *list = PyList_New(meter->slow_count);
    for (int i = 0; list && i < meter->slow_count; i++) {
        const mh_slow_sample *slow = &meter->slowest[i];
        PyObject *entry = Py_BuildValue("{s:O,s:d,s:i}", "index", slow->index, "ms",
                                        (double)slow->ns / 1e6, "worker", slow->worker);
        if (entry)
            PyList_SetItem(list, i, entry);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *meter_take_loaded(PyObject *self, PyObject *unused)
{
    (void)unused;
    mh_meter *meter = (mh_meter *)self;
    unsigned long long batches = meter->loaded_batches, samples = meter->loaded_samples;
    meter->loaded_batches = meter->loaded_samples = 0;
    return Py_BuildValue("KK", batches, samples);
}

static int meter_clear(PyObject *self)
{
    mh_meter *meter = (mh_meter *)self;
    while (meter->slow_count > 0) {
        meter->slow_count--;
        Py_CLEAR(meter->slowest[meter->slow_count].index);
    }
    return 0;
}

static PyObject *meter_begin_again(PyObject *self, PyObject *unused)
{
    (void)unused;
    meter_clear(self);
    memset(&((mh_meter *)self)->wait, 0, sizeof(mh_histogram));
    Py_RETURN_NONE;
}

static int meter_traverse(PyObject *self, visitproc visit, void *arg)
{
    const mh_meter *meter = (mh_meter *)self;
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < meter->slow_count; i++)
        Py_VISIT(meter->slowest[i].index);
    return 0;
}

static void meter_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    meter_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef meter_methods[] = {
    {"begin_wait", meter_begin_wait, METH_NOARGS, "The consumer begins to wait."},
    {"end_wait", meter_end_wait, METH_NOARGS, "It has its batch: record how long it waited."},
    {"wait_ms", meter_wait_ms, METH_NOARGS, "The consumer's waits: count, mean, p50, ..."},
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

PyType_Spec mh_meter_spec = {
    .name = "millhead._core.Meter",
    .basicsize = sizeof(mh_meter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = meter_slots,
};
