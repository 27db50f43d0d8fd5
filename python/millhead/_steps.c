/* _steps.c - how long a loop waited for its batches and worked on them, as events
 * SPDX-License-Identifier: Apache-2.0
 */
#include "_module.h"

typedef struct steps_object {
    PyObject ob_base;
    long long loader, epoch;
    long long batch; /* the last one that came; -1: none */
    long long samples;
    mh_meter *waits; /* the loader's */
    int skip;        /* whether the first wait is the loader's very first, which counts apart */
    mh_histogram own;
    mh_thread_clock clock;
    mh_reading began, at; /* at: the last time that it asked or got */
    uint64_t setup_ns, first_ns, wait_ns, step_ns;
    mh_lines lines;
} steps_object;

static void add_place(steps_object *self)
{
    mh_lines_put(&self->lines, "loader", self->loader);
    mh_lines_put(&self->lines, "epoch", self->epoch);
}

static PyObject *steps_ready(PyObject *object, PyObject *ordering)
{
    steps_object *self = (steps_object *)object;
    long long order = PyLong_AsLongLong(ordering);
    if (order == -1 && PyErr_Occurred())
        return NULL;
    self->at = mh_clock_read(&self->clock);
    self->setup_ns = self->at.now - self->began.now;
    mh_lines_begin(&self->lines, "setup", self->began, self->at);
    add_place(self);
    if (order > 0)
        mh_lines_put(&self->lines, "order", order);
    mh_lines_end(&self->lines);
    return mh_lines_take(&self->lines);
}

static PyObject *steps_ask(PyObject *object, PyObject *training)
{
    steps_object *self = (steps_object *)object;
    long long train = PyLong_AsLongLong(training);
    if (train == -1 && PyErr_Occurred())
        return NULL;
    mh_reading now = mh_clock_begin(&self->clock);
    if (self->batch >= 0) {
        self->step_ns += now.now - self->at.now;
        mh_lines_begin(&self->lines, "step", self->at, now);
        add_place(self);
        mh_lines_put(&self->lines, "batch", self->batch);
        if (train >= 0)
            mh_lines_put(&self->lines, "train", train);
        mh_lines_end(&self->lines);
    }
    self->at = now;
    Py_RETURN_NONE;
}

static void count_wait(steps_object *self, uint64_t ns)
{
    if (self->batch == 0) {
        self->first_ns = ns;
    } else {
        self->wait_ns += ns;
        mh_histogram_add(&self->own, ns);
    }
    if (self->batch > 0 || !self->skip)
        mh_histogram_add(&self->waits->wait, ns);
}

static PyObject *steps_got(PyObject *object, PyObject *arguments)
{
    steps_object *self = (steps_object *)object;
    long long samples;
    int worker;
    long long nth;
    long long bytes, texts;
    if (!PyArg_ParseTuple(arguments, "LiLLL:got", &samples, &worker, &nth, &bytes, &texts))
        return NULL;
    mh_reading now = mh_clock_read(&self->clock);
    self->batch++;
    count_wait(self, now.now - self->at.now);
    mh_lines_begin(&self->lines, "wait", self->at, now);
    add_place(self);
    mh_lines_put(&self->lines, "batch", self->batch);
    mh_lines_put(&self->lines, "worker", worker);
    mh_lines_put(&self->lines, "nth", nth);
    if (samples >= 0) {
        self->samples += samples;
        mh_lines_put(&self->lines, "samples", samples);
    }
    if (bytes >= 0)
        mh_lines_put(&self->lines, "bytes", bytes);
    if (texts >= 0)
        mh_lines_put(&self->lines, "texts", texts);
    mh_lines_end(&self->lines);
    self->at = now;
    return mh_lines_take_due(&self->lines, now.now);
}

static PyObject *steps_rest(PyObject *object, PyObject *unused)
{
    (void)unused;
    return mh_lines_take(&((steps_object *)object)->lines);
}

static PyObject *steps_totals(PyObject *object, PyObject *unused)
{
    (void)unused;
    const steps_object *self = (steps_object *)object;
    const mh_histogram *own = &self->own;
    return Py_BuildValue(
        "{s:L,s:L,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "batches", self->batch + 1, "samples",
        self->samples, "began", (unsigned long long)self->began.now, "last",
        (unsigned long long)self->at.now, "setup_ns", (unsigned long long)self->setup_ns,
        "first_ns", (unsigned long long)self->first_ns, "wait_ns",
        (unsigned long long)self->wait_ns, "step_ns", (unsigned long long)self->step_ns, "p50_ns",
        (unsigned long long)mh_histogram_quantile(own, 0.5), "p99_ns",
        (unsigned long long)mh_histogram_quantile(own, 0.99), "max_ns",
        (unsigned long long)own->max);
}

static PyObject *steps_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    mh_clock_close(&((steps_object *)object)->clock);
    Py_RETURN_NONE;
}

static PyObject *steps_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"loader", "epoch", "waits", "skip_first", NULL};
    long long loader;
    long long epoch;
    PyObject *waits;
    int skip;
    const mh_module *module = PyType_GetModuleState(type);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "LLO!p:Steps", names, &loader, &epoch,
                                     module->meter_type, &waits, &skip))
        return NULL;
    steps_object *self = (steps_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self) {
        self->loader = loader;
        self->epoch = epoch;
        self->batch = -1;
        self->waits = (mh_meter *)Py_NewRef(waits);
        self->skip = skip;
        self->began = self->at = mh_clock_read(&self->clock);
    }
    return (PyObject *)self;
}

static void steps_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    steps_object *self = (steps_object *)object;
    mh_clock_close(&self->clock);
    mh_lines_free(&self->lines);
    Py_DECREF((PyObject *)self->waits);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef steps_methods[] = {
    {"ready", steps_ready, METH_O,
     "ready(ns): the iterator is made, of it ns to draw orders: the line of its set-up."},
    {"ask", steps_ask, METH_O,
     "ask(train): the loop asks for a batch, and the one before is worked off; train: ns of it "
     "that "
     "were training, or -1."},
    {"got", steps_got, METH_VARARGS,
     "got(samples, worker, nth, bytes, texts): the batch is there; -1: not known. Lines that are "
     "to be "
     "written now, or None."},
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

PyType_Spec mh_steps_spec = {
    .name = "millhead._core.Steps",
    .basicsize = sizeof(steps_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = steps_slots,
};
