/* collate.c - samples to a batch: torch's default_collate for the types it is mostly given
 * SPDX-License-Identifier: Apache-2.0
 *
 * Handles numbers, numpy arrays and scalars, tensors, and exact dicts, lists, tuples and named
 * tuples of them, where all samples agree in type and shape. Everything else is declined, not
 * guessed at: torch's own code then collates, or raises the error its users know.
 *
 * All samples are complete before the first is read, because a dataset that hands out one buffer
 * again and again gives torch its last contents in every row, and so must we.
 */
#include "base/error.h"
#include "batch/letters.h"
#include "module.h"
#include "sys/clock.h"

#include <string.h>

typedef PyObject *const *items;

/* What rows were made of, in mh_leaf.origin: a batch whose runs differ in it is torch's to collate.
 */
enum { FROM_NUMBERS = 1, FROM_TENSORS, FROM_ARRAYS, FROM_SCALARS };

static PyObject *collate(mh_sink *sink, items samples, Py_ssize_t count);

PyObject *mh_decline(mh_sink *sink)
{
    sink->declined = true;
    return NULL;
}

/* The same after memory was found for a leaf, which it gives up. */
static PyObject *decline_leaf(mh_sink *sink, PyObject *leaf)
{
    Py_DECREF(leaf);
    return mh_decline(sink);
}

static bool all_of_type(items samples, Py_ssize_t count, PyTypeObject *type)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!Py_IS_TYPE(samples[i], type))
            return false;
    return true;
}

/* Whether a mode has a say in what torch makes in this thread: as the default device has. */
static bool mode_active(const mh_module *module)
{
    bool active = false;
    for (Py_ssize_t i = 0; !active && i < PyTuple_Size(module->modes); i++) {
        PyObject *count = PyObject_CallNoArgs(PyTuple_GetItem(module->modes, i));
        active = !count || PyObject_IsTrue(count) != 0;
        Py_XDECREF(count);
    }
    PyErr_Clear();
    return active;
}

PyObject *mh_leaf_memory(mh_sink *sink, mh_leaf *leaf, uint8_t **out_data)
{
    mh_error err;
    void *data;
    PyObject *stand_in;
    if (mode_active(sink->module))
        return mh_decline(sink);
    if (sink->into.slot) {
        if (mh_filling_next(&sink->into, leaf, out_data, &err) != MH_OK)
            return mh_decline(sink);
        stand_in = Py_NewRef(Py_None);
    } else {
        if (mh_leaf_measure(&leaf->bytes, leaf->type_bits, leaf->shape, leaf->dims, &err) != MH_OK)
            return mh_decline(sink);
        stand_in = mh_tensor_new(sink->module, leaf, &data);
        *out_data = data;
    }
    sink->copied_bytes += leaf->bytes;
    return stand_in;
}

/* --- Python numbers --- */

static PyObject *collate_numbers(mh_sink *sink, items samples, Py_ssize_t count)
{
    uint8_t *data;
    PyTypeObject *type = Py_TYPE(samples[0]);
    mh_leaf leaf = {
        .dims = 1, .shape = {count}, .type_code = 0, .type_bits = 64, .origin = FROM_NUMBERS};
    if (type == &PyBool_Type)
        leaf.type_code = 6, leaf.type_bits = 8;
    else if (type == &PyFloat_Type)
        leaf.type_code = 2;
    if (!all_of_type(samples, count, type))
        return mh_decline(sink); /* [1, 2.5] is float32, [2.5, 1] float64: torch knows */
    PyObject *result = mh_leaf_memory(sink, &leaf, &data);
    for (Py_ssize_t i = 0; result && i < count; i++) {
        if (type == &PyBool_Type) {
            data[i] = samples[i] == Py_True;
        } else if (type == &PyFloat_Type) {
            ((double *)(void *)data)[i] = PyFloat_AsDouble(samples[i]);
        } else {
            int overflow;
            ((int64_t *)(void *)data)[i] = PyLong_AsLongLongAndOverflow(samples[i], &overflow);
            if (overflow)
                return decline_leaf(sink, result);
        }
    }
    return result;
}

/* --- tensors --- */

