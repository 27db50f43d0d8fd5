/* native_loader.c - NativeLoader: the native pipeline, as Python sees it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "base/fork.h"
#include "native.h"
#include "order/blocks.h"
#include "pipeline/times.h"

#define SLICE_NS UINT64_C(100000000) /* Ctrl-C is looked for as often */

/* A loader serves one thread at a time: the lock is held for each call, without the GIL. A forked
 * child, in which it may be locked for ever, looks at the fork generation first. */
typedef struct loader_object {
    PyObject ob_base;
    uint32_t fork_generation;
    struct {
        pthread_mutex_t lock;
        mh_loader *loader;       /* NULL: closed */
        unsigned long long turn; /* of the iterator in use; older ones get no batch */
        bool ended;              /* its epoch is over */
    } sync;
} loader_object;

static const char *const shuffles[MH_SHUFFLE_KINDS] = {
    [MH_SHUFFLE_NONE] = "sequential",
    [MH_SHUFFLE_ALL] = "keyed",
    [MH_SHUFFLE_TORCH] = "torch",
    [MH_SHUFFLE_BLOCKS] = "blocks",
};

static const char *const on_errors[MH_ON_ERROR_KINDS] = {
    [MH_ON_ERROR_RAISE] = "raise",
    [MH_ON_ERROR_SKIP] = "skip",
    [MH_ON_ERROR_REPLACE] = "replace",
};

static PyObject *loader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"dataset",  "batch_size", "order",     "seed",   "epoch",
                            "rank",     "world",      "drop_last", "uneven", "limit_batches",
                            "threads",  "in_flight",  "prefetch",  "memory", "simulate",
                            "on_error", "subset",     "weights",   NULL};
    PyObject *dataset;
    Py_buffer subset = {0}, weights = {0}; /* uint64, float64; of None: nothing */
    const char *order, *on_error;
    unsigned long long batch_size, seed, epoch, rank, world, limit, memory;
    mh_loader_options options;
    mh_error err;
    mh_status status;
    mh_loader_options_init(&options);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OKsKKKKppKiIIKzsz*z*:NativeLoader",
                                     names, &dataset, &batch_size, &order, &seed, &epoch, &rank,
                                     &world, &options.drop_last, &options.uneven, &limit,
                                     &options.threads, &options.in_flight, &options.prefetch,
                                     &memory, &options.simulate, &on_error, &subset, &weights))
        return NULL;
    const mh_module *module = PyType_GetModuleState(type);
    loader_object *self = NULL;
    if (!Py_IS_TYPE(dataset, module->dataset_type)) {
        PyErr_Format(PyExc_TypeError, "dataset should be a Dataset");
        goto end;
    }
    options.batch_size = batch_size;
    options.shuffle = (mh_shuffle)mh_place_of(order, shuffles, MH_SHUFFLE_KINDS);
    options.on_error = (mh_on_error)mh_place_of(on_error, on_errors, MH_ON_ERROR_KINDS);
    options.seed = seed;
    options.epoch = epoch;
    options.rank = rank;
    options.world = world;
    options.limit_batches = limit;
    options.memory_bytes = memory;
    options.subset = subset.buf;
    options.subset_count = (uint64_t)subset.len / sizeof *options.subset;
    options.weights = weights.buf;
    options.weight_count = (uint64_t)weights.len / sizeof *options.weights;
    self = mh_object_new(type);
    if (!self)
        goto end;
    self->fork_generation = mh_fork_generation();
    self->sync.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    self->sync.ended = true;
    Py_BEGIN_ALLOW_THREADS
    status =
        mh_loader_open(&self->sync.loader, ((mh_dataset_object *)dataset)->dataset, &options, &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK) {
        mh_raise(module, &err);
        Py_CLEAR(self);
    }
end:
    PyBuffer_Release(&subset);
    PyBuffer_Release(&weights);
    return (PyObject *)self;
}

static bool loader_forked(const loader_object *self)
{
    return self->fork_generation != mh_fork_generation();
}

