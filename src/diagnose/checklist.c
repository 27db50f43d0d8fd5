/* checklist.c - the system checklist: what around a training process slows or ends it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/checklist.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define YEAR_2020_UNIX_S UINT64_C(1577836800)

/* What all items are judged from. */
typedef struct evidence {
    const mh_surroundings *around;
    const char *(*variable)(const char *name);
} evidence;

static MH_PRINTF(2, 3) void found(mh_check *check, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(check->found, sizeof check->found, format, arguments);
    va_end(arguments);
}

/* No better than `state`, and what to do: of the worst thing found, the first. */
static MH_PRINTF(3, 4) void mark(mh_check *check, mh_check_state state, const char *format, ...)
{
    if (state <= check->state)
        return;
    check->state = state;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(check->todo, sizeof check->todo, format, arguments);
    va_end(arguments);
}

/* "1.5 GiB", or "no limit". Four are alive at a time. */
static const char *size_text(uint64_t bytes)
{
    static _Thread_local char texts[4][32];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % 4];
    if (bytes == MH_NO_LIMIT)
        (void)snprintf(text, sizeof texts[0], "no limit");
    else if (bytes < GIB)
        (void)snprintf(text, sizeof texts[0], "%.0f MiB", (double)bytes / (double)MIB);
    else
        (void)snprintf(text, sizeof texts[0], "%.1f GiB", (double)bytes / (double)GIB);
    return text;
}

static int cpus_allowed(const mh_surroundings *around)
{
    double quota = around->group.cpu_quota;
    if (quota > 0 && quota < around->cpus_affinity)
        return (int)quota + (quota > (int)quota);
    return around->cpus_affinity;
}

/* --- the items --- */

static void check_clock(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    if (around->clock_synchronised < 0)
        found(check, "the kernel does not tell whether the clock is synchronised");
    else if (around->clock_synchronised)
        found(check, "synchronised, off by %.3f s at most", around->clock_error_s);
    else
        found(check, "not synchronised");
    if (around->clock_unix_s < YEAR_2020_UNIX_S)
        mark(check, MH_CHECK_FAIL, "set the clock: certificates and file times are wrong");
    if (around->clock_synchronised == 0)
        mark(check, MH_CHECK_WARN,
             "run chrony or ntpd on every machine of the job: logs of several machines do not line "
             "up otherwise");
    if (around->clock_synchronised == 1 && around->clock_error_s > 1)
        mark(check, MH_CHECK_WARN, "see why the time server is far off: chronyc tracking");
}

/* Torch's workers hand over a descriptor per tensor under way; a program and its libraries need
 * some hundred. */
static void check_files(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    uint64_t needed = 512 + 64 * (uint64_t)cpus_allowed(around);
    char hard[32];
    if (around->files_hard == MH_NO_LIMIT)
        (void)snprintf(hard, sizeof hard, "no limit");
    else
        (void)snprintf(hard, sizeof hard, "%llu", (unsigned long long)around->files_hard);
    if (around->files_soft == MH_NO_LIMIT)
        found(check, "no limit");
    else
        found(check, "%llu open files allowed (hard limit %s), about %llu needed",
              (unsigned long long)around->files_soft, hard, (unsigned long long)needed);
    if (around->files_soft < 256)
        mark(check, MH_CHECK_FAIL, "ulimit -n %llu before the program", (unsigned long long)needed);
    else if (around->files_soft < needed)
        mark(check, MH_CHECK_WARN,
             "ulimit -n %llu before the program, or see \"too many open files\"",
             (unsigned long long)needed);
}

static void check_shm(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    if (around->shm_total == MH_NO_LIMIT) {
        found(check, "there is no /dev/shm");
        mark(check, MH_CHECK_FAIL,
             "mount a tmpfs there: torch's workers pass batches through it (millhead's do not)");
        return;
    }
    found(check, "%s, %s free", size_text(around->shm_total), size_text(around->shm_free));
    if (around->shm_free <= 64 * MIB)
        mark(check, MH_CHECK_FAIL,
             "docker run --shm-size=8g or --ipc=host: torch's workers pass batches through it "
             "(millhead's do not)");
    else if (around->shm_free < GIB)
        mark(check, MH_CHECK_WARN,
             "enlarge it (docker run --shm-size=8g) for large batches, or use millhead's loader, "
             "which does not need it");
}