static PyObject *rows_of(const mh_sink *sink, items samples, Py_ssize_t count)
{
    if (sink->list && samples == sink->items) /* the samples: the list that holds them will do */
        return Py_NewRef(sink->list);
    PyObject *rows = PyTuple_New(count);
    for (Py_ssize_t i = 0; rows && i < count; i++)
        PyTuple_SetItem(rows, i, Py_NewRef(samples[i]));
    return rows;
}

static PyObject *stack(const mh_sink *sink, items samples, Py_ssize_t count, PyObject *out)
{
    PyObject *stacked = NULL;
    PyObject *rows = rows_of(sink, samples, count);
    PyObject *arguments = rows ? PyTuple_Pack(1, rows) : NULL;
    PyObject *keywords = out ? PyDict_New() : NULL;
    if (arguments && !out)
        stacked = PyObject_CallObject(sink->module->stack, arguments);
    else if (arguments && keywords && PyDict_SetItem(keywords, sink->module->name.out, out) == 0)
        stacked = PyObject_Call(sink->module->stack, arguments, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(rows);
    return stacked;
}

/* In a worker torch stacks into memory made for the type of the first tensor. */
static PyObject *stack_into_new(mh_sink *sink, items samples, Py_ssize_t count,
                                const mh_dl_tensor *first, mh_leaf *leaf)
{
    uint8_t *data;
    bool plain = mh_tensor_is_plain(sink->module, samples[0], first);
    PyObject *out = plain ? mh_leaf_memory(sink, leaf, &data) : NULL;
    PyObject *stacked = out ? stack(sink, samples, count, out) : NULL;
    Py_XDECREF(out);
    return stacked ? stacked : mh_decline(sink);
}

/* Whether all tensors are as the first, and nothing but their numbers. */
static bool all_uniform(const mh_module *module, items samples, Py_ssize_t count,
                        const mh_dl_tensor *first)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        mh_dl_tensor view;
        mh_tensor_room room;
        if (!mh_tensor_read(module, samples[i], &view, &room) ||
            !mh_tensor_is_plain(module, samples[i], &view) ||
            view.device_type != first->device_type || view.type_code != first->type_code ||
            view.type_bits != first->type_bits || view.type_lanes != first->type_lanes ||
            view.ndim != first->ndim)
            return false;
        for (int d = 0; d < view.ndim; d++)
            if (view.shape[d] != first->shape[d])
                return false;
    }
    return true;
}

/* --- tensors that many samples share: a mask, the one-hot labels of a few classes --- */

/* How many there may be. To ask one all that torch.stack asks takes as long as to stack a few. */
#define SHARED_MAX 4

typedef struct shared_tensors {
    PyObject *tensors[SHARED_MAX];
    const uint8_t *data[SHARED_MAX];
    int count;
} shared_tensors;

static int shared_find(const shared_tensors *shared, const PyObject *tensor)
{
    int at = 0;
    while (at < shared->count && shared->tensors[at] != tensor)
        at++;
    return at;
}

static bool is_contiguous(const mh_dl_tensor *view)
{
    return view->data && mh_dl_packed(view->shape, view->strides, 0, view->ndim);
}

/* Whether the samples are few tensors, each of them often, whose bytes are all there is to know. */
static bool shared_by(const mh_module *module, items samples, Py_ssize_t count,
                      const mh_dl_tensor *first, shared_tensors *out)
{
    out->count = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int at = shared_find(out, samples[i]);
        if (at == SHARED_MAX)
            return false;
        out->tensors[at] = samples[i];
        out->count += at == out->count;
    }
    if (count < 4 * (Py_ssize_t)out->count || !all_uniform(module, out->tensors, out->count, first))
        return false;
    for (int at = 0; at < out->count; at++) {
        mh_dl_tensor view;
        mh_tensor_room room;
        if (!mh_tensor_read(module, out->tensors[at], &view, &room) || !is_contiguous(&view))
            return false;
        out->data[at] = mh_dl_data(&view);
    }
    return true;
}

static void copy_shared(const shared_tensors *shared, items samples, Py_ssize_t count,
                        size_t row_bytes, uint8_t *out)
{
    for (Py_ssize_t i = 0; i < count; i++)
        memcpy(out + (size_t)i * row_bytes, shared->data[shared_find(shared, samples[i])],
               row_bytes);
}

