/* _clock.c - what a thread's time was spent on: a CPU, waiting for one, reading from storage
 * SPDX-License-Identifier: Apache-2.0
 *
 * The kernel tells the time a thread waited for a CPU only through /proc. Opening that file costs
 * more than reading it, so a Clock keeps it open, for the thread that read last.
 */
#include "_module.h"
#include "sys/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct clock_object {
    PyObject ob_base;
    pthread_t thread;  /* whose descriptors these are */
    unsigned forks;    /* in which process: see mh_forks */
    int schedstat, io; /* -1: not open, or not there */
    int opened;
} clock_object;

static atomic_uint forks;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void count_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

unsigned mh_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_forks);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

static void close_files(clock_object *self)
{
    if (self->schedstat >= 0)
        close(self->schedstat);
    if (self->io >= 0)
        close(self->io);
    self->schedstat = self->io = -1;
    self->opened = 0;
}

/* In a forked child the descriptors still show the parent's thread, in another thread the first. */
static void open_files(clock_object *self)
{
    unsigned process = mh_forks();
    if (self->opened && self->forks == process && pthread_equal(self->thread, pthread_self()))
        return;
    close_files(self);
    self->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    self->io = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
    self->thread = pthread_self();
    self->forks = process;
    self->opened = 1;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* What a small file of /proc holds, as text; false where it cannot be read. */
static int read_text(int file, char *text, size_t size)
{
    ssize_t got = file < 0 ? -1 : pread(file, text, size - 1, 0);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    return 1;
}

static PyObject *clock_read(PyObject *object, PyObject *unused)
{
    (void)unused;
    clock_object *self = (clock_object *)object;
    char text[96];
    long long delay = -1;
    open_files(self);
    if (read_text(self->schedstat, text, sizeof text)) { /* ns on a CPU, ns waiting, time slices */
        char *second = strchr(text, ' ');
        if (second)
            delay = strtoll(second, NULL, 10);
    } else {
        self->opened = 0; /* a thread that ended had this one's name: open again next time */
    }
    return Py_BuildValue("(KKL)", (unsigned long long)mh_clock_ns(),
                         (unsigned long long)thread_cpu_ns(), delay);
}

static PyObject *clock_storage(PyObject *object, PyObject *unused)
{
    (void)unused;
    clock_object *self = (clock_object *)object;
    char text[512];
    long long bytes = -1;
    open_files(self);
    if (read_text(self->io, text, sizeof text)) {
        const char *line = strstr(text, "\nread_bytes: ");
        if (line)
            bytes = strtoll(line + strlen("\nread_bytes: "), NULL, 10);
    }
    return PyLong_FromLongLong(bytes);
}

static PyObject *clock_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    close_files((clock_object *)self);
    Py_RETURN_NONE;
}

static PyObject *clock_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, ":Clock", names))
        return NULL;
    clock_object *self = (clock_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self)
        self->schedstat = self->io = -1;
    return (PyObject *)self;
}

static void clock_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    close_files((clock_object *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef clock_methods[] = {
    {"read", clock_read, METH_NOARGS,
     "(now, cpu, delay): CLOCK_MONOTONIC, and what the calling thread has spent on a CPU and "
     "waiting "
     "for one, in ns; delay -1: the kernel does not tell."},
    {"storage", clock_storage, METH_NOARGS,
     "Bytes this process has read from storage; -1: the kernel does not tell."},
    {"close", clock_close, METH_NOARGS, "Close its files; the next question opens them again."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot clock_slots[] = {
    {Py_tp_doc, "Clock(): what the calling thread's time is spent on."},
    {Py_tp_new, clock_new},
    {Py_tp_dealloc, clock_dealloc},
    {Py_tp_methods, clock_methods},
    {0, NULL},
};

PyType_Spec mh_clock_spec = {
    .name = "millhead._core.Clock",
    .basicsize = sizeof(clock_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = clock_slots,
};