/* Takes the lock; the GIL is released meanwhile. MH_ERR_FORKED, MH_ERR_CLOSED without it. */
static mh_status loader_enter(loader_object *self, mh_error *err)
{
    if (loader_forked(self))
        return mh_fail(err, MH_ERR_FORKED,
                       "this loader belongs to the process that made it: make one here, or read "
                       "with millhead.open()");
    pthread_mutex_lock(&self->sync.lock);
    if (self->sync.loader)
        return MH_OK;
    pthread_mutex_unlock(&self->sync.lock);
    return mh_fail(err, MH_ERR_CLOSED, "the loader is closed");
}

static void loader_leave(loader_object *self)
{
    pthread_mutex_unlock(&self->sync.lock);
}

/* loader_enter for a question that is answered at once. False with an exception. */
static bool loader_take(loader_object *self)
{
    mh_error err;
    mh_status status;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        mh_raise(mh_module_of(self), &err);
    return status == MH_OK;
}

static void loader_shut(loader_object *self)
{
    if (loader_forked(self))
        return;
    pthread_mutex_lock(&self->sync.lock);
    mh_loader *loader = self->sync.loader;
    self->sync.loader = NULL;
    pthread_mutex_unlock(&self->sync.lock);
    mh_loader_close(loader);
}

static void loader_dealloc(PyObject *self)
{
    Py_BEGIN_ALLOW_THREADS
    loader_shut((loader_object *)self);
    Py_END_ALLOW_THREADS
    mh_object_free(self);
}

