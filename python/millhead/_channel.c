/* _channel.c - the consumer's end: tasks out, batches in
 * SPDX-License-Identifier: Apache-2.0
 *
 * A Channel remembers, for every task a worker has, the index it was asked for and the slot it was
 * granted. Results come back in the order of the tasks, worker by worker.
 */
#include "_channel.h"
#include "_module.h"
#include "_spill.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "metrics/events.h"
#include "sys/clock.h"
#include "sys/memory.h"
#include "workers/control.h"

#include <string.h>
#include <sys/stat.h>

/* Smaller leaves are copied to memory of torch's own: a tensor that is kept should not keep a slot.
 */
#define ZERO_COPY_BYTES 65536u

/* --- making and ending --- */

static mh_status worker_open(channel_object *self, uint32_t number, size_t ring_bytes,
                             size_t spill_bytes, mh_error *err)
{
    channel_worker *worker = &self->workers[number];
    worker->notes = mh_calloc(self->depth, sizeof *worker->notes);
    if (!worker->notes)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the tasks of worker %u", number);
    worker->events = mh_event_ring_init(self->metrics.base + number * ring_bytes,
                                        MH_EVENTS_PER_WORKER, (uint16_t)(number + 1));
    return mh_memory_create(&worker->spill, "millhead-spill", spill_bytes, 4096, err);
}

/* A loader keeps its memory of batches from one iterator to the next: that tells it from others. */
static uint64_t loader_number(const channel_object *self)
{
    struct stat about;
    return fstat(mh_pool_fd(mh_pool_of(self->pool)), &about) == 0 ? (uint64_t)about.st_ino : 0;
}

static mh_status channel_open(channel_object *self, mh_error *err)
{
    size_t ring_bytes = mh_event_ring_bytes(MH_EVENTS_PER_WORKER);
    size_t metrics_bytes = ring_bytes * self->worker_count;
    self->workers = mh_calloc(self->worker_count, sizeof *self->workers);
    if (!self->workers)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %u workers", self->worker_count);
    for (uint32_t w = 0; w < self->worker_count; w++)
        self->workers[w].spill.fd = -1;
    if (self->board) {
        self->posts = mh_calloc(self->under_way, sizeof *self->posts);
        if (!self->posts)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for %u batches", self->under_way);
    }
    const mh_control_size size = {.workers = self->worker_count,
                                  .depth = self->depth,
                                  .under_way = self->under_way,
                                  .board = self->board ? 1 : 0};
    MH_TRY(mh_control_open(&self->control, &size, err));
    mh_control_set_loader(self->control, loader_number(self));
    MH_TRY(mh_memory_create(&self->metrics, "millhead-metrics", metrics_bytes, metrics_bytes, err));
    MH_TRY(mh_memory_grow(&self->metrics, metrics_bytes, err));
    size_t spill_bytes = mh_memory_map_most(self->worker_count);
    for (uint32_t w = 0; w < self->worker_count; w++)
        MH_TRY(worker_open(self, w, ring_bytes, spill_bytes, err));
    return MH_OK;
}

void mh_channel_note_end(task_note *note)
{
    Py_CLEAR(note->index);
    Py_CLEAR(note->structure);
    if (note->slot)
        mh_slot_abandon(note->slot);
    if (note->carrier)
        mh_slot_abandon(note->carrier);
    *note = (task_note){0};
}

static void worker_forget(channel_object *self, channel_worker *worker)
{
    while (worker->taken < worker->put)
        mh_channel_note_end(&worker->notes[worker->taken++ % self->depth]);
}

static PyObject *channel_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    channel_object *self = (channel_object *)object;
    if (self->busy || self->fork_generation != mh_fork_generation())
        Py_RETURN_NONE;
    for (uint32_t w = 0; self->workers && w < self->worker_count; w++) {
        channel_worker *worker = &self->workers[w];
        if (worker->notes)
            worker_forget(self, worker);
        mh_free(worker->notes);
        mh_memory_close(&worker->spill);
    }
    mh_free(self->workers);
    self->workers = NULL;
    mh_posts_end(self);
    mh_free(self->posts);
    self->posts = NULL;
    mh_memory_close(&self->metrics);
    mh_control_close(self->control);
    self->control = NULL;
    Py_CLEAR(self->structure);
    Py_CLEAR(self->schema);
    Py_RETURN_NONE;
}

