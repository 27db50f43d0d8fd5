/* pending_tasks.c - tasks that a ConsumerEnd has given out: what they hold, how workers get them
 * SPDX-License-Identifier: Apache-2.0
 *
 * The schema of a task is decided once, when its slot is granted: pickling an index runs Python,
 * and another thread may learn a new schema meanwhile.
 */
#include "base/error.h"
#include "consumer_end.h"

#include <string.h>

/* --- what it holds on to --- */

void mh_pending_task_begin(consumer_end_object *self, pending_task *task, uint64_t position,
                           PyObject *index, bool slot)
{
    *task = (pending_task){.position = position, .index = Py_NewRef(index)};
    mh_slot *granted = self->structure && slot ? mh_pool_grant(mh_pool_of(self->pool)) : NULL;
    if (granted) {
        task->slot = granted;
        task->structure = Py_NewRef(self->structure);
        task->schema = Py_NewRef(self->schema);
        task->generation = self->generation;
    }
}

void mh_pending_task_end(pending_task *task)
{
    pending_task ended = *task; /* what follows runs Python, and another task may get its place */
    *task = (pending_task){0};
    if (ended.slot)
        mh_slot_abandon(ended.slot);
    if (ended.carrier)
        mh_slot_abandon(ended.carrier);
    Py_XDECREF(ended.index);
    Py_XDECREF(ended.structure);
    Py_XDECREF(ended.schema);
}

int mh_pending_task_visit(const pending_task *task, visitproc visit, void *arg)
{
    Py_VISIT(task->index);
    Py_VISIT(task->structure);
    Py_VISIT(task->schema);
    return 0;
}

void mh_pending_task_clear(pending_task *task)
{
    Py_CLEAR(task->index);
    Py_CLEAR(task->structure);
    Py_CLEAR(task->schema);
}

/* --- writing --- */

void mh_pending_task_fill(mh_task *entry, const pending_task *task, uint32_t samples,
                          uint64_t sample, bool schema)
{
    memset(entry, 0, offsetof(mh_task, payload));
    entry->position = task->position;
    entry->count = samples;
    entry->sample = sample;
    entry->generation = task->generation;
    if (task->slot) {
        entry->slot_offset = mh_slot_offset(task->slot);
        entry->slot_bytes = mh_slot_bytes(task->slot);
    }
    if (task->slot && schema) {
        entry->flags |= MH_TASK_SCHEMA;
        entry->schema_bytes = (uint32_t)PyBytes_Size(task->schema);
    }
}

/* Writes a list of exact ints as int64; 0 when the index is anything else or does not fit. */
static uint32_t write_ints(PyObject *index, uint8_t *to, size_t room)
{
    if (!Py_IS_TYPE(index, &PyList_Type))
        return 0;
    size_t bytes = (size_t)PyList_Size(index) * sizeof(int64_t);
    if (bytes > room || !mh_ints_read(index, (int64_t *)(void *)to, PyList_Size(index)))
        return 0;
    return (uint32_t)bytes;
}

static bool write_outside(consumer_end_object *self, mh_task *entry, pending_task *task,
                          const char *index, const char *schema)
{
    mh_error err;
    size_t bytes = (size_t)entry->index_bytes + entry->schema_bytes;
    if (mh_pool_grant_extra(mh_pool_of(self->pool), &task->carrier, bytes, &err) != MH_OK) {
        mh_error_prefix(&err, "a pickled index of %u bytes", entry->index_bytes);
        mh_raise(mh_module_of(self), &err);
        return false;
    }
    uint8_t *to = mh_slot_data(task->carrier);
    memcpy(to, index, entry->index_bytes);
    if (schema)
        memcpy(to + entry->index_bytes, schema, entry->schema_bytes);
    entry->outside = mh_slot_offset(task->carrier);
    entry->flags |= MH_TASK_OUTSIDE;
    return true;
}

/* Pickles the index, which runs Python and with it other threads: `schema` is the task's own. */
static bool write_pickled(consumer_end_object *self, mh_task *entry, pending_task *task,
                          const char *schema, size_t room)
{
    char *pickled;
    Py_ssize_t bytes;
    bool written = false;
    PyObject *dumped = PyObject_CallFunctionObjArgs(self->dumps, task->index, NULL);
    if (!dumped || PyBytes_AsStringAndSize(dumped, &pickled, &bytes) < 0) {
        Py_XDECREF(dumped);
        return false;
    }
    if ((size_t)bytes > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError,
                     "a pickled index of %zd bytes (of batch %llu) is too large to send to a "
                     "worker; at most %u bytes can be sent",
                     bytes, (unsigned long long)task->position, UINT32_MAX);
    } else {
        entry->index_bytes = (uint32_t)bytes;
        self->pickled_bytes += (uint64_t)bytes;
        written = (size_t)bytes <= room || write_outside(self, entry, task, pickled, schema);
        if ((size_t)bytes <= room)
            memcpy(entry->payload, pickled, (size_t)bytes);
    }
    Py_DECREF(dumped);
    return written;
}

bool mh_pending_task_write(consumer_end_object *self, mh_task *entry, pending_task *task)
{
    const char *schema = entry->schema_bytes ? PyBytes_AsString(task->schema) : NULL;
    size_t room = sizeof entry->payload > entry->schema_bytes
                      ? sizeof entry->payload - entry->schema_bytes
                      : 0;
    entry->index_bytes = write_ints(task->index, entry->payload, room);
    entry->flags |= entry->index_bytes ? MH_TASK_INTS : MH_TASK_PICKLED;
    if (!entry->index_bytes && !write_pickled(self, entry, task, schema, room))
        return false;
    if (schema && !(entry->flags & MH_TASK_OUTSIDE))
        memcpy(entry->payload + entry->index_bytes, schema, entry->schema_bytes);
    return true;
}
