/* native_dataset.c - Dataset: data in a known format, as Python sees it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "native.h"

/* Texts of a list, and the bytes objects that hold them. */
typedef struct texts {
    PyObject *bytes; /* a list */
    const char **list;
    size_t count;
} texts;

static void texts_free(texts *t)
{
    Py_XDECREF(t->bytes);
    mh_free((void *)t->list);
}

static int texts_take(texts *t, PyObject *given)
{
    Py_ssize_t count = PySequence_Size(given);
    if (count < 0)
        return -1;
    t->count = (size_t)count;
    t->bytes = PyList_New(0);
    t->list = mh_calloc(t->count + 1, sizeof *t->list);
    if (!t->list)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; t->bytes && t->list && i < count; i++) {
        PyObject *bytes = NULL;
        PyObject *item = PySequence_GetItem(given, i);
        if (item)
            (void)PyUnicode_FSConverter(item, &bytes);
        int added = bytes ? PyList_Append(t->bytes, bytes) : -1;
        if (added == 0)
            t->list[i] = PyBytes_AsString(bytes);
        Py_XDECREF(bytes);
        Py_XDECREF(item);
        if (added < 0)
            return -1;
    }
    return t->bytes && t->list ? 0 : -1;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"paths",   "fields", "format",      "pipeline", "profile", "window",
                            "stride",  "select", "target",      "join",     "decode",  "index",
                            "storage", "cache",  "cache_check", NULL};
    PyObject *given_paths, *given_fields = Py_None;
    mh_dataset_options options;
    texts paths = {0}, fields = {0};
    mh_error err;
    mh_status status;
    mh_dataset_object *self = NULL;
    mh_dataset_options_init(&options);
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O|O$zzzzzzzzzzzzz:Dataset", names, &given_paths, &given_fields,
            &options.format, &options.pipeline, &options.profile, &options.window, &options.stride,
            &options.select, &options.target, &options.join, &options.decode, &options.index,
            &options.storage, &options.cache, &options.cache_check))
        return NULL;
    if (texts_take(&paths, given_paths) < 0 ||
        (given_fields != Py_None && texts_take(&fields, given_fields) < 0))
        goto done;
    self = mh_object_new(type);
    if (!self)
        goto done;
    options.fields = fields.list;
    options.field_count = fields.count;
    Py_BEGIN_ALLOW_THREADS
    status = mh_dataset_open(&self->dataset, paths.list, paths.count, &options, &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK) {
        mh_raise(mh_module_of((PyObject *)self), &err);
        Py_CLEAR(self);
    }
done:
    texts_free(&paths);
    texts_free(&fields);
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
    {Py_tp_doc, "Dataset(paths, fields=None): data in a known format, as numbered samples."},
    {Py_tp_new, dataset_new},
    {Py_tp_dealloc, dataset_dealloc},
    {Py_tp_methods, dataset_methods},
    {Py_tp_getset, dataset_getset},
    {0, NULL},
};

MH_TYPE_SPEC(dataset, "Dataset", mh_dataset_object, 0);