static PyObject *channel_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"pool",  "workers", "depth", "under_way",
                            "dumps", "meter",   "board", NULL};
    mh_module *module = PyType_GetModuleState(type);
    PyObject *pool;
    PyObject *dumps;
    PyObject *meter;
    unsigned workers;
    unsigned depth;
    unsigned under_way;
    int board = 0;
    mh_error err;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!IIIOO!|p:Channel", names,
                                     module->pool_type, &pool, &workers, &depth, &under_way, &dumps,
                                     module->meter_type, &meter, &board))
        return NULL;
    channel_object *self =
        (channel_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->metrics.fd = -1;
    self->fork_generation = mh_fork_generation();
    self->pool = Py_NewRef(pool);
    self->dumps = Py_NewRef(dumps);
    self->meter = (mh_meter *)Py_NewRef(meter);
    self->worker_count = workers;
    self->depth = depth;
    self->under_way = under_way;
    self->board = board;
    if (channel_open(self, &err) != MH_OK) {
        mh_raise(module, &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int channel_clear(PyObject *object)
{
    channel_object *self = (channel_object *)object;
    Py_CLEAR(self->dumps);
    return 0;
}

static int channel_traverse(PyObject *object, visitproc visit, void *arg)
{
    channel_object *self = (channel_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->dumps);
    Py_VISIT(self->meter);
    return 0;
}

static void channel_dealloc(PyObject *object)
{
    channel_object *self = (channel_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(channel_close(object, NULL));
    channel_clear(object);
    Py_CLEAR(self->meter);
    Py_CLEAR(self->pool);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

channel_worker *mh_channel_worker(channel_object *self, unsigned number)
{
    if (!self->workers || self->fork_generation != mh_fork_generation()) {
        PyErr_SetString(mh_module_of((PyObject *)self)->error,
                        self->workers ? "this iterator belongs to the process that made it: call "
                                        "iter() on the loader again after a fork"
                                      : "the channel is closed");
        return NULL;
    }
    if (number >= self->worker_count) {
        PyErr_Format(PyExc_ValueError, "no worker %u", number);
        return NULL;
    }
    return &self->workers[number];
}

/* --- tasks out --- */

/* Writes a list of exact ints as int64; 0 when the index is anything else or does not fit. */
static uint32_t write_ints(PyObject *index, uint8_t *to, size_t room)
{
    if (!Py_IS_TYPE(index, &PyList_Type))
        return 0;
    Py_ssize_t count = PyList_Size(index);
    if ((size_t)count * sizeof(int64_t) > room)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int overflow;
        PyObject *number = PyList_GetItem(index, i);
        if (!Py_IS_TYPE(number, &PyLong_Type))
            return 0;
        ((int64_t *)(void *)to)[i] = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow)
            return 0;
    }
    return (uint32_t)((size_t)count * sizeof(int64_t));
}

static bool write_outside(channel_object *self, mh_task *task, task_note *note, const char *index,
                          const char *schema)
{
    mh_error err;
    size_t bytes = (size_t)task->index_bytes + task->schema_bytes;
    if (mh_pool_grant_extra(mh_pool_of(self->pool), &note->carrier, bytes, &err) != MH_OK) {
        mh_raise(mh_module_of((PyObject *)self), &err);
        return false;
    }
    uint8_t *to = mh_slot_data(note->carrier);
    memcpy(to, index, task->index_bytes);
    if (schema)
        memcpy(to + task->index_bytes, schema, task->schema_bytes);
    task->outside = mh_slot_offset(note->carrier);
    task->flags |= MH_TASK_OUTSIDE;
    return true;
}

bool mh_channel_write(channel_object *self, mh_task *task, task_note *note)
{
    const char *schema = task->schema_bytes ? PyBytes_AsString(self->schema) : NULL;
    size_t room =
        sizeof task->payload > task->schema_bytes ? sizeof task->payload - task->schema_bytes : 0;
    task->index_bytes = write_ints(note->index, task->payload, room);
    task->flags |= task->index_bytes ? MH_TASK_INTS : MH_TASK_PICKLED;
    if (!task->index_bytes) {
        char *pickled;
        Py_ssize_t bytes;
        PyObject *dumped = PyObject_CallFunctionObjArgs(self->dumps, note->index, NULL);
        if (!dumped || PyBytes_AsStringAndSize(dumped, &pickled, &bytes) < 0) {
            Py_XDECREF(dumped);
            return false;
        }
        task->index_bytes = (uint32_t)bytes;
        self->pickled_bytes += (uint64_t)bytes;
        bool written = true;
        if ((size_t)bytes <= room)
            memcpy(task->payload, pickled, (size_t)bytes);
        else
            written = write_outside(self, task, note, pickled, schema);
        Py_DECREF(dumped);
        if (!written)
            return false;
    }
    if (schema && !(task->flags & MH_TASK_OUTSIDE))
        memcpy(task->payload + task->index_bytes, schema, task->schema_bytes);
    return true;
}

void mh_channel_note(channel_object *self, task_note *note, uint64_t position, PyObject *index,
                     bool slot)
{
    *note = (task_note){.position = position, .index = Py_NewRef(index)};
    if (self->structure && slot)
        note->slot = mh_pool_grant(mh_pool_of(self->pool));
    if (note->slot) {
        note->structure = Py_NewRef(self->structure);
        note->generation = self->generation;
    }
}

void mh_channel_fill(const channel_object *self, mh_task *task, const task_note *note,
                     uint32_t samples, uint64_t sample)
{
    memset(task, 0, offsetof(mh_task, payload));
    task->position = note->position;
    task->count = samples;
    task->sample = sample;
    task->generation = self->generation;
    if (note->slot) {
        task->slot_offset = mh_slot_offset(note->slot);
        task->slot_bytes = mh_slot_bytes(note->slot);
    }
}

static PyObject *channel_put(PyObject *object, PyObject *arguments)
{
    channel_object *self = (channel_object *)object;
    unsigned number;
    unsigned long long position;
    PyObject *index;
    unsigned samples;
    unsigned long long sample = 0;
    int wants_state = 0;
    if (!PyArg_ParseTuple(arguments, "IKOI|Kp:put", &number, &position, &index, &samples, &sample,
                          &wants_state))
        return NULL;
    channel_worker *worker = mh_channel_worker(self, number);
    if (!worker)
        return NULL;
    mh_task *task = mh_control_task_begin(self->control, number);
    if (!task || worker->put - worker->taken >= self->depth)
        return PyErr_Format(PyExc_RuntimeError, "worker %u already has %u batches", number,
                            self->depth);
    task_note *note = &worker->notes[worker->put % self->depth];
    mh_channel_note(self, note, position, index, true);
    mh_channel_fill(self, task, note, samples, sample);
    if (note->slot && worker->generation != self->generation) {
        task->flags |= MH_TASK_SCHEMA;
        task->schema_bytes = (uint32_t)PyBytes_Size(self->schema);
    }
    if (worker->new_epoch)
        task->flags |= MH_TASK_EPOCH;
    if (wants_state)
        task->flags |= MH_TASK_STATE;
    self->busy++; /* pickling an index runs Python, and with it other threads */
    bool written = mh_channel_write(self, task, note);
    self->busy--;
    if (!written) {
        mh_channel_note_end(note);
        return NULL;
    }
    worker->new_epoch = false;
    if (task->flags & MH_TASK_SCHEMA)
        worker->generation = self->generation;
    worker->put++;
    mh_control_task_publish(self->control, number);
    Py_RETURN_NONE;
}

/* --- batches in --- */

static PyObject *leaf_in(channel_object *self, const mh_leaf *leaf, mh_slot *slot, bool hold)
{
    const mh_module *module = mh_module_of((PyObject *)self);
    uint8_t *data = mh_slot_data(slot) + leaf->offset;
    if (hold && leaf->bytes >= ZERO_COPY_BYTES)
        return mh_tensor_over(module, leaf, data, slot);
    void *to;
    PyObject *tensor = mh_tensor_new(module, leaf, &to);
    if (tensor && leaf->bytes)
        memcpy(to, data, (size_t)leaf->bytes);
    self->copied_bytes += leaf->bytes;
    return tensor;
}

/* Tensors of their own for small leaves, tensors over the slot for large ones - unless the user
 * already holds so many that batches under way would find no slot: then all are copied. */
static PyObject *batch_from_slot(channel_object *self, const task_note *note, const mh_leaf *places,
                                 uint32_t leaf_count)
{
    mh_slot *slot = note->slot;
    PyObject *leaves[MH_LEAVES_MAX] = {NULL};
    uint32_t large = 0;
    uint32_t made = 0;
    PyObject *batch = NULL;
    for (uint32_t i = 0; i < leaf_count; i++)
        large += places[i].bytes >= ZERO_COPY_BYTES;
    bool hold = large && mh_pool_unheld(mh_pool_of(self->pool)) > self->under_way;
    self->copied_out += large && !hold;
    if (hold) /* one reference more keeps the slot until all tensors are made */
        mh_slot_hold(slot, large + 1);
    while (made < leaf_count) {
        const mh_leaf *leaf = &places[made];
        leaves[made] = leaf_in(self, leaf, slot, hold);
        large -= hold && leaf->bytes >= ZERO_COPY_BYTES; /* its reference is spent either way */
        if (!leaves[made++])
            break;
    }
    if (made == 0 || leaves[made - 1])
        batch = mh_tree_build(mh_module_of((PyObject *)self), note->structure, leaves, leaf_count);
    for (uint32_t i = 0; i < made; i++)
        Py_XDECREF(leaves[i]);
    if (hold)
        for (uint32_t i = 0; i <= large; i++)
            mh_slot_unref(slot);
    else
        mh_slot_abandon(slot);
    return batch;
}

PyObject *mh_channel_batch(channel_object *self, task_note *note, const mh_leaf *leaves,
                           uint32_t leaf_count)
{
    mh_error err;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < leaf_count; i++) {
        if (mh_leaf_check(&leaves[i], mh_slot_bytes(note->slot), &err) != MH_OK)
            return mh_raise(mh_module_of((PyObject *)self), &err);
        bytes += leaves[i].bytes;
    }
    self->copied_bytes += bytes; /* into the slot */
    PyObject *batch = batch_from_slot(self, note, leaves, leaf_count);
    note->slot = NULL; /* held by its tensors, or free again */
    return batch;
}

static PyObject *piece_in(channel_object *self, const mh_piece *piece, const uint8_t *data)
{
    if (piece->kind == MH_PIECE_BYTES)
        return PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)piece->bytes);
    if (piece->kind == MH_PIECE_BUFFER)
        return PyByteArray_FromStringAndSize((const char *)data, (Py_ssize_t)piece->bytes);
    void *to;
    mh_leaf leaf = {.type_code = 1,
                    .type_bits = 8,
                    .dims = 1,
                    .shape = {(int64_t)piece->bytes},
                    .bytes = piece->bytes};
    PyObject *tensor = mh_tensor_new(mh_module_of((PyObject *)self), &leaf, &to);
    if (tensor && piece->bytes) {
        Py_BEGIN_ALLOW_THREADS memcpy(to, data, (size_t)piece->bytes);
        Py_END_ALLOW_THREADS
    }
    return tensor;
}

