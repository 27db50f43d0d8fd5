/* surroundings.c - what a training process finds around it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/surroundings.h"

#include "base/alloc.h"
#include "sys/file.h"
#include "sys/parse.h"
#include "sys/span.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static void read_clock(mh_surroundings *out)
{
    struct timex state = {0};
    struct timespec now;
    int answer = adjtimex(&state); /* only asks: no mode is set */
    out->clock_synchronised = answer < 0 ? -1 : !(state.status & STA_UNSYNC);
    out->clock_error_s = answer < 0 ? 0 : (double)state.maxerror / 1e6;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    out->clock_unix_s = (uint64_t)now.tv_sec;
}

static uint64_t limit_of(int resource, bool hard)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return MH_NO_LIMIT;
    rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
    return value == RLIM_INFINITY ? MH_NO_LIMIT : value;
}

static void read_cpus(mh_surroundings *out)
{
    /* room for 8192: a mask that is too small is an error, not a shorter answer */
    enum { MOST = 8192 };
    cpu_set_t *mask = CPU_ALLOC(MOST);
    out->cpus_machine = (int)sysconf(_SC_NPROCESSORS_ONLN);
    out->cpus_affinity = out->cpus_machine;
    if (mask && sched_getaffinity(0, CPU_ALLOC_SIZE(MOST), mask) == 0)
        out->cpus_affinity = CPU_COUNT_S(CPU_ALLOC_SIZE(MOST), mask);
    CPU_FREE(mask);
}

static char *text_of(const char *root, const char *path, size_t *length)
{
    char full[MH_PARSE_PATH_BYTES];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return NULL;
    return mh_file_read_text(full, length);
}

static void read_memory(mh_surroundings *out, const char *root)
{
    size_t length;
    uint64_t swap_total = 0, swap_free = 0;
    char *text = text_of(root, "/proc/meminfo", &length);
    out->memory_total = out->memory_available = MH_NO_LIMIT;
    if (text) {
        (void)mh_parse_field(text, length, "MemTotal", &out->memory_total);
        (void)mh_parse_field(text, length, "MemAvailable", &out->memory_available);
        (void)mh_parse_field(text, length, "SwapTotal", &swap_total);
        (void)mh_parse_field(text, length, "SwapFree", &swap_free);
    }
    mh_free(text);
    out->swap_used = swap_total > swap_free ? swap_total - swap_free : 0;
    out->max_map_count = MH_NO_LIMIT;
    if ((text = text_of(root, "/proc/sys/vm/max_map_count", &length)))
        (void)mh_parse_limit(text, length, &out->max_map_count);
    mh_free(text);
}

/* "always [madvise] never": the one in brackets. */
static void read_hugepages(mh_surroundings *out, const char *root)
{
    size_t length;
    char *text = text_of(root, "/sys/kernel/mm/transparent_hugepage/enabled", &length);
    mh_span rest = {text, text ? length : 0}, word;
    *out->hugepages = '\0';
    while (mh_span_word(&rest, &word))
        if (word.size > 2 && *word.data == '[' && word.size - 2 < sizeof out->hugepages) {
            memcpy(out->hugepages, word.data + 1, word.size - 2);
            out->hugepages[word.size - 2] = '\0';
        }
    mh_free(text);
}

static void read_room(const char *path, uint64_t *total, uint64_t *free_bytes)
{
    struct statvfs about;
    *total = *free_bytes = MH_NO_LIMIT;
    if (statvfs(path, &about) != 0 || about.f_blocks == 0)
        return;
    *total = (uint64_t)about.f_blocks * about.f_frsize;
    *free_bytes = (uint64_t)about.f_bavail * about.f_frsize;
}

static void read_files(mh_surroundings *out, const char *root)
{
    size_t length;
    const char *temporary = getenv("TMPDIR");
    if (!getcwd(out->directory, sizeof out->directory))
        (void)snprintf(out->directory, sizeof out->directory, ".");
    (void)snprintf(out->temporary, sizeof out->temporary, "%s",
                   temporary && *temporary ? temporary : "/tmp");
    char *text = text_of(root, "/proc/self/mountinfo", &length);
    *out->network_mounts = '\0';
    if (text)
        (void)mh_parse_network_mounts(text, length, out->directory, out->network_mounts,
                                      sizeof out->network_mounts);
    mh_free(text);
    read_room(out->directory, &out->disk_total, &out->disk_free);
    read_room(out->temporary, &out->temporary_total, &out->temporary_free);
    read_room("/dev/shm", &out->shm_total, &out->shm_free);
    *out->core_pattern = '\0';
    if ((text = text_of(root, "/proc/sys/kernel/core_pattern", &length)))
        (void)snprintf(out->core_pattern, sizeof out->core_pattern, "%.*s",
                       (int)strcspn(text, "\n"), text);
    mh_free(text);
}

void mh_surroundings_read(mh_surroundings *out, const char *root)
{
    *out = (mh_surroundings){0};
    read_clock(out);
    out->files_soft = limit_of(RLIMIT_NOFILE, false);
    out->files_hard = limit_of(RLIMIT_NOFILE, true);
    out->processes_soft = limit_of(RLIMIT_NPROC, false);
    out->core_soft = limit_of(RLIMIT_CORE, false);
    mh_cgroup_read(&out->group, root);
    mh_cgroup_read_pids(&out->group, root);
    read_cpus(out);
    read_memory(out, root);
    read_hugepages(out, root);
    read_files(out, root);
    out->gpu_count = mh_gpu_read(out->gpus, MH_GPUS_MOST);
}
