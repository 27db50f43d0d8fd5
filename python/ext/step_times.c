/* step_times.c - Steps: how long a loop waited for its batches and worked on them, as events
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/step_times.h"
#include "module.h"
#include "observe/ticks.h"

typedef struct steps_object {
    PyObject ob_base;
    PyObject *meter; /* the loader's: keeps its histogram of waits */
    mh_steps steps;
} steps_object;

PyObject *mh_lines_take(mh_lines *lines)
{
    size_t bytes;
    const char *text = mh_lines_take_text(lines, &bytes);
    return PyBytes_FromStringAndSize(text, (Py_ssize_t)bytes);
}

PyObject *mh_lines_take_due(mh_lines *lines, uint64_t now_ns)
{
    if (!mh_lines_due(lines, now_ns))
        Py_RETURN_NONE;
    return mh_lines_take(lines);
}

static PyObject *steps_ready(PyObject *object, PyObject *ordering)
{
    mh_steps *steps = &((steps_object *)object)->steps;
    long long order_ns = PyLong_AsLongLong(ordering);
    if (order_ns == -1 && PyErr_Occurred())
        return NULL;
    mh_steps_ready(steps, order_ns);
    return mh_lines_take(&steps->lines);
}

static PyObject *steps_ask(PyObject *object, PyObject *arguments)
{
    long long train_ns, own_ns = -1;
    if (!PyArg_ParseTuple(arguments, "L|L:ask", &train_ns, &own_ns))
        return NULL;
    mh_ticks_stage(MH_STAGE_NONE);
    mh_steps_ask(&((steps_object *)object)->steps, train_ns, own_ns);
    Py_RETURN_NONE;
}

static PyObject *steps_got(PyObject *object, PyObject *arguments)
{
    mh_steps *steps = &((steps_object *)object)->steps;
    long long samples, nth, bytes, texts;
    int worker;
    if (!PyArg_ParseTuple(arguments, "LiLLL:got", &samples, &worker, &nth, &bytes, &texts))
        return NULL;
    const mh_step_batch batch = {
        .samples = samples, .worker = worker, .nth = nth, .bytes = bytes, .texts = texts};
    mh_steps_got(steps, &batch);
    mh_ticks_stage(MH_STAGE_LOOP);
    return mh_lines_take_due(&steps->lines, steps->at.now);
}

static PyObject *steps_rest(PyObject *object, PyObject *unused)
{
    return mh_lines_take(&((steps_object *)object)->steps.lines);
}

static PyObject *steps_totals(PyObject *object, PyObject *unused)
{
    const mh_steps *steps = &((steps_object *)object)->steps;
    return Py_BuildValue(
        "{s:L,s:L,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "batches", (long long)steps->batch + 1,
        "samples", (long long)steps->samples, "began", (unsigned long long)steps->began.now, "last",
        (unsigned long long)steps->at.now, "setup_ns", (unsigned long long)steps->setup_ns,
        "first_ns", (unsigned long long)steps->first_ns, "wait_ns",
        (unsigned long long)steps->wait_ns, "step_ns", (unsigned long long)steps->step_ns, "p50_ns",
        (unsigned long long)mh_histogram_quantile(&steps->waits, 0.5), "p99_ns",
        (unsigned long long)mh_histogram_quantile(&steps->waits, 0.99), "max_ns",
        (unsigned long long)steps->waits.max);
}

static PyObject *steps_close(PyObject *object, PyObject *unused)
{
    mh_clock_close(&((steps_object *)object)->steps.clock);
    Py_RETURN_NONE;
}

static PyObject *steps_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"loader", "epoch", "waits", "skip_first", NULL};
    long long loader, epoch;
    PyObject *meter;
    int skip_first;
    const mh_module *module = PyType_GetModuleState(type);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "LLO!p:Steps", names, &loader, &epoch,
                                     module->meter_type, &meter, &skip_first))
        return NULL;
    steps_object *self = mh_object_new(type);
    if (self) {
        self->meter = Py_NewRef(meter);
        mh_steps_begin(&self->steps, loader, epoch, &((mh_meter *)meter)->wait, skip_first);
    }
    return (PyObject *)self;
}

static void steps_dealloc(PyObject *object)
{
    steps_object *self = (steps_object *)object;
    mh_steps_end(&self->steps);
    Py_DECREF(self->meter);
    mh_object_free(object);
}

static PyMethodDef steps_methods[] = {
    {"ready", steps_ready, METH_O,
     "ready(ns): the iterator is made, of it ns to draw orders: the line of its set-up."},
    {"ask", steps_ask, METH_VARARGS,
     "ask(train, own=-1): the loop asks for a batch, and the one before is worked off; train: ns "
     "of "
     "it that were training; own: CPU time of the loop's own work; -1: not known."},
    {"got", steps_got, METH_VARARGS,
     "got(samples, worker, nth, bytes, texts): the batch is there; -1: not known. Lines that are "
     "to be written now, or None."},
    {"rest", steps_rest, METH_NOARGS, "Lines that are left."},
    {"totals", steps_totals, METH_NOARGS, "Sums, and quantiles of all waits but the first."},
    {"close", steps_close, METH_NOARGS, "Close the files of its clock."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot steps_slots[] = {
    {Py_tp_doc,
     "Steps(loader, epoch, waits, skip_first): events setup, wait and step of an epoch."},
    {Py_tp_new, steps_new},
    {Py_tp_dealloc, steps_dealloc},
    {Py_tp_methods, steps_methods},
    {0, NULL},
};

MH_TYPE_SPEC(steps, "Steps", steps_object, 0);