/* True when the worker's spill memory holds those bytes: beyond them is SIGBUS. */
static bool spill_has(const channel_worker *worker, uint64_t begin, uint64_t bytes)
{
    struct stat file;
    return fstat(worker->spill.fd, &file) == 0 && begin % 64 == 0 &&
           begin <= (uint64_t)file.st_size && bytes <= (uint64_t)file.st_size - begin &&
           begin + bytes <= worker->spill.map_bytes;
}

/* The state that came with a result, as bytes; None where none did. */
static PyObject *state_in(channel_object *self, unsigned number, const mh_result *shared)
{
    channel_worker *worker = &self->workers[number];
    const mh_result *result = &self->result;
    const uint8_t *data = shared->state;
    if (!result->state_bytes)
        Py_RETURN_NONE;
    if (result->state_bytes > MH_STATE_BYTES) {
        if (!spill_has(worker, result->state_offset, result->state_bytes))
            return PyErr_Format(mh_module_of((PyObject *)self)->error,
                                "a state of %u bytes beyond its worker's memory",
                                result->state_bytes);
        data = worker->spill.base + result->state_offset;
    }
    PyObject *state = PyBytes_FromStringAndSize((const char *)data, result->state_bytes);
    if (result->state_bytes > MH_STATE_BYTES)
        mh_control_spill_done(self->control, number);
    return state;
}

