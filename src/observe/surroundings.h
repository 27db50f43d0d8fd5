/* surroundings.h - what a training process finds around it: limits, mounts, clock, memory
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OBSERVE_SURROUNDINGS_H
#define MH_OBSERVE_SURROUNDINGS_H

#include "observe/gpu.h"
#include "sys/cgroup.h"

/* Numbers that could not be read are MH_NO_LIMIT, texts empty. */
typedef struct mh_surroundings {
    /* clock */
    int clock_synchronised; /* -1: the kernel does not tell */
    double clock_error_s;   /* at most, as the kernel has it */
    uint64_t clock_unix_s;  /* CLOCK_REALTIME */
    /* limits of the process */
    uint64_t files_soft, files_hard; /* ulimit -n */
    uint64_t processes_soft;         /* ulimit -u */
    uint64_t core_soft;              /* ulimit -c */
    mh_cgroup_limits group;
    /* CPUs */
    int cpus_machine;  /* online */
    int cpus_affinity; /* this process may run on */
    /* memory */
    uint64_t memory_total, memory_available;
    uint64_t swap_used;
    uint64_t shm_total, shm_free;
    uint64_t max_map_count;
    char hugepages[16]; /* "always", "madvise", "never" */
    /* files */
    char directory[512];            /* where we are */
    char network_mounts[200];       /* as of mh_parse_network_mounts; "" when there is none */
    uint64_t disk_total, disk_free; /* of the directory */
    char temporary[256];            /* TMPDIR or /tmp */
    uint64_t temporary_total, temporary_free;
    char core_pattern[128];
    /* GPUs */
    mh_gpu_usage gpus[MH_GPUS_MOST];
    size_t gpu_count;
} mh_surroundings;

/* Reads everything. `root` as in mh_cgroup_read, for what is read from files; the rest is of this
 * process. Never fails. Any thread. */
void mh_surroundings_read(mh_surroundings *out, const char *root);

#endif
