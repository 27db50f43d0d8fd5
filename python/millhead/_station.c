/* _station.c - a worker's end: tasks in, batches out
 * SPDX-License-Identifier: Apache-2.0
 */
#include "_station.h"
#include "_spill.h"
#include "base/error.h"
#include "sys/process.h"
#include "sys/stopwatch.h"
#include "workers/guard.h"

#include <string.h>

/* Batches from one look at the number of threads to the next; the first ones are all looked at. */
#define LOOK_EVERY 16
#define OWN_THREADS 1

static mh_status station_attach(station_object *self, const int *fds,
                                const unsigned long long *maps, unsigned worker, unsigned depth,
                                mh_error *err)
{
    size_t ring_bytes = mh_event_ring_bytes(MH_EVENTS_PER_WORKER);
    MH_TRY(mh_control_attach(&self->control, fds[0], worker, err));
    MH_TRY(mh_memory_attach(&self->pool, fds[1], (size_t)maps[0], err));
    /* a result has at most two pieces there: its pickled batch, and a long state */
    MH_TRY(mh_spill_open(&self->spill, fds[2], (size_t)maps[1], 2 * depth, err));
    mh_station_inherit(self, worker);
    MH_TRY(mh_memory_attach(&self->metrics, fds[3], ring_bytes * mh_control_workers(self->control),
                            err));
    self->events = mh_event_ring_attach(self->metrics.base + worker * ring_bytes, ring_bytes);
    return self->events ? MH_OK
                        : mh_fail(err, MH_ERR_CORRUPT, "no event ring for worker %u", worker);
}

