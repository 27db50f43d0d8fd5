/* usage.h - what processes and the machine use, from /proc
 * SPDX-License-Identifier: Apache-2.0
 *
 * Counters, not rates: whoever samples takes differences. `root` as in mh_cgroup_read: "" on a real
 * system, a fixture directory in tests. What cannot be read is MH_NOT_READ. Any thread.
 */
#ifndef MH_OBSERVE_USAGE_H
#define MH_OBSERVE_USAGE_H

#include <millhead/error.h>
#include <stdbool.h>

#define MH_NOT_READ UINT64_MAX

/* --- one process --- */

/* A line of proc/PID/stat. */
typedef struct mh_process_stat {
    int pid, parent;
    char name[16]; /* the kernel's 15 bytes */
    char state;    /* of its main thread: R, S, D, Z, ... */
    uint64_t cpu_ns;
    uint64_t started_ticks; /* since boot; with the pid it names one process for ever */
    uint64_t rss_bytes;
    uint32_t threads;
} mh_process_stat;

typedef struct mh_process_usage {
    mh_process_stat stat;
    uint64_t cpu_ns;           /* on a CPU, threads that ended too */
    uint64_t delay_ns;         /* runnable and waiting for a CPU: of the threads there are now */
    uint64_t rss_file_bytes;   /* of stat.rss_bytes, pages of files: mapped arrays, libraries */
    uint64_t pss_bytes;        /* MH_NOT_READ unless asked for */
    uint64_t pss_file_bytes;   /* of it, the same; MH_NOT_READ by old kernels too */
    uint64_t read_bytes;       /* from storage */
    uint32_t running, blocked; /* threads in state R and in D */
    bool locked; /* its main thread waits for a lock that processes share (see sys/waiting.h) */
} mh_process_usage;

/* Reads a process; with `pss` its share of memory too, for which the kernel walks all its pages
 * (milliseconds per gigabyte, and the process waits where it maps memory meanwhile).
 * Errors: MH_ERR_NOT_FOUND: no such process. */
MH_MUST_CHECK mh_status mh_usage_process(mh_process_usage *out, int pid, bool pss, const char *root,
                                         mh_error *err);

/* Whether the main thread of a process waits for a lock that processes share: one small read. */
bool mh_usage_locked(int pid, const char *root);

/* Only proc/PID/stat. False when there is no such process. */
bool mh_usage_stat(mh_process_stat *out, int pid, const char *root);

/* The children of a process, theirs and so on, parents first; *out is freed with mh_free. From the
 * kernel's lists, which may leave one out while another one ends; where it has none, from a look at
 * all of /proc, which is dear on a machine with many processes. Errors: MH_ERR_NOMEM, MH_ERR_IO. */
MH_MUST_CHECK mh_status mh_usage_children(int **out, size_t *out_count, int pid, const char *root,
                                          mh_error *err);

/* --- the machine --- */

#define MH_DISKS_MOST 64

typedef struct mh_disk_usage {
    char name[32];
    uint64_t read_bytes;
    uint64_t busy_ns; /* something was under way */
} mh_disk_usage;

typedef struct mh_system_usage {
    uint32_t cpus;
    uint64_t busy_ns, idle_ns, iowait_ns; /* of all CPUs */
    mh_disk_usage disks[MH_DISKS_MOST];   /* whole ones */
    uint32_t disk_count;
    uint64_t net_read_bytes;                       /* all interfaces but lo */
    uint64_t psi_cpu_ns, psi_io_ns, psi_memory_ns; /* some task was stalled */
    uint64_t available_bytes;
} mh_system_usage;

/* Never fails. */
void mh_usage_system(mh_system_usage *out, const char *root);

/* One pair of counters for all disks, from the first look on: what the disk that was the busiest
 * between two looks did meanwhile. Begins as all zero. */
typedef struct mh_busiest_disk {
    mh_disk_usage last[MH_DISKS_MOST];
    uint32_t last_count;
    uint64_t read_bytes, busy_ns;
} mh_busiest_disk;

void mh_busiest_disk_look(mh_busiest_disk *sum, const mh_system_usage *now);

/* --- the texts, as pure functions over bytes; 1 when found, else 0 with *out untouched --- */

/* proc/PID/stat. The name may hold blanks and parentheses. */
int mh_parse_process_stat(const char *text, size_t length, mh_process_stat *out);

/* proc/PID/task/TID/schedstat: adds to both. */
int mh_parse_schedstat(const char *text, size_t length, uint64_t *cpu_ns, uint64_t *delay_ns);

/* proc/stat: cpus, busy_ns, idle_ns, iowait_ns. */
int mh_parse_cpus(const char *text, size_t length, mh_system_usage *out);

/* proc/diskstats: disks and disk_count. Partitions, loop devices and memory disks are left out. */
int mh_parse_disks(const char *text, size_t length, mh_system_usage *out);

/* proc/net/dev: bytes received. */
int mh_parse_net(const char *text, size_t length, uint64_t *out_bytes);

/* proc/pressure/...: ns in which some task was stalled. */
int mh_parse_pressure(const char *text, size_t length, uint64_t *out_ns);

#endif
