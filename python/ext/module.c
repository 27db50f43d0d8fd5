/* module.c - the extension module: translation between Python and the C core, nothing more
 * SPDX-License-Identifier: Apache-2.0
 */
#include "module.h"
#include "base/error.h"
#include "mh_config.h"
#include "sys/cpu.h"
#include "sys/memory.h"
#include "sys/process.h"
#include "workers/board.h"
#include "workers/guard.h"

#include <link.h>
#include <millhead/millhead.h>
#include <string.h>

/* --- what all parts use --- */

mh_module *mh_module_of(const void *self)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)self));
}

void *mh_object_new(PyTypeObject *type)
{
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

void mh_object_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

int mh_place_of(const char *name, const char *const *names, int count)
{
    int at = 0;
    while (at < count && strcmp(names[at], name) != 0)
        at++;
    return at;
}

PyObject *mh_shape_tuple(const int64_t *shape, uint32_t dims)
{
    PyObject *tuple = PyTuple_New(dims);
    for (uint32_t i = 0; tuple && i < dims; i++) {
        PyObject *length = PyLong_FromLongLong(shape[i]);
        if (!length || PyTuple_SetItem(tuple, i, length) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* --- errors --- */

/* MH_STATUS_LIST says Error for millhead.Error, which only a module's state has: NULL stands for
 * it. */
static PyObject *PyExc_Error;

static PyObject **const exceptions[] = {
#define X(code, name, exception) [code] = &PyExc_##exception,
    MH_STATUS_LIST(X)
#undef X
};

/* millhead.Error(message), with the status's name as its code; NULL with an exception set. */
static PyObject *own_error(const mh_module *module, const mh_error *err)
{
    PyObject *error = PyObject_CallFunction(module->error, "s", err->message);
    PyObject *code = error ? PyUnicode_FromString(mh_status_name(err->code)) : NULL;
    if (error && (!code || PyObject_SetAttrString(error, "code", code) < 0))
        Py_CLEAR(error);
    Py_XDECREF(code);
    return error;
}

/* Numbers of the place as attributes, None where they are not known. */
static int set_place(PyObject *error, const mh_place *place)
{
    const struct {
        const char *name;
        uint64_t number;
    } numbers[] = {{"sample", place->sample}, {"unit", place->unit}, {"offset", place->offset}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        PyObject *number = numbers[i].number == MH_NOWHERE
                               ? Py_NewRef(Py_None)
                               : PyLong_FromUnsignedLongLong(numbers[i].number);
        int bad = number ? PyObject_SetAttrString(error, numbers[i].name, number) : -1;
        Py_XDECREF(number);
        if (bad)
            return -1;
    }
    PyObject *source =
        *place->source ? PyUnicode_DecodeFSDefault(place->source) : Py_NewRef(Py_None);
    int bad = source ? PyObject_SetAttrString(error, "source", source) : -1;
    Py_XDECREF(source);
    return bad;
}

PyObject *mh_raise(const mh_module *module, const mh_error *err)
{
    PyObject *type = (unsigned)err->code < MH_STATUS_COUNT ? *exceptions[err->code] : NULL;
    PyObject *value;
    if (!type)
        value = own_error(module, err);
    else if (type == PyExc_OSError && err->sys_errno)
        value = PyObject_CallFunction(type, "is", err->sys_errno, err->message);
    else
        value = PyObject_CallFunction(type, "s", err->message);
    if (value && set_place(value, &err->place) == 0)
        PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    Py_XDECREF(value);
    return NULL;
}

/* --- functions --- */

static void replace(PyObject **place, PyObject *value)
{
    PyObject *old = *place;
    *place = Py_NewRef(value);
    Py_XDECREF(old);
}

/* The table of a torch that has one; NULL without an exception for None, with one for another
 * version's.
 */
static const mh_dl_exchange *dlpack_table(const mh_module *module, PyObject *capsule)
{
    if (capsule == Py_None)
        return NULL;
    const mh_dl_exchange *table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (table && (table->version_major != MH_DLPACK_MAJOR || !table->tensor_from_object)) {
        mh_error err;
        (void)mh_fail(&err, MH_ERR_UNSUPPORTED, "torch's DLPack table has version %u.%u, not 1.x",
                      table->version_major, table->version_minor);
        mh_raise(module, &err);
        return NULL;
    }
    return table;
}

static PyObject *core_bind_dlpack(PyObject *self, PyObject *arguments)
{
    PyObject *capsule, *from_dlpack;
    mh_module *module = PyModule_GetState(self);
    if (!PyArg_ParseTuple(arguments, "OO:bind_dlpack", &capsule, &from_dlpack))
        return NULL;
    const mh_dl_exchange *table = dlpack_table(module, capsule);
    if (PyErr_Occurred())
        return NULL;
    module->dlpack = table;
    replace(&module->from_dlpack, from_dlpack);
    Py_RETURN_NONE;
}

static PyObject *core_bind_torch(PyObject *self, PyObject *arguments)
{
    mh_module *module = PyModule_GetState(self);
    PyObject *tensor, *stack, *empty, *dtypes, *type_codes, *array, *scalars;
    PyObject *strided, *collate_map, *collate_map_then, *cpu, *modes;
    if (!PyArg_ParseTuple(arguments, "OOOO!O!OO!OO!O!OO!:bind_torch", &tensor, &stack, &empty,
                          &PyDict_Type, &dtypes, &PyDict_Type, &type_codes, &array, &PyTuple_Type,
                          &scalars, &strided, &PyDict_Type, &collate_map, &PyDict_Type,
                          &collate_map_then, &cpu, &PyTuple_Type, &modes))
        return NULL;
    replace((PyObject **)&module->array_type, array); /* None, without numpy, matches no type */
    replace(&module->scalar_types, scalars);
    replace(&module->stack, stack);
    replace(&module->empty, empty);
    replace(&module->dtypes, dtypes);
    replace(&module->type_codes, type_codes);
    replace(&module->strided, strided);
    replace(&module->cpu, cpu);
    replace(&module->modes, modes);
    replace(&module->collate_map, collate_map);
    replace(&module->collate_map_then, collate_map_then);
    replace((PyObject **)&module->tensor_type, tensor); /* last: tells that torch is bound */
    Py_RETURN_NONE;
}

/* NotImplemented in place of a batch that was declined. */
static PyObject *or_not_implemented(PyObject *batch, const mh_sink *sink)
{
    if (!batch && sink->declined && !PyErr_Occurred())
        Py_RETURN_NOTIMPLEMENTED;
    return batch;
}

static PyObject *core_collate(PyObject *self, PyObject *samples)
{
    mh_sink sink = {.module = PyModule_GetState(self)};
    return or_not_implemented(mh_collate(&sink, samples), &sink);
}

static PyObject *core_collate_in_worker(PyObject *self, PyObject *samples)
{
    mh_sink sink = {.module = PyModule_GetState(self), .in_worker = true};
    return or_not_implemented(mh_collate(&sink, samples), &sink);
}

static PyObject *core_collate_uniform(PyObject *self, PyObject *samples)
{
    mh_sink sink = {.module = PyModule_GetState(self), .in_worker = true, .uniform = true};
    return or_not_implemented(mh_collate(&sink, samples), &sink);
}

static PyObject *core_collate_untouched(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(mh_collate_untouched(PyModule_GetState(self)));
}

static PyObject *core_gather(PyObject *self, PyObject *arguments)
{
    mh_sink sink = {.module = PyModule_GetState(self)};
    PyObject *columns;
    PyObject *indices;
    if (!PyArg_ParseTuple(arguments, "OO!:gather", &columns, &PyList_Type, &indices))
        return NULL;
    return or_not_implemented(mh_gather(&sink, columns, indices), &sink);
}

static PyObject *core_cpus(PyObject *self, PyObject *unused)
{
    return PyLong_FromLong(mh_cpu_allowed(""));
}

static PyObject *core_plan_workers(PyObject *self, PyObject *arguments)
{
    mh_plan_cpus_options options;
    mh_plan_cpus plan;
    mh_error err;
    mh_plan_cpus_options_init(&options);
    if (!PyArg_ParseTuple(arguments, "ii:plan_workers", &options.cpus, &options.ranks))
        return NULL;
    options.gpus = options.ranks; /* each rank feeds a device of its own */
    if (mh_plan_cpus_make(&plan, &options, &err) != MH_OK)
        return mh_raise(PyModule_GetState(self), &err);
    return PyLong_FromLong(plan.workers_per_gpu);
}

static PyObject *core_plan_cluster(PyObject *self, PyObject *arguments)
{
    mh_plan_threads_options options;
    mh_plan_threads plan;
    mh_error err;
    mh_plan_threads_options_init(&options);
    options.mode = MH_PLAN_CLUSTER;
    if (!PyArg_ParseTuple(arguments, "ii:plan_cluster", &options.cpus, &options.ranks))
        return NULL;
    options.shared = options.ranks > 1;
    if (mh_plan_threads_make(&plan, &options, &err) != MH_OK)
        return mh_raise(PyModule_GetState(self), &err);
    return Py_BuildValue("ii", plan.cluster_workers, plan.threads);
}

static PyObject *core_memory(PyObject *self, PyObject *unused)
{
    mh_memory_room room;
    mh_memory_room_read(&room, "");
    return Py_BuildValue("KK", (unsigned long long)room.total_bytes,
                         (unsigned long long)room.available_bytes);
}

typedef struct loaded_libraries {
    PyObject *names;
    unsigned long long loads, unloads;
} loaded_libraries;

static int add_library(struct dl_phdr_info *info, size_t bytes, void *argument)
{
    loaded_libraries *found = argument;
    PyObject *name = PyUnicode_DecodeFSDefault(info->dlpi_name ? info->dlpi_name : "");
    int added = name ? PyList_Append(found->names, name) : -1;
    Py_XDECREF(name);
    found->loads = info->dlpi_adds;
    found->unloads = info->dlpi_subs;
    return added;
}

static PyObject *core_libraries(PyObject *self, PyObject *unused)
{
    loaded_libraries found = {.names = PyList_New(0)};
    if (!found.names || dl_iterate_phdr(add_library, &found) < 0) {
        Py_XDECREF(found.names);
        return NULL;
    }
    return Py_BuildValue("(KKN)", found.loads, found.unloads, found.names);
}

static PyObject *core_process_open(PyObject *self, PyObject *argument)
{
    mh_error err;
    int fd;
    int pid = (int)PyLong_AsLong(argument);
    if (PyErr_Occurred())
        return NULL;
    if (mh_process_open(&fd, pid, &err) != MH_OK)
        return mh_raise(PyModule_GetState(self), &err);
    return PyLong_FromLong(fd);
}

static PyObject *core_process_ended(PyObject *self, PyObject *argument)
{
    int fd = (int)PyLong_AsLong(argument);
    if (PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(mh_process_ended(fd));
}

static PyObject *core_exit_with(PyObject *self, PyObject *arguments)
{
    mh_error err;
    int fd, guarded = 0;
    if (!PyArg_ParseTuple(arguments, "i|p:exit_with", &fd, &guarded))
        return NULL;
    if (mh_process_exit_with(fd, 1, guarded ? mh_guard_tick : NULL, &err) != MH_OK)
        return mh_raise(PyModule_GetState(self), &err);
    Py_RETURN_NONE;
}

#if MH_TEST_HOOKS
static PyObject *core_arm_point(PyObject *self, PyObject *arguments)
{
    mh_error err;
    const char *text;
    if (!PyArg_ParseTuple(arguments, "s:arm_point", &text))
        return NULL;
    if (mh_point_arm(text, &err) != MH_OK)
        return mh_raise(PyModule_GetState(self), &err);
    Py_RETURN_NONE;
}
#endif

static PyMethodDef core_functions[] = {
    {"bind_dlpack", core_bind_dlpack, METH_VARARGS,
     "bind_dlpack(table or None, from_dlpack): make known how torch makes tensors over memory."},
    {"bind_torch", core_bind_torch, METH_VARARGS,
     "bind_torch(Tensor, stack, empty, dtypes, type_codes, ndarray, scalars, strided, "
     "collate_map, its copy, cpu, modes): make the rest of torch known; bind_dlpack comes first."},
    {"tensor_over", mh_core_tensor_over, METH_O,
     "tensor_over(NativeArray): torch's tensor over the same memory."},
    {"gather", core_gather, METH_VARARGS,
     "gather(columns, indices): the batch of those rows, or NotImplemented."},
    {"collate", core_collate, METH_O,
     "default_collate of a list of samples, or NotImplemented where torch must do it."},
    {"collate_in_worker", core_collate_in_worker, METH_O,
     "The same as torch's collates in a worker, where tensors take the first one's type."},
    {"collate_uniform", core_collate_uniform, METH_O,
     "The same where all samples agree in type and shape; NotImplemented where they do not."},
    {"collate_untouched", core_collate_untouched, METH_NOARGS,
     "Whether nobody extended torch's table of collate functions."},
    {"diagnose", mh_core_diagnose, METH_O,
     "diagnose(path): what a run or log waited for, as the text of `millhead doctor --json`."},
    {"replay", mh_core_replay, METH_VARARGS,
     "replay(path, settings): the seconds a run would have taken, start-up left out, for each "
     "(workers, prefetch, in_order) of a list."},
    {"stage", mh_core_stage, METH_VARARGS,
     "stage(from, to, storage or None, in_flight): copy data to a local directory; what was done, "
     "as a dict."},
    {"cpus", core_cpus, METH_NOARGS, "CPUs this process may use: affinity and cgroup quota."},
    {"plan_workers", core_plan_workers, METH_VARARGS,
     "plan_workers(cpus, ranks): loader workers for each rank, as `millhead plan cpus` has it."},
    {"plan_cluster", core_plan_cluster, METH_VARARGS,
     "plan_cluster(cpus, ranks): (workers, threads of each) of the one cluster that streams for "
     "all ranks, as `millhead plan threads` advises."},
    {"memory", core_memory, METH_NOARGS, "(total, available) bytes under machine and cgroup."},
    {"libraries", core_libraries, METH_NOARGS,
     "(loads, unloads, files) of this process's libraries: how often, and what is loaded. Reading "
     "/proc/self/maps would take 20 times as long."},
    {"process_open", core_process_open, METH_O, "A descriptor that tells when a process ends."},
    {"process_ended", core_process_ended, METH_O, "Whether the process behind it has ended."},
    {"locked", mh_core_locked, METH_O,
     "locked(pid): whether its main thread waits for a lock that processes share."},
    {"exit_with", core_exit_with, METH_VARARGS,
     "exit_with(pidfd, guarded=False): end this process when the one behind it ends; guarded: also "
     "where WorkerEnd.guard() says so."},
    {"usage", mh_core_usage, METH_VARARGS,
     "usage(pid, pss=True): what a process has used, as an event `usage` has it."},
    {"system", mh_core_system, METH_NOARGS, "What the machine has used, as an event `system`."},
    {"gpus", mh_core_gpus, METH_NOARGS, "What each GPU does, as an event `gpu`; [] without any."},
    {"children", mh_core_children, METH_O, "The pids of a process's children, theirs and so on."},
    {"probe_start", mh_core_probe_start, METH_NOARGS,
     "Begin to probe the main thread, which must be the caller's and have probe_answer as its "
     "handler of PROBE_SIGNAL; False where it cannot be."},
    {"probe_stop", mh_core_probe_stop, METH_NOARGS, "End probing."},
    {"probe_pause", mh_core_probe_pause, METH_NOARGS, "Ask nothing until probe_start."},
    {"probe_take", mh_core_probe_take, METH_NOARGS,
     "(probes, native) since the last call: how often it was looked, and it was in native code."},
    {"probe_answer", mh_core_probe_answer, METH_VARARGS, "The handler of the probe's signal."},
    {"ticks_start", mh_core_ticks_start, METH_O,
     "ticks_start(look): have the main thread call look(stage, ns, blocked) every few "
     "milliseconds, where "
     "the program is then; False where there is no thread for it."},
    {"ticks_stop", mh_core_ticks_stop, METH_NOARGS, "End that; also at the interpreter's end."},
    {"ticks_stage", mh_core_ticks_stage, METH_O,
     "What the main thread does from now on: 0 nothing that is looked at, 1 fetch, 2 collate, 3 "
     "the loop, 4 training."},
#if MH_TEST_HOOKS
    {"arm_point", core_arm_point, METH_VARARGS,
     "Raise a signal where a queue entry changes its state, 'NAME:NTH:SIGNAL'."},
#endif
    {NULL, NULL, 0, NULL},
};

/* --- the module --- */

static PyTypeObject *add_type(PyObject *self, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(self, spec, NULL);
    if (type && PyModule_AddType(self, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* millhead.Error. What is raised without a status is something that cannot be: MH_ERR_INTERNAL. */
static PyObject *make_error(void)
{
    PyObject *members = Py_BuildValue("{s:s}", "code", mh_status_name(MH_ERR_INTERNAL));
    PyObject *type = NULL;
    if (members)
        type = PyErr_NewExceptionWithDoc(
            "millhead.Error",
            "An error of millhead's engine.\n\n``code`` says which kind, in fixed words: "
            "\"closed\", "
            "\"corrupt data\", \"internal error\", \"not supported\" or \"used after a fork\".",
            PyExc_RuntimeError, members);
    Py_XDECREF(members);
    return type;
}

static const struct {
    const char *name;
    int value;
} constants[] = {
    {"LOST", MH_RESULT_NONE},   {"SLOT", MH_RESULT_SLOT}, {"GENERAL", MH_RESULT_GENERAL},
    {"ERROR", MH_RESULT_ERROR}, {"END", MH_RESULT_END},   {"PART", MH_RESULT_PART},
    {"WHOLE", MH_RESULT_WHOLE}, {"APART", MH_RUN_APART},  {"UNLIKE", MH_RUN_UNLIKE},
};

static int core_exec(PyObject *self)
{
    mh_module *module = PyModule_GetState(self);
    module->error = make_error();
    module->object_init = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__init__");
    if (!module->object_init || !module->error ||
        PyModule_AddObjectRef(self, "Error", module->error) < 0 ||
        PyModule_AddStringConstant(self, "__version__", mh_version()) < 0 ||
        PyModule_AddIntConstant(self, "PROBE_SIGNAL", mh_native_share_signal()) < 0)
        return -1;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (PyModule_AddIntConstant(self, constants[i].name, constants[i].value) < 0)
            return -1;
#define X(word)                                                                                    \
    if (!(module->name.word = PyUnicode_InternFromString(#word)))                                  \
        return -1;
    MH_NAME_LIST(X)
#undef X
#define X(word)                                                                                    \
    if (!(module->word##_type = add_type(self, &mh_##word##_spec)))                                \
        return -1;
    MH_TYPE_LIST(X)
#undef X
    return 0;
}

static int core_traverse(PyObject *self, visitproc visit, void *arg)
{
    mh_module *module = PyModule_GetState(self);
    Py_VISIT(module->error);
    Py_VISIT(module->object_init);
#define X(word) Py_VISIT(module->word##_type);
    MH_TYPE_LIST(X)
#undef X
#define X(type, word) Py_VISIT(module->word);
    MH_TORCH_LIST(X)
#undef X
    return 0;
}

static int core_clear(PyObject *self)
{
    mh_module *module = PyModule_GetState(self);
    Py_CLEAR(module->error);
    Py_CLEAR(module->object_init);
#define X(word) Py_CLEAR(module->word##_type);
    MH_TYPE_LIST(X)
#undef X
#define X(type, word) Py_CLEAR(module->word);
    MH_TORCH_LIST(X)
#undef X
#define X(word) Py_CLEAR(module->name.word);
    MH_NAME_LIST(X)
#undef X
    return 0;
}

static void core_free(void *self)
{
    core_clear(self);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
    {0, NULL},
};

static struct PyModuleDef mh_module_def = {
    PyModuleDef_HEAD_INIT,       .m_name = "_core",           .m_doc = "millhead's C core.",
    .m_size = sizeof(mh_module), .m_methods = core_functions, .m_slots = core_slots,
    .m_traverse = core_traverse, .m_clear = core_clear,       .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&mh_module_def);
}
