/* block_order.c - BlockOrder: the samples of one rank in one epoch of shuffled blocks, by number
 * SPDX-License-Identifier: Apache-2.0
 */
#define PY_SSIZE_T_CLEAN
#include "native.h"
#include "order/blocks.h"

#include <stdio.h>
#include <string.h>

typedef struct block_order_object {
    PyObject ob_base;
    mh_blocks *blocks;
    mh_block_share share;
} block_order_object;

int mh_read_legs(PyObject *list, mh_leg *legs)
{
    Py_ssize_t count = PySequence_Size(list);
    if (count > MH_LEGS_MOST) {
        PyErr_Format(PyExc_ValueError, "%zd legs of an epoch, and %d are the most", count,
                     MH_LEGS_MOST);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long world, samples;
        PyObject *pair = PySequence_GetItem(list, i);
        PyObject *tuple = pair ? PySequence_Tuple(pair) : NULL;
        const int taken = tuple && PyArg_ParseTuple(tuple, "KK:leg", &world, &samples);
        Py_XDECREF(pair);
        Py_XDECREF(tuple);
        if (!taken)
            return -1;
        legs[i] = (mh_leg){world, samples};
    }
    return (int)count;
}

/* Blocks that begin at these samples, the end as the last; or all of `size`. */
static mh_status make_blocks(block_order_object *self, uint64_t count, uint64_t size,
                             const char *firsts, Py_ssize_t bytes, uint32_t parts, uint64_t seed,
                             uint64_t epoch, mh_error *err)
{
    mh_block_spec spec = {.parts = parts};
    uint64_t *list = NULL;
    if (firsts) { /* whose bytes need not be aligned */
        list = PyMem_Malloc((size_t)bytes + sizeof *list);
        if (!list) {
            err->code = MH_ERR_NOMEM;
            (void)snprintf(err->message, sizeof err->message, "no memory for blocks");
            return MH_ERR_NOMEM;
        }
        list[0] = 0;
        memcpy(list, firsts, (size_t)bytes);
        spec.firsts = list;
        spec.block_count = bytes ? (uint64_t)bytes / sizeof *list - 1 : 0;
    } else {
        spec.cells = mh_cells_of_runs(count, size);
    }
    mh_status status = mh_blocks_new(&self->blocks, &spec, seed, epoch, err);
    PyMem_Free(list);
    return status;
}

static PyObject *block_order_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"count", "size",  "firsts", "parts",     "seed", "epoch",
                            "legs",  "ranks", "rank",   "drop_last", NULL};
    const char *firsts;
    Py_ssize_t bytes;
    unsigned parts;
    unsigned long long count, size, seed, epoch, ranks, rank;
    int cut;
    PyObject *list;
    mh_leg legs[MH_LEGS_MOST];
    mh_error err;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "KKz#IKKOKKp:BlockOrder", names, &count,
                                     &size, &firsts, &bytes, &parts, &seed, &epoch, &list, &ranks,
                                     &rank, &cut))
        return NULL;
    const int leg_count = mh_read_legs(list, legs);
    block_order_object *self = leg_count < 0 ? NULL : mh_object_new(type);
    if (!self)
        return NULL;
    const mh_share_mode mode = cut ? MH_SHARE_CUT : MH_SHARE_PAD;
    if (make_blocks(self, count, size, firsts, bytes, parts, seed, epoch, &err) != MH_OK ||
        mh_block_share_init(&self->share, mh_blocks_samples(self->blocks), legs,
                            (uint32_t)leg_count, ranks, rank, mode, &err) != MH_OK) {
        mh_raise(mh_module_of((PyObject *)self), &err);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void block_order_dealloc(PyObject *self)
{
    mh_blocks_free(((block_order_object *)self)->blocks);
    mh_object_free(self);
}

static PyObject *block_order_item(PyObject *object, Py_ssize_t nth)
{
    const block_order_object *self = (const block_order_object *)object;
    uint64_t position;
    if (nth < 0 || (uint64_t)nth >= self->share.length)
        return PyErr_Format(PyExc_IndexError, "no sample %zd of %llu", nth,
                            (unsigned long long)self->share.length);
    return PyLong_FromUnsignedLongLong(
        mh_blocks_at(self->blocks, &self->share, (uint64_t)nth, &position));
}

static Py_ssize_t block_order_length(PyObject *self)
{
    return (Py_ssize_t)((block_order_object *)self)->share.length;
}

static PyType_Slot block_order_slots[] = {
    {Py_tp_doc,
     "BlockOrder(count, size, firsts, parts, seed, epoch, legs, ranks, rank, drop_last): "
     "the samples of a rank, by number."},
    {Py_tp_new, block_order_new},
    {Py_tp_dealloc, block_order_dealloc},
    {Py_sq_item, block_order_item},
    {Py_sq_length, block_order_length},
    {0, NULL},
};

MH_TYPE_SPEC(block_order, "BlockOrder", block_order_object, 0);
