/* fetch_times.c - how long a worker took for its batches, as events
 * SPDX-License-Identifier: Apache-2.0
 *
 * In C because it is part of every batch: interpreted code that runs once in 10 ms runs slowly.
 */
#include "module.h"
#include "observe/ticks.h"

#include <structmember.h>
#include <unistd.h>

typedef struct fetches_object {
    PyObject ob_base;
    long long loader;
    int worker, probing;
    long long items;      /* that a stream has given in this epoch */
    long long epoch, nth; /* nth: of the batch in hand, or of the next */
    mh_thread_clock clock;
    mh_reading began, fetched;
    uint64_t helped;            /* CPU time of the process's other threads when it was last told */
    uint64_t helpers;           /* of it while the samples were fetched */
    uint64_t read_before, read; /* from storage */
    uint64_t probes, native;
    uint64_t known_now, known_cpu; /* when CPU time was last looked at */
    long long samples;             /* -1: not all are there */
    mh_lines slow, lines;
} fetches_object;

static void add_place(fetches_object *self, mh_lines *lines)
{
    mh_lines_put(lines, "loader", self->loader);
    mh_lines_put(lines, "epoch", self->epoch);
    mh_lines_put(lines, "worker", self->worker);
    mh_lines_put(lines, "nth", self->nth);
}

/* What the process's other threads have computed since the last time it was asked. */
static uint64_t helpers_since(fetches_object *self, const mh_reading *now)
{
    uint64_t all = mh_process_cpu_ns(), others = all > now->cpu ? all - now->cpu : 0;
    uint64_t since = others > self->helped ? others - self->helped : 0;
    self->helped = others;
    return since;
}

static PyObject *fetches_next_epoch(PyObject *object, PyObject *unused)
{
    fetches_object *self = (fetches_object *)object;
    self->epoch++;
    self->nth = self->items = 0;
    Py_RETURN_NONE;
}

static PyObject *fetches_begin(PyObject *object, PyObject *unused)
{
    fetches_object *self = (fetches_object *)object;
    self->slow.used = 0;
    self->samples = -1;
    self->read = 0;
    mh_native_share_counts(&self->probes, &self->native); /* those of what came before */
    self->probes = self->native = 0;
    if (self->worker < 0) /* a worker does nothing else: its last count holds */
        self->read_before = mh_storage_bytes();
    self->began = mh_clock_begin(&self->clock);
    self->known_now = self->began.now;
    self->known_cpu = self->began.cpu;
    (void)helpers_since(self, &self->began);
    mh_ticks_stage(MH_STAGE_FETCH);
    Py_RETURN_NONE;
}

/* index -1: not a number */
static void add_slow(fetches_object *self, uint64_t began, uint64_t ns, long long index)
{
    uint64_t cpu = mh_thread_cpu_ns();
    /* What came since it was last looked at were short ones, which are not blocked. */
    uint64_t others = began - self->known_now;
    uint64_t spent = cpu - self->known_cpu;
    uint64_t own = spent > others ? spent - others : 0;
    self->known_now = began + ns;
    self->known_cpu = cpu;
    mh_reading from = {.now = began, .delay = -1};
    mh_reading to = {.now = began + ns, .cpu = own < ns ? own : ns, .delay = -1};
    mh_lines_begin(&self->slow, "sample", from, to);
    add_place(self, &self->slow);
    if (index >= 0)
        mh_lines_put(&self->slow, "index", index);
    mh_lines_end(&self->slow);
}

void mh_fetches_sample(PyObject *fetches, uint64_t began, uint64_t ns, PyObject *index)
{
    int overflow;
    if (ns >= MH_SLOW_NS)
        add_slow((fetches_object *)fetches, began, ns,
                 PyLong_CheckExact(index) ? PyLong_AsLongLongAndOverflow(index, &overflow) : -1);
}

void mh_fetches_item(PyObject *fetches, uint64_t began, uint64_t ns)
{
    fetches_object *self = (fetches_object *)fetches;
    if (ns >= MH_SLOW_NS)
        add_slow(self, began, ns, self->items);
    self->items++;
}

static void note_fetched(fetches_object *self, long long samples)
{
    uint64_t probes, native;
    mh_ticks_stage(MH_STAGE_COLLATE);
    self->samples = samples;
    self->fetched = mh_clock_read(&self->clock);
    self->helpers = helpers_since(self, &self->fetched);
    uint64_t read = mh_storage_bytes();
    self->read += read - self->read_before;
    self->read_before = read;
    mh_native_share_counts(&probes, &native);
    self->probes += probes;
    self->native += native;
}