static void check_memory(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    uint64_t limit = around->group.memory_max_bytes, left = around->group.memory_available_bytes;
    if (around->memory_available < left)
        left = around->memory_available;
    uint64_t whole = limit < around->memory_total ? limit : around->memory_total;
    found(check, "%s left of %s (machine %s, control group %s)", size_text(left), size_text(whole),
          size_text(around->memory_total), size_text(limit));
    if (whole == MH_NO_LIMIT || left == MH_NO_LIMIT)
        return;
    if (left < whole / 50)
        mark(check, MH_CHECK_FAIL,
             "free memory or raise the limit: the kernel will end a worker soon");
    else if (left < whole / 10)
        mark(check, MH_CHECK_WARN, "fewer workers or smaller batches, or a higher limit");
}

static void check_quota(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    double quota = around->group.cpu_quota;
    if (quota <= 0) {
        found(check, "no quota");
        return;
    }
    found(check, "%.1f CPUs' worth of time on a machine of %d", quota, around->cpus_machine);
    if (quota < around->cpus_affinity)
        mark(check, MH_CHECK_WARN,
             "choose num_workers by the quota (millhead plan cpus): os.cpu_count() gives %d",
             around->cpus_machine);
}

static void check_affinity(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    int may = around->cpus_affinity, there = around->cpus_machine;
    found(check, "may run on %d of %d CPUs", may, there);
    if (may == 1 && there > 1)
        mark(check, MH_CHECK_FAIL,
             "find who binds to one CPU (a launcher, or OMP_PROC_BIND or GOMP_CPU_AFFINITY with an "
             "OpenMP library): workers inherit it and share that CPU");
    else if (2 * may < there)
        mark(check, MH_CHECK_WARN,
             "right where ranks share the machine; else see who binds (taskset -p, the batch "
             "system)");
}

static void check_mounts(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    if (!*around->network_mounts) {
        found(check, "no network file system here");
        return;
    }
    found(check, "%s", around->network_mounts);
    mark(check, MH_CHECK_WARN,
         "copy the data to a local disk, or expect latency per file: few large files and more "
         "workers");
}

static void check_swap(mh_check *check, const evidence *all)
{
    uint64_t used = all->around->swap_used;
    found(check, used ? "%s in use" : "none in use", size_text(used));
    if (used > 64 * MIB)
        mark(check, MH_CHECK_WARN,
             "free memory: pages of the program may be on disk (vmstat 1 shows si and so)");
}

static void check_threads(mh_check *check, const evidence *all)
{
    static const char *const names[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS",
                                        "OPENBLAS_NUM_THREADS"};
    int cpus = cpus_allowed(all->around);
    size_t used = 0;
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        const char *text = all->variable(names[at]);
        if (!text || used >= sizeof check->found)
            continue;
        int wrote = snprintf(check->found + used, sizeof check->found - used, "%s%s=%.20s",
                             used ? " " : "", names[at], text);
        used += wrote > 0 ? (size_t)wrote : 0;
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1)
            mark(check, MH_CHECK_WARN, "set %s to a number", names[at]);
        else if (value > cpus)
            mark(check, MH_CHECK_WARN,
                 "lower %s: every worker starts as many threads, and there are %d CPUs", names[at],
                 cpus);
    }
    if (used == 0)
        found(check, "not set: BLAS in each worker takes all %d CPUs unless something caps it",
              cpus);
}

static void check_hugepages(mh_check *check, const evidence *all)
{
    const char *mode = all->around->hugepages;
    found(check, "%s", *mode ? mode : "not told");
    if (strcmp(mode, "always") == 0)
        mark(check, MH_CHECK_WARN,
             "madvise is safer with forked workers: they copy 2 MiB where they touch a byte (echo "
             "madvise > /sys/kernel/mm/transparent_hugepage/enabled)");
}

static void check_maps(mh_check *check, const evidence *all)
{
    uint64_t most = all->around->max_map_count;
    if (most == MH_NO_LIMIT) {
        found(check, "not told");
        return;
    }
    found(check, "%llu mappings per process", (unsigned long long)most);
    if (most < 65530)
        mark(check, MH_CHECK_WARN,
             "sysctl vm.max_map_count=262144: each tensor from a worker is a mapping");
}

static void check_processes(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    uint64_t group = around->group.pids_left, user = around->processes_soft;
    uint64_t least = group < user ? group : user;
    if (least == MH_NO_LIMIT) {
        found(check, "no limit");
        return;
    }
    if (group <= user)
        found(check, "%llu more processes and threads in the control group",
              (unsigned long long)group);
    else
        found(check, "%llu processes and threads for the user", (unsigned long long)user);
    if (least < 64)
        mark(check, MH_CHECK_FAIL,
             "raise pids.max or ulimit -u: workers and threads will not start");
    else if (least < 512)
        mark(check, MH_CHECK_WARN,
             "raise pids.max or ulimit -u: each worker brings a dozen threads");
}

