/* received_batch.c - a result's memory as Python objects: the batch in a slot, pickled parts, a
 * state SPDX-License-Identifier: Apache-2.0
 *
 * All of it is another process's word, and checked.
 */
#include "consumer_end.h"
#include "workers/pickle_parts.h"

#include <string.h>

/* Leaf number `at` of a batch: a tensor over the memory of `lent`, or of its own. What is kept of a
 * batch should not keep the slot if it is small, and nothing should where nothing is lent (NULL).
 */
static PyObject *leaf_in(consumer_end_object *self, const mh_slot *slot, const mh_leaf *leaf,
                         mh_batch *lent, uint32_t at)
{
    const mh_module *module = mh_module_of(self);
    if (lent && leaf->bytes >= MH_SMALL_BYTES)
        return mh_tensor_over(module, mh_batch_array(lent, at), lent);
    void *to;
    PyObject *tensor = mh_tensor_new(module, leaf, &to);
    if (tensor && leaf->bytes)
        memcpy(to, mh_slot_data(slot) + leaf->offset, (size_t)leaf->bytes);
    self->copied_bytes += leaf->bytes;
    return tensor;
}

/* The tensors of a batch in the structure that the task's slot was granted for. */
static PyObject *batch_in(consumer_end_object *self, const pending_task *task,
                          const mh_leaf *places, uint32_t leaf_count, mh_batch *lent)
{
    PyObject *leaves[MH_LEAVES_MAX] = {NULL};
    uint32_t made = 0;
    PyObject *batch = NULL;
    for (; made < leaf_count; made++) {
        leaves[made] = leaf_in(self, task->slot, &places[made], lent, made);
        if (!leaves[made])
            break;
    }
    if (made == leaf_count)
        batch = mh_batch_tree_build(mh_module_of(self), task->structure, leaves, leaf_count);
    for (uint32_t i = 0; i < made; i++)
        Py_DECREF(leaves[i]);
    return batch;
}

PyObject *mh_consumer_end_batch(consumer_end_object *self, pending_task *task,
                                const mh_leaf *leaves, uint32_t leaf_count)
{
    mh_error err;
    mh_batch *lent = NULL;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < leaf_count; i++) {
        if (mh_leaf_check(&leaves[i], mh_slot_bytes(task->slot), &err) != MH_OK)
            return mh_raise(mh_module_of(self), &err);
        largest = leaves[i].bytes > largest ? leaves[i].bytes : largest;
        self->copied_bytes += leaves[i].bytes; /* into the slot */
    }
    mh_handover handover =
        mh_hand_over(mh_pool_of(self->pool), largest, self->under_way, MH_SMALL_BYTES);
    self->copied_out += handover == MH_HANDOVER_CROWDED;
    if (handover == MH_HANDOVER_LENT &&
        mh_batch_lend(&lent, task->slot, leaves, leaf_count, &err) != MH_OK)
        return mh_raise(mh_module_of(self), &err);
    PyObject *batch = batch_in(self, task, leaves, leaf_count, lent);
    if (lent)
        mh_batch_unref(lent);
    else
        mh_slot_abandon(task->slot);
    task->slot = NULL; /* held by its tensors, or free again */
    return batch;
}

static PyObject *part_in(consumer_end_object *self, const mh_pickle_part *part)
{
    if (part->kind == MH_PICKLE_BYTES)
        return PyBytes_FromStringAndSize(part->data, (Py_ssize_t)part->bytes);
    if (part->kind == MH_PICKLE_BUFFER)
        return PyByteArray_FromStringAndSize(part->data, (Py_ssize_t)part->bytes);
    void *to;
    const mh_leaf bytes = {.type_code = 1,
                           .type_bits = 8,
                           .dims = 1,
                           .shape = {(int64_t)part->bytes},
                           .bytes = part->bytes};
    PyObject *tensor = mh_tensor_new(mh_module_of(self), &bytes, &to);
    if (tensor && part->bytes) {
        Py_BEGIN_ALLOW_THREADS
        memcpy(to, part->data, (size_t)part->bytes);
        Py_END_ALLOW_THREADS
    }
    return tensor;
}

/* Where those bytes of the worker's spill memory are; NULL when it does not hold them. */
static const uint8_t *spilled(consumer_end_worker *worker, uint64_t offset, uint64_t bytes)
{
    return offset % 64 == 0 && mh_memory_has(&worker->spill, offset, bytes)
               ? worker->spill.base + offset
               : NULL;
}

PyObject *mh_consumer_end_state(consumer_end_object *self, consumer_end_worker *worker,
                                const mh_result *shared)
{
    const mh_result *result = &self->result;
    const uint8_t *data = shared->state;
    bool is_spilled = result->state_bytes > MH_STATE_BYTES;
    if (!result->state_bytes)
        Py_RETURN_NONE;
    if (is_spilled)
        data = spilled(worker, result->state_offset, result->state_bytes);
    if (!data)
        return PyErr_Format(mh_module_of(self)->error,
                            "a state of %u bytes beyond its worker's memory", result->state_bytes);
    PyObject *state = PyBytes_FromStringAndSize((const char *)data, result->state_bytes);
    if (is_spilled)
        mh_control_spill_done(self->control, worker->number);
    return state;
}

static PyObject *parts_in(consumer_end_object *self, const uint8_t *base, uint64_t bytes)
{
    mh_pickle_reader reader;
    mh_pickle_part part;
    mh_error err;
    if (mh_pickle_parts_open(&reader, base, bytes, &err) != MH_OK)
        return mh_raise(mh_module_of(self), &err);
    PyObject *list = PyList_New((Py_ssize_t)reader.count);
    for (uint64_t i = 0; list && i < reader.count; i++) {
        PyObject *object = mh_pickle_parts_next(&reader, &part, &err) == MH_OK
                               ? part_in(self, &part)
                               : mh_raise(mh_module_of(self), &err);
        if (!object || PyList_SetItem(list, (Py_ssize_t)i, object) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *mh_consumer_end_parts(consumer_end_object *self, consumer_end_worker *worker,
                                const mh_result *result)
{
    const uint8_t *base = spilled(worker, result->spill_offset, result->spill_bytes);
    PyObject *parts;
    if (base)
        parts = parts_in(self, base, result->spill_bytes);
    else
        parts = PyErr_Format(mh_module_of(self)->error,
                             "a result of %llu bytes beyond its worker's memory",
                             (unsigned long long)result->spill_bytes);
    if (parts) {
        self->copied_bytes += result->spill_bytes;
        self->pickled_bytes += result->pickled_bytes;
    }
    mh_control_spill_done(self->control, worker->number);
    return parts;
}