PyObject *mh_channel_pieces(channel_object *self, channel_worker *worker, const mh_result *result)
{
    uint64_t begin = result->spill_offset;
    uint64_t room = result->spill_bytes;
    if (!spill_has(worker, begin, room) || room < 8)
        return PyErr_Format(mh_module_of((PyObject *)self)->error,
                            "a result of %llu bytes beyond its worker's memory",
                            (unsigned long long)room);
    const uint8_t *base = worker->spill.base + begin;
    uint64_t count = *(const uint64_t *)(const void *)base;
    const mh_piece *pieces = (const mh_piece *)(const void *)(base + 8);
    if (count > (room - 8) / sizeof *pieces)
        return PyErr_Format(mh_module_of((PyObject *)self)->error, "a result of too many pieces");
    uint64_t at = mh_piece_align(8 + count * sizeof *pieces);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint64_t i = 0; list && i < count; i++) {
        PyObject *object = NULL;
        mh_piece piece = pieces[i]; /* out of the worker's reach before it is checked */
        if (at > room || piece.bytes > room - at)
            PyErr_SetString(mh_module_of((PyObject *)self)->error, "a result that is cut short");
        else
            object = piece_in(self, &piece, base + at);
        if (!object || PyList_SetItem(list, (Py_ssize_t)i, object) < 0)
            Py_CLEAR(list);
        at = mh_piece_align(at + piece.bytes);
    }
    self->copied_bytes += room;
    self->pickled_bytes += result->pickled_bytes;
    return list;
}

