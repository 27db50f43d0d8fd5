/* _core.c - the extension module: translation between Python and the C core, nothing more
 * SPDX-License-Identifier: Apache-2.0
 */
#include "_module.h"
#include "_usage.h"
#include "base/error.h"
#include "sys/cpu.h"
#include "sys/memory.h"
#include "sys/process.h"
#include "sys/stopwatch.h"
#include "workers/board.h"
#include "workers/guard.h"

#include <millhead/millhead.h>
#include <string.h>

/* --- errors --- */

mh_module *mh_module_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

PyObject *mh_raise(const mh_module *module, const mh_error *err)
{
    switch (err->code) {
    case MH_ERR_INVALID:
        PyErr_SetString(PyExc_ValueError, err->message);
        break;
    case MH_ERR_NOMEM:
        PyErr_SetString(PyExc_MemoryError, err->message);
        break;
    case MH_ERR_NOT_FOUND:
        PyErr_SetString(PyExc_FileNotFoundError, err->message);
        break;
    case MH_ERR_TIMEOUT:
        PyErr_SetString(PyExc_TimeoutError, err->message);
        break;
    case MH_ERR_IO: {
        PyObject *arguments = Py_BuildValue("(is)", err->sys_errno, err->message);
        if (arguments)
            PyErr_SetObject(PyExc_OSError, arguments);
        Py_XDECREF(arguments);
        break;
    }
    default:
        PyErr_SetString(module->error, err->message);
    }
    return NULL;
}

