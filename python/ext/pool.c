/* pool.c - Pool: the shared memory that batches live in, as Python sees it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"

typedef struct pool_object {
    PyObject ob_base;
    mh_pool *pool;
} pool_object;

mh_pool *mh_pool_of(PyObject *pool)
{
    return ((pool_object *)pool)->pool;
}

static PyObject *pool_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"budget", NULL};
    unsigned long long budget;
    mh_error err;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "K:Pool", names, &budget))
        return NULL;
    pool_object *self = mh_object_new(type);
    if (self && mh_pool_open(&self->pool, budget, &err) != MH_OK) {
        mh_raise(PyType_GetModuleState(type), &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void pool_dealloc(PyObject *self)
{
    mh_pool_unref(mh_pool_of(self));
    mh_object_free(self);
}

static PyObject *pool_freeze_held(PyObject *self, PyObject *unused)
{
    mh_pool_freeze_held(mh_pool_of(self));
    Py_RETURN_NONE;
}

static PyObject *pool_stats(PyObject *self, PyObject *unused)
{
    mh_pool_stats stats;
    mh_pool_stats_read(mh_pool_of(self), &stats);
    return Py_BuildValue("{s:I,s:K,s:I,s:I}", "count", stats.slots, "bytes",
                         (unsigned long long)stats.bytes, "held", stats.held, "frozen",
                         stats.frozen);
}

static PyMethodDef pool_methods[] = {
    {"freeze_held", pool_freeze_held, METH_NOARGS,
     "Never reuse the slots that tensors point into now: the user is about to fork."},
    {"stats", pool_stats, METH_NOARGS, "Slots: count, bytes, held, frozen."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pool_slots[] = {
    {Py_tp_doc, "Pool(budget): shared memory that batches live in; at most budget bytes."},
    {Py_tp_new, pool_new},
    {Py_tp_dealloc, pool_dealloc},
    {Py_tp_methods, pool_methods},
    {0, NULL},
};

MH_TYPE_SPEC(pool, "Pool", pool_object, 0);