/* The index of a batch's sample, where the batch's own is a list or a range of them. */
static PyObject *index_of_sample(PyObject *index, uint32_t offset)
{
    if (PyList_Check(index) || Py_IS_TYPE(index, &PyRange_Type)) {
        PyObject *found = PySequence_GetItem(index, (Py_ssize_t)offset);
        if (found)
            return found;
        PyErr_Clear();
    }
    return Py_NewRef(index);
}

/* The note of a task that the worker has in hand, or NULL. */
static const task_note *note_of(const channel_object *self, const channel_worker *worker,
                                uint64_t position)
{
    if (self->posts) {
        const post_note *post = mh_post_find(self, position);
        return post ? &post->task : NULL;
    }
    for (uint64_t n = worker->taken; n < worker->put; n++)
        if (worker->notes[n % self->depth].position == position)
            return &worker->notes[n % self->depth];
    return NULL;
}

/* The indices of slow samples are still known here. */
void mh_channel_events(channel_object *self, unsigned number)
{
    mh_event events[64];
    uint32_t count;
    const channel_worker *worker = &self->workers[number];
    while ((count = mh_event_ring_drain(worker->events, events, 64)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            const task_note *note =
                events[i].kind == MH_EVENT_SAMPLE ? note_of(self, worker, events[i].batch) : NULL;
            if (!note)
                continue;
            PyObject *index = index_of_sample(note->index, events[i].value);
            mh_meter_offer(self->meter, events[i].duration_ns, index, (int)number);
            Py_DECREF(index);
        }
    }
}

/* Waits for a result of the worker; NULL without an exception when none came in time. */
static const mh_result *wait_for_result(channel_object *self, unsigned number, uint64_t timeout_ns)
{
    const mh_result *result = mh_control_result_peek(self->control, number);
    if (!result && timeout_ns) {
        if (!self->meter->wait_began_ns)
            self->meter->wait_began_ns = mh_clock_ns();
        Py_BEGIN_ALLOW_THREADS mh_control_result_wait(self->control, number, timeout_ns);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return NULL;
        result = mh_control_result_peek(self->control, number);
    }
    if (result)
        mh_meter_end_wait(self->meter);
    return result;
}

/* Counts the samples of a batch that could not be loaded. */
static void faults_in(channel_object *self, const mh_result *result, const mh_result *shared)
{
    if (!self->skipped && !self->replaced) {
        memcpy(self->fault, shared->fault, sizeof self->fault);
        self->fault[sizeof self->fault - 1] = 0;
    }
    self->skipped += result->skipped;
    self->replaced += result->replaced;
}

static PyObject *slot_in(channel_object *self, const mh_result *result, task_note *note)
{
    if (!note->slot || result->generation != note->generation || result->leaf_count > MH_LEAVES_MAX)
        return PyErr_Format(mh_module_of((PyObject *)self)->error,
                            "a result in a slot that was not granted");
    return mh_channel_batch(self, note, result->leaves, result->leaf_count);
}

