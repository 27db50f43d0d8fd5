/* native_loader.c - Dataset, NativeLoader, NativeArray: the native pipeline, as Python sees it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "module.h"

#include <millhead/loader.h>
#include <string.h>

#define SLICE_NS UINT64_C(100000000) /* Ctrl-C is looked for as often */

/* --- NativeArray: one field of a batch --- */

typedef struct array_object {
    PyObject ob_base;
    mh_batch *batch; /* one reference */
    void *data;
    uint64_t bytes;
    mh_dtype dtype;
    int dims;
    Py_ssize_t shape[MH_DIMS_MOST + 1];
    Py_ssize_t strides[MH_DIMS_MOST + 1]; /* in bytes */
} array_object;

static PyObject *array_new(const mh_module *module, mh_batch *batch, const mh_array *from)
{
    array_object *self = mh_object_new(module->native_array_type);
    if (!self)
        return NULL;
    self->batch = mh_batch_ref(batch);
    self->data = from->data;
    self->bytes = from->bytes;
    self->dtype = from->dtype;
    self->dims = (int)from->dims;
    Py_ssize_t stride = from->dtype.bits / 8;
    for (int i = self->dims - 1; i >= 0; i--) {
        self->shape[i] = (Py_ssize_t)from->shape[i];
        self->strides[i] = stride;
        stride *= self->shape[i] > 1 ? self->shape[i] : 1;
    }
    return (PyObject *)self;
}

static void array_dealloc(PyObject *self)
{
    mh_batch_unref(((array_object *)self)->batch);
    mh_object_free(self);
}

/* The type as the struct module writes it; NULL where it has no letter. */
static const char *format_of(mh_dtype dtype)
{
    static const struct {
        mh_dtype dtype;
        const char *format;
    } formats[] = {
        {{0, 8}, "b"},  {{0, 16}, "h"}, {{0, 32}, "i"},  {{0, 64}, "q"},   {{1, 8}, "B"},
        {{1, 16}, "H"}, {{1, 32}, "I"}, {{1, 64}, "Q"},  {{2, 16}, "e"},   {{2, 32}, "f"},
        {{2, 64}, "d"}, {{6, 8}, "?"},  {{5, 64}, "Zf"}, {{5, 128}, "Zd"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype.code == dtype.code && formats[i].dtype.bits == dtype.bits)
            return formats[i].format;
    return NULL;
}

static int array_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    array_object *self = (array_object *)object;
    const char *format = format_of(self->dtype);
    bool by_columns = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS &&
                      (flags & PyBUF_ANY_CONTIGUOUS) != PyBUF_ANY_CONTIGUOUS && self->dims > 1;
    view->obj = NULL;
    if (by_columns || (!format && (flags & PyBUF_FORMAT))) {
        PyErr_SetString(PyExc_BufferError, by_columns ? "the array lies row by row"
                                                      : "the buffer protocol has no such type");
        return -1;
    }
    *view = (Py_buffer){
        .buf = self->data,
        .obj = Py_NewRef(object),
        .len = (Py_ssize_t)self->bytes,
        .itemsize = self->dtype.bits / 8,
        .ndim = self->dims,
        .format = flags & PyBUF_FORMAT ? (char *)format : NULL,
        .shape = flags & PyBUF_ND ? self->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL,
    };
    return 0;
}

/* What a consumer gets through DLPack, in either layout, with room for its shape and strides. */
typedef struct native_view {
    union {
        mh_dl_managed versioned;
        mh_dl_managed_old old;
    } managed;
    mh_batch *batch;
    int64_t shape[MH_DIMS_MOST + 1];
    int64_t strides[MH_DIMS_MOST + 1]; /* in elements */
} native_view;

/* Any thread, the GIL held or not. */
static void view_free(native_view *view)
{
    mh_batch_unref(view->batch);
    mh_free(view);
}

static void versioned_delete(mh_dl_managed *managed)
{
    view_free(managed->context);
}

static void old_delete(mh_dl_managed_old *managed)
{
    view_free(managed->context);
}

