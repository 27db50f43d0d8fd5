/* worker_end.c - a worker's end: tasks in, batches out
 * SPDX-License-Identifier: Apache-2.0
 */
#include "worker_end.h"
#include "base/error.h"
#include "fetch_samples.h"
#include "mh_config.h"
#include "sys/clock.h"
#include "sys/process.h"
#include "workers/guard.h"
#include "workers/pickle_parts.h"

#include <stdlib.h>
#include <string.h>

/* Batches from one look at the number of threads to the next; the first ones are all looked at. */
#define LOOK_EVERY 16
#define OWN_THREADS 1

static mh_status worker_end_attach(worker_end_object *self, const int *fds,
                                   const unsigned long long *maps, unsigned worker, unsigned depth,
                                   mh_error *err)
{
    size_t ring_bytes = mh_event_ring_bytes(MH_EVENTS_PER_WORKER);
#if MH_TEST_HOOKS
    const char *crash = getenv("MILLHEAD_TEST_WORKER_CRASH");
    if (crash)
        MH_TRY(mh_point_arm(crash, err));
#endif
    MH_TRY(mh_control_attach(&self->control, fds[0], worker, err));
    MH_TRY(mh_memory_attach(&self->pool, fds[1], (size_t)maps[0], err));
    /* a result has at most two parts there: its pickled batch, and a long state */
    MH_TRY(mh_spill_open(&self->spill, fds[2], (size_t)maps[1], 2 * depth, err));
    mh_spill_inherit_results(self->spill, self->control, worker);
    MH_TRY(mh_memory_attach(&self->metrics, fds[3], ring_bytes * mh_control_workers(self->control),
                            err));
    self->events = mh_event_ring_attach(self->metrics.base + worker * ring_bytes, ring_bytes);
    return self->events ? MH_OK
                        : mh_fail(err, MH_ERR_CORRUPT, "no event ring for worker %u", worker);
}

