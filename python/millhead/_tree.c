/* _tree.c - the structure of a batch: lists, tuples, dicts and named tuples, None for each leaf
 * SPDX-License-Identifier: Apache-2.0
 */
#include "_module.h"

#include <string.h>

/* namedtuple() makes a __new__ whose module says so; a class with one of its own may compute. */
static bool makes_plain_tuples(const mh_module *module, PyObject *type)
{
    PyObject *init = PyObject_GetAttrString(type, "__init__");
    PyObject *make = PyObject_GetAttrString(type, "__new__");
    PyObject *origin = make ? PyObject_GetAttrString(make, "__module__") : NULL;
    PyObject *prefix = origin ? PyUnicode_FromString("namedtuple_") : NULL;
    bool plain = init == module->object_init && prefix && PyUnicode_Check(origin) &&
                 PyUnicode_Tailmatch(origin, prefix, 0, PY_SSIZE_T_MAX, -1) == 1;
    Py_XDECREF(init);
    Py_XDECREF(make);
    Py_XDECREF(origin);
    Py_XDECREF(prefix);
    return plain;
}

bool mh_is_named_tuple(const mh_module *module, PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    if (!PyTuple_Check(object) || Py_IS_TYPE(object, &PyTuple_Type))
        return false;
    PyObject *fields = PyObject_GetAttr(type, module->name_fields);
    bool plain = fields && makes_plain_tuples(module, type);
    Py_XDECREF(fields);
    PyErr_Clear();
    return plain;
}

/* --- flatten --- */

typedef struct flattening {
    const mh_module *module;
    mh_leaf_fn leaf;
    void *context;
    uint32_t leaf_count;
    struct {
        uintptr_t begin, end;
    } taken[64]; /* memory of the leaves so far: leaves that share it are not ours to separate */
    bool declined;
} flattening;

static PyObject *flatten(flattening *f, PyObject *node);

static PyObject *decline(flattening *f)
{
    f->declined = true;
    return NULL;
}

/* The flags the DLPack table hides: memory that is not simply the tensor's numbers. */
static bool is_plain(PyObject *tensor)
{
    static const char *const methods[] = {"is_conj", "is_neg"};
    PyObject *grad = PyObject_GetAttrString(tensor, "requires_grad");
    bool plain = grad == Py_False;
    Py_XDECREF(grad);
    for (size_t i = 0; plain && i < sizeof methods / sizeof *methods; i++) {
        PyObject *flag = PyObject_CallMethod(tensor, methods[i], NULL);
        plain = flag == Py_False;
        Py_XDECREF(flag);
    }
    PyErr_Clear();
    return plain;
}

static bool is_dense(const mh_dl_tensor *view)
{
    int64_t expected = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->shape[i] != 1 && view->strides && view->strides[i] != expected)
            return false;
        expected *= view->shape[i];
    }
    return true;
}

static bool shares_memory(flattening *f, const mh_dl_tensor *view)
{
    uint64_t bytes = view->type_bits / 8u;
    for (int i = 0; i < view->ndim; i++)
        bytes *= (uint64_t)view->shape[i];
    uintptr_t begin = (uintptr_t)view->data + view->byte_offset;
    for (uint32_t i = 0; i < f->leaf_count; i++)
        if (begin < f->taken[i].end && f->taken[i].begin < begin + bytes)
            return true;
    f->taken[f->leaf_count].begin = begin;
    f->taken[f->leaf_count].end = begin + bytes;
    f->leaf_count++;
    return false;
}

static PyObject *flatten_leaf(flattening *f, PyObject *node)
{
    mh_dl_tensor view;
    if (!Py_IS_TYPE(node, f->module->tensor_type) || f->leaf_count == 64 ||
        !mh_tensor_read(f->module, node, &view))
        return decline(f);
    if (view.device_type != MH_DLPACK_CPU || view.type_lanes != 1 || view.ndim > MH_LEAF_DIMS ||
        !is_dense(&view) || !is_plain(node) || shares_memory(f, &view))
        return decline(f);
    if (!f->leaf(f->context, node, &view))
        return decline(f);
    return Py_NewRef(Py_None);
}

static PyObject *flatten_dict(flattening *f, PyObject *node)
{
    PyObject *key;
    PyObject *value;
    Py_ssize_t at = 0;
    PyObject *copy = PyDict_New();
    while (copy && PyDict_Next(node, &at, &key, &value)) {
        PyObject *child = flatten(f, value);
        if (!child || PyDict_SetItem(copy, key, child) < 0)
            Py_CLEAR(copy);
        Py_XDECREF(child);
    }
    return copy;
}

static PyObject *flatten_sequence(flattening *f, PyObject *node)
{
    bool is_list = PyList_Check(node);
    Py_ssize_t length = PySequence_Size(node);
    PyObject *copy = is_list ? PyList_New(length) : PyTuple_New(length);
    for (Py_ssize_t i = 0; copy && i < length; i++) {
        PyObject *child = PySequence_GetItem(node, i);
        PyObject *flat = child ? flatten(f, child) : NULL;
        Py_XDECREF(child);
        if (!flat)
            Py_CLEAR(copy);
        else if (is_list)
            PyList_SetItem(copy, i, flat);
        else
            PyTuple_SetItem(copy, i, flat);
    }
    if (!copy || is_list || Py_IS_TYPE(node, &PyTuple_Type))
        return copy;
    PyObject *named = PyObject_CallObject((PyObject *)Py_TYPE(node), copy);
    Py_DECREF(copy);
    return named;
}

