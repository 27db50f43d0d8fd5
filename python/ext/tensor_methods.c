/* tensor_methods.c - tensors of a torch without a DLPack table (before 2.10): its methods, capsules
 * SPDX-License-Identifier: Apache-2.0
 *
 * The attributes and methods used here are as old as torch.Tensor itself. What they refuse or
 * answer oddly (sparse, nested and quantised tensors, types of a few bits) is left to torch.
 */
#include "module.h"

/* A tuple of at most MH_LEAF_DIMS ints; how many, or -1. */
static int read_ints(PyObject *tuple, int64_t *out)
{
    Py_ssize_t count = tuple && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    if (count > MH_LEAF_DIMS)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (out[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)count;
}

/* Whether an attribute is this very object. */
static bool attribute_is(PyObject *object, PyObject *name, const PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_XDECREF(value); /* compared by its address alone */
    return value && value == wanted;
}

/* The tensor's type as type_code << 8 | type_bits; -1 for what no leaf can have. */
static long type_of(const mh_module *module, PyObject *tensor)
{
    PyObject *dtype = PyObject_GetAttr(tensor, module->name.dtype);
    PyObject *code = dtype ? PyDict_GetItemWithError(module->type_codes, dtype) : NULL;
    Py_XDECREF(dtype);
    return code ? PyLong_AsLong(code) : -1;
}

/* Where the tensor's first element lies: data_ptr(), its offset in the storage included. */
static bool read_address(const mh_module *module, PyObject *tensor, void **out)
{
    PyObject *number = PyObject_CallMethodObjArgs(tensor, module->name.data_ptr, NULL);
    *out = number ? PyLong_AsVoidPtr(number) : NULL;
    Py_XDECREF(number);
    return !PyErr_Occurred();
}

static bool read_shape(const mh_module *module, PyObject *tensor, mh_dl_tensor *out,
                       mh_tensor_room *room)
{
    PyObject *shape = PyObject_GetAttr(tensor, module->name.shape);
    PyObject *strides =
        shape ? PyObject_CallMethodObjArgs(tensor, module->name.stride, NULL) : NULL;
    out->ndim = read_ints(shape, room->shape);
    bool read = out->ndim >= 0 && read_ints(strides, room->strides) == out->ndim;
    out->shape = room->shape;
    out->strides = room->strides;
    Py_XDECREF(strides);
    Py_XDECREF(shape);
    return read;
}

bool mh_tensor_read_methods(const mh_module *module, PyObject *tensor, mh_dl_tensor *out,
                            mh_tensor_room *room)
{
    long type = type_of(module, tensor);
    *out = (mh_dl_tensor){.device_type = MH_DLPACK_CPU,
                          .type_code = (uint8_t)(type >> 8 & 0xff),
                          .type_bits = (uint8_t)(type & 0xff),
                          .type_lanes = 1};
    bool read = type >= 0 && attribute_is(tensor, module->name.is_cpu, Py_True) &&
                attribute_is(tensor, module->name.layout, module->strided) &&
                read_shape(module, tensor, out, room) && read_address(module, tensor, &out->data);
    PyErr_Clear();
    return read;
}

/* A capsule that was used has another name and its contents another owner. */
static void unused_delete(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor"))
        return;
    mh_dl_managed_old *managed = PyCapsule_GetPointer(capsule, "dltensor");
    managed->deleter(managed);
}

PyObject *mh_capsule_old(mh_dl_managed_old *managed)
{
    PyObject *capsule =
        managed ? PyCapsule_New(managed, "dltensor", unused_delete) : PyErr_NoMemory();
    if (managed && !capsule)
        managed->deleter(managed);
    return capsule;
}

PyObject *mh_tensor_wrap_capsule(const mh_module *module, mh_dl_managed_old *managed)
{
    PyObject *capsule = mh_capsule_old(managed);
    if (!capsule)
        return NULL;
    PyObject *tensor = PyObject_CallFunctionObjArgs(module->from_dlpack, capsule, NULL);
    Py_DECREF(capsule);
    return tensor;
}
