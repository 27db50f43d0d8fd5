/* test_cgroup.c - limits of control groups, read from fixture trees
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/cgroup.h"
#include "sys/parse.h"
#include "unit.h"

#define V2_MOUNT "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
#define V1_MOUNTS                                                                                  \
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"                                   \
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"         \
    "35 31 0:32 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n"
#define V1_NONE "9223372036854771712\n"

static mh_cgroup_limits read_limits(const char *root)
{
    mh_cgroup_limits limits;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    memset(&limits, 0xff, sizeof limits);
    mh_cgroup_read(&limits, root);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
    return limits;
}

static void expect_none(const mh_cgroup_limits *limits)
{
    assert_true(limits->memory_max_bytes == MH_NO_LIMIT);
    assert_true(limits->memory_available_bytes == MH_NO_LIMIT);
    assert_int_equal(limits->memory_current_bytes, 0);
    assert_true(limits->cpu_quota == 0);
}

static void v2_nested(const char *root)
{
    tree_write(root, "proc/self/cgroup", "0::/job/step\n");
    tree_write(root, "proc/self/mountinfo", V2_MOUNT);
    tree_write(root, "sys/fs/cgroup/job/memory.max", "1000000\n");
    tree_write(root, "sys/fs/cgroup/job/memory.current", "990000\n");
    tree_write(root, "sys/fs/cgroup/job/cpu.max", "150000 100000\n");
    tree_write(root, "sys/fs/cgroup/job/step/memory.max", "800000\n");
    tree_write(root, "sys/fs/cgroup/job/step/memory.current", "300000\n");
    tree_write(root, "sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
}

static void v2_takes_the_tightest_on_the_way_up(void **state)
{
    v2_nested(*state);
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 800000);
    assert_int_equal(limits.memory_current_bytes, 300000);
    /* the parent's limit is higher, but less is left below it */
    assert_int_equal(limits.memory_available_bytes, 10000);
    assert_true(limits.cpu_quota == 1.5);
}

static void v2_max_is_no_limit(void **state)
{
    tree_write(*state, "proc/self/cgroup", "0::/job\n");
    tree_write(*state, "proc/self/mountinfo", V2_MOUNT);
    tree_write(*state, "sys/fs/cgroup/job/memory.max", "max\n");
    tree_write(*state, "sys/fs/cgroup/job/memory.current", "123\n");
    tree_write(*state, "sys/fs/cgroup/job/cpu.max", "max 100000\n");
    mh_cgroup_limits limits = read_limits(*state);
    expect_none(&limits);
}

static void file_cache_counts_as_available(void **state)
{
    tree_write(*state, "proc/self/cgroup", "0::/job\n");
    tree_write(*state, "proc/self/mountinfo", V2_MOUNT);
    tree_write(*state, "sys/fs/cgroup/job/memory.max", "1000\n");
    tree_write(*state, "sys/fs/cgroup/job/memory.current", "1000\n");
    tree_write(*state, "sys/fs/cgroup/job/memory.stat",
               "anon 300\nfile 700\ninactive_file 500\nactive_file 200\n");
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_current_bytes, 1000);
    assert_int_equal(limits.memory_available_bytes, 600);
}

static void usage_above_the_limit_leaves_nothing(void **state)
{
    tree_write(*state, "proc/self/cgroup", "0::/job\n");
    tree_write(*state, "proc/self/mountinfo", V2_MOUNT);
    tree_write(*state, "sys/fs/cgroup/job/memory.max", "1000\n");
    tree_write(*state, "sys/fs/cgroup/job/memory.current", "1500\n");
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_available_bytes, 0);
}