static PyObject *loader_close(PyObject *self, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS
    loader_shut((loader_object *)self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* --- turns: one for each iterator --- */

static mh_status begin_turn(loader_object *self, uint64_t epoch, uint64_t start,
                            unsigned long long *out, mh_error *err)
{
    uint64_t at_epoch, at;
    MH_TRY(loader_enter(self, err));
    mh_status status = MH_OK;
    mh_loader_position(self->sync.loader, &at_epoch, &at);
    if (at_epoch != epoch || at != start) /* else what is under way is what is wanted */
        status = mh_loader_seek(self->sync.loader, epoch, start, err);
    if (status == MH_OK) {
        *out = ++self->sync.turn;
        self->sync.ended = false;
    }
    loader_leave(self);
    return status;
}

static PyObject *loader_begin(PyObject *object, PyObject *arguments)
{
    loader_object *self = (loader_object *)object;
    unsigned long long epoch, start, turn = 0;
    mh_error err;
    mh_status status;
    if (!PyArg_ParseTuple(arguments, "KK:begin", &epoch, &start))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = begin_turn(self, epoch, start, &turn, &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(mh_module_of(object), &err);
    return PyLong_FromUnsignedLongLong(turn);
}

static mh_status next_in_slice(loader_object *self, unsigned long long turn, mh_batch **out,
                               mh_error *err)
{
    MH_TRY(loader_enter(self, err));
    mh_status status = MH_END;
    if (turn != self->sync.turn)
        status = mh_fail(err, MH_ERR_CLOSED, "a newer iterator of the loader took its place");
    else if (!self->sync.ended)
        status = mh_loader_next_within(self->sync.loader, SLICE_NS, out, err);
    if (status == MH_END && turn == self->sync.turn)
        self->sync.ended = true;
    loader_leave(self);
    return status;
}

static PyObject *loader_next(PyObject *object, PyObject *number)
{
    loader_object *self = (loader_object *)object;
    const mh_module *module = mh_module_of(object);
    mh_batch *batch = NULL;
    mh_error err;
    mh_status status;
    unsigned long long turn = PyLong_AsUnsignedLongLong(number);
    if (turn == ULLONG_MAX && PyErr_Occurred())
        return NULL;
    do {
        Py_BEGIN_ALLOW_THREADS
        status = next_in_slice(self, turn, &batch, &err);
        Py_END_ALLOW_THREADS
        if (status == MH_ERR_TIMEOUT && PyErr_CheckSignals() < 0)
            return NULL;
    } while (status == MH_ERR_TIMEOUT);
    if (status == MH_END)
        Py_RETURN_NONE;
    return status == MH_OK ? mh_native_arrays(module, batch) : mh_raise(module, &err);
}

/* Prepares a place in an epoch, behind what the legs had where there are any, and ends the turn. */
static PyObject *seek(loader_object *self, uint64_t epoch, uint64_t start, const mh_leg *legs,
                      uint32_t leg_count)
{
    mh_error err;
    mh_status status;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, &err);
    if (status == MH_OK) {
        status = legs ? mh_loader_seek_legs(self->sync.loader, epoch, legs, leg_count, &err)
                      : mh_loader_seek(self->sync.loader, epoch, start, &err);
        self->sync.turn++;
        self->sync.ended = true;
        loader_leave(self);
    }
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(mh_module_of(self), &err);
    Py_RETURN_NONE;
}

static PyObject *loader_seek(PyObject *object, PyObject *arguments)
{
    unsigned long long epoch, start;
    if (!PyArg_ParseTuple(arguments, "KK:seek", &epoch, &start))
        return NULL;
    return seek((loader_object *)object, epoch, start, NULL, 0);
}

static PyObject *loader_seek_legs(PyObject *object, PyObject *arguments)
{
    unsigned long long epoch;
    PyObject *list;
    mh_leg legs[MH_LEGS_MOST];
    if (!PyArg_ParseTuple(arguments, "KO:seek_legs", &epoch, &list))
        return NULL;
    int count = mh_read_legs(list, legs);
    return count < 0 ? NULL : seek((loader_object *)object, epoch, 0, legs, (uint32_t)count);
}

/* --- looking --- */

static PyObject *loader_position(PyObject *object, PyObject *unused)
{
    loader_object *self = (loader_object *)object;
    uint64_t epoch, samples;
    if (!loader_take(self))
        return NULL;
    mh_loader_position(self->sync.loader, &epoch, &samples);
    loader_leave(self);
    return Py_BuildValue("(KK)", (unsigned long long)epoch, (unsigned long long)samples);
}

static PyObject *loader_batches(PyObject *object, PyObject *unused)
{
    loader_object *self = (loader_object *)object;
    if (!loader_take(self))
        return NULL;
    uint64_t batches = mh_loader_batches(self->sync.loader);
    loader_leave(self);
    return PyLong_FromUnsignedLongLong(batches);
}

static PyObject *stats_dict(const mh_loader_stats *stats)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"batches", stats->batches},
        {"samples", stats->samples},
        {"bytes_read", stats->bytes_read},
        {"reads_now", stats->reads_now},
        {"reads_waited", stats->reads_waited},
        {"read_ns", stats->read_ns},
        {"waited_ns", stats->waited_ns},
        {"decode_ns", stats->decode_ns},
        {"place_ns", stats->place_ns},
        {"cpu_ns", stats->cpu_ns},
        {"wait_read_ns", stats->wait_read_ns},
        {"wait_decode_ns", stats->wait_decode_ns},
        {"wait_place_ns", stats->wait_place_ns},
        {"placed", stats->placed},
        {"skipped", stats->skipped},
        {"replaced", stats->replaced},
        {"units_fetched", stats->units_fetched},
        {"units_decoded", stats->units_decoded},
        {"units_refetched", stats->units_refetched},
        {"units_bytes_peak", stats->units_bytes_peak},
        {"slots_peak", stats->slots_peak},
        {"batches_copied_out", stats->batches_copied_out},
        {"threads", (uint64_t)stats->threads},
        {"in_flight", stats->in_flight},
        {"requests", stats->requests},
        {"requests_retried", stats->requests_retried},
        {"requests_hedged", stats->requests_hedged},
        {"requests_peak", stats->requests_peak},
        {"cache_hits", stats->cache_hits},
        {"cache_misses", stats->cache_misses},
        {"cache_bytes", stats->cache_bytes},
        {"cache_written_bytes", stats->cache_written_bytes},
        {"cache_evicted_bytes", stats->cache_evicted_bytes},
        {"cache_corrupt", stats->cache_corrupt},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof numbers / sizeof *numbers; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(numbers[i].value);
        if (!number || PyDict_SetItemString(dict, numbers[i].name, number) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(number);
    }
    return dict;
}

static PyObject *loader_stats(PyObject *object, PyObject *unused)
{
    loader_object *self = (loader_object *)object;
    mh_loader_stats stats;
    mh_loader_stats_init(&stats);
    if (!loader_take(self))
        return NULL;
    mh_loader_stats_read(self->sync.loader, &stats);
    loader_leave(self);
    return stats_dict(&stats);
}

