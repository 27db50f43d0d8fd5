/* module.h - what the parts of the extension module share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PYTHON_MODULE_H
#define MH_PYTHON_MODULE_H

#include <Python.h>

#include "batch/batch.h"
#include "batch/filling.h"
#include "metrics/event_lines.h"
#include "metrics/histogram.h"
#include "metrics/slowest.h"
#include "observe/native_share.h"
#include "observe/usage.h"
#include "sys/process.h"
#include "workers/control.h"

#include <stdbool.h>

/* Names of attributes and arguments, interned once: module->name.dtype is "dtype". */
#define MH_NAME_LIST(X)                                                                            \
    X(out)                                                                                         \
    X(dtype)                                                                                       \
    X(layout)                                                                                      \
    X(is_cpu)                                                                                      \
    X(shape)                                                                                       \
    X(stride)                                                                                      \
    X(data_ptr)                                                                                    \
    X(device)                                                                                      \
    X(requires_grad)                                                                               \
    X(is_conj)                                                                                     \
    X(is_neg)                                                                                      \
    X(untyped_storage)                                                                             \
    X(storage_offset)                                                                              \
    X(nbytes)                                                                                      \
    X(_fields)

/* The module's types: module->pool_type is made from mh_pool_spec. Each has its own file. */
#define MH_TYPE_LIST(X)                                                                            \
    X(pool)                                                                                        \
    X(meter)                                                                                       \
    X(consumer_end)                                                                                \
    X(worker_end)                                                                                  \
    X(chain)                                                                                       \
    X(order)                                                                                       \
    X(block_order)                                                                                 \
    X(timed)                                                                                       \
    X(steps)                                                                                       \
    X(fetches)                                                                                     \
    X(dataset)                                                                                     \
    X(native_loader)                                                                               \
    X(native_array)

#define X(name) extern PyType_Spec mh_##name##_spec;
MH_TYPE_LIST(X)
#undef X

/* Defines mh_WORD_spec, with the slots of WORD_slots. `more`: flags besides the default, or 0. */
#define MH_TYPE_SPEC(word, python_name, object, more)                                              \
    PyType_Spec mh_##word##_spec = {                                                               \
        .name = "millhead._core." python_name,                                                     \
        .basicsize = sizeof(object),                                                               \
        .flags = Py_TPFLAGS_DEFAULT | (more),                                                      \
        .slots = word##_slots,                                                                     \
    }

/* What bind_torch and bind_dlpack make known, NULL before. */
#define MH_TORCH_LIST(X)                                                                           \
    X(PyTypeObject, tensor_type)                                                                   \
    X(PyTypeObject, array_type)   /* numpy.ndarray, or None without numpy */                       \
    X(PyObject, scalar_types)     /* (numpy.number, numpy.bool_), or an empty tuple */             \
    X(PyObject, stack)            /* torch.stack */                                                \
    X(PyObject, empty)            /* torch.empty */                                                \
    X(PyObject, dtypes)           /* {type_code << 8 | type_bits: torch.dtype} */                  \
    X(PyObject, type_codes)       /* and the other way round */                                    \
    X(PyObject, from_dlpack)      /* torch.utils.dlpack.from_dlpack */                             \
    X(PyObject, strided)          /* torch.strided */                                              \
    X(PyObject, collate_map)      /* torch's default_collate_fn_map */                             \
    X(PyObject, collate_map_then) /* and a copy as it came */                                      \
    X(PyObject, cpu)              /* torch.device("cpu") */                                        \
    X(PyObject, modes)            /* functions that say whether a mode changes what torch makes */

/* One per interpreter that imports the module. */
typedef struct mh_module {
    PyObject *error; /* millhead.Error */
#define X(name) PyTypeObject *name##_type;
    MH_TYPE_LIST(X)
#undef X
#define X(type, name) type *name;
    MH_TORCH_LIST(X)
#undef X
    struct {
#define X(name) PyObject *name;
        MH_NAME_LIST(X)
#undef X
    } name;
    PyObject *object_init;        /* object.__init__ */
    const mh_dl_exchange *dlpack; /* torch's table; NULL before bind_dlpack, or torch is older */
    mh_busiest_disk disk;         /* of system() */
} mh_module;

/* The module's state for an instance of one of its types. Never fails for our own types. */
mh_module *mh_module_of(const void *self);

/* A new instance, all zero but for its head, or NULL with an exception; and its end. */
void *mh_object_new(PyTypeObject *type);
void mh_object_free(PyObject *self);

/* The place of `name` among `count` names; count, which the core refuses, when it is not there. */
int mh_place_of(const char *name, const char *const *names, int count);

/* The lengths of dimensions, as a tuple. */
PyObject *mh_shape_tuple(const int64_t *shape, uint32_t dims);

