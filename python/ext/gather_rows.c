/* gather_rows.c - a batch that is rows of tensors or arrays already in memory
 * SPDX-License-Identifier: Apache-2.0
 *
 * A TensorDataset's batch is the chosen rows of each of its tensors. Asking it for one sample at a
 * time makes a small tensor per row and column only to stack them again; here the rows are copied
 * from where they lie to where the batch goes. Whatever is not plain rows of numbers is declined,
 * a bad index too: the long way then gives the batch or the error torch gives.
 */
#include "base/error.h"
#include "module.h"

#include <string.h>

/* Copying this much is worth letting other threads run meanwhile. */
#define RELEASE_GIL_BYTES ((size_t)1 << 20)

/* A column: `count` rows of `row_bytes` each, `stride_bytes` apart. */
typedef struct column {
    const uint8_t *data;
    int64_t count;
    int64_t stride_bytes;
    size_t row_bytes;
    mh_leaf leaf; /* of the batch */
    Py_buffer buffer;
    bool has_buffer;
} column;

static bool column_of_tensor(const mh_module *module, PyObject *tensor, column *out)
{
    mh_dl_tensor view;
    mh_tensor_room room;
    mh_error err;
    if (!mh_tensor_read(module, tensor, &view, &room) || !view.data ||
        view.device_type != MH_DLPACK_CPU || view.type_lanes != 1 || view.ndim < 1 ||
        view.ndim > MH_LEAF_DIMS || !view.strides ||
        !mh_dl_packed(view.shape, view.strides, 1, view.ndim) ||
        !mh_tensor_is_plain(module, tensor, &view))
        return false;
    out->leaf = mh_leaf_of_tensor(&view);
    out->leaf.shape[0] = 1;
    if (mh_leaf_measure(&out->leaf.bytes, view.type_bits, out->leaf.shape, view.ndim, &err) !=
        MH_OK)
        return false;
    out->data = mh_dl_data(&view);
    out->count = view.shape[0];
    out->stride_bytes = view.strides[0] * (view.type_bits / 8);
    return true;
}

static bool column_of_array(PyObject *array, column *out)
{
    int64_t shape[MH_LEAF_DIMS];
    int64_t strides[MH_LEAF_DIMS];
    mh_error err;
    Py_buffer *view = &out->buffer;
    if (PyObject_GetBuffer(array, view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear();
        return false;
    }
    out->has_buffer = true;
    /* A row of a one-dimensional array is a scalar, which torch collates by other rules. */
    if (view->ndim < 2 || view->ndim > MH_LEAF_DIMS || !mh_buffer_type(view, &out->leaf))
        return false;
    for (int i = 0; i < view->ndim; i++) {
        shape[i] = view->shape[i];
        strides[i] = view->strides[i] / view->itemsize;
        if (view->strides[i] < 0 || view->strides[i] % view->itemsize)
            return false;
        out->leaf.shape[i] = i ? shape[i] : 1;
    }
    out->leaf.dims = (uint16_t)view->ndim;
    out->data = view->buf;
    out->count = shape[0];
    out->stride_bytes = view->strides[0];
    return mh_dl_packed(shape, strides, 1, view->ndim) &&
           mh_leaf_measure(&out->leaf.bytes, out->leaf.type_bits, out->leaf.shape, view->ndim,
                           &err) == MH_OK;
}

bool mh_ints_read(PyObject *list, int64_t *out, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        int overflow;
        PyObject *number = PyList_GetItem(list, i);
        if (!Py_IS_TYPE(number, &PyLong_Type))
            return false;
        out[i] = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow)
            return false;
    }
    return true;
}

/* Rows to copy: `wanted` as the user counts, negative ones from the end, and `rows` in one column.
 */
typedef struct selection {
    Py_ssize_t count;
    int64_t *wanted;
    int64_t *rows;
} selection;

/* False without an exception when an index is no plain int. */
static bool selection_read(selection *out, PyObject *indices)
{
    out->count = PyList_Size(indices);
    out->wanted = PyMem_Malloc(2 * (size_t)out->count * sizeof *out->wanted);
    if (!out->wanted) {
        PyErr_NoMemory();
        return false;
    }
    out->rows = out->wanted + out->count;
    return mh_ints_read(indices, out->wanted, out->count);
}

/* False when one is out of range. */
static bool selection_within(const selection *chosen, int64_t count)
{
    for (Py_ssize_t i = 0; i < chosen->count; i++) {
        int64_t row = chosen->wanted[i];
        chosen->rows[i] = row < 0 ? row + count : row;
        if (chosen->rows[i] < 0 || chosen->rows[i] >= count)
            return false;
    }
    return true;
}

static void copy_rows(uint8_t *to, const column *from, const selection *chosen)
{
    for (Py_ssize_t i = 0; i < chosen->count; i++)
        memcpy(to + (size_t)i * from->row_bytes, from->data + chosen->rows[i] * from->stride_bytes,
               from->row_bytes);
}

static PyObject *gather_column(mh_sink *sink, PyObject *object, const selection *chosen)
{
    uint8_t *to;
    column from = {.has_buffer = false};
    PyObject *result = NULL;
    bool known =
        Py_IS_TYPE(object, sink->module->tensor_type)
            ? column_of_tensor(sink->module, object, &from)
            : Py_IS_TYPE(object, sink->module->array_type) && column_of_array(object, &from);
    if (known && selection_within(chosen, from.count)) {
        from.row_bytes = (size_t)from.leaf.bytes;
        from.leaf.shape[0] = chosen->count;
        result = mh_leaf_memory(sink, &from.leaf, &to);
    }
    if (result && from.row_bytes * (size_t)chosen->count >= RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        copy_rows(to, &from, chosen);
        Py_END_ALLOW_THREADS
    } else if (result && from.row_bytes) {
        copy_rows(to, &from, chosen);
    }
    if (from.has_buffer)
        PyBuffer_Release(&from.buffer);
    if (!result && !PyErr_Occurred())
        mh_decline(sink);
    return result;
}

static PyObject *gather_columns(mh_sink *sink, PyObject *columns, const selection *chosen)
{
    PyObject *batch = PyList_New(PyTuple_Size(columns));
    for (Py_ssize_t i = 0; batch && i < PyTuple_Size(columns); i++) {
        PyObject *child = gather_column(sink, PyTuple_GetItem(columns, i), chosen);
        if (!child || PyList_SetItem(batch, i, child) < 0)
            Py_CLEAR(batch);
    }
    return batch;
}

PyObject *mh_gather(mh_sink *sink, PyObject *columns, PyObject *indices)
{
    selection chosen = {0};
    PyObject *batch = NULL;
    if (PyList_Size(indices) == 0 || !mh_collate_untouched(sink->module))
        return mh_decline(sink);
    if (selection_read(&chosen, indices))
        batch = PyTuple_Check(columns) ? gather_columns(sink, columns, &chosen)
                                       : gather_column(sink, columns, &chosen);
    else if (!PyErr_Occurred())
        mh_decline(sink);
    PyMem_Free(chosen.wanted);
    return batch;
}