static PyObject *flatten(flattening *f, PyObject *node)
{
    if (Py_IS_TYPE(node, f->module->tensor_type))
        return flatten_leaf(f, node);
    if (Py_EnterRecursiveCall(" in a batch"))
        return NULL;
    PyObject *copy;
    if (Py_IS_TYPE(node, &PyDict_Type))
        copy = flatten_dict(f, node);
    else if (Py_IS_TYPE(node, &PyList_Type) || Py_IS_TYPE(node, &PyTuple_Type) ||
             mh_is_named_tuple(f->module, node))
        copy = flatten_sequence(f, node);
    else
        copy = decline(f);
    Py_LeaveRecursiveCall();
    return copy;
}

PyObject *mh_tree_flatten(const mh_module *module, PyObject *batch, mh_leaf_fn leaf, void *context)
{
    flattening f = {.module = module, .leaf = leaf, .context = context};
    PyObject *structure = flatten(&f, batch);
    if (!structure && f.declined)
        PyErr_Clear();
    return structure;
}

/* --- build --- */

typedef struct building {
    const mh_module *module;
    PyObject *const *leaves;
    Py_ssize_t left;
} building;

static PyObject *build(building *b, PyObject *node);

static PyObject *build_dict(building *b, PyObject *node)
{
    PyObject *key;
    PyObject *value;
    Py_ssize_t at = 0;
    PyObject *batch = PyDict_New();
    while (batch && PyDict_Next(node, &at, &key, &value)) {
        PyObject *child = build(b, value);
        if (!child || PyDict_SetItem(batch, key, child) < 0)
            Py_CLEAR(batch);
        Py_XDECREF(child);
    }
    return batch;
}

static PyObject *build_tuple(building *b, PyObject *node)
{
    Py_ssize_t length = PyTuple_Size(node);
    PyObject *batch = PyTuple_New(length);
    for (Py_ssize_t i = 0; batch && i < length; i++) {
        PyObject *child = build(b, PyTuple_GetItem(node, i));
        if (child)
            PyTuple_SetItem(batch, i, child);
        else
            Py_CLEAR(batch);
    }
    if (!batch || Py_IS_TYPE(node, &PyTuple_Type))
        return batch;
    PyObject *named = PyObject_CallObject((PyObject *)Py_TYPE(node), batch);
    Py_DECREF(batch);
    return named;
}

static PyObject *build_list(building *b, PyObject *node)
{
    Py_ssize_t length = PyList_Size(node);
    PyObject *batch = PyList_New(length);
    for (Py_ssize_t i = 0; batch && i < length; i++) {
        PyObject *child = build(b, PyList_GetItem(node, i));
        if (child)
            PyList_SetItem(batch, i, child);
        else
            Py_CLEAR(batch);
    }
    return batch;
}

static PyObject *build(building *b, PyObject *node)
{
    if (node == Py_None) {
        if (b->left == 0) {
            PyErr_SetString(PyExc_RuntimeError, "a batch with fewer leaves than its structure");
            return NULL;
        }
        b->left--;
        return Py_NewRef(*b->leaves++);
    }
    if (PyDict_Check(node))
        return build_dict(b, node);
    return PyList_Check(node) ? build_list(b, node) : build_tuple(b, node);
}

PyObject *mh_tree_build(const mh_module *module, PyObject *structure, PyObject *const *leaves,
                        Py_ssize_t leaf_count)
{
    building b = {.module = module, .leaves = leaves, .left = leaf_count};
    PyObject *batch = build(&b, structure);
    if (batch && b.left > 0) {
        Py_CLEAR(batch);
        PyErr_SetString(PyExc_RuntimeError, "a batch with more leaves than its structure");
    }
    return batch;
}

/* --- compare --- */

static int same_dicts(PyObject *a, PyObject *b)
{
    PyObject *key_a;
    PyObject *value_a;
    PyObject *key_b;
    PyObject *value_b;
    Py_ssize_t at_a = 0;
    Py_ssize_t at_b = 0;
    if (PyDict_Size(a) != PyDict_Size(b))
        return 0;
    while (PyDict_Next(a, &at_a, &key_a, &value_a) && PyDict_Next(b, &at_b, &key_b, &value_b)) {
        int same = key_a == key_b ? 1 : PyObject_RichCompareBool(key_a, key_b, Py_EQ);
        if (same == 1 && Py_TYPE(key_a) != Py_TYPE(key_b))
            same = 0; /* 1 == True, but they are different keys to a reader */
        if (same == 1)
            same = mh_tree_same(value_a, value_b);
        if (same != 1)
            return same;
    }
    return 1;
}

int mh_tree_same(PyObject *a, PyObject *b)
{
    if (a == b)
        return 1;
    if (Py_TYPE(a) != Py_TYPE(b) || a == Py_None)
        return 0;
    if (PyDict_Check(a))
        return same_dicts(a, b);
    Py_ssize_t length = PySequence_Size(a);
    if (length != PySequence_Size(b))
        return 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        bool is_list = PyList_Check(a);
        PyObject *child_a = is_list ? PyList_GetItem(a, i) : PyTuple_GetItem(a, i);
        PyObject *child_b = is_list ? PyList_GetItem(b, i) : PyTuple_GetItem(b, i);
        int same = mh_tree_same(child_a, child_b);
        if (same != 1)
            return same;
    }
    return 1;
}