static PyObject *station_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"fds", "maps", "worker", "depth", "loads", NULL};
    int fds[4];
    unsigned worker;
    unsigned depth;
    PyObject *loads;
    unsigned long long maps[2];
    mh_error err;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "(iiii)(KK)IIO:Station", names, &fds[0],
                                     &fds[1], &fds[2], &fds[3], &maps[0], &maps[1], &worker, &depth,
                                     &loads))
        return NULL;
    station_object *self =
        (station_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->pool.fd = self->metrics.fd = -1;
    self->loads = Py_NewRef(loads);
    self->task.position = MH_NO_BATCH;
    if (station_attach(self, fds, maps, worker, depth, &err) != MH_OK) {
        mh_raise(PyType_GetModuleState(type), &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void station_dealloc(PyObject *object)
{
    station_object *self = (station_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    mh_guard_leave(); /* sys.exit() in a batch: the process goes on for a while */
    mh_spill_close(self->spill);
    mh_memory_close(&self->pool);
    mh_memory_close(&self->metrics);
    mh_control_close(self->control);
    Py_XDECREF(self->loads);
    Py_XDECREF(self->structure);
    Py_XDECREF(self->state);
    Py_XDECREF(self->indices);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* --- tasks in --- */

PyObject *mh_station_ints(const int64_t *numbers, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyList_SetItem(list, i, number) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *mh_station_unpickle(station_object *self, const uint8_t *data, uint32_t bytes)
{
    PyObject *view = PyBytes_FromStringAndSize((const char *)data, bytes);
    PyObject *value = view ? PyObject_CallFunctionObjArgs(self->loads, view, NULL) : NULL;
    Py_XDECREF(view);
    return value;
}

/* True when [offset, offset + bytes) of the pool is backed by memory: beyond it is SIGBUS. */
static bool pool_has(station_object *self, uint64_t offset, uint64_t bytes)
{
    mh_memory *pool = &self->pool;
    if (offset + bytes > pool->size_bytes)
        mh_memory_refresh(pool);
    return offset <= pool->size_bytes && bytes <= pool->size_bytes - offset;
}

const uint8_t *mh_station_take(station_object *self, const mh_task *task)
{
    PyObject *error = mh_module_of((PyObject *)self)->error;
    uint64_t bytes = (uint64_t)task->index_bytes + task->schema_bytes;
    memcpy(&self->task, task, offsetof(mh_task, payload));
    if (task->slot_bytes && !pool_has(self, task->slot_offset, task->slot_bytes))
        self->task.slot_bytes = 0;
    if (task->flags & MH_TASK_OUTSIDE) {
        if (pool_has(self, task->outside, bytes))
            return self->pool.base + task->outside;
        PyErr_SetString(error, "a task beyond the shared memory");
        return NULL;
    }
    if (bytes <= sizeof task->payload)
        return task->payload;
    PyErr_SetString(error, "a task that is too large");
    return NULL;
}

void mh_station_learn(station_object *self, const mh_task *task, const uint8_t *payload)
{
    PyObject *structure =
        mh_station_unpickle(self, payload + task->index_bytes, task->schema_bytes);
    Py_XDECREF(self->structure);
    self->structure = structure;
    self->generation = structure ? task->generation : 0;
    PyErr_Clear(); /* a schema this process cannot read: its batches take the general path */
}

static PyObject *task_in(station_object *self, const mh_task *task)
{
    const uint8_t *payload = mh_station_take(self, task);
    if (!payload)
        return NULL;
    if (task->flags & MH_TASK_SCHEMA)
        mh_station_learn(self, task, payload);
    if (task->flags & MH_TASK_INTS)
        return mh_station_ints((const int64_t *)(const void *)payload,
                               (Py_ssize_t)(task->index_bytes / sizeof(int64_t)));
    return mh_station_unpickle(self, payload, task->index_bytes);
}

static PyObject *station_next(PyObject *object, PyObject *unused)
{
    (void)unused;
    station_object *self = (station_object *)object;
    const mh_task *task = NULL;
    while (!task) {
        Py_BEGIN_ALLOW_THREADS task = mh_control_task_wait(self->control, MH_STATION_SLICE_NS);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return NULL;
        if (mh_control_stopped(self->control)) {
            mh_control_set_state(self->control, MH_WORKER_LEFT);
            Py_RETURN_NONE;
        }
    }
    PyObject *index = task_in(self, task);
    mh_control_task_done(self->control);
    self->fetch_ns = 0;
    self->samples = self->task.count;
    self->skipped = self->replaced = 0;
    return index ? Py_BuildValue("(NNN)", index, PyBool_FromLong(self->task.flags & MH_TASK_EPOCH),
                                 PyBool_FromLong(self->task.flags & MH_TASK_STATE))
                 : NULL;
}

/* One sample of a batch, from a place to look it up in or from a stream. */
typedef PyObject *(*sample_fn)(PyObject *from, PyObject *index);

static PyObject *sample_at(PyObject *dataset, PyObject *index)
{
    Py_INCREF(index); /* user code may take it out of its list */
    PyObject *sample = PyObject_GetItem(dataset, index);
    Py_DECREF(index);
    return sample;
}

static PyObject *sample_next(PyObject *iterator, PyObject *unused)
{
    (void)unused;
    return PyIter_Next(iterator);
}

/* Appends up to `count` samples, the first of which is number `first` of the batch; fewer, without
 * an exception, where a stream ends. -1 with an exception: samples before it are appended. */
static int gather_samples(station_object *self, sample_fn next, PyObject *from, PyObject *indices,
                          Py_ssize_t count, Py_ssize_t first, PyObject *samples)
{
    uint64_t position = self->task.position;
    mh_stopwatch watch = mh_stopwatch_start();
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        if (indices && i >= PyList_Size(indices))
            break; /* user code shortened the list */
        self->offset = (uint32_t)(first + i);
        mh_control_set_sample(self->control, self->offset);
        PyObject *sample = next(from, indices ? PyList_GetItem(indices, i) : NULL);
        if (!sample && !PyErr_Occurred())
            break;
        status = sample ? PyList_Append(samples, sample) : -1;
        Py_XDECREF(sample);
        uint64_t long_ns = mh_stopwatch_lap(&watch);
        if (long_ns)
            mh_event_ring_put(self->events, MH_EVENT_SAMPLE, position, self->offset,
                              mh_clock_ns() - long_ns, long_ns);
    }
    self->samples = status == 0 ? (uint32_t)PyList_Size(samples) : 0;
    if (self->fetch_ns == 0)
        self->fetch_began_ns = watch.began_ns;
    self->fetch_ns += mh_clock_ns() - watch.began_ns;
    return status;
}

static PyObject *new_samples(station_object *self, sample_fn next, PyObject *from,
                             PyObject *indices, Py_ssize_t count)
{
    PyObject *samples = PyList_New(0);
    if (samples && gather_samples(self, next, from, indices, count, 0, samples) < 0)
        Py_CLEAR(samples);
    return samples;
}

static PyObject *station_fetch(PyObject *object, PyObject *arguments)
{
    PyObject *dataset;
    PyObject *indices;
    if (!PyArg_ParseTuple(arguments, "OO!:fetch", &dataset, &PyList_Type, &indices))
        return NULL;
    return new_samples((station_object *)object, sample_at, dataset, indices, PyList_Size(indices));
}

static PyObject *station_fetch_more(PyObject *object, PyObject *arguments)
{
    PyObject *dataset;
    PyObject *indices;
    Py_ssize_t first;
    PyObject *samples;
    if (!PyArg_ParseTuple(arguments, "OO!nO!:fetch_more", &dataset, &PyList_Type, &indices, &first,
                          &PyList_Type, &samples) ||
        gather_samples((station_object *)object, sample_at, dataset, indices, PyList_Size(indices),
                       first, samples) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *station_draw(PyObject *object, PyObject *arguments)
{
    PyObject *iterator;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(arguments, "On:draw", &iterator, &count))
        return NULL;
    return new_samples((station_object *)object, sample_next, iterator, NULL, count);
}

static PyObject *station_offset(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(((station_object *)object)->offset);
}

static PyObject *station_sample(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((station_object *)object)->task.sample);
}

static PyObject *station_faults(PyObject *object, PyObject *arguments)
{
    station_object *self = (station_object *)object;
    const char *first;
    if (!PyArg_ParseTuple(arguments, "IIs:faults", &self->skipped, &self->replaced, &first))
        return NULL;
    size_t bytes = strlen(first);
    if (bytes >= sizeof self->fault) /* whole characters: the rest of one begins with bits 10 */
        for (bytes = sizeof self->fault - 1; bytes && (first[bytes] & 0xc0) == 0x80;)
            bytes--;
    memcpy(self->fault, first, bytes);
    self->fault[bytes] = 0;
    Py_RETURN_NONE;
}

/* --- batches out --- */

bool mh_station_has_slot(const station_object *self)
{
    return self->task.slot_bytes && self->structure && self->generation == self->task.generation;
}

/* Keeps a state for the next result, whatever that will be. One too long for the result's own room
 * goes to the spill memory at once, while an error can still be raised. */
static PyObject *station_save_state(PyObject *object, PyObject *state)
{
    station_object *self = (station_object *)object;
    mh_error err;
    char *data;
    Py_ssize_t bytes;
    if (PyBytes_AsStringAndSize(state, &data, &bytes) < 0)
        return NULL;
    if (self->state)
        return PyErr_Format(PyExc_RuntimeError, "there is a state already");
    if ((size_t)bytes > UINT32_MAX)
        return PyErr_Format(PyExc_ValueError, "a state of %zd bytes is too long to send", bytes);
    if ((size_t)bytes > MH_STATE_BYTES) {
        if (mh_spill_place(self->spill, (uint64_t)bytes, mh_control_spill_read(self->control),
                           &self->state_offset, &err) != MH_OK)
            return mh_raise(mh_module_of(object), &err);
        memcpy(mh_spill_data(self->spill, self->state_offset), data, (size_t)bytes);
    }
    self->state = Py_NewRef(state);
    Py_RETURN_NONE;
}

static void state_out(station_object *self, mh_result *result)
{
    result->state_bytes = 0;
    if (!self->state)
        return;
    result->state_bytes = (uint32_t)PyBytes_Size(self->state);
    result->state_offset = self->state_offset;
    if (result->state_bytes <= MH_STATE_BYTES)
        memcpy(result->state, PyBytes_AsString(self->state), result->state_bytes);
    Py_CLEAR(self->state);
}

/* How many threads this process has, said after the first batches and then now and then: pools stay
 * once they are started. The one that ends the worker with its trainer sleeps, and is not the
 * user's. */
static void tell_threads(station_object *self)
{
    uint64_t number = self->batches++;
    if (number >= LOOK_EVERY && number % LOOK_EVERY != 0)
        return;
    int threads = mh_process_threads() - OWN_THREADS;
    if (threads > 0)
        mh_control_set_threads(self->control, (uint32_t)threads);
}

void mh_station_say_fetched(station_object *self)
{
    if (self->fetch_ns)
        mh_event_ring_put(self->events, MH_EVENT_FETCH, self->task.position, self->samples,
                          self->fetch_began_ns, self->fetch_ns);
}

void mh_station_publish(station_object *self, mh_result *result, mh_result_kind kind,
                        uint64_t began_ns)
{
    result->position = self->task.position;
    result->kind = kind;
    result->generation = self->task.generation;
    state_out(self, result);
    result->samples = self->samples;
    result->skipped = self->skipped;
    result->replaced = self->replaced;
    if (self->skipped || self->replaced)
        memcpy(result->fault, self->fault, sizeof result->fault);
    result->fetch_ns = self->fetch_ns;
    if (kind < MH_RESULT_PART)
        mh_station_say_fetched(self);
    result->collate_ns = mh_clock_ns() - began_ns;
    mh_event_ring_put(
        self->events,
        kind == MH_RESULT_SLOT || kind == MH_RESULT_WHOLE ? MH_EVENT_COLLATE : MH_EVENT_SEND,
        result->position, (uint32_t)result->pickled_bytes, began_ns, result->collate_ns);
    mh_guard_leave(); /* first: in a ring of one the entry is also that of the last result */
    result->spill_placed = mh_spill_placed(self->spill);
    tell_threads(self);
    mh_control_result_publish(self->control);
    if (kind == MH_RESULT_SLOT || kind == MH_RESULT_WHOLE)
        mh_spill_trim(self->spill, mh_control_spill_read(self->control));
}

mh_sink mh_station_sink(station_object *self, mh_leaf *leaves)
{
    return (mh_sink){.module = mh_module_of((PyObject *)self),
                     .slot = self->pool.base + self->task.slot_offset,
                     .slot_bytes = self->task.slot_bytes,
                     .leaves = leaves};
}

/* Publishes what the sink holds if its structure is the one agreed on. */
static PyObject *sink_out(station_object *self, mh_result *result, mh_sink *sink,
                          PyObject *structure, uint64_t began)
{
    int same = mh_tree_same(self->structure, structure);
    Py_DECREF(structure);
    if (same < 0)
        return NULL;
    if (same) {
        result->leaf_count = sink->leaf_count;
        result->pickled_bytes = 0;
        mh_station_publish(self, result, MH_RESULT_SLOT, began);
    }
    return PyBool_FromLong(same);
}

static PyObject *station_collate(PyObject *object, PyObject *samples)
{
    station_object *self = (station_object *)object;
    if (!mh_station_has_slot(self) || !PyList_Check(samples))
        Py_RETURN_FALSE;
    uint64_t began = mh_clock_ns();
    mh_control_set_state(self->control, MH_WORKER_COLLATING);
    mh_result *result = mh_control_result_begin(self->control);
    mh_sink sink = mh_station_sink(self, result->leaves);
    PyObject *structure = mh_collate(&sink, samples);
    if (structure)
        return sink_out(self, result, &sink, structure, began);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_FALSE;
}

static PyObject *station_gather(PyObject *object, PyObject *arguments)
{
    station_object *self = (station_object *)object;
    PyObject *columns;
    PyObject *indices;
    if (!PyArg_ParseTuple(arguments, "OO!:gather", &columns, &PyList_Type, &indices))
        return NULL;
    if (!mh_station_has_slot(self))
        Py_RETURN_FALSE;
    uint64_t began = mh_clock_ns();
    mh_control_set_state(self->control, MH_WORKER_COLLATING);
    mh_result *result = mh_control_result_begin(self->control);
    mh_sink sink = mh_station_sink(self, result->leaves);
    PyObject *structure = mh_gather(&sink, columns, indices);
    if (structure)
        return sink_out(self, result, &sink, structure, began);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_FALSE;
}

static PyObject *station_counted(PyObject *object, PyObject *count)
{
    unsigned long samples = PyLong_AsUnsignedLong(count);
    if (PyErr_Occurred())
        return NULL;
    ((station_object *)object)->samples = (uint32_t)samples;
    Py_RETURN_NONE;
}

static PyObject *station_collating(PyObject *object, PyObject *unused)
{
    (void)unused;
    mh_control_set_state(((station_object *)object)->control, MH_WORKER_COLLATING);
    Py_RETURN_NONE;
}

static bool leaf_into_slot(void *context, const mh_dl_tensor *view)
{
    mh_error err;
    mh_sink *sink = context;
    mh_leaf leaf = mh_leaf_of_tensor(view);
    if (sink->leaf_count == MH_LEAVES_MAX ||
        mh_leaf_place(&leaf, &sink->end, sink->slot_bytes, &err) != MH_OK ||
        mh_leaf_check(&leaf, sink->slot_bytes, &err) != MH_OK)
        return false;
    if (leaf.bytes)
        memcpy(sink->slot + leaf.offset, (const uint8_t *)view->data + view->byte_offset,
               (size_t)leaf.bytes);
    sink->leaves[sink->leaf_count++] = leaf;
    return true;
}

static PyObject *station_send_batch(PyObject *object, PyObject *batch)
{
    station_object *self = (station_object *)object;
    if (!mh_station_has_slot(self))
        Py_RETURN_FALSE;
    uint64_t began = mh_clock_ns();
    mh_control_set_state(self->control, MH_WORKER_SENDING);
    mh_result *result = mh_control_result_begin(self->control);
    mh_sink sink = mh_station_sink(self, result->leaves);
    PyObject *structure = mh_tree_flatten(mh_module_of(object), batch, leaf_into_slot, &sink);
    if (structure)
        return sink_out(self, result, &sink, structure, began);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_FALSE;
}

/* A piece's memory: a tensor's, or anything with the buffer protocol. */
typedef struct piece_view {
    mh_piece piece;
    const void *data;
    Py_buffer buffer;
    bool has_buffer;
} piece_view;

static bool piece_open(const mh_module *module, PyObject *object, bool first, piece_view *out)
{
    mh_dl_tensor view;
    if (module->tensor_type && Py_IS_TYPE(object, module->tensor_type)) {
        if (!mh_tensor_read(module, object, &view) || view.ndim != 1 || view.type_bits != 8) {
            PyErr_SetString(PyExc_TypeError, "a piece must be a flat uint8 tensor");
            return false;
        }
        out->piece = (mh_piece){MH_PIECE_TENSOR, (uint64_t)view.shape[0]};
        out->data = (const uint8_t *)view.data + view.byte_offset;
        return true;
    }
    if (PyObject_GetBuffer(object, &out->buffer, PyBUF_SIMPLE) < 0)
        return false;
    out->has_buffer = true;
    out->piece = (mh_piece){first ? MH_PIECE_BYTES : MH_PIECE_BUFFER, (uint64_t)out->buffer.len};
    out->data = out->buffer.buf;
    return true;
}

static bool pieces_write(station_object *self, mh_result *result, const piece_view *views,
                         uint64_t count)
{
    mh_error err;
    uint64_t bytes = mh_piece_align(8 + count * sizeof(mh_piece));
    for (uint64_t i = 0; i < count; i++)
        bytes = mh_piece_align(bytes + views[i].piece.bytes);
    if (mh_spill_place(self->spill, bytes, mh_control_spill_read(self->control),
                       &result->spill_offset, &err) != MH_OK) {
        mh_raise(mh_module_of((PyObject *)self), &err);
        return false;
    }
    result->spill_bytes = bytes;
    result->leaf_count = 0;
    result->pickled_bytes = views[0].piece.bytes;
    uint8_t *to = mh_spill_data(self->spill, result->spill_offset);
    memcpy(to, &count, sizeof count);
    uint64_t at = mh_piece_align(8 + count * sizeof(mh_piece));
    for (uint64_t i = 0; i < count; i++) {
        memcpy(to + 8 + i * sizeof(mh_piece), &views[i].piece, sizeof(mh_piece));
        if (views[i].piece.bytes)
            memcpy(to + at, views[i].data, (size_t)views[i].piece.bytes);
        at = mh_piece_align(at + views[i].piece.bytes);
    }
    return true;
}

bool mh_station_send(station_object *self, PyObject *pieces, mh_result_kind kind)
{
    const mh_module *module = mh_module_of((PyObject *)self);
    uint64_t began = mh_clock_ns();
    uint64_t count = (uint64_t)PyList_Size(pieces);
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "nothing to send");
        return false;
    }
    mh_control_set_state(self->control, MH_WORKER_SENDING);
    mh_result *result = mh_control_result_begin(self->control);
    piece_view *views = PyMem_Calloc((size_t)count, sizeof *views);
    if (!views) {
        PyErr_NoMemory();
        return false;
    }
    bool good = true;
    for (uint64_t i = 0; good && i < count; i++)
        good = piece_open(module, PyList_GetItem(pieces, (Py_ssize_t)i), i == 0, &views[i]);
    good = good && pieces_write(self, result, views, count);
    for (uint64_t i = 0; i < count; i++)
        if (views[i].has_buffer)
            PyBuffer_Release(&views[i].buffer);
    PyMem_Free(views);
    if (good)
        mh_station_publish(self, result, kind, began);
    return good;
}

static PyObject *station_send(PyObject *object, PyObject *arguments)
{
    int is_error;
    PyObject *pieces;
    if (!PyArg_ParseTuple(arguments, "pO!:send", &is_error, &PyList_Type, &pieces) ||
        !mh_station_send((station_object *)object, pieces,
                         is_error ? MH_RESULT_ERROR : MH_RESULT_GENERAL))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *station_send_end(PyObject *object, PyObject *unused)
{
    (void)unused;
    station_object *self = (station_object *)object;
    mh_result *result = mh_control_result_begin(self->control);
    result->leaf_count = 0;
    result->pickled_bytes = 0;
    self->samples = 0;
    mh_station_publish(self, result, MH_RESULT_END, mh_clock_ns());
    Py_RETURN_NONE;
}

static PyObject *station_stopped(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(mh_control_stopped(((station_object *)object)->control));
}

static PyMethodDef station_methods[] = {
    {"stopped", station_stopped, METH_NOARGS, "Whether the consumer wants no more."},
    {"next", station_next, METH_NOARGS,
     "(index, whether an epoch begins, whether to save a state) of the next task, or None."},
    {"fetch", station_fetch, METH_VARARGS, "fetch(dataset, indices): the samples, in order."},
    {"fetch_more", station_fetch_more, METH_VARARGS,
     "fetch_more(dataset, indices, first, samples): append them to samples; the first of them is "
     "number first of the batch."},
    {"draw", station_draw, METH_VARARGS,
     "draw(iterator, count): its next samples; fewer where it ends."},
    {"gather", station_gather, METH_VARARGS,
     "gather(columns, indices): send those rows of the columns; False where it cannot."},
    {"offset", station_offset, METH_NOARGS, "Which sample of the batch is or was being fetched."},
    {"sample", station_sample, METH_NOARGS, "Position in the epoch of the task's first sample."},
    {"faults", station_faults, METH_VARARGS,
     "faults(skipped, replaced, first): samples of the batch that could not be loaded."},
    {"counted", station_counted, METH_O, "The batch has this many samples, not as many as asked."},
    {"collating", station_collating, METH_NOARGS, "Say that the batch is being collated."},
    {"collate", station_collate, METH_O,
     "default_collate samples into the task's slot and send them; False where it cannot."},
    {"save_state", station_save_state, METH_O, "Bytes for the next result to bring along."},
    {"send_batch", station_send_batch, METH_O,
     "Copy a batch into the task's slot and send it; False where it does not fit."},
    {"send", station_send, METH_VARARGS, "send(is_error, [pickle, buffer or tensor, ...])."},
    {"claim", mh_station_claim, METH_NOARGS,
     "(indices, first, samples in the batch, position of its first, key) of a run taken from the "
     "board, or None at the end."},
    {"rows", mh_station_rows, METH_O,
     "default_collate the run's samples into its rows of the slot; False where it cannot."},
    {"part", mh_station_part, METH_O, "Send [pickle, buffer or tensor, ...] about the run."},
    {"finish", mh_station_finish, METH_O,
     "finish(apart): the run is done; apart: its samples are not in the slot."},
    {"own_memory", mh_station_own_memory, METH_VARARGS,
     "own_memory(most, at_once=False): the bytes that are this process's alone where they are more "
     "than most, else 0."},
    {"give_back", mh_station_give_back, METH_NOARGS, "Give free memory back to the system."},
    {"excess", mh_station_excess, METH_VARARGS,
     "excess(leaves, bytes): say that this process has too much memory, and leaves or stays."},
    {"guard", mh_station_guard, METH_O, "End this process when it has more bytes in a batch."},
    {"enter", mh_station_enter, METH_NOARGS, "A batch begins that can be made again elsewhere."},
    {"send_end", station_send_end, METH_NOARGS, "Say that the stream has ended."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot station_slots[] = {
    {Py_tp_doc, "Station(fds, worker, depth, loads): a worker's end of a Channel."},
    {Py_tp_new, station_new},
    {Py_tp_dealloc, station_dealloc},
    {Py_tp_methods, station_methods},
    {0, NULL},
};

PyType_Spec mh_station_spec = {
    .name = "millhead._core.Station",
    .basicsize = sizeof(station_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = station_slots,
};
