/* cgroup.h - the limits of the control group this process lives in, v1 and v2
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_CGROUP_H
#define MH_SYS_CGROUP_H

#include <millhead/error.h>

#define MH_NO_LIMIT UINT64_MAX

typedef struct mh_cgroup_limits {
    uint64_t memory_max_bytes;     /* MH_NO_LIMIT when there is none */
    uint64_t memory_current_bytes; /* of the group that sets memory_max_bytes; 0 without a limit */
    uint64_t memory_available_bytes; /* the least, over the groups, of limit - usage + the file
                                        cache the kernel can drop; MH_NO_LIMIT without a limit */
    double cpu_quota;                /* CPUs' worth of time; 0 when there is no quota */
    uint64_t pids_left;              /* processes and threads that may still start; MH_NO_LIMIT */
} mh_cgroup_limits;

/* Reads the tightest limits on the path from this process's own groups (proc/self/cgroup) up to
 * the mount's root, for v2 (memory.max, memory.current, cpu.max) and v1 (memory.limit_in_bytes,
 * memory.usage_in_bytes, cpu.cfs_quota_us, cpu.cfs_period_us). Mount points come from
 * proc/self/mountinfo, so that a container whose root is the group itself works too. `root` is ""
 * on a real system and a fixture directory in tests. What cannot be read counts as no limit:
 * never fails. Any thread. */
void mh_cgroup_read(mh_cgroup_limits *out, const char *root);

/* Only pids_left, which the other leaves alone: pids.max less pids.current, the least over the
 * groups. Never fails. Any thread. */
void mh_cgroup_read_pids(mh_cgroup_limits *out, const char *root);

#endif