static PyObject *fetches_fetched(PyObject *object, PyObject *samples)
{
    long long count = PyLong_AsLongLong(samples);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    note_fetched((fetches_object *)object, count);
    Py_RETURN_NONE;
}

static void add_fetch(fetches_object *self)
{
    mh_lines_begin(&self->lines, "fetch", self->began, self->fetched);
    add_place(self, &self->lines);
    mh_lines_put(&self->lines, "pid", getpid());
    mh_lines_put(&self->lines, "read", (long long)self->read);
    mh_lines_put(&self->lines, "helpers", (long long)self->helpers);
    if (self->samples > 0)
        mh_lines_put(&self->lines, "samples", self->samples);
    if (self->probing) {
        mh_lines_put(&self->lines, "probes", (long long)self->probes);
        mh_lines_put(&self->lines, "native", (long long)self->native);
    }
    mh_lines_end(&self->lines);
    mh_lines_append(&self->lines, &self->slow);
}

static PyObject *fetches_done(PyObject *object, PyObject *unused)
{
    fetches_object *self = (fetches_object *)object;
    int in_one_go = self->samples < 0; /* there was nothing between fetching and collating */
    if (in_one_go)
        note_fetched(self, 0);
    add_fetch(self);
    mh_reading now = self->fetched;
    if (!in_one_go) {
        now = mh_clock_read(&self->clock);
        mh_lines_begin(&self->lines, "collate", self->fetched, now);
        add_place(self, &self->lines);
        mh_lines_put(&self->lines, "helpers", (long long)helpers_since(self, &now));
        mh_lines_end(&self->lines);
    }
    mh_ticks_stage(MH_STAGE_NONE);
    self->nth++;
    /* A worker may be idle or gone before it comes here again. */
    return self->worker < 0 ? mh_lines_take_due(&self->lines, now.now)
                            : mh_lines_take(&self->lines);
}

static PyObject *fetches_rest(PyObject *object, PyObject *unused)
{
    return mh_lines_take(&((fetches_object *)object)->lines);
}

static PyObject *fetches_failed(PyObject *object, PyObject *unused)
{
    fetches_object *self = (fetches_object *)object;
    mh_ticks_stage(MH_STAGE_NONE);
    if (self->samples >= 0)
        add_fetch(self);
    self->nth++;
    return mh_lines_take(&self->lines);
}

static PyObject *fetches_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"loader", "epoch", "worker", "probing", NULL};
    long long loader, epoch;
    int worker, probing;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "LLip:Fetches", names, &loader, &epoch,
                                     &worker, &probing))
        return NULL;
    fetches_object *self = mh_object_new(type);
    if (self) {
        self->loader = loader;
        self->epoch = epoch;
        self->worker = worker;
        self->probing = probing;
        self->read_before = mh_storage_bytes();
    }
    return (PyObject *)self;
}

static void fetches_dealloc(PyObject *object)
{
    fetches_object *self = (fetches_object *)object;
    mh_clock_close(&self->clock);
    mh_lines_free(&self->slow);
    mh_lines_free(&self->lines);
    mh_object_free(object);
}

static PyMethodDef fetches_methods[] = {
    {"next_epoch", fetches_next_epoch, METH_NOARGS,
     "Count batches from 0, in the epoch that comes."},
    {"begin", fetches_begin, METH_NOARGS, "A batch is asked for."},
    {"fetched", fetches_fetched, METH_O, "It has so many samples, and all are there."},
    {"done", fetches_done, METH_NOARGS,
     "It is made. Lines that are to be written now; without a worker they may wait: None."},
    {"rest", fetches_rest, METH_NOARGS, "Lines that are left."},
    {"failed", fetches_failed, METH_NOARGS, "An exception came instead: what lines there are."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef fetches_members[] = {
    {"samples", T_LONGLONG, offsetof(fetches_object, samples), READONLY,
     "Of the batch in hand; 0: they were not counted, -1: not all are there."},
    {"epoch", T_LONGLONG, offsetof(fetches_object, epoch), 0, "Of the batch in hand."},
    {"nth", T_LONGLONG, offsetof(fetches_object, nth), 0, "Its number in the epoch."},
    {"items", T_LONGLONG, offsetof(fetches_object, items), 0, "That a stream gave before it."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot fetches_slots[] = {
    {Py_tp_doc, "Fetches(loader, epoch, worker, probing): events fetch, sample and collate."},
    {Py_tp_new, fetches_new},
    {Py_tp_dealloc, fetches_dealloc},
    {Py_tp_methods, fetches_methods},
    {Py_tp_members, fetches_members},
    {0, NULL},
};

MH_TYPE_SPEC(fetches, "Fetches", fetches_object, 0);