/* --- Pool --- */

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
    pool_object *self = (pool_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self && mh_pool_open(&self->pool, budget, &err) != MH_OK) {
        mh_raise(PyType_GetModuleState(type), &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void pool_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    mh_pool_unref(mh_pool_of(self));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *pool_freeze_held(PyObject *self, PyObject *unused)
{
    (void)unused;
    mh_pool_freeze_held(mh_pool_of(self));
    Py_RETURN_NONE;
}

static PyObject *pool_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
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

PyType_Spec mh_pool_spec = {
    .name = "millhead._core.Pool",
    .basicsize = sizeof(pool_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pool_slots,
};

/* --- functions --- */

static void replace(PyObject **place, PyObject *value)
{
    PyObject *old = *place;
    *place = Py_NewRef(value);
    Py_XDECREF(old);
}

static PyObject *core_bind_torch(PyObject *self, PyObject *arguments)
{
    mh_module *module = PyModule_GetState(self);
    PyObject *tensor;
    PyObject *stack;
    PyObject *empty;
    PyObject *dtypes;
    PyObject *array;
    PyObject *scalars;
    PyObject *capsule;
    PyObject *collate_map;
    PyObject *cpu;
    PyObject *modes;
    if (!PyArg_ParseTuple(arguments, "OOOO!OO!OO!OO!:bind_torch", &tensor, &stack, &empty,
                          &PyDict_Type, &dtypes, &array, &PyTuple_Type, &scalars, &capsule,
                          &PyDict_Type, &collate_map, &cpu, &PyTuple_Type, &modes))
        return NULL;
    const mh_dl_exchange *table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (!table)
        return NULL;
    if (table->version_major != MH_DLPACK_MAJOR || !table->tensor_from_object)
        return PyErr_Format(module->error, "torch's DLPack table has version %u.%u, not 1.x",
                            table->version_major, table->version_minor);
    replace((PyObject **)&module->tensor_type, tensor);
    replace((PyObject **)&module->array_type, array); /* None, without numpy, matches no type */
    replace(&module->scalar_types, scalars);
    replace(&module->stack, stack);
    replace(&module->empty, empty);
    replace(&module->dtypes, dtypes);
    replace(&module->cpu, cpu);
    replace(&module->modes, modes);
    replace(&module->collate_map, collate_map);
    Py_XDECREF(module->collate_map_then);
    module->collate_map_then = PyDict_Copy(collate_map);
    if (!module->collate_map_then)
        return NULL;
    module->dlpack = table;
    Py_RETURN_NONE;
}

/* Puts dataset[i] for each index into items[]; how many before an exception. */
static Py_ssize_t fetch_items(PyObject *dataset, PyObject *indices, PyObject **items,
                              Py_ssize_t count, mh_meter *meter)
{
    mh_stopwatch watch = mh_stopwatch_start();
    Py_ssize_t done = 0;
    while (done < count && done < PyList_Size(indices)) { /* user code may shorten it */
        PyObject *index = Py_NewRef(PyList_GetItem(indices, done));
        PyObject *sample = PyObject_GetItem(dataset, index);
        uint64_t long_ns = mh_stopwatch_lap(&watch);
        if (sample && long_ns)
            mh_meter_offer(meter, long_ns, index, -1);
        Py_DECREF(index);
        if (!sample)
            break;
        items[done++] = sample;
    }
    return done;
}

/* Appends items[] to a list, an exception that is set notwithstanding, and gives them up. */
static int items_to_list(PyObject *list, PyObject **items, Py_ssize_t count)
{
    PyObject *type, *value, *traceback;
    int status = 0;
    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (status == 0)
            status = PyList_Append(list, items[i]);
        Py_DECREF(items[i]);
    }
    if (type)
        PyErr_Restore(type, value, traceback);
    return status;
}

static int fetch_all(PyObject *dataset, PyObject *indices, PyObject *samples, mh_meter *meter)
{
    Py_ssize_t count = PyList_Size(indices);
    PyObject **items = PyMem_Malloc((size_t)count * sizeof *items);
    if (!items) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t done = fetch_items(dataset, indices, items, count, meter);
    int failed = PyErr_Occurred() ? -1 : 0;
    int status = items_to_list(samples, items, done);
    PyMem_Free(items);
    return failed ? failed : status;
}

static PyObject *core_fetch(PyObject *self, PyObject *arguments)
{
    mh_module *module = PyModule_GetState(self);
    PyObject *dataset;
    PyObject *indices;
    PyObject *samples;
    PyObject *meter;
    if (!PyArg_ParseTuple(arguments, "OO!O!O!:fetch", &dataset, &PyList_Type, &indices,
                          &PyList_Type, &samples, module->meter_type, &meter) ||
        fetch_all(dataset, indices, samples, (mh_meter *)meter) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *core_draw(PyObject *self, PyObject *arguments)
{
    mh_module *module = PyModule_GetState(self);
    PyObject *iterator;
    Py_ssize_t first;
    Py_ssize_t count;
    PyObject *samples;
    PyObject *meter;
    if (!PyArg_ParseTuple(arguments, "OnnO!O!:draw", &iterator, &first, &count, &PyList_Type,
                          &samples, module->meter_type, &meter))
        return NULL;
    mh_stopwatch watch = mh_stopwatch_start();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *sample = PyIter_Next(iterator);
        uint64_t long_ns = mh_stopwatch_lap(&watch);
        PyObject *number = sample && long_ns ? PyLong_FromSsize_t(first + i) : NULL;
        if (number)
            mh_meter_offer((mh_meter *)meter, long_ns, number, -1);
        Py_XDECREF(number);
        int status = sample ? PyList_Append(samples, sample) : -1;
        Py_XDECREF(sample);
        if (status < 0)
            break; /* an exception, or the end */
    }
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *core_collate(PyObject *self, PyObject *samples)
{
    mh_sink sink = {.module = PyModule_GetState(self)};
    PyObject *batch = mh_collate(&sink, samples);
    if (!batch && sink.declined && !PyErr_Occurred())
        Py_RETURN_NOTIMPLEMENTED;
    return batch;
}

static PyObject *core_collate_in_worker(PyObject *self, PyObject *samples)
{
    mh_sink sink = {.module = PyModule_GetState(self), .in_worker = true};
    PyObject *batch = mh_collate(&sink, samples);
    if (!batch && sink.declined && !PyErr_Occurred())
        Py_RETURN_NOTIMPLEMENTED;
    return batch;
}

static PyObject *core_collate_uniform(PyObject *self, PyObject *samples)
{
    mh_sink sink = {.module = PyModule_GetState(self), .in_worker = true, .uniform = true};
    PyObject *batch = mh_collate(&sink, samples);
    if (!batch && sink.declined && !PyErr_Occurred())
        Py_RETURN_NOTIMPLEMENTED;
    return batch;
}

static PyObject *core_collate_untouched(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(mh_collate_untouched(PyModule_GetState(self)));
}

static PyObject *core_gather(PyObject *self, PyObject *arguments)
{
    mh_sink sink = {.module = PyModule_GetState(self)};
    PyObject *columns;
    PyObject *indices;
    if (!PyArg_ParseTuple(arguments, "OO!:gather", &columns, &PyList_Type, &indices))
        return NULL;
    PyObject *batch = mh_gather(&sink, columns, indices);
    if (!batch && sink.declined && !PyErr_Occurred())
        Py_RETURN_NOTIMPLEMENTED;
    return batch;
}

/* Fetches and collates. Where that fails or is declined, the samples fetched are in the list. */
static PyObject *load_items(const mh_module *module, PyObject *dataset, PyObject *indices,
                            PyObject *samples, mh_meter *meter)
{
    mh_sink sink = {.module = module};
    PyObject *batch = NULL;
    Py_ssize_t count = PyList_Size(indices);
    PyObject **items = PyMem_Malloc((size_t)count * sizeof *items);
    if (!items)
        return PyErr_NoMemory();
    Py_ssize_t done = fetch_items(dataset, indices, items, count, meter);
    if (!PyErr_Occurred())
        batch = mh_collate_items(&sink, items, done);
    if (batch) {
        for (Py_ssize_t i = 0; i < done; i++)
            Py_DECREF(items[i]);
    } else if (items_to_list(samples, items, done) == 0 && !PyErr_Occurred()) {
        batch = Py_NewRef(Py_NotImplemented);
    }
    PyMem_Free(items);
    return batch;
}

/* One step of a loader without workers. index_out gets the index, and samples what was fetched if
 * there is no batch, so that the caller can say where an exception arose or collate in its own way.
 */
static PyObject *core_load(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    mh_module *module = PyModule_GetState(self);
    if (count != 5 || !PyList_Check(arguments[2]) || !PyList_Check(arguments[3]) ||
        !Py_IS_TYPE(arguments[4], module->meter_type) || !PyIter_Check(arguments[0]))
        return PyErr_Format(PyExc_TypeError, "load(sampler, dataset, index_out, samples, meter)");
    PyObject *dataset = arguments[1];
    PyObject *index_out = arguments[2];
    PyObject *samples = arguments[3];
    PyObject *meter = arguments[4];
    ((mh_meter *)meter)->wait_began_ns = mh_clock_ns();
    PyObject *index = PyIter_Next(arguments[0]);
    if (!index) {
        if (!PyErr_Occurred())
            PyErr_SetNone(PyExc_StopIteration);
        return NULL;
    }
    int status = PyList_Append(index_out, index);
    Py_DECREF(index); /* index_out holds it */
    if (status < 0)
        return NULL;
    if (!Py_IS_TYPE(index, &PyList_Type))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *batch = load_items(module, dataset, index, samples, (mh_meter *)meter);
    if (batch && batch != Py_NotImplemented)
        mh_meter_loaded((mh_meter *)meter, (uint64_t)PyList_Size(index));
    return batch;
}

static PyObject *core_cpus(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
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
    (void)self, (void)unused;
    mh_memory_room room;
    mh_memory_room_read(&room, "");
    return Py_BuildValue("KK", (unsigned long long)room.total_bytes,
                         (unsigned long long)room.available_bytes);
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
    (void)self;
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

static PyMethodDef core_functions[] = {
    {"bind_torch", core_bind_torch, METH_VARARGS,
     "bind_torch(Tensor, stack, empty, dtypes, ndarray, scalars, table, collate_map, cpu, modes): "
     "make torch known."},
    {"fetch", core_fetch, METH_VARARGS,
     "fetch(dataset, indices, samples, meter): append dataset[i] for each index to samples."},
    {"draw", core_draw, METH_VARARGS,
     "draw(iterator, first, count, samples, meter): append its next items, numbered from first, to "
     "samples; fewer where it ends."},
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
    {"load", (PyCFunction)(void (*)(void))core_load, METH_FASTCALL,
     "load(sampler, dataset, index_out, samples, meter): the next batch, or NotImplemented where "
     "the caller must fetch or collate."},
    {"diagnose", mh_core_diagnose, METH_O,
     "diagnose(path): what a run or log waited for, as the text of `millhead doctor --json`."},
    {"replay", mh_core_replay, METH_VARARGS,
     "replay(path, settings): the seconds a run would have taken, start-up left out, for each "
     "(workers, prefetch, in_order) of a list."},
    {"cpus", core_cpus, METH_NOARGS, "CPUs this process may use: affinity and cgroup quota."},
    {"plan_workers", core_plan_workers, METH_VARARGS,
     "plan_workers(cpus, ranks): loader workers for each rank, as `millhead plan cpus` has it."},
    {"plan_cluster", core_plan_cluster, METH_VARARGS,
     "plan_cluster(cpus, ranks): (workers, threads of each) of the one cluster that streams for "
     "all "
     "ranks, as `millhead plan threads` advises."},
    {"memory", core_memory, METH_NOARGS, "(total, available) bytes under machine and cgroup."},
    {"process_open", core_process_open, METH_O, "A descriptor that tells when a process ends."},
    {"process_ended", core_process_ended, METH_O, "Whether the process behind it has ended."},
    {"locked", mh_core_locked, METH_O,
     "locked(pid): whether its main thread waits for a lock that processes share."},
    {"exit_with", core_exit_with, METH_VARARGS,
     "exit_with(pidfd, guarded=False): end this process when the one behind it ends; guarded: also "
     "where Station.guard() says so."},
    {"usage", mh_core_usage, METH_VARARGS,
     "usage(pid, pss=True): what a process has used, as an event `usage` has it."},
    {"system", mh_core_system, METH_NOARGS, "What the machine has used, as an event `system`."},
    {"gpus", mh_core_gpus, METH_NOARGS, "What each GPU does, as an event `gpu`; [] without any."},
    {"children", mh_core_children, METH_O, "The pids of a process's children, theirs and so on."},
    {"probe_start", mh_probe_start, METH_NOARGS,
     "Begin to probe the main thread, which must be the caller's; False where it cannot be."},
    {"probe_stop", mh_probe_stop, METH_NOARGS, "End probing; also at the interpreter's end."},
    {"probe_take", mh_probe_take, METH_NOARGS,
     "(probes, native) since the last call: how often it was looked, and it was in native code."},
    {"probe_answer", mh_probe_answer, METH_VARARGS, "The handler of the probe's signal."},
    {"arm_point", core_arm_point, METH_VARARGS,
     "For tests: raise a signal where a queue entry changes its state, 'NAME:NTH:SIGNAL'."},
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

static int core_exec(PyObject *self)
{
    mh_module *module = PyModule_GetState(self);
    module->error = PyErr_NewExceptionWithDoc("millhead.Error", "An error of millhead's engine.",
                                              PyExc_RuntimeError, NULL);
#define X(word)                                                                                    \
    if (!(module->name.word = PyUnicode_InternFromString(#word)))                                  \
        return -1;
    MH_NAME_LIST(X)
#undef X
    module->object_init = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__init__");
    if (!module->object_init || !module->error)
        return -1;
    if (PyModule_AddObjectRef(self, "Error", module->error) < 0 ||
        PyModule_AddStringConstant(self, "__version__", mh_version()) < 0 ||
        PyModule_AddIntConstant(self, "LOST", MH_RESULT_NONE) < 0 ||
        PyModule_AddIntConstant(self, "SLOT", MH_RESULT_SLOT) < 0 ||
        PyModule_AddIntConstant(self, "GENERAL", MH_RESULT_GENERAL) < 0 ||
        PyModule_AddIntConstant(self, "ERROR", MH_RESULT_ERROR) < 0 ||
        PyModule_AddIntConstant(self, "END", MH_RESULT_END) < 0 ||
        PyModule_AddIntConstant(self, "PART", MH_RESULT_PART) < 0 ||
        PyModule_AddIntConstant(self, "WHOLE", MH_RESULT_WHOLE) < 0 ||
        PyModule_AddIntConstant(self, "APART", MH_RUN_APART) < 0 ||
        PyModule_AddIntConstant(self, "UNLIKE", MH_RUN_UNLIKE) < 0)
        return -1;
    module->pool_type = add_type(self, &mh_pool_spec);
    module->meter_type = add_type(self, &mh_meter_spec);
    module->channel_type = add_type(self, &mh_channel_spec);
    module->station_type = add_type(self, &mh_station_spec);
    module->chain_type = add_type(self, &mh_chain_spec);
    module->order_type = add_type(self, &mh_order_spec);
    module->clock_type = add_type(self, &mh_clock_spec);
    module->timed_type = add_type(self, &mh_timed_spec);
    module->steps_type = add_type(self, &mh_steps_spec);
    module->fetches_type = add_type(self, &mh_fetches_spec);
    return module->pool_type && module->meter_type && module->channel_type &&
                   module->station_type && module->chain_type && module->order_type &&
                   module->clock_type && module->timed_type && module->steps_type &&
                   module->fetches_type
               ? 0
               : -1;
}

static int core_traverse(PyObject *self, visitproc visit, void *arg)
{
    mh_module *module = PyModule_GetState(self);
    Py_VISIT(module->error);
    Py_VISIT(module->pool_type);
    Py_VISIT(module->meter_type);
    Py_VISIT(module->channel_type);
    Py_VISIT(module->station_type);
    Py_VISIT(module->chain_type);
    Py_VISIT(module->order_type);
    Py_VISIT(module->clock_type);
    Py_VISIT(module->timed_type);
    Py_VISIT(module->steps_type);
    Py_VISIT(module->fetches_type);
    Py_VISIT(module->tensor_type);
    Py_VISIT(module->array_type);
    Py_VISIT(module->scalar_types);
    Py_VISIT(module->stack);
    Py_VISIT(module->empty);
    Py_VISIT(module->dtypes);
    Py_VISIT(module->collate_map);
    Py_VISIT(module->collate_map_then);
    Py_VISIT(module->modes);
    return 0;
}

static int core_clear(PyObject *self)
{
    mh_module *module = PyModule_GetState(self);
    Py_CLEAR(module->error);
    Py_CLEAR(module->pool_type);
    Py_CLEAR(module->meter_type);
    Py_CLEAR(module->channel_type);
    Py_CLEAR(module->station_type);
    Py_CLEAR(module->chain_type);
    Py_CLEAR(module->order_type);
    Py_CLEAR(module->clock_type);
    Py_CLEAR(module->timed_type);
    Py_CLEAR(module->steps_type);
    Py_CLEAR(module->fetches_type);
    Py_CLEAR(module->tensor_type);
    Py_CLEAR(module->array_type);
    Py_CLEAR(module->scalar_types);
    Py_CLEAR(module->stack);
    Py_CLEAR(module->empty);
    Py_CLEAR(module->dtypes);
    Py_CLEAR(module->collate_map);
    Py_CLEAR(module->collate_map_then);
#define X(word) Py_CLEAR(module->name.word);
    MH_NAME_LIST(X)
#undef X
    Py_CLEAR(module->object_init);
    Py_CLEAR(module->cpu);
    Py_CLEAR(module->modes);
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