/* --- watching --- */

static PyObject *loader_watch(PyObject *object, PyObject *unused)
{
    loader_object *self = (loader_object *)object;
    mh_error err;
    if (!loader_take(self))
        return NULL;
    mh_status status = mh_loader_watch(self->sync.loader, &err);
    loader_leave(self);
    if (status != MH_OK)
        return mh_raise(mh_module_of(object), &err);
    Py_RETURN_NONE;
}

static void put_event(mh_lines *lines, const mh_event *event, long long loader, long long epoch)
{
    static const char *const names[MH_EVENT_KINDS] = {[MH_EVENT_READ] = "read",
                                                      [MH_EVENT_DECODE] = "decode",
                                                      [MH_EVENT_PLACE] = "place",
                                                      [MH_EVENT_STORAGE] = "storage"};
    if (event->kind >= MH_EVENT_KINDS || !names[event->kind])
        return;
    mh_lines_begin_at(lines, names[event->kind], event->start_ns, event->duration_ns);
    mh_lines_put(lines, "loader", loader);
    mh_lines_put(lines, "epoch", epoch);
    mh_lines_put(lines, "worker", event->kind == MH_EVENT_STORAGE ? -1 : (long long)event->value);
    mh_lines_put(lines, "tasks", (long long)event->batch);
    mh_lines_end(lines);
}

static mh_status put_events(loader_object *self, mh_lines *lines, long long loader, long long epoch,
                            uint64_t *lost, mh_error *err)
{
    mh_event events[256];
    const uint32_t room = sizeof events / sizeof *events;
    uint32_t count = room;
    while (count == room) {
        MH_TRY(loader_enter(self, err));
        count = mh_loader_events(self->sync.loader, events, room, lost);
        loader_leave(self);
        for (uint32_t i = 0; i < count; i++)
            put_event(lines, &events[i], loader, epoch);
    }
    return MH_OK;
}

static PyObject *loader_events(PyObject *object, PyObject *arguments)
{
    loader_object *self = (loader_object *)object;
    long long loader, epoch;
    uint64_t lost = 0;
    mh_lines lines = {0};
    mh_error err;
    mh_status status;
    if (!PyArg_ParseTuple(arguments, "LL:events", &loader, &epoch))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = put_events(self, &lines, loader, epoch, &lost, &err);
    Py_END_ALLOW_THREADS
    PyObject *text = status == MH_OK ? mh_lines_take(&lines) : mh_raise(mh_module_of(object), &err);
    mh_lines_free(&lines);
    return text ? Py_BuildValue("(NK)", text, (unsigned long long)lost) : NULL;
}

static PyMethodDef loader_methods[] = {
    {"begin", loader_begin, METH_VARARGS,
     "begin(epoch, start): a new turn, which goes on from there; older ones get nothing more."},
    {"next", loader_next, METH_O,
     "next(turn): the next batch as Dataset.read() gives it; None at the epoch's end and after."},
    {"seek", loader_seek, METH_VARARGS, "seek(epoch, start): prepare that place; ends the turn."},
    {"seek_legs", loader_seek_legs, METH_VARARGS,
     "seek_legs(epoch, [(world, samples), ...]): go on behind what other numbers of ranks had."},
    {"position", loader_position, METH_NOARGS, "(epoch, samples of all ranks delivered)."},
    {"batches", loader_batches, METH_NOARGS, "Batches of this rank in a whole epoch."},
    {"stats", loader_stats, METH_NOARGS, "What the loader counted since it was opened."},
    {"watch", loader_watch, METH_NOARGS, "Keep what threads do as events from now on."},
    {"events", loader_events, METH_VARARGS,
     "events(loader, epoch): lines of what threads did since it was asked last, and how many "
     "events "
     "were lost in all."},
    {"close", loader_close, METH_NOARGS, "End the threads. Batches stay as they are."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot native_loader_slots[] = {
    {Py_tp_doc, "NativeLoader(dataset, batch_size, order, ...): batches, read by threads of the "
                "core. Any thread may call it; they take turns."},
    {Py_tp_new, loader_new},
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_methods, loader_methods},
    {0, NULL},
};

MH_TYPE_SPEC(native_loader, "NativeLoader", loader_object, 0);
