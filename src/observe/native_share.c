/* native_share.c - is it the interpreter that keeps the main thread busy, or native code?
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/native_share.h"

#include "base/fork.h"
#include "sys/thread_clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS UINT64_C(5000000)
#define NATIVE_NS UINT64_C(200000)

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static struct {
    timer_t timer;
    pthread_t thread;       /* the main one */
    struct itimerspec left; /* until it fires, while it is paused */
    bool running, paused;
    uint32_t process;           /* in which it runs: mh_fork_generation */
    void (*interpreters)(int);  /* the handler that was there: has _answer called soon */
    volatile uint64_t fired_ns; /* CPU time at the last signal; 0: it was answered */
    uint64_t answered_ns;       /* CPU time at the last answer */
    uint64_t random;
    uint64_t probes, native;
} share; /* all of it the main thread's */

int mh_native_share_signal(void)
{
    return SIGRTMIN + 11;
}

static void on_signal(int number)
{
    int before = errno;
    share.fired_ns = mh_thread_cpu_ns();
    share.interpreters(number);
    errno = before;
}

bool mh_native_share_runs(void)
{
    return share.running && share.process == mh_fork_generation();
}

/* Between half a period and one and a half: no loop of the user's keeps step with it. */
static void set_timer(void)
{
    share.random = share.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t ns = PERIOD_NS / 2 + (share.random >> 33) % PERIOD_NS;
    share.left = (struct itimerspec){.it_value = {.tv_nsec = (long)ns}};
    if (!share.paused)
        timer_settime(share.timer, 0, &share.left, NULL);
}

void mh_native_share_resume(void)
{
    if (mh_native_share_runs() && share.paused) {
        share.paused = false;
        share.answered_ns = mh_thread_cpu_ns();
        timer_settime(share.timer, 0, &share.left, NULL);
    }
}

void mh_native_share_pause(void)
{
    const struct itimerspec never = {0};
    if (mh_native_share_runs() && !share.paused) {
        share.paused = true;
        timer_settime(share.timer, 0, &never, &share.left);
    }
}

uint64_t mh_native_share_answer(void)
{
    if (!mh_native_share_runs() || !share.fired_ns)
        return 0;
    uint64_t now = mh_thread_cpu_ns();
    /* An answer stands for the time since the last one: there are few in a long stretch. */
    uint64_t weight = (now - share.answered_ns + PERIOD_NS / 2) / PERIOD_NS;
    weight += weight == 0;
    share.probes += weight;
    share.native += now - share.fired_ns > NATIVE_NS ? weight : 0;
    share.answered_ns = now;
    share.fired_ns = 0;
    set_timer();
    return weight * PERIOD_NS;
}

/* Puts ours before the interpreter's, which would forget when the signal came. */
static bool set_handler(void)
{
    struct sigaction action;
    if (sigaction(mh_native_share_signal(), NULL, &action) != 0)
        return false;
    if (action.sa_handler != on_signal)
        share.interpreters = action.sa_handler;
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    return sigaction(mh_native_share_signal(), &action, NULL) == 0;
}

static bool make_timer(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID,
                             .sigev_signo = mh_native_share_signal()};
    event.sigev_notify_thread_id = gettid();
    return timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &share.timer) == 0;
}

bool mh_native_share_again(void)
{
    bool own = pthread_equal(share.thread, pthread_self()) && set_handler();
    if (own)
        mh_native_share_resume();
    return own;
}

bool mh_native_share_start(void)
{
    share.probes = share.native = share.fired_ns = 0;
    share.process = mh_fork_generation();
    share.thread = pthread_self();
    share.random = share.answered_ns = mh_thread_cpu_ns();
    share.paused = false;
    share.running = set_handler() && make_timer();
    if (share.running)
        set_timer();
    return share.running;
}

void mh_native_share_stop(void)
{
    if (mh_native_share_runs()) {
        timer_delete(share.timer);
        signal(mh_native_share_signal(), SIG_IGN); /* and so forgets one that is under way */
    }
    share.running = false;
}

void mh_native_share_counts(uint64_t *probes, uint64_t *native)
{
    *probes = share.probes;
    *native = share.native;
    share.probes = share.native = 0;
}
