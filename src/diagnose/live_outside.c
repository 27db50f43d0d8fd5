/* live_outside.c - what /proc says about a loop: its processes, their main threads, the machine
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "diagnose/live.h"
#include "observe/gpu.h"
#include "sys/clock.h"
#include "sys/cpu.h"
#include "sys/file.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Torch's names for its threads. */
#define TORCH_WORKER "pt_data_worker"
#define TORCH_PIN "pt_data_pin"

/* --- counters, about once a second --- */

static uint64_t or_zero(uint64_t value)
{
    return value == MH_NOT_READ ? 0 : value;
}

static uint64_t less(uint64_t bytes, uint64_t of_files)
{
    uint64_t all = or_zero(bytes), files = or_zero(of_files);
    return all > files ? all - files : 0;
}

static bool counts_read(mh_process_counts *out, int pid)
{
    mh_process_usage usage;
    mh_error err;
    if (mh_usage_process(&usage, pid, true, "", &err) != MH_OK || usage.stat.state == 'Z')
        return false;
    *out = (mh_process_counts){.cpu_ns = usage.cpu_ns,
                               .delay_ns = or_zero(usage.delay_ns),
                               .read_bytes = or_zero(usage.read_bytes),
                               .pss_bytes = less(usage.pss_bytes, usage.pss_file_bytes),
                               .rss_bytes = less(usage.stat.rss_bytes, usage.rss_file_bytes)};
    return true;
}

static void machine_count(mh_outside *outside)
{
    mh_gpu_usage gpus[MH_GPUS_MOST];
    size_t count = mh_gpu_read(gpus, MH_GPUS_MOST);
    double most = -1;
    mh_usage_system(&outside->system_last, "");
    mh_busiest_disk_look(&outside->disk, &outside->system_last);
    for (size_t at = 0; at < count; at++)
        most = gpus[at].util > most ? gpus[at].util : most;
    if (most >= 0) {
        outside->gpu_sum += most;
        outside->gpu_looks++;
    }
}

mh_status mh_outside_open(mh_outside *out, int pid, mh_error *err)
{
    *out = (mh_outside){.main = {.pid = pid}, .began_ns = mh_clock_ns()};
    if (!counts_read(&out->main.first, pid))
        return mh_fail(err, MH_ERR_NOT_FOUND, "there is no process %d", pid);
    out->main.last = out->main.first;
    out->pin_thread = mh_thread_named(pid, TORCH_PIN, "");
    machine_count(out);
    out->system_first = out->system_last;
    out->ended_ns = out->began_ns;
    return MH_OK;
}

void mh_outside_close(mh_outside *outside)
{
    mh_free(outside->workers);
    outside->workers = NULL;
}

/* The worker of that pid, made when it is new; NULL: no memory. */
static mh_seen_process *worker_of(mh_outside *outside, int pid)
{
    for (size_t at = 0; at < outside->worker_count; at++)
        if (outside->workers[at].pid == pid)
            return &outside->workers[at];
    if (outside->worker_count == outside->worker_room) {
        size_t room = outside->worker_room ? 2 * outside->worker_room : 16;
        void *grown = mh_realloc(outside->workers, room, sizeof *outside->workers);
        if (!grown)
            return NULL;
        outside->workers = grown;
        outside->worker_room = room;
    }
    mh_seen_process *made = &outside->workers[outside->worker_count++];
    *made = (mh_seen_process){.pid = pid};
    /* Those of the first time were there before; a later one has only what it used meanwhile. */
    if (outside->ended_ns == outside->began_ns)
        (void)counts_read(&made->first, pid);
    made->last = made->first;
    return made;
}

mh_status mh_outside_count(mh_outside *outside, const int *workers, size_t count, mh_error *err)
{
    double memory = 0;
    uint64_t set = mh_process_mark((uint32_t)outside->main.pid);
    if (count > outside->workers_most)
        outside->workers_most = count;
    for (size_t at = 0; at < count; at++) {
        mh_seen_process *worker = worker_of(outside, workers[at]);
        if (!worker)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu workers", count);
        (void)counts_read(&worker->last, worker->pid); /* one that has ended keeps what it had */
        memory += (double)worker->last.pss_bytes;
        set += mh_process_mark((uint32_t)worker->pid);
    }
    if (!counts_read(&outside->main.last, outside->main.pid))
        return mh_fail(err, MH_ERR_NOT_FOUND, "process %d has ended", outside->main.pid);
    machine_count(outside);
    outside->ended_ns = mh_clock_ns();
    const mh_process_counts *main = &outside->main.last;
    if (outside->memory_count < sizeof outside->memory / sizeof *outside->memory)
        outside->memory[outside->memory_count++] = (mh_memory_point){
            .t = (double)outside->ended_ns / 1e9,
            .bytes = memory + (double)main->pss_bytes,
            .main_bytes = (double)main->rss_bytes,
            .set = set,
        };
    return MH_OK;
}

/* --- looks, many times a second --- */