static native_view *view_new(const array_object *self, bool versioned)
{
    native_view *view = mh_calloc(1, sizeof *view);
    if (!view)
        return NULL;
    for (int i = 0; i < self->dims; i++) {
        view->shape[i] = self->shape[i];
        view->strides[i] = self->strides[i] / (self->dtype.bits / 8);
    }
    view->batch = mh_batch_ref(self->batch);
    const mh_dl_tensor tensor = {.data = self->data,
                                 .device_type = MH_DLPACK_CPU,
                                 .ndim = self->dims,
                                 .type_code = self->dtype.code,
                                 .type_bits = self->dtype.bits,
                                 .type_lanes = 1,
                                 .shape = view->shape,
                                 .strides = view->strides};
    if (versioned)
        view->managed.versioned = (mh_dl_managed){.version_major = MH_DLPACK_MAJOR,
                                                  .context = view,
                                                  .deleter = versioned_delete,
                                                  .tensor = tensor};
    else
        view->managed.old =
            (mh_dl_managed_old){.tensor = tensor, .context = view, .deleter = old_delete};
    return view;
}

/* A capsule that was used has another name and its contents another owner. */
static void versioned_unused(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        view_free(((mh_dl_managed *)PyCapsule_GetPointer(capsule, "dltensor_versioned"))->context);
}

static void old_unused(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        view_free(((mh_dl_managed_old *)PyCapsule_GetPointer(capsule, "dltensor"))->context);
}

static int is_cpu(PyObject *device)
{
    int type, number;
    if (!device || device == Py_None)
        return 1;
    if (!PyTuple_Check(device) || !PyArg_ParseTuple(device, "ii", &type, &number))
        return -1;
    return type == MH_DLPACK_CPU;
}

static PyObject *array_dlpack(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = NULL, *version = NULL, *device = NULL, *copy = NULL;
    int major = 0, minor = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", names, &stream,
                                     &version, &device, &copy))
        return NULL;
    if (version && version != Py_None &&
        (!PyTuple_Check(version) || !PyArg_ParseTuple(version, "ii", &major, &minor)))
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_TypeError, "max_version should be a tuple of two numbers");
    int cpu = is_cpu(device);
    if (cpu < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "dl_device should be a tuple of two numbers");
    if (cpu < 0)
        return NULL;
    if (!cpu || copy == Py_True || (stream && stream != Py_None))
        return PyErr_Format(PyExc_BufferError,
                            "the array is in the CPU's memory and is given without a copy");
    native_view *view = view_new((array_object *)object, major >= 1);
    if (!view)
        return PyErr_NoMemory();
    PyObject *capsule = major >= 1
                            ? PyCapsule_New(&view->managed, "dltensor_versioned", versioned_unused)
                            : PyCapsule_New(&view->managed, "dltensor", old_unused);
    if (!capsule)
        view_free(view);
    return capsule;
}