/* Sets the Python exception an mh_error stands for; always returns NULL. */
PyObject *mh_raise(const mh_module *module, const mh_error *err);

/* --- native_array.c: a function of the module --- */
PyObject *mh_core_tensor_over(PyObject *module, PyObject *array);

/* --- pool.c --- */
mh_pool *mh_pool_of(PyObject *pool); /* the pool behind a Pool object */

/* --- native_share.c: functions of the module --- */
PyObject *mh_core_probe_start(PyObject *module, PyObject *unused);
PyObject *mh_core_probe_stop(PyObject *module, PyObject *unused);
PyObject *mh_core_probe_pause(PyObject *module, PyObject *unused);
PyObject *mh_core_probe_take(PyObject *module, PyObject *unused);
PyObject *mh_core_probe_answer(PyObject *module, PyObject *arguments);

/* --- stack_ticks.c: functions of the module --- */
/* The main thread computed for so long, and is between two instructions: it may be looked at. */
void mh_look_computed(uint64_t cpu_ns);
PyObject *mh_core_ticks_start(PyObject *module, PyObject *function);
PyObject *mh_core_ticks_stop(PyObject *module, PyObject *unused);
PyObject *mh_core_ticks_stage(PyObject *module, PyObject *number);

/* --- step_times.c --- */
/* All lines as bytes, which are then forgotten. */
PyObject *mh_lines_take(mh_lines *lines);
/* The same where they are due; None: not yet. */
PyObject *mh_lines_take_due(mh_lines *lines, uint64_t now_ns);

/* --- fetch_times.c --- */
/* Samples that take as long have an event of their own. */
#define MH_SLOW_NS UINT64_C(100000)

/* A sample was fetched in ns: the one with this index, or the next item of a stream. */
void mh_fetches_sample(PyObject *fetches, uint64_t began, uint64_t ns, PyObject *index);
void mh_fetches_item(PyObject *fetches, uint64_t began, uint64_t ns);

/* --- wait_meter.c --- */
/* Records in a worker's ring of events: more than a batch of slow samples. */
#define MH_EVENTS_PER_WORKER 1024u

typedef struct mh_meter {
    PyObject ob_base;
    mh_histogram wait;
    uint64_t wait_began_ns;  /* 0: the consumer is not waiting */
    mh_slowest slowest;      /* each key a reference to an index */
    uint64_t loaded_batches; /* by load(), not asked for yet */
    uint64_t loaded_samples;
} mh_meter;

/* Records the wait that began at wait_began_ns; none began, none waited: 0. */
void mh_meter_end_wait(mh_meter *meter);

/* A batch was loaded: ends the wait and counts it. */
void mh_meter_loaded(mh_meter *meter, uint64_t samples);

/* Keeps (ns, index) if it is among the slowest. */
void mh_meter_offer(mh_meter *meter, uint64_t ns, PyObject *index, int worker);

/* --- tensor.c: torch's tensors --- */

/* Where the shape and strides of a tensor are kept that is read through its methods. */
typedef struct mh_tensor_room {
    int64_t shape[MH_LEAF_DIMS];
    int64_t strides[MH_LEAF_DIMS];
} mh_tensor_room;

/* Reads a tensor's place, type and shape without taking a reference: *out is good as long as the
 * tensor and *room are. False (no exception set) for what has no plain memory: sparse, nested. */
bool mh_tensor_read(const mh_module *module, PyObject *tensor, mh_dl_tensor *out,
                    mh_tensor_room *room);

/* Whether the numbers in its memory are the tensor's, as a leaf would describe them. Torch's table
 * does not tell: it takes torch.uint4 for uint8, and hides gradients, conjugate and negative views,
 * and that a storage was resized to less than its tensor needs. */
bool mh_tensor_is_plain(const mh_module *module, PyObject *tensor, const mh_dl_tensor *view);

/* A new torch tensor for a leaf whose bytes are known, its memory torch's own; *out_data is where
 * it begins. An exception too where a mode makes torch give anything but plain memory. */
PyObject *mh_tensor_new(const mh_module *module, const mh_leaf *leaf, void **out_data);

/* A tensor over the array's memory, which keeps a reference of the batch; with none, the caller
 * keeps the memory alive longer than the tensor. */
PyObject *mh_tensor_over(const mh_module *module, const mh_array *array, mh_batch *batch);

/* --- tensor_methods.c: the same for a torch without the table, through what every torch has --- */

/* mh_tensor_read; more than MH_LEAF_DIMS dimensions, and types and devices that no leaf can have,
 * are refused too. */
bool mh_tensor_read_methods(const mh_module *module, PyObject *tensor, mh_dl_tensor *out,
                            mh_tensor_room *room);

/* A tensor over what `managed` describes. Its deleter runs when the tensor's storage dies, and on
 * failure (NULL, exception) too. */
