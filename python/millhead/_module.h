/* _module.h - what the parts of the extension module share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PYTHON_MODULE_H
#define MH_PYTHON_MODULE_H

#include <Python.h>

#include "_dlpack.h"
#include "batch/leaf.h"
#include "batch/slots.h"
#include "metrics/histogram.h"
#include "sys/usage.h"
#include "workers/control.h"

#include <pthread.h>
#include <stdbool.h>

/* Names of attributes and arguments, interned once: module->name.dtype is "dtype". */
#define MH_NAME_LIST(X)                                                                            \
    X(out)                                                                                         \
    X(dtype)                                                                                       \
    X(device)                                                                                      \
    X(requires_grad)                                                                               \
    X(is_conj)                                                                                     \
    X(is_neg)                                                                                      \
    X(untyped_storage)                                                                             \
    X(storage_offset)                                                                              \
    X(nbytes)                                                                                      \
    X(_fields)

/* One per interpreter that imports the module. */
typedef struct mh_module {
    PyObject *error; /* millhead.Error */
    PyTypeObject *pool_type;
    PyTypeObject *meter_type;
    PyTypeObject *channel_type;
    PyTypeObject *station_type;
    PyTypeObject *chain_type;
    PyTypeObject *order_type;
    PyTypeObject *clock_type;
    PyTypeObject *timed_type;
    PyTypeObject *steps_type;
    PyTypeObject *fetches_type;
    /* Set by bind_torch, NULL before. */
    PyTypeObject *tensor_type;
    PyTypeObject *array_type; /* numpy.ndarray, or None without numpy */
    PyObject *scalar_types;   /* (numpy.number, numpy.bool_), or an empty tuple */
    PyObject *stack;          /* torch.stack */
    PyObject *empty;          /* torch.empty */
    PyObject *dtypes;         /* {type_code << 8 | type_bits: torch.dtype} */
    PyObject *collate_map;    /* torch's default_collate_fn_map, and a copy as it came */
    PyObject *collate_map_then;
    PyObject *object_init; /* object.__init__ */
    struct {
#define X(name) PyObject *name;
        MH_NAME_LIST(X)
#undef X
    } name;
    PyObject *cpu;   /* torch.device("cpu") */
    PyObject *modes; /* functions that tell whether a mode changes what torch makes */
    const mh_dl_exchange *dlpack;
    mh_busiest_disk disk; /* of system() */
} mh_module;

/* The module's state for an instance of one of its types. Never fails for our own types. */
mh_module *mh_module_of(PyObject *self);

/* Sets the Python exception an mh_error stands for; always returns NULL. */
PyObject *mh_raise(const mh_module *module, const mh_error *err);

/* Types, each in its own file. */
extern PyType_Spec mh_pool_spec;
extern PyType_Spec mh_meter_spec;
extern PyType_Spec mh_channel_spec;
extern PyType_Spec mh_station_spec;
extern PyType_Spec mh_chain_spec;
extern PyType_Spec mh_order_spec;
extern PyType_Spec mh_clock_spec;
extern PyType_Spec mh_timed_spec;
extern PyType_Spec mh_steps_spec;
extern PyType_Spec mh_fetches_spec;

/* --- _core.c --- */
mh_pool *mh_pool_of(PyObject *pool); /* the pool behind a Pool object */

/* --- _clock.c --- */
/* A number that is another one in a forked child: what was opened before is the parent's. Counted
 * from the first call. */
unsigned mh_forks(void);

typedef struct mh_reading {
    uint64_t now;  /* CLOCK_MONOTONIC, ns */
    uint64_t cpu;  /* what the thread has spent on a CPU, ns */
    int64_t delay; /* and waiting for one; -1: the kernel does not tell */
} mh_reading;

/* The file it keeps open, for the thread that read last. All zero: none. */
typedef struct mh_thread_clock {
    pthread_t thread;
    unsigned forks; /* in which process: mh_forks */
    int schedstat;  /* -1: not there */
    int opened;
} mh_thread_clock;

