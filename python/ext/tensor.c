/* tensor.c - torch's tensors, through its DLPack table where it has one
 * SPDX-License-Identifier: Apache-2.0
 *
 * Reading a tensor's pointer and shape through the table costs a tenth of a microsecond, through
 * its methods (tensor_methods.c, for an older torch) half a microsecond; tensor.__dlpack__() costs
 * ten.
 */
#include "module.h"

bool mh_tensor_read(const mh_module *module, PyObject *tensor, mh_dl_tensor *out,
                    mh_tensor_room *room)
{
    if (!module->dlpack)
        return mh_tensor_read_methods(module, tensor, out, room);
    if (module->dlpack->tensor_from_object(tensor, out) == 0)
        return true;
    PyErr_Clear();
    return false;
}

static PyObject *dtype_of(const mh_module *module, uint8_t code, uint8_t bits)
{
    PyObject *key = PyLong_FromLong(code << 8 | bits);
    PyObject *dtype = key ? PyDict_GetItemWithError(module->dtypes, key) : NULL;
    Py_XDECREF(key);
    if (!dtype && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "no torch dtype for type %d with %d bits", code, bits);
    return dtype;
}

static bool has_type(const mh_module *module, PyObject *tensor, const mh_dl_tensor *view)
{
    PyObject *dtype = PyObject_GetAttr(tensor, module->name.dtype);
    Py_XDECREF(dtype); /* torch keeps its own */
    return dtype && dtype == dtype_of(module, view->type_code, view->type_bits);
}

static bool says_no(PyObject *tensor, PyObject *method)
{
    PyObject *answer = PyObject_CallMethodObjArgs(tensor, method, NULL);
    Py_XDECREF(answer);
    return answer == Py_False;
}

/* What a method counts; -1 with an exception. */
static int64_t count_of(PyObject *object, PyObject *method)
{
    PyObject *number = PyObject_CallMethodObjArgs(object, method, NULL);
    int64_t count = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    return count;
}

/* Torch checks that a tensor lies in its storage when it is made, but a storage can be resized. */
static bool within_storage(const mh_module *module, PyObject *tensor, const mh_dl_tensor *view)
{
    int64_t span = view->strides || view->ndim == 0 ? mh_dl_span(view) : -1;
    if (span <= 0)
        return span == 0;
    PyObject *storage = PyObject_CallMethodObjArgs(tensor, module->name.untyped_storage, NULL);
    int64_t bytes = storage ? count_of(storage, module->name.nbytes) : -1;
    int64_t offset = bytes >= 0 ? count_of(tensor, module->name.storage_offset) : -1;
    Py_XDECREF(storage);
    int64_t room = bytes / (view->type_bits / 8);
    return offset >= 0 && offset <= room && span <= room - offset;
}

bool mh_tensor_is_plain(const mh_module *module, PyObject *tensor, const mh_dl_tensor *view)
{
    PyObject *grad = PyObject_GetAttr(tensor, module->name.requires_grad);
    bool is_complex = view->type_code == 5; /* no other number has a conjugate */
    bool plain = grad == Py_False && has_type(module, tensor, view) &&
                 (!is_complex || says_no(tensor, module->name.is_conj)) &&
                 says_no(tensor, module->name.is_neg) && within_storage(module, tensor, view);
    Py_XDECREF(grad);
    PyErr_Clear();
    return plain;
}

PyObject *mh_tensor_new(const mh_module *module, const mh_leaf *leaf, void **out_data)
{
    mh_dl_tensor view;
    mh_tensor_room room;
    PyObject *tensor = NULL;
    PyObject *dtype = dtype_of(module, leaf->type_code, leaf->type_bits);
    PyObject *shape = dtype ? mh_shape_tuple(leaf->shape, leaf->dims) : NULL;
    PyObject *arguments = shape ? PyTuple_Pack(1, shape) : NULL;
    PyObject *keywords = arguments ? PyDict_New() : NULL;
    /* device=: torch.set_default_device must not send batches elsewhere */
    if (keywords && PyDict_SetItem(keywords, module->name.dtype, dtype) == 0 &&
        PyDict_SetItem(keywords, module->name.device, module->cpu) == 0)
        tensor = PyObject_Call(module->empty, arguments, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(shape);
    if (!tensor)
        return NULL;
    if (!Py_IS_TYPE(tensor, module->tensor_type) || !mh_tensor_read(module, tensor, &view, &room) ||
        view.device_type != MH_DLPACK_CPU || (leaf->bytes && !view.data)) {
        Py_DECREF(tensor);
        PyErr_SetString(PyExc_RuntimeError, "torch.empty gave a tensor without plain memory");
        return NULL;
    }
    *out_data = mh_dl_data(&view);
    return tensor;
}

/* Through the table; NULL with an exception. */
static PyObject *wrap_versioned(const mh_module *module, mh_dl_managed *managed)
{
    void *object = NULL;
    if (!managed)
        return PyErr_NoMemory();
    if (module->dlpack->managed_to_object(managed, &object) == 0)
        return object;
    managed->deleter(managed);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "torch refused a tensor over shared memory");
    return NULL;
}

PyObject *mh_tensor_over(const mh_module *module, const mh_array *array, mh_batch *batch)
{
    if (module->dlpack)
        return wrap_versioned(module, mh_dl_view(array, batch));
    return mh_tensor_wrap_capsule(module, mh_dl_view_old(array, batch));
}
