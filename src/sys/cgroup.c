/* cgroup.c - the limits of the control group this process lives in
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/cgroup.h"

#include "base/alloc.h"
#include "sys/file.h"
#include "sys/parse.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* v1 writes "no limit" as the largest page-aligned signed number, which depends on the page size;
 * nobody has four exbibytes. */
#define V1_UNLIMITED (UINT64_C(1) << 62)

/* The names one version gives to what is read. */
typedef struct memory_files {
    const char *limit, *usage, *stat;
    const char *inactive, *active; /* lines of `stat`, children included */
} memory_files;

static const memory_files v2_files = {"memory.max", "memory.current", "memory.stat",
                                      "inactive_file", "active_file"};
static const memory_files v1_files = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                      "memory.stat", "total_inactive_file", "total_active_file"};

/* What the process says about its groups and mounts. */
typedef struct proc_texts {
    char *groups, *mounts;
    size_t groups_length, mounts_length;
} proc_texts;

/* Reads `name` in the group directory `dir`. */
static char *group_text(const char *dir, const char *name, size_t *length)
{
    char path[3 * MH_PARSE_PATH_BYTES];
    int wanted = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (wanted < 0 || (size_t)wanted >= sizeof path)
        return NULL;
    return mh_file_read_text(path, length);
}

static bool group_number(const char *dir, const char *name, uint64_t *out)
{
    size_t length;
    char *text = group_text(dir, name, &length);
    bool found = text && mh_parse_limit(text, length, out);
    mh_free(text);
    return found;
}

/* The file cache charged to a group that the kernel gives up before it kills: all that is inactive
 * and half of what is active. Without it a container that has read a large data set would seem
 * full, because the cache grows until the limit. */
static uint64_t group_droppable(const char *dir, const memory_files *files)
{
    size_t length;
    uint64_t inactive = 0, active = 0;
    char *text = group_text(dir, files->stat, &length);
    if (text) {
        (void)mh_parse_field(text, length, files->inactive, &inactive);
        (void)mh_parse_field(text, length, files->active, &active);
    }
    mh_free(text);
    return inactive > MH_NO_LIMIT - active / 2 ? MH_NO_LIMIT : inactive + active / 2;
}

static void group_memory(mh_cgroup_limits *out, const char *dir, const memory_files *files)
{
    uint64_t limit, usage = 0;
    if (!group_number(dir, files->limit, &limit) || limit >= V1_UNLIMITED)
        return;
    (void)group_number(dir, files->usage, &usage);
    uint64_t droppable = group_droppable(dir, files);
    uint64_t fixed = usage > droppable ? usage - droppable : 0;
    uint64_t available = limit > fixed ? limit - fixed : 0;
    if (available < out->memory_available_bytes)
        out->memory_available_bytes = available;
    if (limit < out->memory_max_bytes) {
        out->memory_max_bytes = limit;
        out->memory_current_bytes = usage;
    }
}

static void quota_take(mh_cgroup_limits *out, double cpus)
{
    if (cpus > 0 && (out->cpu_quota == 0 || cpus < out->cpu_quota))
        out->cpu_quota = cpus;
}

static void group_v2(mh_cgroup_limits *out, const char *dir)
{
    size_t length;
    double cpus = 0;
    group_memory(out, dir, &v2_files);
    char *text = group_text(dir, "cpu.max", &length);
    if (text && mh_parse_cpu_max(text, length, &cpus))
        quota_take(out, cpus);
    mh_free(text);
}

static void group_v1_memory(mh_cgroup_limits *out, const char *dir)
{
    group_memory(out, dir, &v1_files);
}

static void group_v1_cpu(mh_cgroup_limits *out, const char *dir)
{
    uint64_t quota, period;
    /* "-1" (no quota) is not a limit the parser knows, so it is not found. */
    if (group_number(dir, "cpu.cfs_quota_us", &quota) &&
        group_number(dir, "cpu.cfs_period_us", &period) && period > 0)
        quota_take(out, (double)quota / (double)period);
}

static void group_pids(mh_cgroup_limits *out, const char *dir)
{
    uint64_t most, now = 0;
    if (!group_number(dir, "pids.max", &most) || most == MH_NO_LIMIT)
        return;
    (void)group_number(dir, "pids.current", &now);
    uint64_t left = most > now ? most - now : 0;
    if (left < out->pids_left)
        out->pids_left = left;
}

/* One hierarchy: finds the process's group in it and looks at that group and all its parents. */
static void hierarchy_read(mh_cgroup_limits *out, const char *root, const proc_texts *proc,
                           const char *controller, void (*look)(mh_cgroup_limits *, const char *))
{
    char group[MH_PARSE_PATH_BYTES], dir[2 * MH_PARSE_PATH_BYTES + 1];
    mh_cgroup_mount mount;
    if (!mh_parse_own_group(proc->groups, proc->groups_length, controller, group) ||
        !mh_parse_group_mount(proc->mounts, proc->mounts_length, controller, group, &mount))
        return;
    for (;;) {
        int wanted = snprintf(dir, sizeof dir, "%s%s%s", root, mount.point, mount.group);
        if (wanted >= 0 && (size_t)wanted < sizeof dir)
            look(out, dir);
        char *last = strrchr(mount.group, '/');
        if (!last)
            return;
        *last = '\0';
    }
}

static void texts_read(proc_texts *out, const char *root)
{
    char path[MH_PARSE_PATH_BYTES];
    *out = (proc_texts){0};
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) < (int)sizeof path)
        out->groups = mh_file_read_text(path, &out->groups_length);
    if (snprintf(path, sizeof path, "%s/proc/self/mountinfo", root) < (int)sizeof path)
        out->mounts = mh_file_read_text(path, &out->mounts_length);
}

static void texts_free(proc_texts *texts)
{
    mh_free(texts->groups);
    mh_free(texts->mounts);
}

void mh_cgroup_read(mh_cgroup_limits *out, const char *root)
{
    proc_texts proc;
    *out = (mh_cgroup_limits){
        .memory_max_bytes = MH_NO_LIMIT,
        .memory_available_bytes = MH_NO_LIMIT,
        .pids_left = MH_NO_LIMIT,
    };
    texts_read(&proc, root);
    if (proc.groups && proc.mounts) {
        hierarchy_read(out, root, &proc, "", group_v2);
        hierarchy_read(out, root, &proc, "memory", group_v1_memory);
        hierarchy_read(out, root, &proc, "cpu", group_v1_cpu);
    }
    texts_free(&proc);
}

void mh_cgroup_read_pids(mh_cgroup_limits *out, const char *root)
{
    proc_texts proc;
    out->pids_left = MH_NO_LIMIT;
    texts_read(&proc, root);
    if (proc.groups && proc.mounts) {
        hierarchy_read(out, root, &proc, "", group_pids);
        hierarchy_read(out, root, &proc, "pids", group_pids);
    }
    texts_free(&proc);
}