PyObject *mh_tensor_wrap_capsule(const mh_module *module, mh_dl_managed_old *managed);

/* A capsule "dltensor"; NULL with an exception, the view deleted (`managed` NULL: no memory). */
PyObject *mh_capsule_old(mh_dl_managed_old *managed);

/* --- collate.c: samples to a batch --- */

/* Where the leaves of a batch go. Without a slot to fill each becomes a torch tensor of its own and
 * the structure holds it; else it is written into the slot, and the structure holds None in its
 * place. */
typedef struct mh_sink {
    const mh_module *module;
    mh_filling into;
    uint64_t copied_bytes;
    bool declined; /* not for us: let torch's own code do it */
    bool
        in_worker; /* tensors are stacked into one of the first one's type, as in torch's workers */
    bool uniform;  /* tensors agree in type and shape and are plain, as from run to run they must */
    /* set by mh_collate: the list the samples came in, and what it holds */
    PyObject *list;
    PyObject *const *items;
} mh_sink;

/* Says that torch's own code is to do it; always returns NULL. */
PyObject *mh_decline(mh_sink *sink);

/* What torch.utils.data.default_collate gives for this list, as a new reference. NULL with
 * sink->declined set and no exception: the caller asks torch instead, which also raises whatever
 * error is due. Samples are read only after all are there, and in order. */
PyObject *mh_collate(mh_sink *sink, PyObject *samples);

/* The same for samples in an array, whose references the caller keeps meanwhile. */
PyObject *mh_collate_items(mh_sink *sink, PyObject *const *samples, Py_ssize_t count);

/* Whether torch is bound and nobody extended its table of collate functions since. */
bool mh_collate_untouched(const mh_module *module);

/* Memory for a leaf (*out_data), and what stands for it in the structure, as a new reference: a
 * tensor, or None in a slot. NULL as mh_collate; declined too while a mode is active in this
 * thread, such as torch.set_default_device, which has a say in where torch puts what it makes. */
PyObject *mh_leaf_memory(mh_sink *sink, mh_leaf *leaf, uint8_t **out_data);

/* The type of a buffer's elements, where torch knows it too. False for the rest: other byte orders,
 * strings, dates, structures, long doubles. */
bool mh_buffer_type(const Py_buffer *view, mh_leaf *leaf);

/* --- gather_rows.c: rows of what is in memory already --- */

/* default_collate of [tuple(column[i] for column in columns) for i in indices] when `columns` is a
 * tuple, of [columns[i] for i in indices] when it is one tensor or array. NULL as mh_collate. */
PyObject *mh_gather(mh_sink *sink, PyObject *columns, PyObject *indices);

/* Reads that many exact ints of a list. False without an exception: one is no int, or too large. */
bool mh_ints_read(PyObject *list, int64_t *out, Py_ssize_t count);

/* --- process_usage.c: functions of the module --- */
PyObject *mh_core_usage(PyObject *module, PyObject *arguments);
PyObject *mh_core_locked(PyObject *module, PyObject *argument);
PyObject *mh_core_system(PyObject *module, PyObject *unused);
PyObject *mh_core_gpus(PyObject *module, PyObject *unused);
PyObject *mh_core_children(PyObject *module, PyObject *argument);

/* --- diagnosis.c: functions of the module --- */
PyObject *mh_core_diagnose(PyObject *self, PyObject *path);
PyObject *mh_core_replay(PyObject *self, PyObject *arguments);
PyObject *mh_core_stage(PyObject *self, PyObject *arguments);

/* --- batch_tree.c: the structure of a batch --- */

/* The structure of a batch some collate function made, with None for each leaf, and each leaf in
 * order put `into` a slot or measured. NULL without an exception when the batch holds anything but
 * plain, dense CPU tensors of their own in exact lists, tuples, dicts and named tuples, or does not
 * fit. */
PyObject *mh_batch_tree_flatten(const mh_module *module, PyObject *batch, mh_filling *into);

/* The inverse: a new structure with leaves[] in place of each None, in order. Takes no reference
 * of the leaves. */
PyObject *mh_batch_tree_build(const mh_module *module, PyObject *structure, PyObject *const *leaves,
                              Py_ssize_t leaf_count);

/* 1 when two structures are the same: types, lengths, keys and their order. -1 with an exception.
 */
int mh_batch_tree_same(PyObject *a, PyObject *b);

/* Borrowed from a list or tuple; NULL with an exception beyond its end. */
static inline PyObject *mh_item(PyObject *sequence, Py_ssize_t at)
{
    return PyList_Check(sequence) ? PyList_GetItem(sequence, at) : PyTuple_GetItem(sequence, at);
}

/* True for an instance of a named tuple's class that makes instances in no way of its own: to call
 * it with other values only gives a tuple of those. */
bool mh_is_named_tuple(const mh_module *module, PyObject *object);

#endif
