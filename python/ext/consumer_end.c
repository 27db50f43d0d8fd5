/* consumer_end.c - the consumer's end: tasks out, batches in
 * SPDX-License-Identifier: Apache-2.0
 *
 * A ConsumerEnd remembers, for every task a worker has, the index it was asked for and the slot it
 * was granted. Results come back in the order of the tasks, worker by worker.
 */
#include "consumer_end.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "sys/clock.h"

#include <string.h>
#include <sys/stat.h>

/* --- making and ending --- */

static mh_status worker_open(consumer_end_object *self, uint32_t number, size_t ring_bytes,
                             size_t spill_bytes, mh_error *err)
{
    consumer_end_worker *worker = &self->workers[number];
    worker->number = number;
    worker->tasks = mh_calloc(self->depth, sizeof *worker->tasks);
    if (!worker->tasks)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the tasks of worker %u", number);
    worker->events = mh_event_ring_init(self->metrics.base + number * ring_bytes,
                                        MH_EVENTS_PER_WORKER, (uint16_t)(number + 1));
    return mh_memory_create(&worker->spill, "millhead-spill", spill_bytes, 4096, err);
}

/* A loader keeps its memory of batches from one iterator to the next: that tells it from others. */
static uint64_t loader_number(const consumer_end_object *self)
{
    struct stat about;
    return fstat(mh_pool_fd(mh_pool_of(self->pool)), &about) == 0 ? (uint64_t)about.st_ino : 0;
}

