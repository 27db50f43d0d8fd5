/* timed_dataset.c - stands for a dataset, or for the iterator of one, and tells how long samples
 * took SPDX-License-Identifier: Apache-2.0
 *
 * In C because it is called for every sample, and most take no time worth an event.
 */
#include "module.h"
#include "sys/clock.h"

typedef struct timed_object {
    PyObject ob_base;
    PyObject *source;  /* the user's */
    PyObject *fetches; /* who is told */
} timed_object;

static PyObject *timed_subscript(PyObject *object, PyObject *index)
{
    timed_object *self = (timed_object *)object;
    uint64_t began = mh_clock_ns();
    PyObject *sample = PyObject_GetItem(self->source, index);
    if (sample)
        mh_fetches_sample(self->fetches, began, mh_clock_ns() - began, index);
    return sample;
}

static PyObject *timed_next(PyObject *object)
{
    timed_object *self = (timed_object *)object;
    if (!PyIter_Check(self->source)) {
        PyErr_SetString(PyExc_TypeError, "a dataset is no iterator");
        return NULL;
    }
    uint64_t began = mh_clock_ns();
    PyObject *sample = PyIter_Next(self->source);
    if (sample)
        mh_fetches_item(self->fetches, began, mh_clock_ns() - began);
    return sample;
}

static PyObject *timed_attribute(PyObject *object, PyObject *name)
{
    return PyObject_GetAttr(((timed_object *)object)->source, name);
}

static PyObject *timed_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"source", "fetches", NULL};
    PyObject *source;
    PyObject *fetches;
    const mh_module *module = PyType_GetModuleState(type);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO!:Timed", names, &source,
                                     module->fetches_type, &fetches))
        return NULL;
    timed_object *self = mh_object_new(type);
    if (self) {
        self->source = Py_NewRef(source);
        self->fetches = Py_NewRef(fetches);
    }
    return (PyObject *)self;
}

static int timed_traverse(PyObject *object, visitproc visit, void *arg)
{
    timed_object *self = (timed_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->source);
    Py_VISIT(self->fetches);
    return 0;
}

static int timed_clear(PyObject *object)
{
    timed_object *self = (timed_object *)object;
    Py_CLEAR(self->source);
    Py_CLEAR(self->fetches);
    return 0;
}

static void timed_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    timed_clear(self);
    mh_object_free(self);
}

static PyType_Slot timed_slots[] = {
    {Py_tp_doc,
     "Timed(source, fetches): source[index] and next(source), with fetches told how long "
     "each took; other attributes are source's."},
    {Py_tp_new, timed_new},
    {Py_tp_dealloc, timed_dealloc},
    {Py_tp_traverse, timed_traverse},
    {Py_tp_clear, timed_clear},
    {Py_tp_getattro, timed_attribute},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, timed_next},
    {Py_mp_subscript, timed_subscript},
    {0, NULL},
};

MH_TYPE_SPEC(timed, "Timed", timed_object, Py_TPFLAGS_HAVE_GC);