static PyObject *payload_in(channel_object *self, unsigned number, const mh_result *result,
                            task_note *note)
{
    PyObject *pieces;
    if (result->position != note->position)
        return PyErr_Format(mh_module_of((PyObject *)self)->error,
                            "worker %u sent batch %llu where batch %llu was due", number,
                            (unsigned long long)result->position,
                            (unsigned long long)note->position);
    switch (result->kind) {
    case MH_RESULT_SLOT:
        return slot_in(self, result, note);
    case MH_RESULT_GENERAL:
    case MH_RESULT_ERROR:
        pieces = mh_channel_pieces(self, &self->workers[number], result);
        mh_control_spill_done(self->control, number);
        return pieces;
    case MH_RESULT_END:
        return Py_NewRef(Py_None);
    default:
        return PyErr_Format(mh_module_of((PyObject *)self)->error, "a result of kind %u",
                            result->kind);
    }
}

/* The exception that is set, in place of the batch it is about. */
static PyObject *lost_batch(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (error && traceback)
        PyException_SetTraceback(error, traceback);
    PyObject *taken = error ? Py_BuildValue("(IOIO)", MH_RESULT_NONE, error, 0, Py_None) : NULL;
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return taken;
}

/* The result is over and done with, whether its batch can be had or not: else the next one would be
 * taken for it. */
static PyObject *result_in(channel_object *self, unsigned number, const mh_result *shared)
{
    mh_result *result = &self->result;
    memcpy(result, shared, offsetof(mh_result, leaves));
    if (result->leaf_count <= MH_LEAVES_MAX)
        memcpy(result->leaves, shared->leaves, result->leaf_count * sizeof *result->leaves);
    if (result->skipped || result->replaced)
        faults_in(self, result, shared);
    channel_worker *worker = &self->workers[number];
    mh_channel_events(self, number);
    task_note *note = &worker->notes[worker->taken % self->depth];
    PyObject *state = state_in(self, number, shared);
    PyObject *payload = state ? payload_in(self, number, result, note) : NULL;
    PyObject *taken = payload
                          ? Py_BuildValue("(INIO)", result->kind, payload, result->samples, state)
                          : lost_batch();
    Py_XDECREF(state);
    worker->taken++;
    mh_channel_note_end(note);
    mh_control_result_done(self->control, number);
    return taken;
}

static PyObject *channel_take(PyObject *object, PyObject *arguments)
{
    channel_object *self = (channel_object *)object;
    unsigned number;
    unsigned long long timeout_ns;
    if (!PyArg_ParseTuple(arguments, "IK:take", &number, &timeout_ns))
        return NULL;
    channel_worker *worker = mh_channel_worker(self, number);
    if (!worker)
        return NULL;
    if (worker->taken == worker->put)
        return PyErr_Format(PyExc_RuntimeError, "worker %u has nothing to do", number);
    PyObject *taken = NULL;
    self->busy++;
    const mh_result *result = wait_for_result(self, number, timeout_ns);
    if (result)
        taken = result_in(self, number, result);
    else if (!PyErr_Occurred())
        taken = Py_NewRef(Py_None);
    self->busy--;
    return taken;
}

/* --- the schema --- */

typedef struct measure {
    uint64_t end;
} measure;

static bool measure_leaf(void *context, const mh_dl_tensor *view)
{
    mh_error err;
    measure *m = context;
    mh_leaf leaf = mh_leaf_of_tensor(view);
    return mh_leaf_place(&leaf, &m->end, UINT64_MAX / 4, &err) == MH_OK &&
           mh_leaf_check(&leaf, UINT64_MAX / 4, &err) == MH_OK;
}

static PyObject *channel_measure(PyObject *object, PyObject *batch)
{
    measure m = {0};
    PyObject *structure = mh_tree_flatten(mh_module_of(object), batch, measure_leaf, &m);
    if (!structure) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(NK)", structure, (unsigned long long)(m.end ? m.end : 1));
}

static PyObject *channel_set_schema(PyObject *object, PyObject *arguments)
{
    channel_object *self = (channel_object *)object;
    PyObject *structure;
    PyObject *schema;
    unsigned long long slot_bytes;
    unsigned slots;
    mh_error err;
    if (!PyArg_ParseTuple(arguments, "OSKI:set_schema", &structure, &schema, &slot_bytes, &slots))
        return NULL;
    mh_status status = mh_pool_reserve(mh_pool_of(self->pool), (size_t)slot_bytes, slots, &err);
    if (status != MH_OK && mh_pool_unheld(mh_pool_of(self->pool)) == 0)
        return mh_raise(mh_module_of(object), &err);
    Py_XDECREF(self->structure);
    Py_XDECREF(self->schema);
    self->structure = Py_NewRef(structure);
    self->schema = Py_NewRef(schema);
    self->generation++;
    Py_RETURN_NONE;
}