static mh_status consumer_end_open(consumer_end_object *self, mh_error *err)
{
    size_t ring_bytes = mh_event_ring_bytes(MH_EVENTS_PER_WORKER);
    size_t metrics_bytes = ring_bytes * self->worker_count;
    self->workers = mh_calloc(self->worker_count, sizeof *self->workers);
    if (!self->workers)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %u workers", self->worker_count);
    for (uint32_t w = 0; w < self->worker_count; w++)
        self->workers[w].spill.fd = -1;
    if (self->board) {
        self->batches = mh_calloc(self->under_way, sizeof *self->batches);
        if (!self->batches)
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

static void worker_forget(consumer_end_object *self, consumer_end_worker *worker)
{
    while (worker->taken < worker->put)
        mh_pending_task_end(&worker->tasks[worker->taken++ % self->depth]);
}

static PyObject *consumer_end_close(PyObject *object, PyObject *unused)
{
    consumer_end_object *self = (consumer_end_object *)object;
    if (self->busy || self->fork_generation != mh_fork_generation())
        Py_RETURN_NONE;
    consumer_end_worker *workers = self->workers;
    self->workers = NULL; /* closed to whatever Python runs when indices go */
    for (uint32_t w = 0; workers && w < self->worker_count; w++) {
        if (workers[w].tasks)
            worker_forget(self, &workers[w]);
        mh_free(workers[w].tasks);
        mh_memory_close(&workers[w].spill);
    }
    mh_free(workers);
    mh_board_batches_end(self);
    mh_free(self->batches);
    self->batches = NULL;
    mh_memory_close(&self->metrics);
    mh_control_close(self->control);
    self->control = NULL;
    Py_CLEAR(self->structure);
    Py_CLEAR(self->schema);
    Py_RETURN_NONE;
}

static PyObject *consumer_end_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"pool",  "workers", "depth", "under_way",
                            "dumps", "meter",   "board", NULL};
    mh_module *module = PyType_GetModuleState(type);
    PyObject *pool, *dumps, *meter;
    unsigned workers, depth, under_way;
    int board = 0;
    mh_error err;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!IIIOO!|p:ConsumerEnd", names,
                                     module->pool_type, &pool, &workers, &depth, &under_way, &dumps,
                                     module->meter_type, &meter, &board))
        return NULL;
    consumer_end_object *self = mh_object_new(type);
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
    if (consumer_end_open(self, &err) != MH_OK) {
        mh_raise(module, &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* Task number `at` of all that can be under way at a time, or NULL at the end. */
static pending_task *task_at(const consumer_end_object *self, uint64_t at)
{
    uint64_t rings = self->workers ? (uint64_t)self->worker_count * self->depth : 0;
    if (at < rings) {
        const consumer_end_worker *worker = &self->workers[at / self->depth];
        return worker->tasks ? &worker->tasks[at % self->depth] : NULL;
    }
    return self->batches && at - rings < self->under_way ? &self->batches[at - rings].task : NULL;
}

static int consumer_end_clear(PyObject *object)
{
    consumer_end_object *self = (consumer_end_object *)object;
    pending_task *task;
    self->cleared = true;
    for (uint64_t at = 0; (task = task_at(self, at)); at++)
        mh_pending_task_clear(task);
    Py_CLEAR(self->dumps);
    Py_CLEAR(self->structure);
    Py_CLEAR(self->schema);
    return 0; /* the meter breaks its own cycles, and a pool is in none */
}

static int consumer_end_traverse(PyObject *object, visitproc visit, void *arg)
{
    consumer_end_object *self = (consumer_end_object *)object;
    const pending_task *task;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->pool);
    Py_VISIT(self->dumps);
    Py_VISIT(self->meter);
    Py_VISIT(self->structure);
    Py_VISIT(self->schema);
    for (uint64_t at = 0; (task = task_at(self, at)); at++) {
        int stop = mh_pending_task_visit(task, visit, arg);
        if (stop)
            return stop;
    }
    return 0;
}

static void consumer_end_dealloc(PyObject *object)
{
    consumer_end_object *self = (consumer_end_object *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(consumer_end_close(object, NULL));
    consumer_end_clear(object);
    Py_CLEAR(self->meter);
    Py_CLEAR(self->pool);
    mh_object_free(object);
}

bool mh_consumer_end_is_open(const consumer_end_object *self)
{
    mh_error err;
    if (!self->workers || self->cleared)
        (void)mh_fail(&err, MH_ERR_CLOSED, "the loader is closed");
    else if (self->fork_generation != mh_fork_generation())
        (void)mh_fail(&err, MH_ERR_FORKED,
                      "this iterator belongs to the process that made it: call iter() on the "
                      "loader again after a fork");
    else
        return true;
    mh_raise(mh_module_of(self), &err);
    return false;
}

consumer_end_worker *mh_consumer_end_worker(consumer_end_object *self, unsigned number)
{
    if (!mh_consumer_end_is_open(self))
        return NULL;
    if (number < self->worker_count)
        return &self->workers[number];
    PyErr_Format(PyExc_ValueError, "no worker %u", number);
    return NULL;
}

consumer_end_worker *mh_consumer_end_worker_of(PyObject *self, PyObject *number)
{
    unsigned value = (unsigned)PyLong_AsUnsignedLong(number);
    return PyErr_Occurred() ? NULL : mh_consumer_end_worker((consumer_end_object *)self, value);
}

/* --- tasks out --- */

static PyObject *consumer_end_put(PyObject *object, PyObject *arguments)
{
    consumer_end_object *self = (consumer_end_object *)object;
    unsigned number, samples;
    unsigned long long position, sample = 0;
    PyObject *index;
    int wants_state = 0;
    if (!PyArg_ParseTuple(arguments, "IKOI|Kp:put", &number, &position, &index, &samples, &sample,
                          &wants_state))
        return NULL;
    consumer_end_worker *worker = mh_consumer_end_worker(self, number);
    if (!worker)
        return NULL;
    mh_task *entry = mh_control_task_begin(self->control, number);
    if (!entry || worker->put - worker->taken >= self->depth)
        return PyErr_Format(PyExc_RuntimeError, "worker %u already has %u batches", number,
                            self->depth);
    pending_task *task = &worker->tasks[worker->put % self->depth];
    mh_pending_task_begin(self, task, position, index, true);
    mh_pending_task_fill(entry, task, samples, sample, worker->generation != task->generation);
    if (worker->new_epoch)
        entry->flags |= MH_TASK_EPOCH;
    if (wants_state)
        entry->flags |= MH_TASK_STATE;
    self->busy++; /* pickling an index runs Python, and with it other threads */
    bool written = mh_pending_task_write(self, entry, task);
    self->busy--;
    if (!written) {
        mh_pending_task_end(task);
        return NULL;
    }
    worker->new_epoch = false;
    if (entry->flags & MH_TASK_SCHEMA)
        worker->generation = task->generation;
    worker->put++;
    mh_control_task_publish(self->control, number);
    Py_RETURN_NONE;
}

/* --- batches in --- */

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

/* The task that the worker has in hand, or NULL. */
static const pending_task *task_of(const consumer_end_object *self,
                                   const consumer_end_worker *worker, uint64_t position)
{
    if (self->batches) {
        const board_batch *batch = mh_board_batch_find(self, position);
        return batch ? &batch->task : NULL;
    }
    for (uint64_t n = worker->taken; n < worker->put; n++)
        if (worker->tasks[n % self->depth].position == position)
            return &worker->tasks[n % self->depth];
    return NULL;
}

/* The indices of slow samples are still known here. */
void mh_consumer_end_events(consumer_end_object *self, const consumer_end_worker *worker)
{
    mh_event events[64];
    uint32_t count;
    while ((count = mh_event_ring_drain(worker->events, events, 64)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            const pending_task *task =
                events[i].kind == MH_EVENT_SAMPLE ? task_of(self, worker, events[i].batch) : NULL;
            if (!task)
                continue;
            PyObject *index = index_of_sample(task->index, events[i].value);
            mh_meter_offer(self->meter, events[i].duration_ns, index, (int)worker->number);
            Py_DECREF(index);
        }
    }
}

/* Sleeps until the worker, or any, has a result or the time is over. */
static void sleep_for_result(consumer_end_object *self, uint32_t number, uint64_t timeout_ns)
{
    if (!self->meter->wait_began_ns)
        self->meter->wait_began_ns = mh_clock_ns();
    Py_BEGIN_ALLOW_THREADS
    mh_control_result_wait(self->control, number, timeout_ns);
    Py_END_ALLOW_THREADS
}

/* Waits for a result of the worker; NULL without an exception when none came in time. */
static const mh_result *wait_for_result(consumer_end_object *self, unsigned number,
                                        uint64_t timeout_ns)
{
    const mh_result *result = mh_control_result_peek(self->control, number);
    if (!result && timeout_ns) {
        sleep_for_result(self, number, timeout_ns);
        if (PyErr_CheckSignals() < 0)
            return NULL;
        result = mh_control_result_peek(self->control, number);
    }
    if (result)
        mh_meter_end_wait(self->meter);
    return result;
}

/* Counts the samples of a batch that could not be loaded. */
static void faults_in(consumer_end_object *self, const mh_result *result, const mh_result *shared)
{
    if (!self->skipped && !self->replaced) {
        memcpy(self->fault, shared->fault, sizeof self->fault);
        self->fault[sizeof self->fault - 1] = 0;
    }
    self->skipped += result->skipped;
    self->replaced += result->replaced;
}

static PyObject *slot_in(consumer_end_object *self, const mh_result *result, pending_task *task)
{
    if (!task->slot || result->generation != task->generation || result->leaf_count > MH_LEAVES_MAX)
        return PyErr_Format(mh_module_of(self)->error, "a result in a slot that was not granted");
    return mh_consumer_end_batch(self, task, result->leaves, result->leaf_count);
}

static PyObject *payload_in(consumer_end_object *self, consumer_end_worker *worker,
                            const mh_result *result, pending_task *task)
{
    if (result->position != task->position)
        return PyErr_Format(mh_module_of(self)->error,
                            "worker %u sent batch %llu where batch %llu was due", worker->number,
                            (unsigned long long)result->position,
                            (unsigned long long)task->position);
    switch (result->kind) {
    case MH_RESULT_SLOT:
        return slot_in(self, result, task);
    case MH_RESULT_GENERAL:
    case MH_RESULT_ERROR:
        return mh_consumer_end_parts(self, worker, result);
    case MH_RESULT_END:
        return Py_NewRef(Py_None);
    default:
        return PyErr_Format(mh_module_of(self)->error, "a result of kind %u", result->kind);
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
static PyObject *result_in(consumer_end_object *self, consumer_end_worker *worker,
                           const mh_result *shared)
{
    mh_result *result = &self->result;
    memcpy(result, shared, offsetof(mh_result, leaves));
    if (result->leaf_count <= MH_LEAVES_MAX)
        memcpy(result->leaves, shared->leaves, result->leaf_count * sizeof *result->leaves);
    if (result->skipped || result->replaced)
        faults_in(self, result, shared);
    mh_consumer_end_events(self, worker);
    pending_task *task = &worker->tasks[worker->taken % self->depth];
    PyObject *state = mh_consumer_end_state(self, worker, shared);
    PyObject *payload = state ? payload_in(self, worker, result, task) : NULL;
    PyObject *taken = payload
                          ? Py_BuildValue("(INIO)", result->kind, payload, result->samples, state)
                          : lost_batch();
    Py_XDECREF(state);
    worker->taken++;
    mh_pending_task_end(task);
    mh_control_result_done(self->control, worker->number);
    return taken;
}

static PyObject *consumer_end_take(PyObject *object, PyObject *arguments)
{
    consumer_end_object *self = (consumer_end_object *)object;
    unsigned number;
    unsigned long long timeout_ns;
    if (!PyArg_ParseTuple(arguments, "IK:take", &number, &timeout_ns))
        return NULL;
    consumer_end_worker *worker = mh_consumer_end_worker(self, number);
    if (!worker)
        return NULL;
    if (worker->taken == worker->put)
        return PyErr_Format(PyExc_RuntimeError, "worker %u has nothing to do", number);
    PyObject *taken = NULL;
    self->busy++;
    const mh_result *result = wait_for_result(self, number, timeout_ns);
    if (result)
        taken = result_in(self, worker, result);
    else if (!PyErr_Occurred())
        taken = Py_NewRef(Py_None);
    self->busy--;
    return taken;
}

/* --- the schema --- */

static PyObject *consumer_end_measure(PyObject *object, PyObject *batch)
{
    mh_filling measured = {.slot_bytes = UINT64_MAX / 4};
    PyObject *structure = mh_batch_tree_flatten(mh_module_of(object), batch, &measured);
    if (!structure) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(NK)", structure, (unsigned long long)(measured.end ? measured.end : 1));
}

static PyObject *consumer_end_set_schema(PyObject *object, PyObject *arguments)
{
    consumer_end_object *self = (consumer_end_object *)object;
    mh_pool *pool = mh_pool_of(self->pool);
    PyObject *structure, *schema;
    unsigned long long slot_bytes;
    unsigned slots;
    mh_error err;
    if (!PyArg_ParseTuple(arguments, "OSKI:set_schema", &structure, &schema, &slot_bytes, &slots))
        return NULL;
    if ((size_t)PyBytes_Size(schema) > UINT32_MAX)
        return PyErr_Format(PyExc_ValueError, "a schema of %zd bytes is too large to send",
                            PyBytes_Size(schema));
    /* some slots of that size will do, even if not all could be made */
    mh_status status = mh_pool_reserve(pool, (size_t)slot_bytes, slots, &err);
    if (status != MH_OK && mh_pool_unheld_of(pool, (size_t)slot_bytes) == 0)
        return mh_raise(mh_module_of(object), &err);
    PyObject *old_structure = self->structure;
    PyObject *old_schema = self->schema;
    self->structure = Py_NewRef(structure);
    self->schema = Py_NewRef(schema);
    self->generation++;
    Py_XDECREF(old_structure);
    Py_XDECREF(old_schema);
    Py_RETURN_NONE;
}

static PyObject *consumer_end_same_structure(PyObject *object, PyObject *structure)
{
    consumer_end_object *self = (consumer_end_object *)object;
    PyObject *own = Py_XNewRef(self->structure); /* comparing keys may run Python */
    int same = own ? mh_batch_tree_same(own, structure) : 0;
    Py_XDECREF(own);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* --- looking --- */

static PyObject *consumer_end_view(PyObject *object, PyObject *argument)
{
    static const char *const states[] = {"starting",  "idle",    "fetching",
                                         "collating", "sending", "left"};
    consumer_end_object *self = (consumer_end_object *)object;
    consumer_end_worker *worker = mh_consumer_end_worker_of(object, argument);
    if (!worker)
        return NULL;
    mh_worker_view view;
    mh_control_view(self->control, worker->number, &view);
    bool at_work = view.state >= MH_WORKER_FETCHING && view.state <= MH_WORKER_SENDING;
    const pending_task *task =
        at_work || !self->batches ? task_of(self, worker, view.position) : NULL;
    PyObject *index = task ? task->index : Py_None;
    return Py_BuildValue("{s:s,s:i,s:K,s:I,s:O,s:K,s:I}", "state", states[view.state], "pid",
                         view.pid, "position", (unsigned long long)view.position, "offset",
                         view.offset, "index", index, "busy_ns", (unsigned long long)view.busy_ns,
                         "threads", view.threads);
}

static PyObject *consumer_end_ready(PyObject *object, PyObject *arguments)
{
    consumer_end_object *self = (consumer_end_object *)object;
    unsigned long long timeout_ns;
    if (!PyArg_ParseTuple(arguments, "K:ready", &timeout_ns) || !mh_consumer_end_is_open(self))
        return NULL;
    self->busy++;
    sleep_for_result(self, MH_ANY_WORKER, timeout_ns);
    self->busy--;
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

static PyObject *consumer_end_fds(PyObject *object, PyObject *argument)
{
    consumer_end_object *self = (consumer_end_object *)object;
    consumer_end_worker *worker = mh_consumer_end_worker_of(object, argument);
    if (!worker)
        return NULL;
    return Py_BuildValue("(iiii)", mh_control_fd(self->control), mh_pool_fd(mh_pool_of(self->pool)),
                         worker->spill.fd, self->metrics.fd);
}

static PyObject *consumer_end_maps(PyObject *object, PyObject *argument)
{
    consumer_end_object *self = (consumer_end_object *)object;
    consumer_end_worker *worker = mh_consumer_end_worker_of(object, argument);
    if (!worker)
        return NULL;
    return Py_BuildValue("(KK)", (unsigned long long)mh_pool_map_bytes(mh_pool_of(self->pool)),
                         (unsigned long long)worker->spill.map_bytes);
}

static PyObject *consumer_end_new_epoch(PyObject *object, PyObject *unused)
{
    consumer_end_object *self = (consumer_end_object *)object;
    if (!mh_consumer_end_is_open(self))
        return NULL;
    for (uint32_t w = 0; w < self->worker_count; w++)
        self->workers[w].new_epoch = true;
    Py_RETURN_NONE;
}

static PyObject *consumer_end_stop(PyObject *object, PyObject *unused)
{
    consumer_end_object *self = (consumer_end_object *)object;
    if (self->control)
        mh_control_stop(self->control);
    Py_RETURN_NONE;
}

static PyObject *consumer_end_counts(PyObject *object, PyObject *unused)
{
    consumer_end_object *self = (consumer_end_object *)object;
    uint64_t lost = 0;
    for (uint32_t w = 0; self->workers && w < self->worker_count; w++)
        lost += mh_event_ring_lost(self->workers[w].events);
    return Py_BuildValue("(KKKK)", (unsigned long long)self->copied_bytes,
                         (unsigned long long)self->pickled_bytes,
                         (unsigned long long)self->copied_out, (unsigned long long)lost);
}

static PyObject *consumer_end_faults(PyObject *object, PyObject *unused)
{
    consumer_end_object *self = (consumer_end_object *)object;
    return Py_BuildValue(
        "(KKN)", (unsigned long long)self->skipped, (unsigned long long)self->replaced,
        PyUnicode_DecodeUTF8(self->fault, (Py_ssize_t)strlen(self->fault), "replace"));
}

static PyMethodDef consumer_end_methods[] = {
    {"put", consumer_end_put, METH_VARARGS,
     "put(worker, position, index, samples, sample=0, wants_state=False): give the worker a task; "
     "sample: the position in the epoch of its first one."},
    {"take", consumer_end_take, METH_VARARGS,
     "take(worker, timeout_ns): (kind, batch or pieces or the exception it is LOST to, samples, "
     "state or None) of its oldest task, or None."},
    {"publish", mh_consumer_end_publish, METH_VARARGS,
     "publish(position, index, samples, sample, key, slot, again): put a batch on the board."},
    {"receive", mh_consumer_end_receive, METH_O,
     "(position, PART, pieces) or (position, WHOLE, marks): the worker's oldest result, or None. "
     "None as position: it had no run yet."},
    {"build", mh_consumer_end_build, METH_O, "A whole batch of the board, from its slot."},
    {"drop", mh_consumer_end_drop, METH_O, "Forget a whole batch of the board."},
    {"ready", consumer_end_ready, METH_VARARGS,
     "ready(timeout_ns): the number of a worker that has a result, or None."},
    {"measure", consumer_end_measure, METH_O,
     "(structure, bytes) of a batch that can live in a slot, or None."},
    {"set_schema", consumer_end_set_schema, METH_VARARGS,
     "set_schema(structure, pickled, slot_bytes, slots): batches look like this from now on."},
    {"same_structure", consumer_end_same_structure, METH_O,
     "Whether the schema has this structure."},
    {"view", consumer_end_view, METH_O,
     "What a worker is doing: state, pid, position, offset, ..."},
    {"fds", consumer_end_fds, METH_O, "(control, batches, spill, metrics) for a worker to attach."},
    {"maps", consumer_end_maps, METH_O, "Address space for a worker to map: (batches, spill)."},
    {"new_epoch", consumer_end_new_epoch, METH_NOARGS, "Say so with each worker's next task."},
    {"stop", consumer_end_stop, METH_NOARGS, "Tell every worker to end after what it has in hand."},
    {"counts", consumer_end_counts, METH_NOARGS,
     "(bytes copied, bytes pickled, batches copied out, events lost)."},
    {"faults", consumer_end_faults, METH_NOARGS,
     "(skipped, replaced, the first in words): samples that could not be loaded."},
    {"over_limit", mh_consumer_end_over_limit, METH_VARARGS,
     "over_limit(first=0): (worker, 'leaves', 'ended' or 'stays', bytes, results it has sent) of "
     "one, from the first on, that has too much memory, or None. That it stays is told once."},
    {"succeed", mh_consumer_end_succeed, METH_O,
     "Make the place of a worker that left or ended ready for another process."},
    {"close", consumer_end_close, METH_NOARGS, "Free the shared memory. The workers must be dead."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot consumer_end_slots[] = {
    {Py_tp_doc,
     "ConsumerEnd(pool, workers, depth, under_way, dumps, meter, board): the consumer's end."},
    {Py_tp_new, consumer_end_new},
    {Py_tp_dealloc, consumer_end_dealloc},
    {Py_tp_traverse, consumer_end_traverse},
    {Py_tp_clear, consumer_end_clear},
    {Py_tp_methods, consumer_end_methods},
    {0, NULL},
};

MH_TYPE_SPEC(consumer_end, "ConsumerEnd", consumer_end_object, Py_TPFLAGS_HAVE_GC);
