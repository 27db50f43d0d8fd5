/* ticks.c - a clock that has the main thread say, every few milliseconds, where it is
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/ticks.h"

#include "base/fork.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/thread.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Often at first, so that a short run has answers; a long one has enough with fewer. */
#define PERIOD_NS UINT64_C(10000000)
#define PERIOD_LATER_NS UINT64_C(40000000)
#define ANSWERS_ENOUGH 400

static struct {
    mh_thread thread;
    uint32_t process; /* in which it runs: mh_fork_generation */
    bool running;
    int (*ask)(void);
    _Atomic uint32_t stopping;
    _Atomic int stage, asked; /* asked: the stage of a question without an answer, or none */
    _Atomic uint64_t due_ns;  /* what the next answer stands for */
    _Atomic uint64_t answers;
    uint64_t computed_ns; /* of the stage that was last computed in, not yet looked at */
    int computed_in;
    char stat[64]; /* the main thread's /proc file */
} ticks;

static bool runs(void)
{
    return ticks.running && ticks.process == mh_fork_generation();
}

static uint64_t period(void)
{
    return atomic_load(&ticks.answers) < ANSWERS_ENOUGH ? PERIOD_NS : PERIOD_LATER_NS;
}

/* Between half a period and one and a half: no loop of the user's keeps step with it. */
static uint64_t next_wait(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return period() / 2 + (*random >> 33) % period();
}

/* Whether the main thread sleeps: "PID (NAME) S ...". */
static bool is_blocked(void)
{
    char text[128];
    int file = open(ticks.stat, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t size = read(file, text, sizeof text - 1);
    (void)close(file);
    if (size <= 0)
        return false;
    text[size] = '\0';
    const char *end = strrchr(text, ')'); /* a name may hold some */
    return end && (end[2] == 'S' || end[2] == 'D');
}

static void tick(uint64_t elapsed)
{
    int stage = atomic_load(&ticks.stage), none = MH_STAGE_NONE;
    if (stage == MH_STAGE_NONE || !is_blocked())
        return;
    atomic_fetch_add(&ticks.due_ns, elapsed);
    if (atomic_compare_exchange_strong(&ticks.asked, &none, stage) && ticks.ask() != 0)
        atomic_store(&ticks.asked, MH_STAGE_NONE);
}

static void *clock_thread(void *argument)
{
    (void)argument;
    uint64_t random = mh_clock_ns(), last = random;
    while (!atomic_load(&ticks.stopping)) {
        mh_futex_wait(&ticks.stopping, 0, next_wait(&random));
        uint64_t now = mh_clock_ns();
        tick(now - last);
        last = now;
    }
    return NULL;
}

bool mh_ticks_start(int (*ask)(void))
{
    mh_error err;
    if (runs())
        return true;
    (void)snprintf(ticks.stat, sizeof ticks.stat, "/proc/self/task/%d/stat", (int)gettid());
    ticks.ask = ask;
    ticks.process = mh_fork_generation();
    atomic_store(&ticks.stopping, 0);
    atomic_store(&ticks.stage, MH_STAGE_NONE);
    atomic_store(&ticks.asked, MH_STAGE_NONE);
    atomic_store(&ticks.due_ns, 0);
    atomic_store(&ticks.answers, 0);
    ticks.running =
        mh_thread_start(&ticks.thread, "millhead-ticks", clock_thread, NULL, &err) == MH_OK;
    return ticks.running;
}

void mh_ticks_stop(void)
{
    if (runs()) {
        atomic_store(&ticks.stopping, 1);
        mh_futex_wake(&ticks.stopping);
        mh_thread_join(&ticks.thread);
    }
    ticks.running = false;
}

void mh_ticks_stage(mh_stage stage)
{
    atomic_store_explicit(&ticks.stage, (int)stage, memory_order_relaxed);
}

bool mh_ticks_computed(uint64_t cpu_ns, mh_stage *stage, uint64_t *ns)
{
    int now = atomic_load(&ticks.stage);
    if (!runs() || now == MH_STAGE_NONE || !cpu_ns)
        return false;
    if (now != ticks.computed_in)
        ticks.computed_ns = 0;
    ticks.computed_in = now;
    ticks.computed_ns += cpu_ns;
    if (ticks.computed_ns < period())
        return false;
    *stage = (mh_stage)now;
    *ns = ticks.computed_ns;
    ticks.computed_ns = 0;
    atomic_fetch_add(&ticks.answers, 1);
    return true;
}

bool mh_ticks_answer(mh_stage *stage, uint64_t *ns)
{
    if (!runs())
        return false;
    int asked = atomic_load(&ticks.asked);
    *ns = atomic_exchange(&ticks.due_ns, 0);
    *stage = (mh_stage)asked;
    atomic_store(&ticks.asked, MH_STAGE_NONE);
    if (asked == MH_STAGE_NONE || asked != atomic_load(&ticks.stage) || *ns == 0)
        return false;
    atomic_fetch_add(&ticks.answers, 1);
    return true;
}
