/* fetch_samples.h - getting samples out of a dataset, each of them timed
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PYTHON_FETCH_SAMPLES_H
#define MH_PYTHON_FETCH_SAMPLES_H

#include "module.h"

/* Some samples of a batch, and who hears about them: a Meter in the caller, a WorkerEnd in a
 * worker. */
typedef struct mh_fetch {
    void *listener;
    void (*begins)(void *listener, Py_ssize_t number); /* NULL: nobody wants to know */
    /* Sample `number` took long, an exception set or not; index NULL: of a stream. */
    void (*was_slow)(void *listener, Py_ssize_t number, PyObject *index, uint64_t ns);
    PyObject *from;    /* a dataset, or the iterator of one */
    PyObject *indices; /* a list of what to look up in it; NULL: its next items */
    Py_ssize_t count;
    Py_ssize_t first;  /* the number of the first of them */
    PyObject *samples; /* a list for them; borrowed, as the objects above */
    uint64_t began_ns; /* set by mh_fetch_samples */
} mh_fetch;

/* Fills in the arguments of a method fetch(dataset, indices, first, samples), or
 * fetch(iterator, count, first, samples). False with an exception. */
bool mh_fetch_arguments(mh_fetch *fetch, PyObject *arguments);

/* Appends the samples to fetch->samples; fewer where a stream ends. False with an exception: those
 * before it are appended. */
bool mh_fetch_samples(mh_fetch *fetch);

/* --- methods of a Meter --- */
PyObject *mh_meter_fetch(PyObject *meter, PyObject *arguments);
PyObject *mh_meter_load(PyObject *meter, PyObject *const *arguments, Py_ssize_t count);

#endif