static PyObject *worker_end_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"fds", "maps", "worker", "depth", "loads", NULL};
    int fds[4];
    unsigned long long maps[2];
    unsigned worker, depth;
    PyObject *loads;
    mh_error err;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "(iiii)(KK)IIO:WorkerEnd", names, &fds[0],
                                     &fds[1], &fds[2], &fds[3], &maps[0], &maps[1], &worker, &depth,
                                     &loads))
        return NULL;
    worker_end_object *self = mh_object_new(type);
    if (!self)
        return NULL;
    self->pool.fd = self->metrics.fd = -1;
    self->loads = Py_NewRef(loads);
    self->task.position = MH_NO_BATCH;
    if (worker_end_attach(self, fds, maps, worker, depth, &err) != MH_OK) {
        mh_raise(PyType_GetModuleState(type), &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int worker_end_clear(PyObject *object)
{
    worker_end_object *self = (worker_end_object *)object;
    Py_CLEAR(self->loads);
    Py_CLEAR(self->structure);
    Py_CLEAR(self->state);
    Py_CLEAR(self->indices);
    return 0;
}

static int worker_end_traverse(PyObject *object, visitproc visit, void *arg)
{
    worker_end_object *self = (worker_end_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->loads);
    Py_VISIT(self->structure);
    Py_VISIT(self->state);
    Py_VISIT(self->indices);
    return 0;
}

static void worker_end_dealloc(PyObject *object)
{
    worker_end_object *self = (worker_end_object *)object;
    PyObject_GC_UnTrack(object);
    mh_guard_leave(); /* sys.exit() in a batch: the process goes on for a while */
    mh_spill_close(self->spill);
    mh_memory_close(&self->pool);
    mh_memory_close(&self->metrics);
    mh_control_close(self->control);
    worker_end_clear(object);
    mh_object_free(object);
}

/* --- tasks in --- */

PyObject *mh_worker_end_ints(const int64_t *numbers, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyList_SetItem(list, i, number) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *mh_worker_end_unpickle(worker_end_object *self, const uint8_t *data, uint32_t bytes)
{
    PyObject *view = PyBytes_FromStringAndSize((const char *)data, bytes);
    PyObject *value = view ? PyObject_CallFunctionObjArgs(self->loads, view, NULL) : NULL;
    Py_XDECREF(view);
    return value;
}

const uint8_t *mh_worker_end_take(worker_end_object *self, const mh_task *task)
{
    PyObject *error = mh_module_of(self)->error;
    uint64_t bytes = (uint64_t)task->index_bytes + task->schema_bytes;
    memcpy(&self->task, task, offsetof(mh_task, payload));
    if (task->slot_bytes && !mh_memory_has(&self->pool, task->slot_offset, task->slot_bytes))
        self->task.slot_bytes = 0;
    if (task->flags & MH_TASK_OUTSIDE) {
        if (mh_memory_has(&self->pool, task->outside, bytes))
            return self->pool.base + task->outside;
        PyErr_SetString(error, "a task beyond the shared memory");
        return NULL;
    }
    if (bytes <= sizeof task->payload)
        return task->payload;
    PyErr_SetString(error, "a task that is too large");
    return NULL;
}

void mh_worker_end_learn(worker_end_object *self, const mh_task *task, const uint8_t *payload)
{
    PyObject *structure =
        mh_worker_end_unpickle(self, payload + task->index_bytes, task->schema_bytes);
    PyObject *before = self->structure;
    self->structure = structure;
    Py_XDECREF(before);
    self->generation = structure ? task->generation : 0;
    PyErr_Clear(); /* a schema this process cannot read: its batches take the general path */
}

static PyObject *task_in(worker_end_object *self, const mh_task *task)
{
    const uint8_t *payload = mh_worker_end_take(self, task);
    if (!payload)
        return NULL;
    if (task->flags & MH_TASK_SCHEMA)
        mh_worker_end_learn(self, task, payload);
    if (task->flags & MH_TASK_INTS)
        return mh_worker_end_ints((const int64_t *)(const void *)payload,
                                  (Py_ssize_t)(task->index_bytes / sizeof(int64_t)));
    return mh_worker_end_unpickle(self, payload, task->index_bytes);
}

static PyObject *worker_end_next(PyObject *object, PyObject *unused)
{
    worker_end_object *self = (worker_end_object *)object;
    const mh_task *task = NULL;
    while (!task) {
        Py_BEGIN_ALLOW_THREADS
        task = mh_control_task_wait(self->control, MH_WORKER_SLICE_NS);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return NULL;
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

static void sample_begins(void *worker_end, Py_ssize_t number)
{
    mh_control_set_sample(((worker_end_object *)worker_end)->control, (uint32_t)number);
}

static void sample_was_slow(void *worker_end, Py_ssize_t number, PyObject *index, uint64_t ns)
{
    (void)index; /* the consumer knows it */
    worker_end_object *self = worker_end;
    mh_event_ring_put(self->events, MH_EVENT_SAMPLE, self->task.position, (uint32_t)number,
                      mh_clock_ns() - ns, ns);
}

static PyObject *worker_end_fetch(PyObject *object, PyObject *arguments)
{
    worker_end_object *self = (worker_end_object *)object;
    mh_fetch fetch = {.listener = self, .begins = sample_begins, .was_slow = sample_was_slow};
    if (!mh_fetch_arguments(&fetch, arguments))
        return NULL;
    if (!fetch.indices)
        fetch.first = 0; /* the consumer numbers items by their place in the batch */
    bool good = mh_fetch_samples(&fetch);
    self->samples = good ? (uint32_t)PyList_Size(fetch.samples) : 0;
    self->fetch_ns += mh_clock_ns() - fetch.began_ns;
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *worker_end_sample(PyObject *object, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(((worker_end_object *)object)->task.sample);
}

static PyObject *worker_end_faults(PyObject *object, PyObject *arguments)
{
    worker_end_object *self = (worker_end_object *)object;
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

bool mh_worker_end_has_slot(const worker_end_object *self)
{
    return self->task.slot_bytes && self->structure && self->generation == self->task.generation;
}

/* Keeps a state for the next result, whatever that will be. One too long for the result's own room
 * goes to the spill memory at once, while an error can still be raised. */
static PyObject *worker_end_save_state(PyObject *object, PyObject *state)
{
    worker_end_object *self = (worker_end_object *)object;
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

static void state_out(worker_end_object *self, mh_result *result)
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
static void set_threads(worker_end_object *self)
{
    uint64_t number = self->batches++;
    if (number >= LOOK_EVERY && number % LOOK_EVERY != 0)
        return;
    int threads = mh_process_threads() - OWN_THREADS;
    if (threads > 0)
        mh_control_set_threads(self->control, (uint32_t)threads);
}

void mh_worker_end_publish(worker_end_object *self, mh_result *result, mh_result_kind kind,
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
    result->collate_ns = mh_clock_ns() - began_ns;
    mh_guard_leave(); /* first: in a ring of one the entry is also that of the last result */
    result->spill_placed = mh_spill_placed(self->spill);
    set_threads(self);
    mh_control_result_publish(self->control);
    if (kind == MH_RESULT_SLOT || kind == MH_RESULT_WHOLE)
        mh_spill_trim(self->spill, mh_control_spill_read(self->control));
}

mh_sink mh_worker_end_sink(worker_end_object *self, mh_leaf *leaves)
{
    return (mh_sink){.module = mh_module_of(self),
                     .into = {.slot = self->pool.base + self->task.slot_offset,
                              .slot_bytes = self->task.slot_bytes,
                              .leaves = leaves}};
}

/* A batch on its way into the task's slot. */
typedef struct slot_batch {
    uint64_t began_ns;
    mh_result *result;
    mh_sink sink;
} slot_batch;

static slot_batch slot_begin(worker_end_object *self, mh_worker_state state)
{
    slot_batch batch = {.began_ns = mh_clock_ns()};
    mh_control_set_state(self->control, state);
    batch.result = mh_control_result_begin(self->control);
    batch.sink = mh_worker_end_sink(self, batch.result->leaves);
    return batch;
}

/* Publishes what is in the slot if its structure, whose reference it takes, is the one agreed on:
 * True. NULL as structure: it was declined, or an exception is set. */
static PyObject *slot_end(worker_end_object *self, const slot_batch *batch, PyObject *structure)
{
    if (!structure && PyErr_Occurred())
        return NULL;
    int same = structure ? mh_batch_tree_same(self->structure, structure) : 0;
    Py_XDECREF(structure);
    if (same < 0)
        return NULL;
    if (same) {
        batch->result->leaf_count = batch->sink.into.leaf_count;
        batch->result->pickled_bytes = 0;
        mh_worker_end_publish(self, batch->result, MH_RESULT_SLOT, batch->began_ns);
    }
    return PyBool_FromLong(same);
}

static PyObject *worker_end_collate(PyObject *object, PyObject *samples)
{
    worker_end_object *self = (worker_end_object *)object;
    if (!mh_worker_end_has_slot(self) || !PyList_Check(samples))
        Py_RETURN_FALSE;
    slot_batch batch = slot_begin(self, MH_WORKER_COLLATING);
    return slot_end(self, &batch, mh_collate(&batch.sink, samples));
}

static PyObject *worker_end_gather(PyObject *object, PyObject *arguments)
{
    worker_end_object *self = (worker_end_object *)object;
    PyObject *columns, *indices;
    if (!PyArg_ParseTuple(arguments, "OO!:gather", &columns, &PyList_Type, &indices))
        return NULL;
    if (!mh_worker_end_has_slot(self))
        Py_RETURN_FALSE;
    slot_batch batch = slot_begin(self, MH_WORKER_COLLATING);
    return slot_end(self, &batch, mh_gather(&batch.sink, columns, indices));
}

static PyObject *worker_end_counted(PyObject *object, PyObject *count)
{
    unsigned long samples = PyLong_AsUnsignedLong(count);
    if (PyErr_Occurred())
        return NULL;
    ((worker_end_object *)object)->samples = (uint32_t)samples;
    Py_RETURN_NONE;
}

static PyObject *worker_end_collating(PyObject *object, PyObject *unused)
{
    mh_control_set_state(((worker_end_object *)object)->control, MH_WORKER_COLLATING);
    Py_RETURN_NONE;
}

static PyObject *worker_end_send_batch(PyObject *object, PyObject *value)
{
    worker_end_object *self = (worker_end_object *)object;
    if (!mh_worker_end_has_slot(self))
        Py_RETURN_FALSE;
    slot_batch batch = slot_begin(self, MH_WORKER_SENDING);
    return slot_end(self, &batch,
                    mh_batch_tree_flatten(batch.sink.module, value, &batch.sink.into));
}

/* Reads where a part's memory is: a tensor's, or that of anything with the buffer protocol, which
 * is then kept in *buffer. False with an exception. */
static bool part_open(const mh_module *module, PyObject *object, mh_pickle_part *out,
                      Py_buffer *buffer)
{
    mh_dl_tensor view;
    mh_tensor_room room;
    if (module->tensor_type && Py_IS_TYPE(object, module->tensor_type)) {
        if (!mh_tensor_read(module, object, &view, &room) || view.ndim != 1 ||
            view.type_bits != 8) {
            PyErr_SetString(PyExc_TypeError, "a part must be a flat uint8 tensor");
            return false;
        }
        *out = (mh_pickle_part){MH_PICKLE_TENSOR, (uint64_t)view.shape[0],
                                (const uint8_t *)view.data + view.byte_offset};
        return true;
    }
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0)
        return false;
    *out = (mh_pickle_part){MH_PICKLE_BUFFER, (uint64_t)buffer->len, buffer->buf};
    return true;
}

static bool parts_write(worker_end_object *self, mh_result *result, const mh_pickle_part *parts,
                        uint64_t count)
{
    mh_error err;
    uint64_t bytes = mh_pickle_parts_bytes(parts, count);
    if (mh_spill_place(self->spill, bytes, mh_control_spill_read(self->control),
                       &result->spill_offset, &err) != MH_OK) {
        mh_raise(mh_module_of(self), &err);
        return false;
    }
    result->spill_bytes = bytes;
    result->leaf_count = 0;
    result->pickled_bytes = parts[0].bytes;
    mh_pickle_parts_write(mh_spill_data(self->spill, result->spill_offset), parts, count);
    return true;
}

/* Writes the objects of a list as parts: the first one's are the pickle stream. */
static bool list_write(worker_end_object *self, mh_result *result, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    mh_pickle_part *parts = PyMem_Calloc((size_t)count, sizeof *parts);
    Py_buffer *buffers = PyMem_Calloc((size_t)count, sizeof *buffers);
    bool good = parts && buffers;
    if (!good)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; good && i < count; i++)
        good = part_open(mh_module_of(self), PyList_GetItem(list, i), &parts[i], &buffers[i]);
    if (good && parts[0].kind == MH_PICKLE_BUFFER)
        parts[0].kind = MH_PICKLE_BYTES;
    good = good && parts_write(self, result, parts, (uint64_t)count);
    for (Py_ssize_t i = 0; buffers && i < count; i++)
        PyBuffer_Release(&buffers[i]); /* nothing for one that is all zero */
    PyMem_Free(buffers);
    PyMem_Free(parts);
    return good;
}

bool mh_worker_end_send(worker_end_object *self, PyObject *parts, mh_result_kind kind)
{
    uint64_t began_ns = mh_clock_ns();
    if (PyList_Size(parts) == 0) {
        PyErr_SetString(PyExc_ValueError, "nothing to send");
        return false;
    }
    mh_control_set_state(self->control, MH_WORKER_SENDING);
    mh_result *result = mh_control_result_begin(self->control);
    if (!list_write(self, result, parts))
        return false;
    mh_worker_end_publish(self, result, kind, began_ns);
    return true;
}

static PyObject *worker_end_send(PyObject *object, PyObject *arguments)
{
    int is_error;
    PyObject *parts;
    if (!PyArg_ParseTuple(arguments, "pO!:send", &is_error, &PyList_Type, &parts) ||
        !mh_worker_end_send((worker_end_object *)object, parts,
                            is_error ? MH_RESULT_ERROR : MH_RESULT_GENERAL))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *worker_end_send_end(PyObject *object, PyObject *unused)
{
    worker_end_object *self = (worker_end_object *)object;
    mh_result *result = mh_control_result_begin(self->control);
    result->leaf_count = 0;
    result->pickled_bytes = 0;
    self->samples = 0;
    mh_worker_end_publish(self, result, MH_RESULT_END, mh_clock_ns());
    Py_RETURN_NONE;
}

static PyObject *worker_end_stopped(PyObject *object, PyObject *unused)
{
    return PyBool_FromLong(mh_control_stopped(((worker_end_object *)object)->control));
}

static PyMethodDef worker_end_methods[] = {
    {"stopped", worker_end_stopped, METH_NOARGS, "Whether the consumer wants no more."},
    {"next", worker_end_next, METH_NOARGS,
     "(index, whether an epoch begins, whether to save a state) of the next task, or None."},
    {"fetch", worker_end_fetch, METH_VARARGS,
     "fetch(dataset, indices, first, samples): append dataset[i] for each index to samples; the "
     "first of them is number first of the batch. With a count for indices: the next items of an "
     "iterator, fewer where it ends."},
    {"gather", worker_end_gather, METH_VARARGS,
     "gather(columns, indices): send those rows of the columns; False where it cannot."},
    {"sample", worker_end_sample, METH_NOARGS, "Position in the epoch of the task's first sample."},
    {"faults", worker_end_faults, METH_VARARGS,
     "faults(skipped, replaced, first): samples of the batch that could not be loaded."},
    {"counted", worker_end_counted, METH_O,
     "The batch has this many samples, not as many as asked."},
    {"collating", worker_end_collating, METH_NOARGS, "Say that the batch is being collated."},
    {"collate", worker_end_collate, METH_O,
     "default_collate samples into the task's slot and send them; False where it cannot."},
    {"save_state", worker_end_save_state, METH_O, "Bytes for the next result to bring along."},
    {"send_batch", worker_end_send_batch, METH_O,
     "Copy a batch into the task's slot and send it; False where it does not fit."},
    {"send", worker_end_send, METH_VARARGS, "send(is_error, [pickle, buffer or tensor, ...])."},
    {"claim", mh_worker_end_claim, METH_NOARGS,
     "(indices, first, samples in the batch, position of its first, key) of a run taken from the "
     "board, or None at the end."},
    {"rows", mh_worker_end_rows, METH_O,
     "default_collate the run's samples into its rows of the slot; False where it cannot."},
    {"part", mh_worker_end_part, METH_O, "Send [pickle, buffer or tensor, ...] about the run."},
    {"finish", mh_worker_end_finish, METH_O,
     "finish(apart): the run is done; apart: its samples are not in the slot."},
    {"own_memory", mh_worker_end_own_memory, METH_VARARGS,
     "own_memory(most, at_once=False): the bytes that are this process's alone where they are more "
     "than most, else 0."},
    {"give_back", mh_worker_end_give_back, METH_NOARGS, "Give free memory back to the system."},
    {"over_limit", mh_worker_end_over_limit, METH_VARARGS,
     "over_limit(leaves, bytes): say that this process has too much memory, and leaves or stays."},
    {"guard", mh_worker_end_guard, METH_O, "End this process when it has more bytes in a batch."},
    {"enter", mh_worker_end_enter, METH_NOARGS, "A batch begins that can be made again elsewhere."},
    {"send_end", worker_end_send_end, METH_NOARGS, "Say that the stream has ended."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot worker_end_slots[] = {
    {Py_tp_doc, "WorkerEnd(fds, worker, depth, loads): a worker's end of a ConsumerEnd."},
    {Py_tp_new, worker_end_new},
    {Py_tp_dealloc, worker_end_dealloc},
    {Py_tp_traverse, worker_end_traverse},
    {Py_tp_clear, worker_end_clear},
    {Py_tp_methods, worker_end_methods},
    {0, NULL},
};

MH_TYPE_SPEC(worker_end, "WorkerEnd", worker_end_object, Py_TPFLAGS_HAVE_GC);