static PyObject *array_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", MH_DLPACK_CPU, 0);
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A capsule for torch, JAX, NumPy and others, over the same memory."},
    {"__dlpack_device__", array_device, METH_NOARGS, "(1, 0): the CPU's memory."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot array_slots[] = {
    {Py_tp_doc, "One field of a batch, in memory that is the batch's own and may be written."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_methods, array_methods},
    {Py_bf_getbuffer, array_getbuffer},
    {0, NULL},
};

PyType_Spec mh_native_array_spec = {
    .name = "millhead._core.NativeArray",
    .basicsize = sizeof(array_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};

/* All fields of a batch in order of name, and the samples' numbers as the last. Takes the caller's
 * reference of the batch. */
static PyObject *arrays_of(const mh_module *module, mh_batch *batch)
{
    Py_ssize_t count = 0;
    while (mh_batch_array(batch, (size_t)count))
        count++;
    const mh_array numbers = {.dtype = {.code = 0, .bits = 64},
                              .dims = 1,
                              .shape = {(int64_t)mh_batch_samples(batch)},
                              /* the batch is delivered: nobody but its holder reads them */
                              .data = (void *)mh_batch_numbers(batch),
                              .bytes = mh_batch_samples(batch) * sizeof(uint64_t)};
    PyObject *arrays = PyTuple_New(count + 1);
    for (Py_ssize_t i = 0; arrays && i <= count; i++) {
        PyObject *array =
            array_new(module, batch, i < count ? mh_batch_array(batch, (size_t)i) : &numbers);
        if (!array || PyTuple_SetItem(arrays, i, array) < 0)
            Py_CLEAR(arrays);
    }
    mh_batch_unref(batch);
    return arrays;
}

/* --- Dataset --- */

typedef struct dataset_object {
    PyObject ob_base;
    mh_dataset *dataset;
} dataset_object;

/* Texts of a list, and the bytes objects that hold them. */
typedef struct texts {
    PyObject *bytes; /* a list */
    const char **list;
    size_t count;
} texts;

static void texts_free(texts *t)
{
    Py_XDECREF(t->bytes);
    mh_free((void *)t->list);
}

static int texts_take(texts *t, PyObject *given)
{
    Py_ssize_t count = PySequence_Size(given);
    if (count < 0)
        return -1;
    t->count = (size_t)count;
    t->bytes = PyList_New(0);
    t->list = mh_calloc(t->count + 1, sizeof *t->list);
    if (!t->list)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; t->bytes && t->list && i < count; i++) {
        PyObject *bytes = NULL;
        PyObject *item = PySequence_GetItem(given, i);
        if (item)
            (void)PyUnicode_FSConverter(item, &bytes);
        int added = bytes ? PyList_Append(t->bytes, bytes) : -1;
        if (added == 0)
            t->list[i] = PyBytes_AsString(bytes);
        Py_XDECREF(bytes);
        Py_XDECREF(item);
        if (added < 0)
            return -1;
    }
    return t->bytes && t->list ? 0 : -1;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"paths", "fields", NULL};
    PyObject *given_paths, *given_fields = Py_None;
    texts paths = {0}, fields = {0};
    mh_error err;
    mh_status status;
    dataset_object *self = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O:Dataset", names, &given_paths,
                                     &given_fields))
        return NULL;
    if (texts_take(&paths, given_paths) < 0 ||
        (given_fields != Py_None && texts_take(&fields, given_fields) < 0))
        goto done;
    self = mh_object_new(type);
    if (!self)
        goto done;
    mh_dataset_options options;
    mh_dataset_options_init(&options);
    options.fields = fields.list;
    options.field_count = fields.count;
    Py_BEGIN_ALLOW_THREADS
    status = mh_dataset_open(&self->dataset, paths.list, paths.count, &options, &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK) {
        mh_raise(mh_module_of((PyObject *)self), &err);
        Py_CLEAR(self);
    }
done:
    texts_free(&paths);
    texts_free(&fields);
    return (PyObject *)self;
}

static void dataset_dealloc(PyObject *self)
{
    mh_dataset_unref(((dataset_object *)self)->dataset);
    mh_object_free(self);
}