mh_reading mh_clock_read(mh_thread_clock *clock); /* of the calling thread */
/* The same where something begins: cheaper, and its delay may be up to 100 ms old where the thread
 * had hardly waited for a CPU until then. The next that is read counts what was missed. */
mh_reading mh_clock_begin(mh_thread_clock *clock);
void mh_clock_close(mh_thread_clock *clock); /* the next question opens it again */
uint64_t mh_storage_bytes(void);             /* that this process has read from storage */
uint64_t mh_thread_cpu_ns(void);

/* --- _probe.c: functions of the module --- */
PyObject *mh_probe_start(PyObject *self, PyObject *unused);
PyObject *mh_probe_stop(PyObject *self, PyObject *unused);
PyObject *mh_probe_take(PyObject *self, PyObject *unused);
PyObject *mh_probe_answer(PyObject *self, PyObject *arguments);
void mh_probe_counts(uint64_t *probes, uint64_t *native); /* since the last call */
/* Only what is between the two is looked at. Nothing where it does not run. */
void mh_probe_resume(void);
void mh_probe_pause(void);

/* --- _lines.c: events as text (docs/events.md) --- */

/* Lines that are not written yet. All zero: none. */
typedef struct mh_lines {
    char *text;
    size_t used, room;
    size_t begun;   /* where the last line begins */
    int cut;        /* there was no memory for a piece of it */
    uint64_t taken; /* when what was due was taken last */
    unsigned forks; /* in which process they were begun: mh_forks */
} mh_lines;

/* A line is begun, given its keys and ended. Without memory for all of it a line
 * is dropped: events may be lost. The head of an event from one moment to another:
 * {"event":"wait","t":1,"ns":2,"cpu":1... */
void mh_lines_begin(mh_lines *lines, const char *event, mh_reading began, mh_reading ended);
void mh_lines_put(mh_lines *lines, const char *key, long long value);
void mh_lines_end(mh_lines *lines);
void mh_lines_append(mh_lines *lines, const mh_lines *others); /* whole lines */
/* All lines as bytes, which are then forgotten. */
PyObject *mh_lines_take(mh_lines *lines);
/* The same a few times a second, or when they are many; None: not yet. Writing is dear in a loop
 * that comes to it once in some milliseconds and finds the caches cold. A forked child gets none of
 * its parent's. */
PyObject *mh_lines_take_due(mh_lines *lines, uint64_t now);
void mh_lines_free(mh_lines *lines);

/* --- _fetches.c --- */
/* Samples that take as long have an event of their own. */
#define MH_SLOW_NS UINT64_C(100000)

/* A sample was fetched in ns: the one with this index, or the next item of a stream. */
void mh_fetches_sample(PyObject *fetches, uint64_t began, uint64_t ns, PyObject *index);
void mh_fetches_item(PyObject *fetches, uint64_t began, uint64_t ns);

/* --- _meter.c --- */
typedef struct mh_slow_sample {
    uint64_t ns;
    PyObject *index;
    int worker; /* -1: the consumer's own process */
} mh_slow_sample;

#define MH_SLOWEST 10
/* Records in a worker's ring of events: more than a batch of slow samples. */
#define MH_EVENTS_PER_WORKER 1024u

typedef struct mh_meter {
    PyObject ob_base;
    mh_histogram wait;
    uint64_t wait_began_ns;             /* 0: the consumer is not waiting */
    mh_slow_sample slowest[MH_SLOWEST]; /* sorted, slowest first */
    int slow_count;
    uint64_t loaded_batches; /* by load(), not asked for yet */
    uint64_t loaded_samples;
} mh_meter;

/* Records the wait that began at wait_began_ns; none began, none waited: 0. */
void mh_meter_end_wait(mh_meter *meter);

/* A batch was loaded: ends the wait and counts it. */
void mh_meter_loaded(mh_meter *meter, uint64_t samples);

/* Keeps (ns, index) if it is among the slowest. */
void mh_meter_offer(mh_meter *meter, uint64_t ns, PyObject *index, int worker);

/* --- _tensor.c: torch's tensors through its DLPack table --- */

