/* native_array.c - NativeArray: one field of a batch, through the buffer protocol and DLPack
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/letters.h"
#include "native.h"

#include <assert.h>

typedef struct array_object {
    PyObject ob_base;
    mh_batch *batch; /* one reference */
    mh_array array;
    int64_t strides[MH_DIMS_MOST + 1]; /* in bytes */
} array_object;

static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "a buffer's shape is the array's");

static PyObject *array_new(const mh_module *module, mh_batch *batch, const mh_array *from)
{
    array_object *self = mh_object_new(module->native_array_type);
    if (!self)
        return NULL;
    self->batch = mh_batch_ref(batch);
    self->array = *from;
    mh_dl_strides(from->shape, from->dims, self->strides);
    for (uint32_t i = 0; i < from->dims; i++)
        self->strides[i] *= from->dtype.bits / 8;
    return (PyObject *)self;
}

static void array_dealloc(PyObject *self)
{
    mh_batch_unref(((array_object *)self)->batch);
    mh_object_free(self);
}

static int array_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    array_object *self = (array_object *)object;
    const mh_array *array = &self->array;
    const char *format = mh_letter_of(array->dtype);
    bool by_columns = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS &&
                      (flags & PyBUF_ANY_CONTIGUOUS) != PyBUF_ANY_CONTIGUOUS && array->dims > 1;
    view->obj = NULL;
    if (by_columns || (!format && (flags & PyBUF_FORMAT))) {
        PyErr_SetString(PyExc_BufferError, by_columns ? "the array lies row by row"
                                                      : "the buffer protocol has no such type");
        return -1;
    }
    *view = (Py_buffer){
        .buf = array->data,
        .obj = Py_NewRef(object),
        .len = (Py_ssize_t)array->bytes,
        .itemsize = array->dtype.bits / 8,
        .ndim = (int)array->dims,
        .format = flags & PyBUF_FORMAT ? (char *)format : NULL,
        .shape = flags & PyBUF_ND ? (Py_ssize_t *)self->array.shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? (Py_ssize_t *)self->strides : NULL,
    };
    return 0;
}

/* A capsule that was used has another name and its contents another owner. */
static void versioned_unused(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned"))
        return;
    mh_dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    managed->deleter(managed);
}

static PyObject *capsule_versioned(mh_dl_managed *managed)
{
    PyObject *capsule =
        managed ? PyCapsule_New(managed, "dltensor_versioned", versioned_unused) : PyErr_NoMemory();
    if (managed && !capsule)
        managed->deleter(managed);
    return capsule;
}

static int is_cpu(PyObject *device)
{
    int type, number;
    if (!device || device == Py_None)
        return 1;
    if (!PyTuple_Check(device) || !PyArg_ParseTuple(device, "ii", &type, &number))
        return -1;
    return type == MH_DLPACK_CPU;
}

static PyObject *array_dlpack(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = NULL, *version = NULL, *device = NULL, *copy = NULL;
    int major = 0, minor = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", names, &stream,
                                     &version, &device, &copy))
        return NULL;
    if (version && version != Py_None &&
        (!PyTuple_Check(version) || !PyArg_ParseTuple(version, "ii", &major, &minor)))
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_TypeError, "max_version should be a tuple of two numbers");
    int cpu = is_cpu(device);
    if (cpu < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "dl_device should be a tuple of two numbers");
    if (cpu < 0)
        return NULL;
    if (!cpu || copy == Py_True || (stream && stream != Py_None))
        return PyErr_Format(PyExc_BufferError,
                            "the array is in the CPU's memory and is given without a copy");
    const array_object *self = (array_object *)object;
    return major >= 1 ? capsule_versioned(mh_dl_view(&self->array, self->batch))
                      : mh_capsule_old(mh_dl_view_old(&self->array, self->batch));
}

static PyObject *array_device(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("(ii)", MH_DLPACK_CPU, 0);
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A capsule for torch, JAX, NumPy and others, over the same memory."},
    {"__dlpack_device__", array_device, METH_NOARGS, "(1, 0): the CPU's memory."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot native_array_slots[] = {
    {Py_tp_doc, "One field of a batch, in memory that is the batch's own and may be written."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_methods, array_methods},
    {Py_bf_getbuffer, array_getbuffer},
    {0, NULL},
};

MH_TYPE_SPEC(native_array, "NativeArray", array_object, Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* Without the capsule that __dlpack__ makes, which costs some ten microseconds. */
PyObject *mh_core_tensor_over(PyObject *module, PyObject *array)
{
    const mh_module *state = PyModule_GetState(module);
    if (!Py_IS_TYPE(array, state->native_array_type) || !state->from_dlpack)
        return PyErr_Format(PyExc_TypeError,
                            "tensor_over() takes a NativeArray, after bind_dlpack");
    const array_object *self = (array_object *)array;
    return mh_tensor_over(state, &self->array, self->batch);
}

/* --- the fields of a batch --- */

/* Numbers that are the batch's own. Once it is delivered nobody but its holder reads them. */
static PyObject *numbers_new(const mh_module *module, mh_batch *batch, const void *data,
                             int64_t rows, int64_t columns)
{
    const mh_array numbers = {.dtype = {.code = 0, .bits = 64},
                              .dims = columns < 0 ? 1 : 2,
                              .shape = {rows, columns},
                              .data = (void *)data,
                              .bytes =
                                  (uint64_t)(rows * (columns < 0 ? 1 : columns)) * sizeof(int64_t)};
    return array_new(module, batch, &numbers);
}

static PyObject *field_new(const mh_module *module, mh_batch *batch, const mh_array *array)
{
    if (!array->offsets)
        return array_new(module, batch, array);
    int64_t samples = (int64_t)mh_batch_samples(batch);
    PyObject *values = array_new(module, batch, array);
    PyObject *offsets = numbers_new(module, batch, array->offsets, samples + 1, -1);
    PyObject *shapes = numbers_new(module, batch, array->shapes, samples, array->sample_dims);
    PyObject *ragged =
        values && offsets && shapes ? PyTuple_Pack(3, values, offsets, shapes) : NULL;
    Py_XDECREF(values);
    Py_XDECREF(offsets);
    Py_XDECREF(shapes);
    return ragged;
}

PyObject *mh_native_arrays(const mh_module *module, mh_batch *batch)
{
    Py_ssize_t count = 0;
    while (mh_batch_array(batch, (size_t)count))
        count++;
    PyObject *arrays = PyTuple_New(count + 1);
    for (Py_ssize_t i = 0; arrays && i <= count; i++) {
        PyObject *array = i < count ? field_new(module, batch, mh_batch_array(batch, (size_t)i))
                                    : numbers_new(module, batch, mh_batch_numbers(batch),
                                                  (int64_t)mh_batch_samples(batch), -1);
        if (!array || PyTuple_SetItem(arrays, i, array) < 0)
            Py_CLEAR(arrays);
    }
    mh_batch_unref(batch);
    return arrays;
}
