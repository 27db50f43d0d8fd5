/* thread.c - starting and joining threads
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/thread.h"

#include "base/error.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/* Enough for poll and a few frames. Not PTHREAD_STACK_MIN: the thread-local storage of every loaded
 * library comes out of the stack, and a training process has loaded many. */
#define DETACHED_STACK_BYTES ((size_t)256 << 10)

#if MH_TEST_HOOKS

static _Atomic uint64_t starts;
static _Atomic uint64_t fail_at;

static bool thread_refused(void)
{
    uint64_t nth = atomic_fetch_add_explicit(&starts, 1, memory_order_relaxed) + 1;
    return nth == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

uint64_t mh_thread_fail_at(uint64_t nth)
{
    atomic_store_explicit(&fail_at, 0, memory_order_relaxed);
    uint64_t counted = atomic_exchange_explicit(&starts, 0, memory_order_relaxed);
    atomic_store_explicit(&fail_at, nth, memory_order_relaxed);
    return counted;
}

#else

static bool thread_refused(void)
{
    return false;
}

#endif

/* The new thread inherits the mask, so signals are blocked before it exists: blocking them inside
 * it would leave a moment in which a handler could run there. */
static int thread_create(pthread_t *handle, const pthread_attr_t *attributes, void *(*run)(void *),
                         void *argument)
{
    sigset_t all, before;
    if (thread_refused())
        return EAGAIN;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(handle, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

mh_status mh_thread_start(mh_thread *out, const char *name, void *(*run)(void *), void *argument,
                          mh_error *err)
{
    pthread_t handle;
    int failed = thread_create(&handle, NULL, run, argument);
    if (failed)
        return mh_fail_sys(err, MH_ERR_NOMEM, failed, "cannot start thread %s", name);
    char short_name[16]; /* the kernel refuses longer ones instead of cutting them */
    size_t length = strnlen(name, sizeof short_name - 1);
    memcpy(short_name, name, length);
    short_name[length] = '\0';
    (void)pthread_setname_np(handle, short_name); /* for debuggers only: failing is harmless */
    out->handle = handle;
    out->running = 1;
    return MH_OK;
}

mh_status mh_thread_start_detached(void *(*run)(void *), void *argument, mh_error *err)
{
    pthread_attr_t attributes;
    pthread_t handle;
    int failed = pthread_attr_init(&attributes);
    if (failed == 0) {
        (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        (void)pthread_attr_setstacksize(&attributes, DETACHED_STACK_BYTES);
        failed = thread_create(&handle, &attributes, run, argument);
        if (failed == EINVAL) { /* so much thread-local storage that even this is too small */
            (void)pthread_attr_destroy(&attributes);
            (void)pthread_attr_init(&attributes);
            (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
            failed = thread_create(&handle, &attributes, run, argument);
        }
        (void)pthread_attr_destroy(&attributes);
    }
    if (failed)
        return mh_fail_sys(err, MH_ERR_NOMEM, failed, "cannot start a detached thread");
    return MH_OK;
}

void mh_thread_join(mh_thread *thread)
{
    if (!thread || !thread->running)
        return;
    (void)pthread_join(thread->handle, NULL);
    thread->running = 0;
}