/* --- any tensors --- */

/* Into memory of the leaf's: copies of what the samples share, or else (NULL) what torch.stack
 * makes of them. */
static PyObject *fill_leaf(mh_sink *sink, items samples, Py_ssize_t count, mh_leaf *leaf,
                           const shared_tensors *shared)
{
    mh_error err;
    uint8_t *data;
    PyObject *result = mh_leaf_memory(sink, leaf, &data);
    if (!result)
        return NULL;
    if (sink->into.slot && mh_leaf_check(leaf, sink->into.slot_bytes, &err) != MH_OK)
        return decline_leaf(sink, result);
    if (shared) {
        copy_shared(shared, samples, count, leaf->bytes / (size_t)count, data);
        return result;
    }
    const mh_array array = mh_leaf_array(leaf, data);
    PyObject *out = mh_tensor_over(sink->module, &array, NULL);
    PyObject *stacked = out ? stack(sink, samples, count, out) : NULL;
    Py_XDECREF(out);
    if (!stacked)
        return decline_leaf(sink, result);
    Py_DECREF(stacked);
    return result;
}

/* torch.stack does the copying: it knows conjugate and negative views, strides, mixed types and
 * gradients, and with out= it does in our slot exactly what torch's workers do in shared memory. */
static PyObject *collate_tensors(mh_sink *sink, items samples, Py_ssize_t count)
{
    mh_dl_tensor view;
    mh_tensor_room room;
    const mh_module *module = sink->module;
    if (!all_of_type(samples, count, module->tensor_type) ||
        !mh_tensor_read(module, samples[0], &view, &room) || view.device_type != MH_DLPACK_CPU ||
        view.type_lanes != 1 || view.ndim >= MH_LEAF_DIMS)
        return mh_decline(sink);
    if (!view.data && sink->in_worker)
        return mh_decline(sink); /* without elements, or without memory: torch knows which */
    if (sink->uniform && !all_uniform(module, samples, count, &view))
        return mh_decline(sink);
    mh_leaf leaf = {.origin = FROM_TENSORS,
                    .type_code = view.type_code,
                    .type_bits = view.type_bits,
                    .dims = (uint16_t)(view.ndim + 1),
                    .shape = {count}};
    for (int i = 0; i < view.ndim; i++)
        leaf.shape[i + 1] = view.shape[i];
    if (!sink->into.slot && sink->in_worker)
        return stack_into_new(sink, samples, count, &view, &leaf);
    shared_tensors shared;
    bool few = shared_by(module, samples, count, &view, &shared);
    if (sink->into.slot || few)
        return fill_leaf(sink, samples, count, &leaf, few ? &shared : NULL);
    PyObject *stacked = stack(sink, samples, count, NULL);
    return stacked ? stacked : mh_decline(sink);
}

/* --- numpy --- */

bool mh_buffer_type(const Py_buffer *view, mh_leaf *leaf)
{
    mh_dtype dtype = {0};
    bool known = mh_letter_read(&dtype, view->format, (uint64_t)view->itemsize);
    leaf->type_code = dtype.code;
    leaf->type_bits = dtype.bits;
    return known;
}

/* Torch refuses negative strides and strides that split an element; neither is ours to accept. */
static bool strides_usable(const Py_buffer *view)
{
    for (int i = 0; i < view->ndim; i++)
        if (view->strides && (view->strides[i] < 0 || view->strides[i] % view->itemsize))
            return false;
    return true;
}

static bool same_shape(const Py_buffer *view, const mh_leaf *leaf)
{
    mh_dtype own;
    if (!mh_letter_read(&own, view->format, (uint64_t)view->itemsize) ||
        own.code != leaf->type_code || own.bits != leaf->type_bits ||
        view->ndim + 1 != leaf->dims || !strides_usable(view))
        return false;
    for (int i = 0; i < view->ndim; i++)
        if (view->shape[i] != leaf->shape[i + 1])
            return false;
    return true;
}

