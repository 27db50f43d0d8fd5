/* fuzz_usage.c - fuzz target: the parsers of what processes and the machine use
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/usage.h"
#include "observe/waiting.h"
#include "sys/own_memory.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What holds for every answer, whatever the input. */
static void require(int truth)
{
    if (!truth)
        abort();
}

static void try_process(const char *text, size_t size)
{
    mh_process_stat stat;
    uint64_t cpu = 1, delay = 1;
    if (mh_parse_process_stat(text, size, &stat)) {
        require(stat.pid >= 0 && stat.parent >= 0);
        require(memchr(stat.name, '\0', sizeof stat.name) != NULL);
    }
    if (mh_parse_schedstat(text, size, &cpu, &delay))
        require(cpu >= 1 && delay >= 1);
    else
        require(cpu == 1 && delay == 1);
}

static void try_own_memory(const char *text, size_t size)
{
    uint64_t value = 1;
    if (!mh_parse_own(text, size, &value))
        require(value == 1);
    value = 1;
    if (!mh_parse_anonymous(text, size, &value))
        require(value == 1);
}

static void try_machine(const char *text, size_t size)
{
    static mh_system_usage usage;
    static mh_busiest_disk sum;
    uint64_t value = 0;
    (void)mh_parse_cpus(text, size, &usage);
    usage.disk_count = 0;
    if (mh_parse_disks(text, size, &usage)) {
        require(usage.disk_count <= MH_DISKS_MOST);
        for (uint32_t at = 0; at < usage.disk_count; at++)
            require(memchr(usage.disks[at].name, '\0', sizeof usage.disks[at].name) != NULL);
    } else {
        require(usage.disk_count == 0);
    }
    mh_busiest_disk_look(&sum, &usage);
    (void)mh_parse_net(text, size, &value);
    (void)mh_parse_pressure(text, size, &value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    try_process(text, size);
    try_own_memory(text, size);
    try_machine(text, size);
    mh_thread_look look;
    (void)mh_parse_syscall(text, size, &look);
    (void)mh_parse_wchan(text, size, &look);
    return 0;
}
