/* run_usage.c - what the processes of a run and its machine used, from looks taken now and then
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/run_reader.h"

#include "base/alloc.h"
#include "base/error.h"
#include <math.h>
#include <stdlib.h>

#define ROUND_MOST 4096 /* processes in one round of looks */
#define NS_PER_S 1e9
/* Processes of one round are looked at within less. */
#define LOOK_NS UINT64_C(500000000)
/* So many rounds of looks before what workers were found waiting for counts. */
#define LOCK_LOOKS 3
/* A process that worked between two looks in less than one of so many cases is idle. */
#define WORKED_OF 10
/* Work this long has looks enough of its own. */
#define ENOUGH_NS UINT64_C(3000000000)

/* Memory beside pages of files: those of a mapped array grow with what is read, and the kernel
 * takes them back when memory is short. */
static uint64_t beside_files(int64_t bytes, int64_t of_files)
{
    uint64_t all = mh_log_or(bytes, 0), files = mh_log_or(of_files, 0);
    return all > files ? all - files : 0;
}

static int look_add(mh_usages *usages, const mh_log_event *event)
{
    void *items = usages->looks;
    if (!mh_array_reserve(&items, &usages->look_room, usages->look_count, sizeof *usages->looks))
        return 0;
    usages->looks = items;
    usages->looks[usages->look_count++] = (mh_usage_look){
        .t = mh_log_or(event->t, 0),
        .cpu = mh_log_or(event->cpu, 0),
        .delay = mh_log_or(event->delay, 0),
        .pss = beside_files(event->pss, event->pss_file),
        .rss = beside_files(event->rss, event->rss_file),
        .pid = (uint32_t)mh_log_or(event->pid, 0),
        .is_main = mh_json_is(&event->role, "main"),
        .disk = event->state.length > 0 && event->state.text[0] == 'D',
        .locked = event->lock > 0 && event->lock <= 1 ? (float)event->lock : 0,
    };
    return 1;
}

static int system_add(mh_usages *usages, const mh_log_event *event)
{
    void *items = usages->systems;
    if (!mh_array_reserve(&items, &usages->system_room, usages->system_count,
                          sizeof *usages->systems))
        return 0;
    usages->systems = items;
    usages->systems[usages->system_count++] = (mh_system_look){
        .t = mh_log_or(event->t, 0),
        .busy = mh_log_or(event->busy, 0),
        .iowait = mh_log_or(event->iowait, 0),
        .disk_read = mh_log_or(event->disk_read, 0),
        .disk_busy = mh_log_or(event->disk_busy, 0),
        .net_read = mh_log_or(event->net_read, 0),
        .available = mh_log_or(event->available, 0),
        .cpus = (uint32_t)mh_log_or(event->cpus, 0),
    };
    return 1;
}

int mh_usages_event(mh_usages *usages, const mh_log_event *event)
{
    switch (event->is) {
    case MH_LOG_USAGE:
        return look_add(usages, event);
    case MH_LOG_SYSTEM:
        return system_add(usages, event);
    case MH_LOG_GPU:
        if (!isnan(event->util)) {
            usages->gpu_util += event->util;
            usages->gpu_looks++;
        }
        return 1;
    default:
        return 1;
    }
}

void mh_usages_deinit(mh_usages *usages)
{
    mh_free(usages->looks);
    mh_free(usages->systems);
}

/* What a counter gained; 0 where it went back. */
static double gained(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) : 0;
}

static void system_facts(const mh_usages *usages, uint64_t steady, mh_usage_sum *out)
{
    const mh_system_look *first = NULL, *last = NULL;
    for (size_t at = 0; at < usages->system_count; at++) {
        const mh_system_look *look = &usages->systems[at];
        if (!first || (first->t < steady && look->t <= steady))
            first = look; /* the last one before, or else the first */
        if (!last || look->t >= last->t)
            last = look;
    }
    if (!last)
        return;
    out->machine_cpus = last->cpus;
    out->memory_available_bytes = (double)last->available;
    if (last->t <= first->t)
        return;
    double wall = (double)(last->t - first->t);
    out->wall_ns = last->t - first->t;
    out->busy_cpus = gained(first->busy, last->busy) / wall;
    out->iowait_cpus = gained(first->iowait, last->iowait) / wall;
    out->disk_busy = gained(first->disk_busy, last->disk_busy) / wall;
    out->disk_read_per_s = gained(first->disk_read, last->disk_read) / wall * NS_PER_S;
    out->net_read_per_s = gained(first->net_read, last->net_read) / wall * NS_PER_S;
}

