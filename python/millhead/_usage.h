/* _usage.h - functions of the module that _usage.c has
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PYTHON_USAGE_H
#define MH_PYTHON_USAGE_H

#include <Python.h>

PyObject *mh_core_usage(PyObject *module, PyObject *arguments);
PyObject *mh_core_locked(PyObject *module, PyObject *argument);
PyObject *mh_core_system(PyObject *module, PyObject *unused);
PyObject *mh_core_gpus(PyObject *module, PyObject *unused);
PyObject *mh_core_children(PyObject *module, PyObject *argument);

#endif