static void copy_strided(uint8_t **to, const uint8_t *from, const Py_buffer *view, int dim)
{
    if (dim == view->ndim) {
        memcpy(*to, from, (size_t)view->itemsize);
        *to += view->itemsize;
        return;
    }
    for (Py_ssize_t i = 0; i < view->shape[dim]; i++)
        copy_strided(to, from + i * view->strides[dim], view, dim + 1);
}

static bool copy_row(uint8_t *to, PyObject *sample, const mh_leaf *leaf, size_t row_bytes)
{
    Py_buffer view;
    if (PyObject_GetBuffer(sample, &view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear();
        return false;
    }
    bool same = same_shape(&view, leaf);
    if (same && row_bytes && PyBuffer_IsContiguous(&view, 'C'))
        memcpy(to, view.buf, row_bytes);
    else if (same && row_bytes)
        copy_strided(&to, view.buf, &view, 0);
    PyBuffer_Release(&view);
    return same;
}

/* Arrays of one shape, or scalars of one type: both offer a buffer, a scalar's without dimensions.
 */
static PyObject *collate_buffers(mh_sink *sink, items samples, Py_ssize_t count)
{
    Py_buffer view;
    uint8_t *data;
    PyTypeObject *array_type = sink->module->array_type;
    mh_leaf leaf = {.shape = {count}};
    if (!all_of_type(samples, count, Py_TYPE(samples[0])))
        return mh_decline(sink);
    if (PyObject_GetBuffer(samples[0], &view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear();
        return mh_decline(sink);
    }
    bool known = mh_buffer_type(&view, &leaf) && view.ndim < MH_LEAF_DIMS;
    /* Torch makes no tensor of uint64 scalars, and a timedelta's buffer is eight anonymous bytes.
     */
    if (!Py_IS_TYPE(samples[0], array_type) &&
        (view.ndim > 0 || (leaf.type_code == 1 && leaf.type_bits == 64)))
        known = false;
    leaf.origin = Py_IS_TYPE(samples[0], array_type) ? FROM_ARRAYS : FROM_SCALARS;
    leaf.dims = (uint16_t)(view.ndim + 1);
    for (int i = 0; known && i < view.ndim; i++)
        leaf.shape[i + 1] = view.shape[i];
    PyBuffer_Release(&view);
    if (!known)
        return mh_decline(sink);
    PyObject *result = mh_leaf_memory(sink, &leaf, &data);
    size_t row_bytes = (size_t)leaf.bytes / (size_t)count;
    for (Py_ssize_t i = 0; result && i < count; i++)
        if (!copy_row(data + (size_t)i * row_bytes, samples[i], &leaf, row_bytes))
            return decline_leaf(sink, result);
    return result;
}

/* --- containers --- */

/* Column `at` of the samples, as strong references: other threads may change a list under us. */
static bool take_column(items samples, Py_ssize_t count, PyObject *key, Py_ssize_t at,
                        PyObject **column)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = key ? PyDict_GetItemWithError(samples[i], key) : mh_item(samples[i], at);
        if (!value) {
            while (i-- > 0)
                Py_DECREF(column[i]);
            return false;
        }
        column[i] = Py_NewRef(value);
    }
    return true;
}

static PyObject *collate_column(mh_sink *sink, items samples, Py_ssize_t count, PyObject *key,
                                Py_ssize_t at)
{
    PyObject **column = PyMem_Malloc((size_t)count * sizeof *column);
    if (!column)
        return PyErr_NoMemory();
    PyObject *result = NULL;
    if (take_column(samples, count, key, at, column)) {
        result = collate(sink, column, count);
        for (Py_ssize_t i = 0; i < count; i++)
            Py_DECREF(column[i]);
    } else {
        mh_decline(sink);
    }
    PyMem_Free(column);
    return result;
}

static PyObject *collate_dicts(mh_sink *sink, items samples, Py_ssize_t count)
{
    PyObject *key;
    PyObject *value;
    Py_ssize_t at = 0;
    if (!all_of_type(samples, count, &PyDict_Type))
        return mh_decline(sink);
    PyObject *batch = PyDict_New();
    while (batch && PyDict_Next(samples[0], &at, &key, &value)) {
        Py_INCREF(key); /* user code below may empty the dict */
        PyObject *child = collate_column(sink, samples, count, key, 0);
        if (!child || PyDict_SetItem(batch, key, child) < 0)
            Py_CLEAR(batch);
        Py_XDECREF(child);
        Py_DECREF(key);
    }
    return batch;
}

