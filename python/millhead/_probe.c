/* _probe.c - is it Python code that keeps the main thread busy, or native code?
 * SPDX-License-Identifier: Apache-2.0
 *
 * After every few milliseconds of CPU time of the main thread a timer sends it a signal. Python
 * calls the handler of a signal between two instructions of Python code; the CPU time spent until
 * then tells what the thread was in: Python code comes to it within microseconds, a decoder when it
 * is done.
 *
 * A timer of CPU time fires only while the thread runs, so it wakes nobody, and what is blocked or
 * waits for a CPU is not counted. It runs while samples are fetched, not while the user trains.
 * There is one main thread, so there is one probe.
 */
#include "_module.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS UINT64_C(5000000)
#define NATIVE_NS UINT64_C(200000)
#define PROBE_SIGNAL (SIGRTMIN + 11)

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static struct {
    timer_t timer;
    pthread_t thread;       /* the main one */
    struct itimerspec left; /* until it fires, while it is paused */
    int running, paused;
    unsigned process;        /* in which it runs (mh_forks): timers do not survive a fork */
    void (*pythons)(int);    /* Python's handler in C: notes that ours in Python is to be called */
    volatile uint64_t fired; /* CPU time at the last signal; 0: it was answered */
    uint64_t answered;       /* CPU time at the last answer */
    uint64_t random;
    uint64_t probes, native;
} probe; /* all of it the main thread's */

static void on_signal(int number)
{
    int before = errno;
    probe.fired = mh_thread_cpu_ns();
    probe.pythons(number);
    errno = before;
}

static int is_running(void)
{
    return probe.running && probe.process == mh_forks();
}

/* Between half a period and one and a half: no loop of the user's keeps step with it. */
static void arm(void)
{
    probe.random = probe.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t ns = PERIOD_NS / 2 + (probe.random >> 33) % PERIOD_NS;
    probe.left = (struct itimerspec){.it_value = {.tv_nsec = (long)ns}};
    if (!probe.paused)
        timer_settime(probe.timer, 0, &probe.left, NULL);
}

void mh_probe_resume(void)
{
    if (is_running() && probe.paused) {
        probe.paused = 0;
        probe.answered = mh_thread_cpu_ns();
        timer_settime(probe.timer, 0, &probe.left, NULL);
    }
}

void mh_probe_pause(void)
{
    const struct itimerspec never = {0};
    if (is_running() && !probe.paused) {
        probe.paused = 1;
        timer_settime(probe.timer, 0, &never, &probe.left);
    }
}

/* The signal's handler in Python: its number and the frame are of no interest. */
PyObject *mh_probe_answer(PyObject *self, PyObject *arguments)
{
    (void)self;
    (void)arguments;
    if (is_running() && probe.fired) {
        uint64_t now = mh_thread_cpu_ns();
        /* An answer stands for the time since the last one: there are few in a long stretch. */
        uint64_t weight = (now - probe.answered + PERIOD_NS / 2) / PERIOD_NS;
        weight += weight == 0;
        probe.probes += weight;
        probe.native += now - probe.fired > NATIVE_NS ? weight : 0;
        probe.answered = now;
        probe.fired = 0;
        arm();
    }
    Py_RETURN_NONE;
}

/* Has Python call mh_probe_answer for the signal. False where the program uses it already. */
static int set_pythons_handler(PyObject *module)
{
    int done = 0;
    PyObject *signals = PyImport_ImportModule("signal");
    PyObject *answer = PyObject_GetAttrString(module, "probe_answer");
    PyObject *before =
        signals ? PyObject_CallMethod(signals, "getsignal", "i", PROBE_SIGNAL) : NULL;
    PyObject *unused = signals ? PyObject_GetAttrString(signals, "SIG_DFL") : NULL;
    if (answer && before && unused) {
        int free = PyObject_RichCompareBool(before, unused, Py_EQ);
        int ours = PyObject_RichCompareBool(before, answer, Py_EQ);
        PyObject *set = free > 0 || ours > 0
                            ? PyObject_CallMethod(signals, "signal", "iO", PROBE_SIGNAL, answer)
                            : NULL;
        done = set != NULL;
        Py_XDECREF(set);
    }
    Py_XDECREF(signals);
    Py_XDECREF(answer);
    Py_XDECREF(before);
    Py_XDECREF(unused);
    PyErr_Clear(); /* not the main thread: it cannot be probed from here */
    return done;
}

/* Puts ours before Python's, which would forget when the signal came. */
static int set_own_handler(void)
{
    struct sigaction action;
    if (sigaction(PROBE_SIGNAL, NULL, &action) != 0)
        return 0;
    if (action.sa_handler != on_signal)
        probe.pythons = action.sa_handler;
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    return sigaction(PROBE_SIGNAL, &action, NULL) == 0;
}

static int make_timer(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = PROBE_SIGNAL};
    event.sigev_notify_thread_id = gettid();
    return timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &probe.timer) == 0;
}

PyObject *mh_probe_stop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    if (is_running()) {
        timer_delete(probe.timer);
        signal(PROBE_SIGNAL, SIG_IGN); /* and so forgets one that is under way */
    }
    probe.running = 0;
    Py_RETURN_NONE;
}

/* Where it was set by Python, the interpreter resets the signal at its end: to kill the process. */
static int stop_at_exit(PyObject *module)
{
    static int registered;
    if (registered)
        return 1;
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *stop = PyObject_GetAttrString(module, "probe_stop");
    PyObject *done = atexit && stop ? PyObject_CallMethod(atexit, "register", "O", stop) : NULL;
    Py_XDECREF(atexit);
    Py_XDECREF(stop);
    Py_XDECREF(done);
    registered = done != NULL;
    return registered;
}

PyObject *mh_probe_start(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (is_running()) {
        int own = pthread_equal(probe.thread, pthread_self());
        if (own)
            mh_probe_resume();
        return PyBool_FromLong(own);
    }
    if (!stop_at_exit(self))
        return NULL;
    probe.probes = probe.native = probe.fired = 0;
    probe.process = mh_forks();
    probe.thread = pthread_self();
    probe.random = probe.answered = mh_thread_cpu_ns();
    probe.paused = 0;
    probe.running = set_pythons_handler(self) && set_own_handler() && make_timer();
    if (probe.running)
        arm();
    return PyBool_FromLong(probe.running);
}

void mh_probe_counts(uint64_t *probes, uint64_t *native)
{
    *probes = probe.probes;
    *native = probe.native;
    probe.probes = probe.native = 0;
}

PyObject *mh_probe_take(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    uint64_t probes;
    uint64_t native;
    mh_probe_counts(&probes, &native);
    return Py_BuildValue("(KK)", (unsigned long long)probes, (unsigned long long)native);
}
