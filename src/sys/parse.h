/* parse.h - the kernel's text files as pure functions over bytes, so that they can be fuzzed
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every function takes `length` bytes that need not end in NUL, touches no file, allocates nothing
 * and returns 1 when it found what was asked for; otherwise 0, with *out untouched. Any thread.
 */
#ifndef MH_SYS_PARSE_H
#define MH_SYS_PARSE_H

#include <stddef.h>
#include <stdint.h>

#define MH_PARSE_PATH_BYTES 4096 /* PATH_MAX; longer paths cannot be opened anyway */

/* Where a hierarchy of control groups is mounted. */
typedef struct mh_cgroup_mount {
    char point[MH_PARSE_PATH_BYTES]; /* the directory it appears at */
    char group[MH_PARSE_PATH_BYTES]; /* the process's own group below `point`: "" or "/a/b" */
} mh_cgroup_mount;

/* A file that holds one decimal number, or "max" for MH_NO_LIMIT. A value too large for 64 bits
 * counts as MH_NO_LIMIT; a negative one is not found. */
int mh_parse_limit(const char *text, size_t length, uint64_t *out);

/* cpu.max of v2: "QUOTA PERIOD" in microseconds, as CPUs' worth of time; "max" is 0 (no quota). */
int mh_parse_cpu_max(const char *text, size_t length, double *out_cpus);

/* A file of lines "NAME VALUE" or "NAME: VALUE kB" (memory.stat, meminfo): the value of `name`,
 * in bytes. */
int mh_parse_field(const char *text, size_t length, const char *name, uint64_t *out);

/* proc/self/cgroup: the path of the process's group in the v1 hierarchy of `controller`, or in the
 * v2 hierarchy when `controller` is "". `out` has MH_PARSE_PATH_BYTES. */
int mh_parse_own_group(const char *text, size_t length, const char *controller, char *out);

/* proc/self/mountinfo: the mount of the same hierarchy from which `group` (of mh_parse_own_group)
 * and most of its parents can be seen. Where no mount contains the group, as in a container with
 * a namespace of its own, the mount's root stands for it. */
int mh_parse_group_mount(const char *text, size_t length, const char *controller, const char *group,
                         mh_cgroup_mount *out);

/* proc/self/mountinfo: the mounts of network file systems that `directory` lies on or that lie
 * below it, as "TYPE at POINT, TYPE at POINT", cut short to fit `out`. 0 when there is none. */
int mh_parse_network_mounts(const char *text, size_t length, const char *directory, char *out,
                            size_t room);

#endif