static void v1_has_a_hierarchy_for_each_controller(void **state)
{
    tree_write(*state, "proc/self/cgroup",
               "5:cpuacct,cpu:/jobs\n4:memory:/jobs/a\n3:cpuset:/elsewhere\n1:name=systemd:/x\n");
    tree_write(*state, "proc/self/mountinfo", V1_MOUNTS);
    tree_write(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE);
    tree_write(*state, "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "5000\n");
    tree_write(*state, "sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "2000\n");
    tree_write(*state, "sys/fs/cgroup/memory/jobs/memory.stat",
               "inactive_file 7\ntotal_inactive_file 100\ntotal_active_file 40\n");
    tree_write(*state, "sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes", V1_NONE);
    tree_write(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    tree_write(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    tree_write(*state, "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "250000\n");
    tree_write(*state, "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n");
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 5000);
    assert_int_equal(limits.memory_current_bytes, 2000);
    assert_int_equal(limits.memory_available_bytes, 3120);
    assert_true(limits.cpu_quota == 2.5);
}

static void v1_without_limits(void **state)
{
    tree_write(*state, "proc/self/cgroup", "5:cpuacct,cpu:/\n4:memory:/\n");
    tree_write(*state, "proc/self/mountinfo", V1_MOUNTS);
    tree_write(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE);
    tree_write(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    tree_write(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    mh_cgroup_limits limits = read_limits(*state);
    expect_none(&limits);
}

/* The container sees its own group as the mount's root, but its path from the machine's. */
static void a_container_whose_mount_starts_at_its_group(void **state)
{
    tree_write(*state, "proc/self/cgroup", "4:memory:/docker/abc/inner\n0::/\n");
    tree_write(*state, "proc/self/mountinfo",
               "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    tree_write(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
    tree_write(*state, "sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9999\n");
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 4096);
}

/* The other way round: the mount was made outside the namespace the process is in now. */
static void a_mount_that_does_not_contain_the_group(void **state)
{
    tree_write(*state, "proc/self/cgroup", "0::/\n");
    tree_write(*state, "proc/self/mountinfo",
               "35 31 0:32 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    tree_write(*state, "sys/fs/cgroup/memory.max", "4096\n");
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 4096);
    tree_write(*state, "proc/self/cgroup", "0::/../sibling\n");
    limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 4096);
    tree_write(*state, "proc/self/cgroup", "0::/docker/abcd\n"); /* not below /docker/abc */
    limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 4096);
}

static void hybrid_takes_the_least_of_both(void **state)
{
    tree_write(*state, "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n0::/b\n");
    tree_write(*state, "proc/self/mountinfo",
               V1_MOUNTS "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    tree_write(*state, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n");
    tree_write(*state, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "10\n");
    tree_write(*state, "sys/fs/cgroup/unified/b/cpu.max", "300000 100000\n");
    tree_write(*state, "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000\n");
    tree_write(*state, "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 7000);
    assert_int_equal(limits.memory_current_bytes, 10);
    assert_true(limits.cpu_quota == 2.0);
}

static void missing_files_are_no_limit(void **state)
{
    mh_cgroup_limits limits = read_limits(*state);
    expect_none(&limits);
    tree_write(*state, "proc/self/cgroup", "0::/job\n");
    limits = read_limits(*state);
    expect_none(&limits);
    tree_write(*state, "proc/self/mountinfo", V2_MOUNT);
    limits = read_limits(*state);
    expect_none(&limits);
    tree_write(*state, "sys/fs/cgroup/job/memory.max", "nonsense\n");
    tree_write(*state, "sys/fs/cgroup/job/cpu.max", "\n");
    limits = read_limits(*state);
    expect_none(&limits);
}

static void paths_with_blanks(void **state)
{
    tree_write(*state, "proc/self/cgroup", "0::/my job\n");
    tree_write(*state, "proc/self/mountinfo",
               "29 23 0:26 / /mnt/control\\040groups rw - cgroup2 cgroup2 rw\n");
    tree_write(*state, "mnt/control groups/my job/memory.max", "77\n");
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 77);
}

static void a_long_mountinfo_is_read_to_its_end(void **state)
{
    static char text[400000];
    size_t used = 0;
    while (used < sizeof text - 1000)
        used += (size_t)sprintf(text + used, "36 35 98:0 / /mnt/%zu rw - ext4 /dev/x rw\n", used);
    strcpy(text + used, V2_MOUNT);
    tree_write(*state, "proc/self/cgroup", "0::/\n");
    tree_write(*state, "proc/self/mountinfo", text);
    tree_write(*state, "sys/fs/cgroup/memory.max", "55\n");
    mh_cgroup_limits limits = read_limits(*state);
    assert_int_equal(limits.memory_max_bytes, 55);
}

static void the_mount_that_shows_most_parents_wins(void **state)
{
    (void)state;
    static mh_cgroup_mount mount;
    const char *text = "35 31 0:32 /x /m0 rw - cgroup cgroup rw,memory\n"
                       "35 31 0:32 /a/b /m1 rw - cgroup cgroup rw,memory\n"
                       "36 31 0:32 / /m2 rw - cgroup cgroup rw,memory\n"
                       "36 31 0:32 /a /m3 rw - cgroup cgroup rw,memory\n";
    assert_true(mh_parse_group_mount(text, strlen(text), "memory", "/a/b", &mount));
    assert_string_equal(mount.point, "/m2");
    assert_string_equal(mount.group, "/a/b");
    assert_false(mh_parse_group_mount(text, strlen(text), "cpu", "/a/b", &mount));
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int found;
        uint64_t value;
    } cases[] = {
        {"0\n", 1, 0},
        {"42", 1, 42},
        {" 42 \n", 1, 42},
        {"max\n", 1, MH_NO_LIMIT},
        {"18446744073709551614\n", 1, UINT64_MAX - 1},
        {"18446744073709551616\n", 1, MH_NO_LIMIT},
        {"99999999999999999999999999\n", 1, MH_NO_LIMIT},
        {"-1\n", 0, 0},
        {"", 0, 0},
        {"\n", 0, 0},
        {"12x\n", 0, 0},
        {"maximum\n", 0, 0},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        uint64_t value = 0;
        int found = mh_parse_limit(cases[at].text, strlen(cases[at].text), &value);
        assert_int_equal(found, cases[at].found);
        assert_true(value == cases[at].value);
    }
}

static void quotas(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int found;
        double cpus;
    } cases[] = {
        {"max 100000\n", 1, 0}, {"max\n", 1, 0},       {"50000 100000\n", 1, 0.5},
        {"100000\n", 0, -1},    {"100000 0\n", 0, -1}, {"0 100000\n", 0, -1},
        {"-1 100000\n", 0, -1}, {"", 0, -1},           {"x y\n", 0, -1},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        double cpus = -1;
        int found = mh_parse_cpu_max(cases[at].text, strlen(cases[at].text), &cpus);
        assert_int_equal(found, cases[at].found);
        assert_true(cpus == cases[at].cpus);
    }
}

static void fields(void **state)
{
    (void)state;
    const char *text =
        "\nMemTotalX: 1 kB\nMemTotal:  3 kB\nplain 9\nhuge: 18446744073709551615 kB\n"
        "empty:\nbad: x\n";
    uint64_t value = 0;
    assert_true(mh_parse_field(text, strlen(text), "MemTotal", &value));
    assert_int_equal(value, 3072);
    assert_true(mh_parse_field(text, strlen(text), "plain", &value));
    assert_int_equal(value, 9);
    assert_true(mh_parse_field(text, strlen(text), "huge", &value));
    assert_true(value == MH_NO_LIMIT);
    value = 5;
    assert_false(mh_parse_field(text, strlen(text), "empty", &value));
    assert_false(mh_parse_field(text, strlen(text), "bad", &value));
    assert_false(mh_parse_field(text, strlen(text), "absent", &value));
    assert_int_equal(value, 5);
}

static void own_groups(void **state)
{
    (void)state;
    char group[MH_PARSE_PATH_BYTES] = "untouched";
    const char *text =
        "9:name=memory:/n\n5:cpu,cpuacct:/a:b\n4:memory:relative\n3:memory:/m\n0::/u";
    assert_true(mh_parse_own_group(text, strlen(text), "cpuacct", group));
    assert_string_equal(group, "/a:b");
    assert_true(mh_parse_own_group(text, strlen(text), "memory", group));
    assert_string_equal(group, "/m");
    assert_true(mh_parse_own_group(text, strlen(text), "", group));
    assert_string_equal(group, "/u");
    assert_false(mh_parse_own_group(text, strlen(text), "io", group));
    assert_string_equal(group, "/u");
}

static void read_and_forget(void *root)
{
    mh_cgroup_limits limits;
    mh_cgroup_read(&limits, root);
    assert_true(limits.memory_max_bytes >= 800000);
}

static void no_memory_is_no_limit(void **state)
{
    v2_nested(*state);
    each_allocation_fails(read_and_forget, *state);
}

static void the_real_one_can_be_read(void **state)
{
    (void)state;
    mh_cgroup_limits limits = read_limits("");
    assert_true(limits.memory_max_bytes > 0);
    assert_true(limits.cpu_quota >= 0);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_TREE(v2_takes_the_tightest_on_the_way_up),
        IN_TREE(v2_max_is_no_limit),
        IN_TREE(file_cache_counts_as_available),
        IN_TREE(usage_above_the_limit_leaves_nothing),
        IN_TREE(v1_has_a_hierarchy_for_each_controller),
        IN_TREE(v1_without_limits),
        IN_TREE(a_container_whose_mount_starts_at_its_group),
        IN_TREE(a_mount_that_does_not_contain_the_group),
        IN_TREE(hybrid_takes_the_least_of_both),
        IN_TREE(missing_files_are_no_limit),
        IN_TREE(paths_with_blanks),
        IN_TREE(a_long_mountinfo_is_read_to_its_end),
        IN_TREE(no_memory_is_no_limit),
        cmocka_unit_test(the_mount_that_shows_most_parents_wins),
        cmocka_unit_test(numbers),
        cmocka_unit_test(quotas),
        cmocka_unit_test(fields),
        cmocka_unit_test(own_groups),
        cmocka_unit_test(the_real_one_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
