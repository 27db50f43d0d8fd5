/* _posts.c - the consumer's end of batches on the board, of which any worker takes samples
 * SPDX-License-Identifier: Apache-2.0
 *
 * A batch is posted, parts of it that do not fit into its slot are received from whichever worker
 * has one, and when all its samples are done it is built from the slot or dropped.
 */
#include "_channel.h"
#include "workers/board.h"

#include <string.h>

post_note *mh_post_find(const channel_object *self, uint64_t position)
{
    for (uint32_t i = 0; self->posts && i < self->under_way; i++)
        if (self->posts[i].used && self->posts[i].task.position == position)
            return &self->posts[i];
    return NULL;
}

static void post_end(post_note *post)
{
    mh_channel_note_end(&post->task);
    *post = (post_note){0};
}

void mh_posts_end(channel_object *self)
{
    for (uint32_t i = 0; self->posts && i < self->under_way; i++)
        if (self->posts[i].used)
            post_end(&self->posts[i]);
}

static post_note *free_post(channel_object *self)
{
    for (uint32_t i = 0; self->posts && i < self->under_way; i++)
        if (!self->posts[i].used)
            return &self->posts[i];
    PyErr_Format(PyExc_RuntimeError, "there are already %u batches on the board", self->under_way);
    return NULL;
}

PyObject *mh_channel_post(PyObject *object, PyObject *arguments)
{
    channel_object *self = (channel_object *)object;
    unsigned long long position;
    PyObject *index;
    unsigned samples;
    unsigned long long sample;
    unsigned long long key;
    int slot;
    int again;
    if (!PyArg_ParseTuple(arguments, "KO!IKKpp:post", &position, &PyList_Type, &index, &samples,
                          &sample, &key, &slot, &again) ||
        !mh_channel_worker(self, 0))
        return NULL;
    post_note *post = free_post(self);
    if (!post)
        return NULL;
    uint32_t entry = (uint32_t)(post - self->posts);
    post->used = true; /* pickling an index runs Python, and with it other threads */
    mh_channel_note(self, &post->task, position, index, slot);
    mh_task *task = mh_board_begin(mh_control_board(self->control), entry);
    mh_channel_fill(self, task, &post->task, samples, sample);
    task->key = key;
    if (post->task.slot) { /* nobody knows who will take it: the schema always goes with it */
        task->flags |= MH_TASK_SCHEMA;
        task->schema_bytes = (uint32_t)PyBytes_Size(self->schema);
    }
    self->busy++;
    bool written = mh_channel_write(self, task, &post->task);
    self->busy--;
    if (!written) {
        post_end(post);
        return NULL;
    }
    mh_control_post(self->control, entry, again);
    Py_RETURN_NONE;
}

/* What one result says. */
static PyObject *result_in(channel_object *self, unsigned number, const mh_result *result)
{
    mh_module *module = mh_module_of((PyObject *)self);
    post_note *post = mh_post_find(self, result->position);
    PyObject *said = NULL;
    bool of_no_batch = result->kind == MH_RESULT_PART && result->position == MH_NO_BATCH;
    if (!of_no_batch && (!post || post->whole)) {
        PyErr_Format(module->error, "worker %u spoke of batch %llu, which is not under way", number,
                     (unsigned long long)result->position);
    } else if (result->kind == MH_RESULT_PART) {
        said = mh_channel_pieces(self, &self->workers[number], result);
        mh_control_spill_done(self->control, number);
    } else if (result->kind == MH_RESULT_WHOLE) {
        post->whole = true;
        for (uint32_t w = 0; w < self->worker_count; w++)
            mh_channel_events(self, w); /* while the indices of its samples are known */
        said = PyLong_FromUnsignedLong(result->marks);
    } else {
        PyErr_Format(module->error, "worker %u sent a result of kind %u", number, result->kind);
    }
    if (said && of_no_batch)
        return Py_BuildValue("(OIN)", Py_None, result->kind, said);
    return said ? Py_BuildValue("(KIN)", (unsigned long long)result->position, result->kind, said)
                : NULL;
}

PyObject *mh_channel_receive(PyObject *object, PyObject *argument)
{
    channel_object *self = (channel_object *)object;
    unsigned number = (unsigned)PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred() || !mh_channel_worker(self, number))
        return NULL;
    const mh_result *shared = mh_control_result_peek(self->control, number);
    if (!shared)
        Py_RETURN_NONE;
    mh_result *result = &self->result; /* out of the worker's reach */
    memcpy(result, shared, offsetof(mh_result, leaves));
    self->busy++;
    PyObject *received = result_in(self, number, result);
    self->busy--;
    mh_control_result_done(self->control, number);
    return received;
}

static post_note *whole_post(channel_object *self, PyObject *position)
{
    unsigned long long wanted = PyLong_AsUnsignedLongLong(position);
    if (PyErr_Occurred() || !mh_channel_worker(self, 0))
        return NULL;
    post_note *post = mh_post_find(self, wanted);
    if (post && post->whole)
        return post;
    PyErr_Format(PyExc_RuntimeError, "batch %llu is not whole", wanted);
    return NULL;
}

PyObject *mh_channel_build(PyObject *object, PyObject *position)
{
    channel_object *self = (channel_object *)object;
    mh_leaf leaves[MH_LEAVES_MAX];
    PyObject *batch = NULL;
    post_note *post = whole_post(self, position);
    if (!post)
        return NULL;
    uint32_t entry = (uint32_t)(post - self->posts);
    uint32_t leaf_count = mh_board_leaves(mh_control_board(self->control), entry, leaves);
    if (post->task.slot)
        batch = mh_channel_batch(self, &post->task, leaves, leaf_count);
    else
        PyErr_SetString(mh_module_of(object)->error, "a batch in a slot that was not granted");
    post_end(post);
    return batch;
}

PyObject *mh_channel_drop(PyObject *object, PyObject *position)
{
    post_note *post = whole_post((channel_object *)object, position);
    if (!post)
        return NULL;
    post_end(post);
    Py_RETURN_NONE;
}
