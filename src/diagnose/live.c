/* live.c - looks at a running loop for a while and makes facts of what was seen
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/live.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sys/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
#define INSIDE_TICK_NS UINT64_C(2000000)   /* memory reads only */
#define OUTSIDE_TICK_NS UINT64_C(20000000) /* a few small files of each process */
#define WORKERS_MOST 4096
#define NOTES_MOST 16

struct mh_live {
    int pid;
    mh_outside outside;
    mh_inside *inside; /* NULL: from outside */
    mh_facts facts;
    char notes[NOTES_MOST][MH_VERDICT_LINE];
    size_t note_count;
};

/* --- who is there to look at --- */

static void sleep_ns(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    (void)nanosleep(&time, NULL);
}

static bool has_loader(int pid)
{
    mh_error err;
    mh_inside *inside = NULL;
    int *workers;
    size_t count;
    if (mh_inside_open(&inside, pid, &err) == MH_OK && inside) {
        /* a worker has the block open too, and is in it */
        int pids[WORKERS_MOST];
        size_t there = mh_inside_workers(inside, pids, WORKERS_MOST);
        mh_inside_close(inside);
        for (size_t at = 0; at < there; at++)
            if (pids[at] == pid)
                return false;
        return true;
    }
    if (mh_torch_workers(&workers, &count, pid, &err) != MH_OK)
        return false;
    mh_free(workers);
    return count > 0;
}

static mh_status is_worker(int pid, mh_error *err)
{
    int trainer = mh_trainer_of(pid);
    if (!trainer)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "process %d is a loader's worker, left behind by a process that has ended",
                       pid);
    return mh_fail(err, MH_ERR_UNSUPPORTED, "process %d is a loader's worker: give %d", pid,
                   trainer);
}

