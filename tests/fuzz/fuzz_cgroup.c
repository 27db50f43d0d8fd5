/* fuzz_cgroup.c - fuzz target: the parsers of cgroup, mountinfo and meminfo texts
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What holds for every answer, whatever the input. */
static void require(int truth)
{
    if (!truth)
        abort();
}

static void try_numbers(const char *text, size_t size)
{
    uint64_t value = 0;
    double cpus = 0;
    (void)mh_parse_limit(text, size, &value);
    if (mh_parse_cpu_max(text, size, &cpus))
        require(cpus >= 0 && cpus <= 1.9e19);
    (void)mh_parse_field(text, size, "MemTotal", &value);
    (void)mh_parse_field(text, size, "inactive_file", &value);
    char mounts[64];
    if (mh_parse_network_mounts(text, size, "/home/me", mounts, sizeof mounts))
        require(memchr(mounts, 0, sizeof mounts) != NULL);
}

static void try_group(const char *text, size_t size, const char *controller)
{
    static char group[MH_PARSE_PATH_BYTES];
    static mh_cgroup_mount mount;
    /* The same bytes serve as both files: half of an input is often one, half the other. */
    if (!mh_parse_own_group(text, size, controller, group))
        strcpy(group, "/a/b");
    require(group[0] == '/' && memchr(group, '\0', sizeof group) != NULL);
    if (!mh_parse_group_mount(text, size, controller, group, &mount))
        return;
    require(mount.point[0] == '/' && memchr(mount.point, '\0', sizeof mount.point) != NULL);
    require(mount.group[0] == '/' || mount.group[0] == '\0');
    require(memchr(mount.group, '\0', sizeof mount.group) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    try_numbers(text, size);
    try_group(text, size, "");
    try_group(text, size, "memory");
    try_group(text, size, "cpu");
    return 0;
}
