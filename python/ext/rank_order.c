/* rank_order.c - Order: the samples of one rank in one epoch, given one by one
 * SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"
#include "order/order.h"

#include <structmember.h>

typedef struct order_object {
    PyObject ob_base;
    mh_order *order; /* NULL when it has ended: a shuffle may be large */
    Py_ssize_t length;
    Py_ssize_t given;
    char ended;
    char busy; /* a thread draws without the GIL */
} order_object;

static const char *const kinds[] = {
    [MH_ORDER_SEQUENTIAL] = "sequential",
    [MH_ORDER_KEYED] = "keyed",
    [MH_ORDER_TORCH] = "torch",
};

static const char *const modes[] = {
    [MH_SHARE_PAD] = "pad",
    [MH_SHARE_CUT] = "cut",
    [MH_SHARE_UNEVEN] = "uneven",
};

static PyObject *order_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"kind", "mode", "count", "start", "ranks",
                            "rank", "seed", "epoch", NULL};
    const char *kind;
    const char *mode;
    unsigned long long count, start, ranks, rank, seed, epoch;
    mh_share share;
    mh_error err;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "ssKKKKKK:Order", names, &kind, &mode,
                                     &count, &start, &ranks, &rank, &seed, &epoch))
        return NULL;
    order_object *self = mh_object_new(type);
    if (!self)
        return NULL;
    mh_share_mode share_mode = (mh_share_mode)mh_place_of(mode, modes, MH_SHARE_MODES);
    mh_order_kind order_kind = (mh_order_kind)mh_place_of(kind, kinds, MH_ORDER_KINDS);
    if (mh_share_init(&share, count, start, ranks, rank, share_mode, &err) != MH_OK ||
        mh_order_new(&self->order, order_kind, seed, epoch, &share, &err) != MH_OK) {
        mh_raise(mh_module_of(self), &err);
        Py_DECREF(self);
        return NULL;
    }
    self->length = (Py_ssize_t)share.length;
    return (PyObject *)self;
}

static void order_dealloc(PyObject *self)
{
    mh_order_free(((order_object *)self)->order);
    mh_object_free(self);
}

/* A shuffle that is entered late has much to draw first: other threads and Ctrl-C get their turn.
 */
static int order_draw(order_object *self, Py_ssize_t nth)
{
    int ready = 0, status = 0;
    self->busy = 1;
    while (!ready && status == 0) {
        Py_BEGIN_ALLOW_THREADS
        ready = mh_order_prepare(self->order, (uint64_t)nth);
        Py_END_ALLOW_THREADS
        status = PyErr_CheckSignals();
    }
    self->busy = 0;
    return status;
}

static PyObject *order_item(PyObject *object, Py_ssize_t nth)
{
    order_object *self = (order_object *)object;
    if (nth < 0 || nth >= self->length || !self->order)
        return PyErr_Format(PyExc_IndexError, "no sample %zd of %zd", nth, self->length);
    if (self->busy)
        return PyErr_Format(PyExc_ValueError, "the order is in use by another thread");
    if (!mh_order_prepare(self->order, (uint64_t)nth) && order_draw(self, nth) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(mh_order_at(self->order, (uint64_t)nth));
}

static PyObject *order_next(PyObject *object)
{
    order_object *self = (order_object *)object;
    if (self->given == self->length) {
        self->ended = 1;
        mh_order_free(self->order);
        self->order = NULL;
        return NULL;
    }
    PyObject *index = order_item(object, self->given);
    self->given += index != NULL;
    return index;
}

static Py_ssize_t order_length(PyObject *self)
{
    return ((order_object *)self)->length;
}

/* The two hooks torchdata's loader looks for in a sampler's iterator. */
static PyObject *order_state_dict(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("{s:n}", "given", ((order_object *)self)->given);
}

static PyObject *order_load_state_dict(PyObject *object, PyObject *state)
{
    order_object *self = (order_object *)object;
    PyObject *number = PyMapping_GetItemString(state, "given");
    Py_ssize_t given = number ? PyLong_AsSsize_t(number) : -1;
    Py_XDECREF(number);
    if (given == -1 && PyErr_Occurred())
        return NULL;
    if (given < 0 || given > self->length || self->ended)
        return PyErr_Format(PyExc_ValueError, "cannot go on after %zd of %zd", given, self->length);
    self->given = given;
    Py_RETURN_NONE;
}

static PyMethodDef order_methods[] = {
    {"state_dict", order_state_dict, METH_NOARGS, "How many were given, as a dictionary."},
    {"load_state_dict", order_load_state_dict, METH_O, "Go on as if so many had been given."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef order_members[] = {
    {"given", T_PYSSIZET, offsetof(order_object, given), READONLY, "How many were given."},
    {"ended", T_BOOL, offsetof(order_object, ended), READONLY,
     "Whether it was asked past its end."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot order_slots[] = {
    {Py_tp_doc, "Order(kind, mode, count, start, ranks, rank, seed, epoch): an iterator over the "
                "samples of a rank, which also gives any of them by number until it ends."},
    {Py_tp_new, order_new},
    {Py_tp_dealloc, order_dealloc},
    {Py_tp_methods, order_methods},
    {Py_tp_members, order_members},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, order_next},
    {Py_sq_item, order_item},
    {Py_sq_length, order_length},
    {0, NULL},
};

MH_TYPE_SPEC(order, "Order", order_object, 0);