/* "process 7 has no loader with workers", and where there might be one. */
static mh_status no_loader(int pid, mh_error *err)
{
    int *pids = NULL;
    size_t count = 0, used = 0, named = 0;
    char list[128] = "";
    mh_error ignored;
    if (mh_is_torch_worker(pid))
        return is_worker(pid, err);
    if (mh_usage_children(&pids, &count, pid, "", &ignored) != MH_OK)
        count = 0;
    for (size_t at = 0; at < count && used < sizeof list && named < 8; at++) {
        if (mh_is_torch_worker(pids[at]) || !has_loader(pids[at]))
            continue;
        int wrote =
            snprintf(list + used, sizeof list - used, "%s%d", named++ ? ", " : "", pids[at]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    mh_free(pids);
    if (named)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "process %d has no loader with workers of its own, but these have: %s", pid,
                       list);
    return mh_fail(err, MH_ERR_UNSUPPORTED, "process %d has no loader with workers", pid);
}

static mh_status may_look(int pid, mh_error *err)
{
    char path[64];
    struct stat about;
    (void)snprintf(path, sizeof path, "/proc/%d", pid);
    if (pid <= 0 || stat(path, &about) != 0)
        return mh_fail(err, MH_ERR_NOT_FOUND, "there is no process %d", pid);
    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    if (access(path, R_OK) != 0)
        return mh_fail_sys(err, MH_ERR_IO, EACCES, "process %d is another user's", pid);
    return MH_OK;
}

/* The workers there are now; *out has room for WORKERS_MOST. */
static mh_status workers_now(const mh_live *live, int *out, size_t *count, mh_error *err)
{
    if (live->inside) {
        *count = mh_inside_workers(live->inside, out, WORKERS_MOST);
        return MH_OK;
    }
    int *found;
    mh_status status = mh_torch_workers(&found, count, live->pid, err);
    if (status != MH_OK)
        return status;
    if (*count > WORKERS_MOST)
        *count = WORKERS_MOST;
    memcpy(out, found, *count * sizeof *found);
    mh_free(found);
    return MH_OK;
}

/* --- looking --- */

typedef struct patience {
    uint64_t began_ns, until_ns;
    int (*progress)(void *, double);
    void *argument;
} patience;

static mh_status tell(const patience *wait, mh_error *err)
{
    double done =
        (double)(mh_clock_ns() - wait->began_ns) / (double)(wait->until_ns - wait->began_ns);
    if (wait->progress && wait->progress(wait->argument, done < 1 ? done : 1))
        return mh_fail(err, MH_ERR_CLOSED, "stopped");
    return MH_OK;
}

/* Until there is a loader: between two epochs there may be none for a moment. */
static mh_status find_loader(mh_live *live, const patience *wait, mh_error *err)
{
    int pids[WORKERS_MOST];
    for (;;) {
        size_t count = 0;
        mh_status status = mh_inside_open(&live->inside, live->pid, err);
        if (status == MH_OK)
            status = workers_now(live, pids, &count, err);
        for (size_t at = 0; live->inside && at < count; at++)
            if (pids[at] == live->pid)
                return is_worker(live->pid, err);
        if (status != MH_OK || live->inside || count > 0)
            return status;
        if (mh_clock_ns() >= wait->until_ns)
            return no_loader(live->pid, err);
        if ((status = tell(wait, err)) != MH_OK)
            return status;
        sleep_ns(10 * OUTSIDE_TICK_NS);
        if ((status = may_look(live->pid, err)) != MH_OK)
            return status;
    }
}

static mh_status count_all(mh_live *live, mh_error *err)
{
    int pids[WORKERS_MOST];
    size_t count;
    mh_status status = workers_now(live, pids, &count, err);
    return status == MH_OK ? mh_outside_count(&live->outside, pids, count, err) : status;
}

/* Looks until the time is over. A process that ends meanwhile ends it too. */
static mh_status look_on(mh_live *live, const patience *wait, mh_error *err)
{
    uint64_t next_look = 0, next_count = 0, now;
    mh_status status = MH_OK;
    while (status == MH_OK && (now = mh_clock_ns()) < wait->until_ns) {
        if (now >= next_count) {
            status = count_all(live, err);
            next_count = now + NS_PER_S;
        }
        if (status == MH_OK && now >= next_look) {
            mh_outside_look(&live->outside);
            status = tell(wait, err);
            next_look = now + OUTSIDE_TICK_NS;
        }
        if (status == MH_OK && live->inside)
            status = mh_inside_look(live->inside, err);
        sleep_ns(live->inside ? INSIDE_TICK_NS : OUTSIDE_TICK_NS);
    }
    if (status == MH_OK)
        status = count_all(live, err);
    bool ended = status == MH_ERR_NOT_FOUND;
    bool enough = live->outside.ended_ns - live->outside.began_ns >= NS_PER_S / 2;
    return ended && enough ? MH_OK : status;
}

/* --- what was seen --- */

static MH_PRINTF(2, 3) void note(mh_live *live, const char *format, ...)
{
    va_list arguments;
    if (live->note_count == NOTES_MOST)
        return;
    va_start(arguments, format);
    (void)vsnprintf(live->notes[live->note_count++], MH_VERDICT_LINE, format, arguments);
    va_end(arguments);
}

static void sum_up(mh_live *live)
{
    mh_facts *facts = &live->facts;
    char line[MH_VERDICT_LINE];
    mh_facts_init(facts);
    facts->vantage = MH_VANTAGE_OUTSIDE;
    facts->workers = (int)live->outside.workers_most;
    facts->pin_memory = live->outside.pin_thread ? 1 : -1;
    (void)snprintf(facts->kind, sizeof facts->kind, "torch");
    mh_outside_sum(&live->outside, facts);
    double seconds = (double)facts->run_ns / 1e9;
    if (!live->inside) {
        note(live, "looked at process %d and %zu worker%s from outside for %.1f s", live->pid,
             live->outside.workers_most, live->outside.workers_most == 1 ? "" : "s", seconds);
        uint64_t between = live->outside.between;
        double share = (double)between / (double)(between + live->outside.main.looks + 1);
        if (share >= 0.01)
            note(live,
                 "in %.0f %% of the looks it ended workers or waited for new ones to begin an "
                 "epoch: persistent_workers=True keeps them",
                 100 * share);
        if (live->outside.main.hidden)
            note(live, "what they wait for may not be seen: run as root, or watch it from inside");
        return;
    }
    mh_inside_sum(live->inside, &live->outside, facts);
    if (facts->batch_count)
        facts->vantage = MH_VANTAGE_INSIDE;
    note(live, "looked into process %d for %.1f s: %zu batches", live->pid, seconds,
         facts->batch_count);
    if (facts->batch_count == 0)
        note(live,
             "no batch was taken meanwhile: look longer, with --seconds, or see what it is at");
    for (size_t at = 0; mh_inside_note(live->inside, at, line, sizeof line); at++)
        note(live, "%s", line);
}

mh_status mh_live_look(mh_live **out, int pid, double seconds, int (*progress)(void *, double),
                       void *progress_arg, mh_error *err)
{
    if (!(seconds > 0 && seconds <= MH_LIVE_SECONDS_MOST))
        return mh_fail(err, MH_ERR_INVALID, "seconds are above 0 and at most %d",
                       MH_LIVE_SECONDS_MOST);
    mh_status status = may_look(pid, err);
    mh_live *live = status == MH_OK ? mh_calloc(1, sizeof *live) : NULL;
    if (status == MH_OK && !live)
        status = mh_fail(err, MH_ERR_NOMEM, "no memory to look at process %d", pid);
    if (status != MH_OK)
        return status;
    live->pid = pid;
    uint64_t length = (uint64_t)(seconds * 1e9);
    patience wait = {mh_clock_ns(), 0, progress, progress_arg};
    wait.until_ns = wait.began_ns + length;
    status = find_loader(live, &wait, err);
    if (status == MH_OK)
        status = mh_outside_open(&live->outside, pid, err);
    if (status == MH_OK) {
        wait.began_ns = mh_clock_ns();
        wait.until_ns = wait.began_ns + length;
        status = look_on(live, &wait, err);
    }
    if (status != MH_OK) {
        mh_live_close(live);
        return status;
    }
    sum_up(live);
    *out = live;
    return MH_OK;
}

const mh_facts *mh_live_facts(const mh_live *live)
{
    return &live->facts;
}

static int compare_waits(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

mh_wait_stats mh_live_waits(const mh_live *live)
{
    const mh_facts *facts = &live->facts;
    mh_wait_stats stats = {0};
    uint64_t *waits = mh_calloc(facts->batch_count + 1, sizeof *waits);
    double sum = 0;
    if (!waits || facts->batch_count == 0) {
        mh_free(waits);
        return stats;
    }
    for (size_t at = 0; at < facts->batch_count; at++) {
        waits[at] = facts->batches[at].wait;
        sum += (double)waits[at];
    }
    size_t count = facts->batch_count, middle = (count - 1) / 2, high = (count - 1) * 99 / 100;
    qsort(waits, count, sizeof *waits, compare_waits);
    stats = (mh_wait_stats){
        .count = count,
        .mean = sum / (double)count / 1e9,
        .p50 = (double)waits[middle] / 1e9,
        .p99 = (double)waits[high] / 1e9,
        .max = (double)waits[count - 1] / 1e9,
    };
    mh_free(waits);
    return stats;
}

const char *mh_live_note(const mh_live *live, size_t at)
{
    return at < live->note_count ? live->notes[at] : NULL;
}

void mh_live_close(mh_live *live)
{
    if (!live)
        return;
    mh_inside_close(live->inside);
    mh_outside_close(&live->outside);
    mh_free(live);
}