/* Polls one pipe: as a queue of multiprocessing does, when it waits for something to be put in.
 * Where we may not see the arguments, any poll counts. */
static bool polls_queue(const mh_thread_look *look)
{
    return look->waiting == MH_WAITING_POLL && (look->poll_pipe || !look->arguments);
}

/* The same for who takes batches: torch sends their memory after them through a local socket, and a
 * worker busy with Python code is slow to answer. */
static bool takes_from_queue(const mh_thread_look *look)
{
    return polls_queue(look) || look->waiting == MH_WAITING_LOCAL;
}

static mh_thread_look process_look(mh_seen_process *seen,
                                   bool (*on_queue)(const mh_thread_look *look))
{
    mh_thread_look look = mh_thread_look_at(seen->pid, seen->pid, "");
    if (look.waiting == MH_WAITING_GONE)
        return look;
    seen->looks++;
    seen->locked += look.shared_lock;
    if (look.waiting == MH_WAITING_NOT)
        seen->run++;
    else if (look.waiting == MH_WAITING_DISK)
        seen->disk++;
    else if (on_queue(&look))
        seen->queue++;
    else if (look.waiting == MH_WAITING_HIDDEN)
        seen->hidden++;
    else
        seen->blocked++;
    return look;
}

/* A wait is over. Joining workers looks like waiting for their batches, and the first batch of new
 * ones is waited for because they start. */
static void wait_ends(mh_outside *outside)
{
    if (outside->epoch_ends) {
        outside->between += outside->waiting_looks;
        outside->main.queue -= outside->waiting_looks;
        outside->main.looks -= outside->waiting_looks;
    }
    outside->waiting_looks = 0;
    outside->epoch_ends = false;
}

void mh_outside_look(mh_outside *outside)
{
    uint64_t queue = outside->main.queue;
    size_t alive = 0;
    mh_thread_look main = process_look(&outside->main, takes_from_queue);
    /* With pinned memory a thread stands between: the main thread waits for it by a lock, as it
     * does for much else, but for data only while that thread waits for the workers. */
    if (main.waiting == MH_WAITING_FUTEX && outside->pin_thread) {
        mh_thread_look pin = mh_thread_look_at(outside->main.pid, outside->pin_thread, "");
        if (takes_from_queue(&pin)) {
            outside->main.blocked--;
            outside->main.queue++;
        }
    }
    for (size_t at = 0; at < outside->worker_count; at++)
        alive += process_look(&outside->workers[at], polls_queue).waiting != MH_WAITING_GONE;
    if (outside->main.queue > queue) {
        outside->waiting_looks++;
        outside->epoch_ends |= alive == 0 || alive < outside->workers_alive;
    } else {
        wait_ends(outside);
    }
    outside->workers_alive = alive;
}

/* --- sums --- */

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

/* Per second, 0 where a counter was not read. */
static double rate(uint64_t first, uint64_t last, double seconds)
{
    if (first == MH_NOT_READ || last == MH_NOT_READ || last < first)
        return 0;
    return (double)(last - first) / seconds;
}

static void workers_sum(const mh_outside *outside, double ns, mh_usage_sum *out)
{
    uint64_t looks = 0, run = 0, disk = 0, idle = 0, blocked = 0, locked = 0;
    for (size_t at = 0; at < outside->worker_count; at++) {
        const mh_seen_process *worker = &outside->workers[at];
        out->workers_cpus += (double)(worker->last.cpu_ns - worker->first.cpu_ns) / ns;
        if (worker->last.delay_ns > worker->first.delay_ns)
            out->workers_delay += (double)(worker->last.delay_ns - worker->first.delay_ns) / ns;
        looks += worker->looks;
        run += worker->run;
        disk += worker->disk;
        idle += worker->queue;
        locked += worker->locked;
        blocked += worker->blocked + worker->hidden;
    }
    out->workers_run = share(run, looks);
    out->workers_disk = share(disk, looks);
    out->workers_idle = share(idle, looks);
    out->workers_blocked = share(blocked, looks);
    out->workers_locked = share(locked, looks) * (double)outside->workers_most;
}

/* CPUs the process may use: its own mask, and our quota where we are in the same group. */
static int cpus_of(int pid)
{
    enum { MOST = 8192 };
    char path[64];
    size_t length;
    cpu_set_t *mask = CPU_ALLOC(MOST);
    int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (mask && sched_getaffinity(pid, CPU_ALLOC_SIZE(MOST), mask) == 0)
        cpus = CPU_COUNT_S(CPU_ALLOC_SIZE(MOST), mask);
    CPU_FREE(mask);
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    char *theirs = mh_file_read_text(path, &length);
    char *ours = mh_file_read_text("/proc/self/cgroup", &length);
    if (theirs && ours && strcmp(theirs, ours) == 0 && mh_cpu_allowed("") < cpus)
        cpus = mh_cpu_allowed("");
    mh_free(theirs);
    mh_free(ours);
    return cpus;
}

