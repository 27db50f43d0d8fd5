/* native.h - what the parts of the native pipeline's translation share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_EXT_NATIVE_H
#define MH_EXT_NATIVE_H

#include "module.h"
#include <millhead/loader.h>

typedef struct mh_dataset_object {
    PyObject ob_base;
    mh_dataset *dataset;
} mh_dataset_object;

/* A tuple of all fields of a batch in order of name, and the samples' numbers as the last: a
 * NativeArray each, of a ragged field (values, offsets, shapes). Takes the caller's reference of
 * the batch. */
PyObject *mh_native_arrays(const mh_module *module, mh_batch *batch);

/* A sequence of pairs (ranks, samples of each) into legs[MH_LEGS_MOST]; their number, or -1 with an
 * exception. */
int mh_read_legs(PyObject *list, mh_leg *legs);

#endif