/* Lists and tuples become lists, named tuples their own type. */
static PyObject *collate_sequences(mh_sink *sink, items samples, Py_ssize_t count, bool named)
{
    Py_ssize_t length = PySequence_Size(samples[0]);
    if (!all_of_type(samples, count, Py_TYPE(samples[0])))
        return mh_decline(sink);
    for (Py_ssize_t i = 1; i < count; i++)
        if (PySequence_Size(samples[i]) != length)
            return mh_decline(sink);
    PyObject *batch = named ? PyTuple_New(length) : PyList_New(length);
    for (Py_ssize_t i = 0; batch && i < length; i++) {
        PyObject *child = collate_column(sink, samples, count, NULL, i);
        if (!child)
            Py_CLEAR(batch);
        else if (named)
            PyTuple_SetItem(batch, i, child);
        else
            PyList_SetItem(batch, i, child);
    }
    if (!batch || !named)
        return batch;
    PyObject *own = PyObject_CallObject((PyObject *)Py_TYPE(samples[0]), batch);
    Py_DECREF(batch);
    return own ? own : mh_decline(sink);
}

static PyObject *collate(mh_sink *sink, items samples, Py_ssize_t count)
{
    const mh_module *module = sink->module;
    PyObject *first = samples[0];
    PyTypeObject *type = Py_TYPE(first);
    if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type)
        return collate_numbers(sink, samples, count);
    if (type == module->tensor_type)
        return collate_tensors(sink, samples, count);
    if (type == module->array_type)
        return collate_buffers(sink, samples, count);
    if (Py_EnterRecursiveCall(" in a sample"))
        return NULL;
    PyObject *batch;
    if (type == &PyDict_Type)
        batch = collate_dicts(sink, samples, count);
    else if (type == &PyList_Type || type == &PyTuple_Type)
        batch = collate_sequences(sink, samples, count, false);
    else if (mh_is_named_tuple(module, first))
        batch = collate_sequences(sink, samples, count, true);
    else if (PyObject_IsInstance(first, module->scalar_types) == 1)
        batch = collate_buffers(sink, samples, count);
    else
        batch = mh_decline(sink);
    Py_LeaveRecursiveCall();
    return batch;
}

bool mh_collate_untouched(const mh_module *module)
{
    PyObject *key, *value, *key_then, *value_then;
    Py_ssize_t at = 0;
    Py_ssize_t at_then = 0;
    if (!module->tensor_type ||
        PyDict_Size(module->collate_map) != PyDict_Size(module->collate_map_then))
        return false;
    while (PyDict_Next(module->collate_map, &at, &key, &value) &&
           PyDict_Next(module->collate_map_then, &at_then, &key_then, &value_then))
        if (key != key_then || value != value_then)
            return false;
    return true;
}

/* The samples as an array of strong references: others may change the list meanwhile. */
static PyObject **hold_items(PyObject *list, Py_ssize_t count)
{
    PyObject **held = PyMem_Malloc((size_t)count * sizeof *held);
    for (Py_ssize_t i = 0; held && i < count; i++)
        held[i] = Py_NewRef(PyList_GetItem(list, i));
    return held;
}

PyObject *mh_collate_items(mh_sink *sink, PyObject *const *samples, Py_ssize_t count)
{
    if (count == 0 || !mh_collate_untouched(sink->module))
        return mh_decline(sink);
    PyObject *batch = collate(sink, samples, count);
    if (!batch && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear(); /* whatever it was, torch's own attempt says it in torch's words */
        sink->declined = true;
    }
    return batch;
}

PyObject *mh_collate(mh_sink *sink, PyObject *samples)
{
    Py_ssize_t count = PyList_Check(samples) ? PyList_Size(samples) : 0;
    PyObject **held = hold_items(samples, count);
    if (!held)
        return PyErr_NoMemory();
    sink->list = samples;
    sink->items = held;
    PyObject *batch = mh_collate_items(sink, held, count);
    for (Py_ssize_t i = 0; i < count; i++)
        Py_DECREF(held[i]);
    PyMem_Free(held);
    return batch;
}
