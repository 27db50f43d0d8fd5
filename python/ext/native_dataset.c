/* native_dataset.c - Dataset: data in a known format, as Python sees it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "native.h"

/* What a list of bytes holds, for as long as it does, to be freed; NULL with an exception. */
static const char **texts_of(PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    const char **texts = mh_calloc((size_t)count + 1, sizeof *texts);
    if (!texts)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; texts && i < count; i++) {
        char *text;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, i), &text, NULL) < 0) {
            mh_free((void *)texts);
            return NULL;
        }
        texts[i] = text;
    }
    return texts;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"paths",   "fields", "format",      "pipeline", "profile", "window",
                            "stride",  "select", "target",      "join",     "decode",  "index",
                            "storage", "cache",  "cache_check", NULL};
    PyObject *path_list, *field_list;
    mh_dataset_options options;
    mh_error err;
    mh_status status;
    mh_dataset_object *self = NULL;
    mh_dataset_options_init(&options);
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O!|$zzzzzzzzzzzzz:Dataset", names, &PyList_Type, &path_list,
            &PyList_Type, &field_list, &options.format, &options.pipeline, &options.profile,
            &options.window, &options.stride, &options.select, &options.target, &options.join,
            &options.decode, &options.index, &options.storage, &options.cache,
            &options.cache_check))
        return NULL;
    const char **paths = texts_of(path_list);
    const char **fields = paths ? texts_of(field_list) : NULL;
    if (!fields)
        goto done;
    self = mh_object_new(type);
    if (!self)
        goto done;
    options.field_count = (size_t)PyList_Size(field_list);
    options.fields = options.field_count ? fields : NULL; /* NULL: all of them */
    size_t path_count = (size_t)PyList_Size(path_list);
    Py_BEGIN_ALLOW_THREADS
    status = mh_dataset_open(&self->dataset, paths, path_count, &options, &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK) {
        mh_raise(mh_module_of((PyObject *)self), &err);
        Py_CLEAR(self);
    }
done:
    mh_free((void *)paths);
    mh_free((void *)fields);
    return (PyObject *)self;
}

static void dataset_dealloc(PyObject *self)
{
    mh_dataset_unref(((mh_dataset_object *)self)->dataset);
    mh_object_free(self);
}

static PyObject *dataset_fields(PyObject *self, void *unused)
{
    size_t count;
    const mh_field *fields = mh_dataset_fields(((mh_dataset_object *)self)->dataset, &count);
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple && i < count; i++) {
        PyObject *name = PyUnicode_DecodeFSDefault(fields[i].name);
        PyObject *shape = name ? mh_shape_tuple(fields[i].shape, fields[i].dims) : NULL;
        PyObject *field = shape ? Py_BuildValue("(OiiOi)", name, fields[i].dtype.code,
                                                fields[i].dtype.bits, shape, fields[i].ragged)
                                : NULL;
        Py_XDECREF(name);
        Py_XDECREF(shape);
        if (!field || PyTuple_SetItem(tuple, (Py_ssize_t)i, field) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *dataset_count(PyObject *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(mh_dataset_count(((mh_dataset_object *)self)->dataset));
}

static PyObject *dataset_format(PyObject *self, void *unused)
{
    return PyUnicode_FromString(mh_dataset_format(((mh_dataset_object *)self)->dataset));
}

static PyObject *dataset_fingerprint(PyObject *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(
        mh_dataset_fingerprint(((mh_dataset_object *)self)->dataset));
}

static PyObject *dataset_classes(PyObject *self, void *unused)
{
    const char *name;
    PyObject *list = PyList_New(0);
    for (uint64_t at = 0;
         list && (name = mh_dataset_class(((mh_dataset_object *)self)->dataset, at)); at++) {
        PyObject *text = PyUnicode_DecodeFSDefault(name);
        if (!text || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static int take_numbers(PyObject *list, uint64_t *out, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = PyLong_AsUnsignedLongLong(PyList_GetItem(list, i));
        if (out[i] == UINT64_MAX && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *dataset_read(PyObject *object, PyObject *list)
{
    mh_dataset *dataset = ((mh_dataset_object *)object)->dataset;
    mh_batch *batch = NULL;
    mh_error err;
    mh_status status;
    if (!PyList_Check(list))
        return PyErr_Format(PyExc_TypeError, "read() takes a list of numbers");
    Py_ssize_t count = PyList_Size(list);
    uint64_t *numbers = mh_calloc((size_t)count + 1, sizeof *numbers);
    if (!numbers)
        return PyErr_NoMemory();
    if (take_numbers(list, numbers, count) < 0) {
        mh_free(numbers);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = mh_dataset_read(dataset, numbers, (size_t)count, &batch, &err);
    Py_END_ALLOW_THREADS
    mh_free(numbers);
    const mh_module *module = mh_module_of(object);
    return status == MH_OK ? mh_native_arrays(module, batch) : mh_raise(module, &err);
}

static PyMethodDef dataset_methods[] = {
    {"read", dataset_read, METH_O,
     "read(numbers): the samples' fields in order of name, then their numbers, as NativeArrays."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dataset_getset[] = {
    {"count", dataset_count, NULL, "How many samples there are.", NULL},
    {"fields", dataset_fields, NULL,
     "(name, type's code, type's bits, shape of one sample, is it ragged) in order of name.", NULL},
    {"format", dataset_format, NULL, "The format's name.", NULL},
    {"classes", dataset_classes, NULL, "The name for each label; empty where there are none.",
     NULL},
    {"fingerprint", dataset_fingerprint, NULL, "Changes when what the dataset holds does.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_doc,
     "Dataset(paths, fields): data in a known format, as numbered samples. Lists of bytes; without "
     "fields all of them."},
    {Py_tp_new, dataset_new},
    {Py_tp_dealloc, dataset_dealloc},
    {Py_tp_methods, dataset_methods},
    {Py_tp_getset, dataset_getset},
    {0, NULL},
};

MH_TYPE_SPEC(dataset, "Dataset", mh_dataset_object, 0);