void mh_outside_sum(mh_outside *outside, mh_facts *facts)
{
    const mh_system_usage *first = &outside->system_first, *last = &outside->system_last;
    const mh_seen_process *main = &outside->main;
    mh_usage_sum *out = &facts->usage;
    uint64_t wall_ns = outside->ended_ns - outside->began_ns;
    double ns = wall_ns ? (double)wall_ns : 1, seconds = ns / 1e9;
    wait_ends(outside);
    *out = (mh_usage_sum){
        .wall_ns = wall_ns,
        .machine_cpus = last->cpus,
        .busy_cpus = rate(first->busy_ns, last->busy_ns, ns),
        .iowait_cpus = rate(first->iowait_ns, last->iowait_ns, ns),
        .disk_busy = (double)outside->disk.busy_ns / ns,
        .disk_read_per_s = (double)outside->disk.read_bytes / seconds,
        .net_read_per_s = rate(first->net_read_bytes, last->net_read_bytes, seconds),
        .gpu_util = outside->gpu_looks ? outside->gpu_sum / (double)outside->gpu_looks : -1,
        .main_cpus = (double)(main->last.cpu_ns - main->first.cpu_ns) / ns,
        .main_data = 2 * main->hidden > main->looks ? -1 : share(main->queue, main->looks),
        .main_disk = share(main->disk, main->looks),
    };
    if (main->last.delay_ns > main->first.delay_ns)
        out->loader_delay = (double)(main->last.delay_ns - main->first.delay_ns) / ns;
    if (out->disk_busy > 1)
        out->disk_busy = 1;
    workers_sum(outside, ns, out);
    out->loader_delay += out->workers_delay;
    out->loader_cpus = out->main_cpus + out->workers_cpus;
    out->memory_available_bytes = (double)or_zero(last->available_bytes);
    mh_memory_growth(outside->memory, outside->memory_count, out);
    facts->run_ns = wall_ns;
    facts->cpus = cpus_of(main->pid);
}

/* --- torch's workers --- */

static bool same_program(int pid, int other)
{
    char path[64], one[PATH_MAX], two[PATH_MAX];
    (void)snprintf(path, sizeof path, "/proc/%d/exe", pid);
    ssize_t length = readlink(path, one, sizeof one);
    (void)snprintf(path, sizeof path, "/proc/%d/exe", other);
    return length > 0 && readlink(path, two, sizeof two) == length &&
           memcmp(one, two, (size_t)length) == 0;
}

static char *command_line(int pid, size_t *length)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    return mh_file_read_text(path, length);
}

static bool command_has(int pid, const char *text)
{
    size_t length;
    char *own = command_line(pid, &length);
    bool has = own && memmem(own, length, text, strlen(text));
    mh_free(own);
    return has;
}

/* A child that looks like a worker of a torch that does not name its own: forked, so that it has
 * its parent's command line, or spawned by multiprocessing. */
static bool may_be_worker(int pid, int parent)
{
    size_t length, parent_length;
    if (!same_program(pid, parent))
        return false;
    char *own = command_line(pid, &length);
    char *parents = command_line(parent, &parent_length);
    bool forked = own && parents && length == parent_length && length > 0 &&
                  memcmp(own, parents, length) == 0;
    mh_free(own);
    mh_free(parents);
    return forked || command_has(pid, "spawn_main");
}

static bool has_torch(int pid)
{
    char path[64];
    size_t length;
    (void)snprintf(path, sizeof path, "/proc/%d/maps", pid);
    char *maps = mh_file_read_text(path, &length);
    bool has = maps && memmem(maps, length, "/libtorch", strlen("/libtorch"));
    mh_free(maps);
    return has;
}

int mh_trainer_of(int worker)
{
    mh_process_stat stat;
    if (!mh_usage_stat(&stat, worker, ""))
        return 0;
    int parent = stat.parent;
    if (command_has(parent, "multiprocessing.forkserver") && mh_usage_stat(&stat, parent, ""))
        parent = stat.parent;
    return same_program(worker, parent) || has_torch(parent) ? parent : 0;
}

bool mh_is_torch_worker(int pid)
{
    mh_process_stat stat;
    return mh_usage_stat(&stat, pid, "") && strcmp(stat.name, TORCH_WORKER) == 0 &&
           stat.state != 'Z';
}

mh_status mh_torch_workers(int **out, size_t *out_count, int pid, mh_error *err)
{
    int *pids;
    size_t count, kept = 0;
    mh_status status = mh_usage_children(&pids, &count, pid, "", err);
    if (status != MH_OK)
        return status;
    for (size_t at = 0; at < count; at++)
        if (mh_is_torch_worker(pids[at]) && mh_trainer_of(pids[at]) == pid)
            pids[kept++] = pids[at];
    /* nothing was overwritten where nothing was kept */
    bool guess = kept == 0 && count > 0 && has_torch(pid);
    for (size_t at = 0; at < count && guess; at++)
        if (may_be_worker(pids[at], pid) && mh_trainer_of(pids[at]) == pid)
            pids[kept++] = pids[at];
    *out = pids;
    *out_count = kept;
    return MH_OK;
}