static PyObject *channel_same_structure(PyObject *object, PyObject *structure)
{
    channel_object *self = (channel_object *)object;
    int same = self->structure ? mh_tree_same(self->structure, structure) : 0;
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* --- looking --- */

static PyObject *channel_view(PyObject *object, PyObject *argument)
{
    static const char *const states[] = {"starting",  "idle",    "fetching",
                                         "collating", "sending", "left"};
    channel_object *self = (channel_object *)object;
    unsigned number = (unsigned)PyLong_AsUnsignedLong(argument);
    channel_worker *worker = PyErr_Occurred() ? NULL : mh_channel_worker(self, number);
    if (!worker)
        return NULL;
    mh_worker_view view;
    mh_control_view(self->control, number, &view);
    bool at_work = view.state >= MH_WORKER_FETCHING && view.state <= MH_WORKER_SENDING;
    const task_note *note = at_work || !self->posts ? note_of(self, worker, view.position) : NULL;
    PyObject *index = note ? note->index : Py_None;
    return Py_BuildValue("{s:s,s:i,s:K,s:I,s:O,s:K,s:I}", "state", states[view.state], "pid",
                         view.pid, "position", (unsigned long long)view.position, "offset",
                         view.offset, "index", index, "busy_ns", (unsigned long long)view.busy_ns,
                         "threads", view.threads);
}

static PyObject *channel_ready(PyObject *object, PyObject *arguments)
{
    channel_object *self = (channel_object *)object;
    unsigned long long timeout_ns;
    if (!PyArg_ParseTuple(arguments, "K:ready", &timeout_ns) || !mh_channel_worker(self, 0))
        return NULL;
    if (!self->meter->wait_began_ns)
        self->meter->wait_began_ns = mh_clock_ns();
    self->busy++;
    Py_BEGIN_ALLOW_THREADS mh_control_result_wait(self->control, MH_ANY_WORKER, timeout_ns);
    Py_END_ALLOW_THREADS self->busy--;
    if (PyErr_CheckSignals() < 0)
        return NULL;
    /* the one that was ready first: a fixed order would starve the others */
    uint64_t first_ns = UINT64_MAX;
    uint32_t first = 0;
    for (uint32_t w = 0; self->control && w < self->worker_count; w++) {
        const mh_result *result = mh_control_result_peek(self->control, w);
        if (result && result->published_ns < first_ns) {
            first_ns = result->published_ns;
            first = w;
        }
    }
    if (first_ns == UINT64_MAX)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(first);
}

static PyObject *channel_fds(PyObject *object, PyObject *argument)
{
    channel_object *self = (channel_object *)object;
    unsigned number = (unsigned)PyLong_AsUnsignedLong(argument);
    channel_worker *worker = PyErr_Occurred() ? NULL : mh_channel_worker(self, number);
    if (!worker)
        return NULL;
    return Py_BuildValue("(iiii)", mh_control_fd(self->control), mh_pool_fd(mh_pool_of(self->pool)),
                         worker->spill.fd, self->metrics.fd);
}

static PyObject *channel_maps(PyObject *object, PyObject *argument)
{
    channel_object *self = (channel_object *)object;
    unsigned number = (unsigned)PyLong_AsUnsignedLong(argument);
    channel_worker *worker = PyErr_Occurred() ? NULL : mh_channel_worker(self, number);
    if (!worker)
        return NULL;
    return Py_BuildValue("(KK)", (unsigned long long)mh_pool_map_bytes(mh_pool_of(self->pool)),
                         (unsigned long long)worker->spill.map_bytes);
}

static PyObject *channel_new_epoch(PyObject *object, PyObject *unused)
{
    (void)unused;
    channel_object *self = (channel_object *)object;
    if (!mh_channel_worker(self, 0))
        return NULL;
    for (uint32_t w = 0; w < self->worker_count; w++)
        self->workers[w].new_epoch = true;
    Py_RETURN_NONE;
}

static PyObject *channel_stop(PyObject *object, PyObject *unused)
{
    (void)unused;
    channel_object *self = (channel_object *)object;
    if (self->control)
        mh_control_stop(self->control);
    Py_RETURN_NONE;
}

static PyObject *channel_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    channel_object *self = (channel_object *)object;
    uint64_t lost = 0;
    for (uint32_t w = 0; self->workers && w < self->worker_count; w++)
        lost += mh_event_ring_lost(self->workers[w].events);
    return Py_BuildValue("(KKKK)", (unsigned long long)self->copied_bytes,
                         (unsigned long long)self->pickled_bytes,
                         (unsigned long long)self->copied_out, (unsigned long long)lost);
}