static PyObject *lengths(const int64_t *shape, uint32_t dims)
{
    PyObject *tuple = PyTuple_New(dims);
    for (uint32_t i = 0; tuple && i < dims; i++) {
        PyObject *length = PyLong_FromLongLong(shape[i]);
        if (!length || PyTuple_SetItem(tuple, i, length) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *dataset_fields(PyObject *self, void *unused)
{
    (void)unused;
    size_t count;
    const mh_field *fields = mh_dataset_fields(((dataset_object *)self)->dataset, &count);
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple && i < count; i++) {
        PyObject *name = PyUnicode_DecodeFSDefault(fields[i].name);
        PyObject *shape = name ? lengths(fields[i].shape, fields[i].dims) : NULL;
        PyObject *field =
            shape ? Py_BuildValue("(OiiO)", name, fields[i].dtype.code, fields[i].dtype.bits, shape)
                  : NULL;
        Py_XDECREF(name);
        Py_XDECREF(shape);
        if (!field || PyTuple_SetItem(tuple, (Py_ssize_t)i, field) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *dataset_count(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(mh_dataset_count(((dataset_object *)self)->dataset));
}

static PyObject *dataset_format(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(mh_dataset_format(((dataset_object *)self)->dataset));
}

static PyObject *dataset_fingerprint(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(mh_dataset_fingerprint(((dataset_object *)self)->dataset));
}

static int take_numbers(PyObject *list, uint64_t *out, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = PyLong_AsUnsignedLongLong(PyList_GetItem(list, i));
        if (out[i] == UINT64_MAX && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *dataset_read(PyObject *object, PyObject *list)
{
    mh_dataset *dataset = ((dataset_object *)object)->dataset;
    mh_batch *batch = NULL;
    mh_error err;
    mh_status status;
    if (!PyList_Check(list))
        return PyErr_Format(PyExc_TypeError, "read() takes a list of numbers");
    Py_ssize_t count = PyList_Size(list);
    uint64_t *numbers = mh_calloc((size_t)count + 1, sizeof *numbers);
    if (!numbers)
        return PyErr_NoMemory();
    if (take_numbers(list, numbers, count) < 0) {
        mh_free(numbers);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = mh_dataset_read(dataset, numbers, (size_t)count, &batch, &err);
    Py_END_ALLOW_THREADS
    mh_free(numbers);
    const mh_module *module = mh_module_of(object);
    return status == MH_OK ? arrays_of(module, batch) : mh_raise(module, &err);
}

static PyMethodDef dataset_methods[] = {
    {"read", dataset_read, METH_O,
     "read(numbers): the samples' fields in order of name, then their numbers, as NativeArrays."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dataset_getset[] = {
    {"count", dataset_count, NULL, "How many samples there are.", NULL},
    {"fields", dataset_fields, NULL,
     "(name, type's code, type's bits, shape of one sample) in order of name.", NULL},
    {"format", dataset_format, NULL, "The format's name.", NULL},
    {"fingerprint", dataset_fingerprint, NULL, "Changes when what the dataset holds does.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_doc, "Dataset(paths, fields=None): data in a known format, as numbered samples."},
    {Py_tp_new, dataset_new},
    {Py_tp_dealloc, dataset_dealloc},
    {Py_tp_methods, dataset_methods},
    {Py_tp_getset, dataset_getset},
    {0, NULL},
};

PyType_Spec mh_dataset_spec = {
    .name = "millhead._core.Dataset",
    .basicsize = sizeof(dataset_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = dataset_slots,
};

/* --- NativeLoader --- */

/* A loader serves one thread at a time: the lock is held for each call, without the GIL. A forked
 * child, in which it may be locked for ever, looks at the fork generation first. */
typedef struct loader_object {
    PyObject ob_base;
    uint32_t fork_generation;
    struct {
        pthread_mutex_t lock;
        mh_loader *loader;       /* NULL: closed */
        unsigned long long turn; /* of the iterator in use; older ones get no batch */
        bool ended;              /* its epoch is over */
    } sync;
} loader_object;

static const char *const shuffles[MH_SHUFFLE_KINDS] = {
    [MH_SHUFFLE_NONE] = "sequential",
    [MH_SHUFFLE_ALL] = "keyed",
    [MH_SHUFFLE_TORCH] = "torch",
};

static mh_shuffle shuffle_of(const char *name)
{
    int at = 0;
    while (at < MH_SHUFFLE_KINDS && strcmp(shuffles[at], name) != 0)
        at++;
    return (mh_shuffle)at; /* beyond the last: the core refuses it */
}

static PyObject *loader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"dataset",  "batch_size",    "order",    "seed",
                            "epoch",    "rank",          "world",    "drop_last",
                            "uneven",   "limit_batches", "threads",  "in_flight",
                            "prefetch", "memory",        "simulate", NULL};
    PyObject *dataset;
    const char *order;
    unsigned long long batch_size, seed, epoch, rank, world, limit, memory;
    mh_loader_options options;
    mh_error err;
    mh_status status;
    mh_loader_options_init(&options);
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "OKsKKKKppKiIIKz:NativeLoader", names, &dataset, &batch_size,
            &order, &seed, &epoch, &rank, &world, &options.drop_last, &options.uneven, &limit,
            &options.threads, &options.in_flight, &options.prefetch, &memory, &options.simulate))
        return NULL;
    const mh_module *module = PyType_GetModuleState(type);
    if (!Py_IS_TYPE(dataset, module->dataset_type))
        return PyErr_Format(PyExc_TypeError, "dataset should be a Dataset");
    options.batch_size = batch_size;
    options.shuffle = shuffle_of(order);
    options.seed = seed;
    options.epoch = epoch;
    options.rank = rank;
    options.world = world;
    options.limit_batches = limit;
    options.memory_bytes = memory;
    loader_object *self = mh_object_new(type);
    if (!self)
        return NULL;
    self->fork_generation = mh_fork_generation();
    self->sync.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    self->sync.ended = true;
    Py_BEGIN_ALLOW_THREADS
    status =
        mh_loader_open(&self->sync.loader, ((dataset_object *)dataset)->dataset, &options, &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK) {
        mh_raise(module, &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static bool loader_forked(const loader_object *self)
{
    return self->fork_generation != mh_fork_generation();
}

/* Takes the lock; the GIL is released meanwhile. MH_ERR_FORKED, MH_ERR_CLOSED without it. */
static mh_status loader_enter(loader_object *self, mh_error *err)
{
    if (loader_forked(self))
        return mh_fail(err, MH_ERR_FORKED,
                       "this loader belongs to the process that made it: make one here, or read "
                       "with millhead.open()");
    pthread_mutex_lock(&self->sync.lock);
    if (self->sync.loader)
        return MH_OK;
    pthread_mutex_unlock(&self->sync.lock);
    return mh_fail(err, MH_ERR_CLOSED, "the loader is closed");
}

static void loader_leave(loader_object *self)
{
    pthread_mutex_unlock(&self->sync.lock);
}

static void loader_shut(loader_object *self)
{
    if (loader_forked(self))
        return;
    pthread_mutex_lock(&self->sync.lock);
    mh_loader *loader = self->sync.loader;
    self->sync.loader = NULL;
    pthread_mutex_unlock(&self->sync.lock);
    mh_loader_close(loader);
}

static void loader_dealloc(PyObject *self)
{
    Py_BEGIN_ALLOW_THREADS
    loader_shut((loader_object *)self);
    Py_END_ALLOW_THREADS
    mh_object_free(self);
}

static PyObject *loader_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    loader_shut((loader_object *)self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* --- turns: one for each iterator --- */

static mh_status begin_turn(loader_object *self, uint64_t epoch, uint64_t start,
                            unsigned long long *out, mh_error *err)
{
    uint64_t at_epoch, at;
    MH_TRY(loader_enter(self, err));
    mh_status status = MH_OK;
    mh_loader_position(self->sync.loader, &at_epoch, &at);
    if (at_epoch != epoch || at != start) /* else what is under way is what is wanted */
        status = mh_loader_seek(self->sync.loader, epoch, start, err);
    if (status == MH_OK) {
        *out = ++self->sync.turn;
        self->sync.ended = false;
    }
    loader_leave(self);
    return status;
}

static PyObject *loader_begin(PyObject *object, PyObject *arguments)
{
    loader_object *self = (loader_object *)object;
    unsigned long long epoch, start, turn = 0;
    mh_error err;
    mh_status status;
    if (!PyArg_ParseTuple(arguments, "KK:begin", &epoch, &start))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = begin_turn(self, epoch, start, &turn, &err);
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(mh_module_of(object), &err);
    return PyLong_FromUnsignedLongLong(turn);
}

static mh_status next_in_slice(loader_object *self, unsigned long long turn, mh_batch **out,
                               mh_error *err)
{
    MH_TRY(loader_enter(self, err));
    mh_status status = MH_END;
    if (turn != self->sync.turn)
        status = mh_fail(err, MH_ERR_CLOSED, "a newer iterator of the loader took its place");
    else if (!self->sync.ended)
        status = mh_loader_next_within(self->sync.loader, SLICE_NS, out, err);
    if (status == MH_END && turn == self->sync.turn)
        self->sync.ended = true;
    loader_leave(self);
    return status;
}

static PyObject *loader_next(PyObject *object, PyObject *number)
{
    loader_object *self = (loader_object *)object;
    const mh_module *module = mh_module_of(object);
    mh_batch *batch = NULL;
    mh_error err;
    mh_status status;
    unsigned long long turn = PyLong_AsUnsignedLongLong(number);
    if (turn == ULLONG_MAX && PyErr_Occurred())
        return NULL;
    do {
        Py_BEGIN_ALLOW_THREADS
        status = next_in_slice(self, turn, &batch, &err);
        Py_END_ALLOW_THREADS
        if (status == MH_ERR_TIMEOUT && PyErr_CheckSignals() < 0)
            return NULL;
    } while (status == MH_ERR_TIMEOUT);
    if (status == MH_END)
        Py_RETURN_NONE;
    return status == MH_OK ? arrays_of(module, batch) : mh_raise(module, &err);
}

static PyObject *loader_seek(PyObject *object, PyObject *arguments)
{
    loader_object *self = (loader_object *)object;
    unsigned long long epoch, start;
    mh_error err;
    mh_status status;
    if (!PyArg_ParseTuple(arguments, "KK:seek", &epoch, &start))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, &err);
    if (status == MH_OK) {
        status = mh_loader_seek(self->sync.loader, epoch, start, &err);
        self->sync.turn++;
        self->sync.ended = true;
        loader_leave(self);
    }
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(mh_module_of(object), &err);
    Py_RETURN_NONE;
}

/* --- looking --- */

static PyObject *loader_position(PyObject *object, PyObject *unused)
{
    (void)unused;
    loader_object *self = (loader_object *)object;
    uint64_t epoch = 0, samples = 0;
    mh_error err;
    mh_status status;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, &err);
    if (status == MH_OK) {
        mh_loader_position(self->sync.loader, &epoch, &samples);
        loader_leave(self);
    }
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(mh_module_of(object), &err);
    return Py_BuildValue("(KK)", (unsigned long long)epoch, (unsigned long long)samples);
}

static PyObject *loader_batches(PyObject *object, PyObject *unused)
{
    (void)unused;
    loader_object *self = (loader_object *)object;
    uint64_t batches = 0;
    mh_error err;
    mh_status status;
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, &err);
    if (status == MH_OK) {
        batches = mh_loader_batches(self->sync.loader);
        loader_leave(self);
    }
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(mh_module_of(object), &err);
    return PyLong_FromUnsignedLongLong(batches);
}

static PyObject *loader_stats(PyObject *object, PyObject *unused)
{
    (void)unused;
    loader_object *self = (loader_object *)object;
    mh_loader_stats stats;
    mh_error err;
    mh_status status;
    mh_loader_stats_init(&stats);
    Py_BEGIN_ALLOW_THREADS
    status = loader_enter(self, &err);
    if (status == MH_OK) {
        mh_loader_stats_read(self->sync.loader, &stats);
        loader_leave(self);
    }
    Py_END_ALLOW_THREADS
    if (status != MH_OK)
        return mh_raise(mh_module_of(object), &err);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:i}", "batches", (unsigned long long)stats.batches,
        "samples", (unsigned long long)stats.samples, "bytes_read",
        (unsigned long long)stats.bytes_read, "reads_now", (unsigned long long)stats.reads_now,
        "reads_waited", (unsigned long long)stats.reads_waited, "read_ns",
        (unsigned long long)stats.read_ns, "slots_peak", (unsigned long long)stats.slots_peak,
        "batches_copied_out", (unsigned long long)stats.batches_copied_out, "threads",
        stats.threads);
}

static PyMethodDef loader_methods[] = {
    {"begin", loader_begin, METH_VARARGS,
     "begin(epoch, start): a new turn, which goes on from there; older ones get nothing more."},
    {"next", loader_next, METH_O,
     "next(turn): the next batch as Dataset.read() gives it; None at the epoch's end and after."},
    {"seek", loader_seek, METH_VARARGS, "seek(epoch, start): prepare that place; ends the turn."},
    {"position", loader_position, METH_NOARGS, "(epoch, samples of all ranks delivered)."},
    {"batches", loader_batches, METH_NOARGS, "Batches of this rank in a whole epoch."},
    {"stats", loader_stats, METH_NOARGS, "What the loader counted since it was opened."},
    {"close", loader_close, METH_NOARGS, "End the threads. Batches stay as they are."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loader_slots[] = {
    {Py_tp_doc, "NativeLoader(dataset, batch_size, order, ...): batches, read by threads of the "
                "core. Any thread may call it; they take turns."},
    {Py_tp_new, loader_new},
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_methods, loader_methods},
    {0, NULL},
};

PyType_Spec mh_native_loader_spec = {
    .name = "millhead._core.NativeLoader",
    .basicsize = sizeof(loader_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = loader_slots,
};