/* Reads a tensor's place, type and shape without taking a reference. False (no exception set) for
 * what the table refuses: sparse, nested, not on a device. */
bool mh_tensor_read(const mh_module *module, PyObject *tensor, mh_dl_tensor *out);

/* Whether the numbers in its memory are the tensor's, as a leaf would describe them. The table does
 * not tell: it takes torch.uint4 for uint8, and hides gradients, conjugate and negative views, and
 * that a storage was resized to less than its tensor needs. */
bool mh_tensor_is_plain(const mh_module *module, PyObject *tensor, const mh_dl_tensor *view);

/* The leaf a tensor would be, its place apart. The tensor has at most MH_LEAF_DIMS dimensions. */
mh_leaf mh_leaf_of_tensor(const mh_dl_tensor *view);

/* A new torch tensor for a leaf whose bytes are known, its memory torch's own; *out_data is where
 * it begins. An exception too where a mode makes torch give anything but plain memory. */
PyObject *mh_tensor_new(const mh_module *module, const mh_leaf *leaf, void **out_data);

/* A tensor over `data`. With a slot, one of its references goes with the tensor (given back on
 * failure too); without, the caller keeps the memory alive longer than the tensor. */
PyObject *mh_tensor_over(const mh_module *module, const mh_leaf *leaf, void *data, mh_slot *slot);

/* --- _collate.c: samples to a batch --- */

/* Where the leaves of a batch go. With slot == NULL each becomes a torch tensor of its own and the
 * structure holds it; else it is written into the slot, described in leaves[], and the structure
 * holds None in its place. */
typedef struct mh_sink {
    const mh_module *module;
    uint8_t *slot;
    uint64_t slot_bytes;
    uint64_t end;
    mh_leaf *leaves;
    uint32_t leaf_count;
    uint64_t copied_bytes;
    bool declined; /* not for us: let torch's own code do it */
    bool
        in_worker; /* tensors are stacked into one of the first one's type, as in torch's workers */
    bool uniform;  /* tensors agree in type and shape and are plain, as from run to run they must */
    /* With a slot, where the samples are only a run of the batch's: they are rows first ... of
     * `rows`. 0: they are the whole batch. */
    uint32_t first;
    uint32_t rows;
    /* set by mh_collate: the list the samples came in, and what it holds */
    PyObject *list;
    PyObject *const *items;
} mh_sink;

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

/* --- _gather.c: rows of what is in memory already --- */

/* default_collate of [tuple(column[i] for column in columns) for i in indices] when `columns` is a
 * tuple, of [columns[i] for i in indices] when it is one tensor or array. NULL as mh_collate. */
PyObject *mh_gather(mh_sink *sink, PyObject *columns, PyObject *indices);

/* --- _diagnose.c: functions of the module --- */
PyObject *mh_core_diagnose(PyObject *self, PyObject *path);
PyObject *mh_core_replay(PyObject *self, PyObject *arguments);

/* --- _tree.c: the structure of a batch --- */

typedef bool (*mh_leaf_fn)(void *context, const mh_dl_tensor *view);

/* The structure of a batch some collate function made, with None for each leaf, calling `leaf` for
 * each in order. NULL without an exception when the batch holds anything but plain, dense CPU
 * tensors of their own in exact lists, tuples, dicts and named tuples, or `leaf` says no. */
PyObject *mh_tree_flatten(const mh_module *module, PyObject *batch, mh_leaf_fn leaf, void *context);

/* The inverse: a new structure with leaves[] in place of each None, in order. Takes no reference
 * of the leaves. */
PyObject *mh_tree_build(const mh_module *module, PyObject *structure, PyObject *const *leaves,
                        Py_ssize_t leaf_count);

/* 1 when two structures are the same: types, lengths, keys and their order. -1 with an exception.
 */
int mh_tree_same(PyObject *a, PyObject *b);

/* True for an instance of a named tuple's class that makes instances in no way of its own: to call
 * it with other values only gives a tuple of those. */
bool mh_is_named_tuple(const mh_module *module, PyObject *object);

#endif