static PyObject *channel_faults(PyObject *object, PyObject *unused)
{
    (void)unused;
    channel_object *self = (channel_object *)object;
    return Py_BuildValue(
        "(KKN)", (unsigned long long)self->skipped, (unsigned long long)self->replaced,
        PyUnicode_DecodeUTF8(self->fault, (Py_ssize_t)strlen(self->fault), "replace"));
}

static PyMethodDef channel_methods[] = {
    {"put", channel_put, METH_VARARGS,
     "put(worker, position, index, samples, sample=0, wants_state=False): give the worker a task; "
     "sample: the position in the epoch of its first one."},
    {"take", channel_take, METH_VARARGS,
     "take(worker, timeout_ns): (kind, batch or pieces or the exception it is LOST to, samples, "
     "state or None) of its oldest task, or None."},
    {"post", mh_channel_post, METH_VARARGS,
     "post(position, index, samples, sample, key, slot, again): put a batch on the board."},
    {"receive", mh_channel_receive, METH_O,
     "(position, PART, pieces) or (position, WHOLE, marks): the worker's oldest result, or None. "
     "None as position: it had no run yet."},
    {"build", mh_channel_build, METH_O, "A whole batch of the board, from its slot."},
    {"drop", mh_channel_drop, METH_O, "Forget a whole batch of the board."},
    {"ready", channel_ready, METH_VARARGS,
     "ready(timeout_ns): the number of a worker that has a result, or None."},
    {"measure", channel_measure, METH_O,
     "(structure, bytes) of a batch that can live in a slot, or None."},
    {"set_schema", channel_set_schema, METH_VARARGS,
     "set_schema(structure, pickled, slot_bytes, slots): batches look like this from now on."},
    {"same_structure", channel_same_structure, METH_O, "Whether the schema has this structure."},
    {"view", channel_view, METH_O, "What a worker is doing: state, pid, position, offset, ..."},
    {"fds", channel_fds, METH_O, "(control, batches, spill, metrics) for a worker to attach."},
    {"maps", channel_maps, METH_O, "Address space for a worker to map: (batches, spill)."},
    {"new_epoch", channel_new_epoch, METH_NOARGS, "Say so with each worker's next task."},
    {"stop", channel_stop, METH_NOARGS, "Tell every worker to end after what it has in hand."},
    {"counts", channel_counts, METH_NOARGS,
     "(bytes copied, bytes pickled, batches copied out, events lost)."},
    {"faults", channel_faults, METH_NOARGS,
     "(skipped, replaced, the first in words): samples that could not be loaded."},
    {"excess", mh_channel_excess, METH_VARARGS,
     "excess(first=0): (worker, 'leaves', 'ended' or 'stays', bytes, results it has sent) of one, "
     "from the first on, that has too much memory, or None."},
    {"excess_seen", mh_channel_excess_seen, METH_O, "Forget what a worker said about its memory."},
    {"succeed", mh_channel_succeed, METH_O,
     "Make the place of a worker that left or ended ready for another process."},
    {"close", channel_close, METH_NOARGS, "Free the shared memory. The workers must be dead."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot channel_slots[] = {
    {Py_tp_doc,
     "Channel(pool, workers, depth, under_way, dumps, meter, board): the consumer's end."},
    {Py_tp_new, channel_new},
    {Py_tp_dealloc, channel_dealloc},
    {Py_tp_traverse, channel_traverse},
    {Py_tp_clear, channel_clear},
    {Py_tp_methods, channel_methods},
    {0, NULL},
};

PyType_Spec mh_channel_spec = {
    .name = "millhead._core.Channel",
    .basicsize = sizeof(channel_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = channel_slots,
};