static void check_core(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    const char *pattern = around->core_pattern;
    if (around->core_soft == 0) {
        found(check, "no core files (ulimit -c 0)");
        return;
    }
    found(check, "up to %s each, to %.100s", size_text(around->core_soft),
          *pattern ? pattern : "core");
    if (*pattern != '|' && *pattern != '/' && around->core_soft > GIB)
        mark(check, MH_CHECK_WARN,
             "ulimit -c 0, or a directory of their own: a crash writes all memory of the process "
             "into the working directory");
}

static void check_timeouts(mh_check *check, const evidence *all)
{
    static const char *const names[] = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING",
        "TORCH_NCCL_BLOCKING_WAIT",        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        "TORCH_NCCL_ENABLE_MONITORING",
    };
    enum { ASYNC, ASYNC_OLD, BLOCKING, HEARTBEAT };
    size_t used = 0;
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        const char *text = all->variable(names[at]);
        if (!text || used >= sizeof check->found)
            continue;
        int wrote = snprintf(check->found + used, sizeof check->found - used, "%s%s=%.20s",
                             used ? " " : "", names[at], text);
        used += wrote > 0 ? (size_t)wrote : 0;
        if ((at == ASYNC || at == ASYNC_OLD) && strcmp(text, "0") == 0)
            mark(check, MH_CHECK_WARN, "unset %s: ranks wait for ever for one that died",
                 names[at]);
        if (at == HEARTBEAT && strtol(text, NULL, 10) < 60)
            mark(check, MH_CHECK_WARN, "raise %s: a slow first batch looks like a hang", names[at]);
    }
    if (used == 0)
        found(check, "none set: torch ends a collective that hangs after its own time-out");
}

static void check_gpu(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    size_t idle_driver = 0;
    for (size_t at = 0; at < around->gpu_count; at++)
        idle_driver += around->gpus[at].persistent == 0;
    if (around->gpu_count == 0)
        found(check, "no NVIDIA driver here");
    else
        found(check, "%zu devices, %zu without persistence mode", around->gpu_count, idle_driver);
    if (idle_driver)
        mark(check, MH_CHECK_WARN,
             "nvidia-smi -pm 1: else the driver loads again whenever a program starts");
}

static void judge_room(mh_check *check, const char *path, uint64_t total, uint64_t left)
{
    if (total == MH_NO_LIMIT)
        return;
    if (left < total / 200 || left < 256 * MIB)
        mark(check, MH_CHECK_FAIL, "make room in %.100s: checkpoints and logs will fail", path);
    else if (left < total / 20 || left < 2 * GIB)
        mark(check, MH_CHECK_WARN, "make room in %.100s before a long run", path);
}

static void check_disk(mh_check *check, const evidence *all)
{
    const mh_surroundings *around = all->around;
    found(check, "%s of %s free here, %s in %.100s", size_text(around->disk_free),
          size_text(around->disk_total), size_text(around->temporary_free), around->temporary);
    judge_room(check, around->directory, around->disk_total, around->disk_free);
    judge_room(check, around->temporary, around->temporary_total, around->temporary_free);
}

/* The one list; the order in which they are shown. */
static const struct {
    const char *item;
    void (*look)(mh_check *check, const evidence *all);
} items[] = {
    {"clock", check_clock},
    {"open-files", check_files},
    {"shared-memory", check_shm},
    {"memory", check_memory},
    {"swap", check_swap},
    {"cpu-quota", check_quota},
    {"cpu-affinity", check_affinity},
    {"thread-variables", check_threads},
    {"processes", check_processes},
    {"network-mounts", check_mounts},
    {"disk-space", check_disk},
    {"huge-pages", check_hugepages},
    {"mappings", check_maps},
    {"core-files", check_core},
    {"collective-timeouts", check_timeouts},
    {"gpu", check_gpu},
};

_Static_assert(sizeof items / sizeof *items <= MH_CHECKS_MOST, "room for every item");

size_t mh_checks_judge(mh_check out[MH_CHECKS_MOST], const mh_surroundings *around,
                       const char *(*variable)(const char *name))
{
    const evidence all = {around, variable};
    size_t count = sizeof items / sizeof *items;
    for (size_t at = 0; at < count; at++) {
        out[at] = (mh_check){.item = items[at].item, .state = MH_CHECK_PASS};
        items[at].look(&out[at], &all);
    }
    return count;
}

static const char *variable_of(const char *name)
{
    return getenv(name);
}

size_t mh_checks_run(mh_check out[MH_CHECKS_MOST])
{
    mh_surroundings *around = mh_calloc(1, sizeof *around);
    if (!around)
        return 0;
    mh_surroundings_read(around, "");
    size_t count = mh_checks_judge(out, around, variable_of);
    mh_free(around);
    return count;
}