static int by_pid_then_time(const void *a, const void *b)
{
    const mh_usage_look *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return (x->t > y->t) - (x->t < y->t);
}

static int by_time(const void *a, const void *b)
{
    const mh_usage_look *x = a, *y = b;
    return (x->t > y->t) - (x->t < y->t);
}

/* One process: its CPU time from the first look of the steady part on; all of it where the process
 * came later, as workers do that are started anew for every epoch. */
static void process_facts(const mh_usage_look *looks, size_t count, uint64_t steady,
                          mh_usage_sum *out, double wall)
{
    size_t first = 0;
    while (first + 1 < count && looks[first].t < steady)
        first++;
    const mh_usage_look *last = &looks[count - 1];
    bool came_later = !last->is_main && looks[0].t > steady + LOOK_NS;
    double cpus = gained(came_later ? 0 : looks[first].cpu, last->cpu) / wall;
    out->loader_cpus += cpus;
    *(last->is_main ? &out->main_cpus : &out->workers_cpus) += cpus;
    double delay = gained(came_later ? 0 : looks[first].delay, last->delay) / wall;
    out->loader_delay += delay;
    out->workers_delay += last->is_main ? 0 : delay;
}

/* PSS is dear to read and not in every look: in between it has changed as RSS has. One process's
 * looks, in the order of their times. A process for which it was never read counts only where it
 * was read for none: RSS and PSS do not add up. */
static void process_memory(mh_usage_look *looks, size_t count, bool pss_read)
{
    int64_t shared = 0; /* what RSS counts and PSS does not */
    bool found = !pss_read;
    for (size_t at = count; at-- > 0;) { /* for looks before the first that has it */
        if (looks[at].pss) {
            shared = (int64_t)looks[at].rss - (int64_t)looks[at].pss;
            found = true;
        }
    }
    if (!found)
        return; /* memory stays 0: not known */
    for (size_t at = 0; at < count; at++) {
        if (looks[at].pss)
            shared = (int64_t)looks[at].rss - (int64_t)looks[at].pss;
        int64_t memory = (int64_t)looks[at].rss - shared;
        looks[at].memory = memory > 0 ? (uint64_t)memory : 0;
    }
}

/* What looks at one process found of its waiting for a lock, summed. Not of a process that is idle:
 * those of a pool wait for the lock of its queue until there is something to do, and use no CPU;
 * a worker uses some whenever it has had the lock. */
static double process_locked(const mh_usage_look *looks, size_t count, uint64_t steady)
{
    double locked = 0;
    size_t between = 0, worked = 0;
    for (size_t at = 0; at < count; at++) {
        if (looks[at].t < steady || looks[at].is_main)
            continue;
        locked += (double)looks[at].locked;
        between += at > 0;
        worked += at > 0 && looks[at].cpu > looks[at - 1].cpu;
    }
    return WORKED_OF * worked >= between ? locked : 0;
}

