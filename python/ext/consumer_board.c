/* consumer_board.c - the consumer's end of batches on the board, of which any worker takes samples
 * SPDX-License-Identifier: Apache-2.0
 *
 * A batch is published, parts of it that do not fit into its slot are received from whichever
 * worker has one, and when all its samples are done it is built from the slot or dropped.
 */
#include "consumer_end.h"
#include "workers/board.h"

#include <string.h>

board_batch *mh_board_batch_find(const consumer_end_object *self, uint64_t position)
{
    for (uint32_t i = 0; self->batches && i < self->under_way; i++)
        if (self->batches[i].used && self->batches[i].task.position == position)
            return &self->batches[i];
    return NULL;
}

static void board_batch_end(board_batch *batch)
{
    pending_task task = batch->task; /* to end it runs Python: another may get the entry */
    *batch = (board_batch){0};
    mh_pending_task_end(&task);
}

void mh_board_batches_end(consumer_end_object *self)
{
    for (uint32_t i = 0; self->batches && i < self->under_way; i++)
        if (self->batches[i].used)
            board_batch_end(&self->batches[i]);
}

static board_batch *free_board_batch(consumer_end_object *self)
{
    for (uint32_t i = 0; self->batches && i < self->under_way; i++)
        if (!self->batches[i].used)
            return &self->batches[i];
    PyErr_Format(PyExc_RuntimeError, "there are already %u batches on the board", self->under_way);
    return NULL;
}

PyObject *mh_consumer_end_publish(PyObject *object, PyObject *arguments)
{
    consumer_end_object *self = (consumer_end_object *)object;
    unsigned long long position, sample, key;
    PyObject *index;
    unsigned samples;
    int slot, again;
    if (!PyArg_ParseTuple(arguments, "KO!IKKpp:publish", &position, &PyList_Type, &index, &samples,
                          &sample, &key, &slot, &again) ||
        !mh_consumer_end_is_open(self))
        return NULL;
    board_batch *batch = free_board_batch(self);
    if (!batch)
        return NULL;
    uint32_t place = (uint32_t)(batch - self->batches);
    batch->used = true; /* pickling an index runs Python, and with it other threads */
    mh_pending_task_begin(self, &batch->task, position, index, slot);
    mh_task *entry = mh_board_begin(mh_control_board(self->control), place);
    /* nobody knows who will take it: the schema always goes with it */
    mh_pending_task_fill(entry, &batch->task, samples, sample, true);
    entry->key = key;
    self->busy++;
    bool written = mh_pending_task_write(self, entry, &batch->task);
    self->busy--;
    if (!written) {
        board_batch_end(batch);
        return NULL;
    }
    mh_control_publish_batch(self->control, place, again);
    Py_RETURN_NONE;
}

/* What one result says. */
static PyObject *result_in(consumer_end_object *self, consumer_end_worker *worker,
                           const mh_result *result)
{
    mh_module *module = mh_module_of(self);
    board_batch *batch = mh_board_batch_find(self, result->position);
    PyObject *said = NULL;
    bool of_no_batch = result->kind == MH_RESULT_PART && result->position == MH_NO_BATCH;
    if (!of_no_batch && (!batch || batch->whole)) {
        PyErr_Format(module->error, "worker %u spoke of batch %llu, which is not under way",
                     worker->number, (unsigned long long)result->position);
    } else if (result->kind == MH_RESULT_PART) {
        said = mh_consumer_end_parts(self, worker, result);
    } else if (result->kind == MH_RESULT_WHOLE) {
        batch->whole = true;
        for (uint32_t w = 0; w < self->worker_count; w++) /* while its indices are known */
            mh_consumer_end_events(self, &self->workers[w]);
        said = PyLong_FromUnsignedLong(result->marks);
    } else {
        PyErr_Format(module->error, "worker %u sent a result of kind %u", worker->number,
                     result->kind);
    }
    if (said && of_no_batch)
        return Py_BuildValue("(OIN)", Py_None, result->kind, said);
    return said ? Py_BuildValue("(KIN)", (unsigned long long)result->position, result->kind, said)
                : NULL;
}

PyObject *mh_consumer_end_receive(PyObject *object, PyObject *argument)
{
    consumer_end_object *self = (consumer_end_object *)object;
    consumer_end_worker *worker = mh_consumer_end_worker_of(object, argument);
    if (!worker)
        return NULL;
    uint32_t number = worker->number;
    const mh_result *shared = mh_control_result_peek(self->control, number);
    if (!shared)
        Py_RETURN_NONE;
    mh_result *result = &self->result; /* out of the worker's reach */
    memcpy(result, shared, offsetof(mh_result, leaves));
    self->busy++;
    PyObject *received = result_in(self, worker, result);
    self->busy--;
    mh_control_result_done(self->control, number);
    return received;
}

static board_batch *whole_batch(consumer_end_object *self, PyObject *position)
{
    unsigned long long wanted = PyLong_AsUnsignedLongLong(position);
    if (PyErr_Occurred() || !mh_consumer_end_is_open(self))
        return NULL;
    board_batch *batch = mh_board_batch_find(self, wanted);
    if (batch && batch->whole)
        return batch;
    PyErr_Format(PyExc_RuntimeError, "batch %llu is not whole", wanted);
    return NULL;
}

PyObject *mh_consumer_end_build(PyObject *object, PyObject *position)
{
    consumer_end_object *self = (consumer_end_object *)object;
    mh_leaf leaves[MH_LEAVES_MAX];
    PyObject *built = NULL;
    board_batch *batch = whole_batch(self, position);
    if (!batch)
        return NULL;
    uint32_t place = (uint32_t)(batch - self->batches);
    uint32_t leaf_count = mh_board_leaves(mh_control_board(self->control), place, leaves);
    if (batch->task.slot)
        built = mh_consumer_end_batch(self, &batch->task, leaves, leaf_count);
    else
        PyErr_SetString(mh_module_of(object)->error, "a batch in a slot that was not granted");
    board_batch_end(batch);
    return built;
}

PyObject *mh_consumer_end_drop(PyObject *object, PyObject *position)
{
    board_batch *batch = whole_batch((consumer_end_object *)object, position);
    if (!batch)
        return NULL;
    board_batch_end(batch);
    Py_RETURN_NONE;
}
