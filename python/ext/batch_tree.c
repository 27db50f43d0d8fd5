/* batch_tree.c - the structure of a batch: lists, tuples, dicts and named tuples, None for each
 * leaf SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"

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
    PyObject *fields = PyObject_GetAttr(type, module->name._fields);
    bool plain = fields && makes_plain_tuples(module, type);
    Py_XDECREF(fields);
    PyErr_Clear();
    return plain;
}

/* --- walking: the same structure again, with something else for each leaf --- */

typedef struct walk {
    const mh_module *module;
    bool (*is_leaf)(const struct walk *walk, PyObject *node);
    PyObject *(*leaf)(struct walk *walk, PyObject *node); /* a new reference, or NULL */
    bool declined; /* NULL means "not for us", not an error */
} walk;

static PyObject *walk_node(walk *w, PyObject *node);

static PyObject *decline(walk *w)
{
    w->declined = true;
    return NULL;
}

static PyObject *walk_dict(walk *w, PyObject *node)
{
    PyObject *key;
    PyObject *value;
    Py_ssize_t at = 0;
    PyObject *copy = PyDict_New();
    while (copy && PyDict_Next(node, &at, &key, &value)) {
        Py_INCREF(key); /* user code below may empty the dict */
        Py_INCREF(value);
        PyObject *child = walk_node(w, value);
        if (!child || PyDict_SetItem(copy, key, child) < 0)
            Py_CLEAR(copy);
        Py_XDECREF(child);
        Py_DECREF(value);
        Py_DECREF(key);
    }
    return copy;
}

/* Lists, tuples and named tuples. */
static PyObject *walk_sequence(walk *w, PyObject *node)
{
    bool is_list = PyList_Check(node);
    Py_ssize_t length = PySequence_Size(node);
    PyObject *copy = is_list ? PyList_New(length) : PyTuple_New(length);
    for (Py_ssize_t i = 0; copy && i < length; i++) {
        PyObject *item = Py_XNewRef(mh_item(node, i)); /* user code may shorten a list */
        PyObject *child = item ? walk_node(w, item) : decline(w);
        if (!child ||
            (is_list ? PyList_SetItem(copy, i, child) : PyTuple_SetItem(copy, i, child)) < 0)
            Py_CLEAR(copy);
        Py_XDECREF(item);
    }
    if (!copy || is_list || Py_IS_TYPE(node, &PyTuple_Type))
        return copy;
    PyObject *named = PyObject_CallObject((PyObject *)Py_TYPE(node), copy);
    Py_DECREF(copy);
    return named;
}

static PyObject *walk_node(walk *w, PyObject *node)
{
    if (w->is_leaf(w, node))
        return w->leaf(w, node);
    if (Py_EnterRecursiveCall(" in a batch"))
        return NULL;
    PyObject *copy;
    if (Py_IS_TYPE(node, &PyDict_Type))
        copy = walk_dict(w, node);
    else if (Py_IS_TYPE(node, &PyList_Type) || Py_IS_TYPE(node, &PyTuple_Type) ||
             mh_is_named_tuple(w->module, node))
        copy = walk_sequence(w, node);
    else
        copy = decline(w);
    Py_LeaveRecursiveCall();
    return copy;
}

/* --- flatten: None for each tensor --- */

typedef struct flattening {
    walk walk; /* first: the walk's functions cast it back */
    mh_filling *into;
    uint32_t leaf_count;
    struct {
        uintptr_t begin, end;
    } taken[MH_LEAVES_MAX]; /* memory of the leaves so far: some may share it */
} flattening;

/* Tensors that share memory must go on doing so, which slots cannot give them. */
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

static bool is_tensor(const walk *w, PyObject *node)
{
    return Py_IS_TYPE(node, w->module->tensor_type);
}

static PyObject *flatten_leaf(walk *w, PyObject *node)
{
    mh_dl_tensor view;
    mh_tensor_room room;
    flattening *f = (flattening *)w;
    if (f->leaf_count == MH_LEAVES_MAX || !mh_tensor_read(w->module, node, &view, &room) ||
        view.device_type != MH_DLPACK_CPU || view.type_lanes != 1 || view.ndim > MH_LEAF_DIMS)
        return decline(w);
    if (!mh_dl_dense(&view) || !mh_tensor_is_plain(w->module, node, &view) ||
        shares_memory(f, &view) || !mh_filling_tensor(f->into, &view))
        return decline(w);
    return Py_NewRef(Py_None);
}

PyObject *mh_batch_tree_flatten(const mh_module *module, PyObject *batch, mh_filling *into)
{
    flattening f = {.walk = {.module = module, .is_leaf = is_tensor, .leaf = flatten_leaf},
                    .into = into};
    PyObject *structure = walk_node(&f.walk, batch);
    if (!structure && f.walk.declined)
        PyErr_Clear();
    return structure;
}

/* --- build: a tensor for each None --- */

typedef struct building {
    walk walk; /* first, as above */
    PyObject *const *leaves;
    Py_ssize_t left;
} building;

static bool is_none(const walk *w, PyObject *node)
{
    (void)w;
    return node == Py_None;
}

static PyObject *build_leaf(walk *w, PyObject *node)
{
    (void)node;
    building *b = (building *)w;
    if (b->left == 0) {
        PyErr_SetString(w->module->error, "a batch with fewer leaves than its structure");
        return NULL;
    }
    b->left--;
    return Py_NewRef(*b->leaves++);
}

PyObject *mh_batch_tree_build(const mh_module *module, PyObject *structure, PyObject *const *leaves,
                              Py_ssize_t leaf_count)
{
    building b = {.walk = {.module = module, .is_leaf = is_none, .leaf = build_leaf},
                  .leaves = leaves,
                  .left = leaf_count};
    PyObject *batch = walk_node(&b.walk, structure);
    if (batch && b.left > 0) {
        Py_CLEAR(batch);
        PyErr_SetString(module->error, "a batch with more leaves than its structure");
    }
    if (!batch && !PyErr_Occurred())
        PyErr_SetString(module->error, "a structure of unknown parts");
    return batch;
}

/* --- compare --- */

static int same_dicts(PyObject *a, PyObject *b)
{
    PyObject *key_a, *value_a, *key_b, *value_b;
    Py_ssize_t at_a = 0, at_b = 0;
    if (PyDict_Size(a) != PyDict_Size(b))
        return 0;
    while (PyDict_Next(a, &at_a, &key_a, &value_a) && PyDict_Next(b, &at_b, &key_b, &value_b)) {
        int same = key_a == key_b ? 1 : PyObject_RichCompareBool(key_a, key_b, Py_EQ);
        if (same == 1 && Py_TYPE(key_a) != Py_TYPE(key_b))
            same = 0; /* 1 == True, but they are different keys to a reader */
        if (same == 1)
            same = mh_batch_tree_same(value_a, value_b);
        if (same != 1)
            return same;
    }
    return 1;
}

int mh_batch_tree_same(PyObject *a, PyObject *b)
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
        int same = mh_batch_tree_same(mh_item(a, i), mh_item(b, i));
        if (same != 1)
            return same;
    }
    return 1;
}