static void processes_facts(mh_usages *usages, uint64_t steady, mh_usage_sum *out)
{
    uint64_t begin = UINT64_MAX, end = 0;
    size_t main_looks = 0, main_disk = 0, worker_looks = 0, worker_disk = 0;
    double locked = 0;
    bool pss_read = false;
    for (size_t at = 0; at < usages->look_count; at++) {
        const mh_usage_look *look = &usages->looks[at];
        pss_read |= look->pss > 0;
        if (look->t < steady)
            continue;
        begin = look->t < begin ? look->t : begin;
        end = look->t > end ? look->t : end;
        *(look->is_main ? &main_looks : &worker_looks) += 1;
        *(look->is_main ? &main_disk : &worker_disk) += look->disk;
    }
    if (end < begin + MH_LOOKS_APART_NS)
        return;
    if (end - begin > out->wall_ns)
        out->wall_ns = end - begin;
    out->main_disk = main_looks ? (double)main_disk / (double)main_looks : 0;
    out->workers_disk = worker_looks ? (double)worker_disk / (double)worker_looks : 0;
    qsort(usages->looks, usages->look_count, sizeof *usages->looks, by_pid_then_time);
    for (size_t at = 0, next; at < usages->look_count; at = next) {
        for (next = at + 1; next < usages->look_count; next++)
            if (usages->looks[next].pid != usages->looks[at].pid)
                break;
        process_facts(usages->looks + at, next - at, begin, out, (double)(end - begin));
        process_memory(usages->looks + at, next - at, pss_read);
        locked += process_locked(usages->looks + at, next - at, begin);
    }
    if (main_looks >= LOCK_LOOKS) /* not by looks at workers: others are looked at as well */
        out->workers_locked = locked / (double)main_looks;
}

/* --- memory: the sum over all processes, look by look --- */

/* A round of looks is over when a process is looked at again: points[] gets their sums. */
static size_t memory_points(const mh_usages *usages, uint64_t steady, mh_memory_point *points,
                            uint32_t *pids)
{
    size_t count = 0, in_round = 0;
    for (size_t at = 0; at < usages->look_count; at++) {
        const mh_usage_look *look = &usages->looks[at];
        if (look->t < steady || !look->memory)
            continue;
        size_t seen = 0;
        while (seen < in_round && pids[seen] != look->pid)
            seen++;
        if (seen < in_round || in_round == 0 || in_round == ROUND_MOST) {
            points[count++] = (mh_memory_point){.t = (double)look->t / NS_PER_S};
            in_round = 0;
        }
        pids[in_round++] = look->pid;
        mh_memory_point *point = &points[count - 1];
        point->bytes += (double)look->memory;
        point->set += mh_process_mark(look->pid);
        /* not PSS: that of one process changes with how many share its pages */
        if (look->is_main)
            point->main_bytes = (double)(look->rss ? look->rss : look->memory);
    }
    return count;
}

static mh_status memory_facts(mh_usages *usages, uint64_t steady, mh_usage_sum *out, mh_error *err)
{
    size_t looks = usages->look_count;
    mh_memory_point *points = mh_calloc(looks, sizeof *points);
    uint32_t *pids = mh_calloc(ROUND_MOST, sizeof *pids);
    mh_status status = MH_OK;
    if (points && pids) {
        qsort(usages->looks, looks, sizeof *usages->looks, by_time);
        mh_memory_growth(points, memory_points(usages, steady, points, pids), out);
    } else {
        status = mh_fail(err, MH_ERR_NOMEM, "no memory for %zu looks at processes", looks);
    }
    mh_free(points);
    mh_free(pids);
    return status;
}

/* A process that goes on after its last batch, if only because it takes long to end on a busy
 * machine, has no workers then, and its memory is free. */
static void forget_after(mh_usages *usages, uint64_t ended)
{
    size_t looks = 0, systems = 0;
    for (size_t at = 0; at < usages->look_count; at++)
        if (usages->looks[at].t <= ended)
            usages->looks[looks++] = usages->looks[at];
    for (size_t at = 0; at < usages->system_count; at++)
        if (usages->systems[at].t <= ended)
            usages->systems[systems++] = usages->systems[at];
    usages->look_count = looks;
    usages->system_count = systems;
}

mh_status mh_usages_facts(mh_usages *usages, uint64_t steady, uint64_t ended, mh_usage_sum *out,
                          mh_error *err)
{
    *out = (mh_usage_sum){.gpu_util = -1};
    if (ended >= steady + ENOUGH_NS)
        forget_after(usages, ended);
    if (usages->gpu_looks)
        out->gpu_util = usages->gpu_util / (double)usages->gpu_looks;
    system_facts(usages, steady, out);
    processes_facts(usages, steady, out);
    return usages->look_count ? memory_facts(usages, steady, out, err) : MH_OK;
}
