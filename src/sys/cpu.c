/* cpu.c - how many CPUs this process may really use
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/cpu.h"

#include "base/alloc.h"
#include "sys/cgroup.h"
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#define MOST_CPUS (1 << 16) /* eight times what the kernel can be built for */

/* The CPUs of the affinity mask; a machine may have more than the 1024 a cpu_set_t holds, and the
 * kernel says so with EINVAL. */
static int cpu_affinity(void)
{
    for (int room = 1024; room <= MOST_CPUS; room *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(room);
        cpu_set_t *set = mh_calloc(1, bytes);
        if (!set)
            break;
        int failed = sched_getaffinity(0, bytes, set) != 0 ? errno : 0;
        int count = failed ? 0 : CPU_COUNT_S(bytes, set);
        mh_free(set);
        if (count > 0)
            return count;
        if (failed != EINVAL)
            break;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online <= MOST_CPUS ? (int)online : 1;
}

int mh_cpu_allowed(const char *root)
{
    mh_cgroup_limits limits;
    int cpus = cpu_affinity();
    mh_cgroup_read(&limits, root);
    if (limits.cpu_quota > 0 && limits.cpu_quota < cpus) {
        int whole = (int)limits.cpu_quota;
        cpus = whole < limits.cpu_quota ? whole + 1 : whole;
    }
    return cpus > 0 ? cpus : 1;
}
