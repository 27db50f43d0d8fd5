/* fork_chain.c - forked workers, as Python sees them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/fork_chain.h"
#include "module.h"

typedef struct chain_object {
    PyObject ob_base;
    mh_chain *chain;
    int children;
} chain_object;

static PyObject *chain_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"children", NULL};
    int children;
    mh_error err;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "i:Chain", names, &children))
        return NULL;
    if (children < 1)
        return PyErr_Format(PyExc_ValueError, "a chain of %d processes", children);
    chain_object *self = mh_object_new(type);
    if (!self)
        return NULL;
    self->children = children;
    if (mh_chain_new(&self->chain, children, &err) != MH_OK) {
        mh_raise(PyType_GetModuleState(type), &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void chain_dealloc(PyObject *object)
{
    mh_chain_free(((chain_object *)object)->chain);
    mh_object_free(object);
}

static PyObject *chain_fork(PyObject *object, PyObject *unused)
{
    mh_error err;
    int number;
    PyOS_BeforeFork();
    mh_status status = mh_chain_fork(((chain_object *)object)->chain, &number, &err);
    if (status == MH_OK && number >= 0)
        PyOS_AfterFork_Child();
    else
        PyOS_AfterFork_Parent();
    return status == MH_OK ? PyLong_FromLong(number) : mh_raise(mh_module_of(object), &err);
}

static PyObject *chain_pid(PyObject *object, PyObject *argument)
{
    chain_object *self = (chain_object *)object;
    long number = PyLong_AsLong(argument);
    if (PyErr_Occurred())
        return NULL;
    if (number < 0 || number >= self->children)
        return PyErr_Format(PyExc_IndexError, "no process %ld in this chain", number);
    return PyLong_FromLong(mh_chain_pid(self->chain, (int)number));
}

static PyObject *chain_proven(PyObject *object, PyObject *unused)
{
    return PyBool_FromLong(mh_chain_proven(((chain_object *)object)->chain));
}

static PyObject *chain_hurry(PyObject *object, PyObject *unused)
{
    mh_chain_hurry(((chain_object *)object)->chain);
    Py_RETURN_NONE;
}

static PyObject *chain_stop(PyObject *object, PyObject *unused)
{
    mh_chain_stop(((chain_object *)object)->chain);
    Py_RETURN_NONE;
}

static PyMethodDef chain_methods[] = {
    {"fork", chain_fork, METH_NOARGS, "Fork all; -1 in this process, its number in each child."},
    {"pid", chain_pid, METH_O, "The process of a child; 0: not yet; negative: never, the errno."},
    {"proven", chain_proven, METH_NOARGS, "Whether a child's child is this process's own."},
    {"hurry", chain_hurry, METH_NOARGS, "More children than the first are wanted now."},
    {"stop", chain_stop, METH_NOARGS, "Fork no more children."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot chain_slots[] = {
    {Py_tp_doc, "Children that fork one another from one snapshot of this process."},
    {Py_tp_new, chain_new},
    {Py_tp_methods, chain_methods},
    {Py_tp_dealloc, chain_dealloc},
    {0, NULL},
};

MH_TYPE_SPEC(chain, "Chain", chain_object, 0);
