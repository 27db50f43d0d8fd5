/* native_array.c - NativeArray: one field of a batch, through the buffer protocol and DLPack
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "native.h"

#include <stdbool.h>

typedef struct array_object {
    PyObject ob_base;
    mh_batch *batch; /* one reference */
    void *data;
    uint64_t bytes;
    mh_dtype dtype;
    int dims;
    Py_ssize_t shape[MH_DIMS_MOST + 1];
    Py_ssize_t strides[MH_DIMS_MOST + 1]; /* in bytes */
} array_object;

static PyObject *array_new(const mh_module *module, mh_batch *batch, const mh_array *from)
{
    array_object *self = mh_object_new(module->native_array_type);
    if (!self)
        return NULL;
    self->batch = mh_batch_ref(batch);
    self->data = from->data;
    self->bytes = from->bytes;
    self->dtype = from->dtype;
    self->dims = (int)from->dims;
    Py_ssize_t stride = from->dtype.bits / 8;
    for (int i = self->dims - 1; i >= 0; i--) {
        self->shape[i] = (Py_ssize_t)from->shape[i];
        self->strides[i] = stride;
        stride *= self->shape[i] > 1 ? self->shape[i] : 1;
    }
    return (PyObject *)self;
}

static void array_dealloc(PyObject *self)
{
    mh_batch_unref(((array_object *)self)->batch);
    mh_object_free(self);
}

/* The type as the struct module writes it; NULL where it has no letter. */
static const char *format_of(mh_dtype dtype)
{
    static const struct {
        mh_dtype dtype;
        const char *format;
    } formats[] = {
        {{0, 8}, "b"},  {{0, 16}, "h"}, {{0, 32}, "i"},  {{0, 64}, "q"},   {{1, 8}, "B"},
        {{1, 16}, "H"}, {{1, 32}, "I"}, {{1, 64}, "Q"},  {{2, 16}, "e"},   {{2, 32}, "f"},
        {{2, 64}, "d"}, {{6, 8}, "?"},  {{5, 64}, "Zf"}, {{5, 128}, "Zd"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype.code == dtype.code && formats[i].dtype.bits == dtype.bits)
            return formats[i].format;
    return NULL;
}

static int array_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    array_object *self = (array_object *)object;
    const char *format = format_of(self->dtype);
    bool by_columns = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS &&
                      (flags & PyBUF_ANY_CONTIGUOUS) != PyBUF_ANY_CONTIGUOUS && self->dims > 1;
    view->obj = NULL;
    if (by_columns || (!format && (flags & PyBUF_FORMAT))) {
        PyErr_SetString(PyExc_BufferError, by_columns ? "the array lies row by row"
                                                      : "the buffer protocol has no such type");
        return -1;
    }
    *view = (Py_buffer){
        .buf = self->data,
        .obj = Py_NewRef(object),
        .len = (Py_ssize_t)self->bytes,
        .itemsize = self->dtype.bits / 8,
        .ndim = self->dims,
        .format = flags & PyBUF_FORMAT ? (char *)format : NULL,
        .shape = flags & PyBUF_ND ? self->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL,
    };
    return 0;
}

/* What a consumer gets through DLPack, in either layout, with room for its shape and strides. */
typedef struct native_view {
    union {
        mh_dl_managed versioned;
        mh_dl_managed_old old;
    } managed;
    mh_batch *batch;
    int64_t shape[MH_DIMS_MOST + 1];
    int64_t strides[MH_DIMS_MOST + 1]; /* in elements */
} native_view;

/* Any thread, the GIL held or not. */
static void view_free(native_view *view)
{
    mh_batch_unref(view->batch);
    mh_free(view);
}

static void versioned_delete(mh_dl_managed *managed)
{
    view_free(managed->context);
}

static void old_delete(mh_dl_managed_old *managed)
{
    view_free(managed->context);
}

static native_view *view_new(const array_object *self, bool versioned)
{
    native_view *view = mh_calloc(1, sizeof *view);
    if (!view)
        return NULL;
    for (int i = 0; i < self->dims; i++) {
        view->shape[i] = self->shape[i];
        view->strides[i] = self->strides[i] / (self->dtype.bits / 8);
    }
    view->batch = mh_batch_ref(self->batch);
    const mh_dl_tensor tensor = {.data = self->data,
                                 .device_type = MH_DLPACK_CPU,
                                 .ndim = self->dims,
                                 .type_code = self->dtype.code,
                                 .type_bits = self->dtype.bits,
                                 .type_lanes = 1,
                                 .shape = view->shape,
                                 .strides = view->strides};
    if (versioned)
        view->managed.versioned = (mh_dl_managed){.version_major = MH_DLPACK_MAJOR,
                                                  .context = view,
                                                  .deleter = versioned_delete,
                                                  .tensor = tensor};
    else
        view->managed.old =
            (mh_dl_managed_old){.tensor = tensor, .context = view, .deleter = old_delete};
    return view;
}

/* A capsule that was used has another name and its contents another owner. */
static void versioned_unused(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        view_free(((mh_dl_managed *)PyCapsule_GetPointer(capsule, "dltensor_versioned"))->context);
}

static void old_unused(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        view_free(((mh_dl_managed_old *)PyCapsule_GetPointer(capsule, "dltensor"))->context);
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
    native_view *view = view_new((array_object *)object, major >= 1);
    if (!view)
        return PyErr_NoMemory();
    PyObject *capsule = major >= 1
                            ? PyCapsule_New(&view->managed, "dltensor_versioned", versioned_unused)
                            : PyCapsule_New(&view->managed, "dltensor", old_unused);
    if (!capsule)
        view_free(view);
    return capsule;
}

static PyObject *array_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", MH_DLPACK_CPU, 0);
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A capsule for torch, JAX, NumPy and others, over the same memory."},
    {"__dlpack_device__", array_device, METH_NOARGS, "(1, 0): the CPU's memory."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot array_slots[] = {
    {Py_tp_doc, "One field of a batch, in memory that is the batch's own and may be written."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_methods, array_methods},
    {Py_bf_getbuffer, array_getbuffer},
    {0, NULL},
};

PyType_Spec mh_native_array_spec = {
    .name = "millhead._core.NativeArray",
    .basicsize = sizeof(array_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};

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
