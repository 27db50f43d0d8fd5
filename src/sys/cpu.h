/* cpu.h - how many CPUs this process may really use
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_CPU_H
#define MH_SYS_CPU_H

/* The smaller of the affinity mask and the cgroup quota (rounded up), at least 1. `root` as in
 * mh_cgroup_read. Any thread. */
int mh_cpu_allowed(const char *root);

#endif
