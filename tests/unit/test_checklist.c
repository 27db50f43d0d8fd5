/* test_checklist.c - the checklist on surroundings made up for it, and surroundings of fixture
 * trees SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/checklist.h"
#include "sys/parse.h"
#include "unit.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static const char *variable_name, *variable_value;

static const char *one_variable(const char *name)
{
    return variable_name && strcmp(name, variable_name) == 0 ? variable_value : NULL;
}

/* A machine with nothing wrong. */
static mh_surroundings healthy(void)
{
    return (mh_surroundings){
        .clock_synchronised = 1,
        .clock_error_s = 0.01,
        .clock_unix_s = 1900000000,
        .files_soft = 65536,
        .files_hard = MH_NO_LIMIT,
        .processes_soft = MH_NO_LIMIT,
        .group = {.memory_max_bytes = MH_NO_LIMIT,
                  .memory_available_bytes = MH_NO_LIMIT,
                  .pids_left = MH_NO_LIMIT},
        .cpus_machine = 16,
        .cpus_affinity = 16,
        .memory_total = 64 * GIB,
        .memory_available = 50 * GIB,
        .shm_total = 32 * GIB,
        .shm_free = 32 * GIB,
        .max_map_count = 65530,
        .hugepages = "madvise",
        .directory = "/home/me",
        .disk_total = 1000 * GIB,
        .disk_free = 500 * GIB,
        .temporary = "/tmp",
        .temporary_total = 100 * GIB,
        .temporary_free = 50 * GIB,
    };
}

/* Every item passes but the one named, which has this state and says what to do. */
static void expect_only(const mh_surroundings *around, const char *item, mh_check_state state)
{
    mh_check checks[MH_CHECKS_MOST];
    size_t count = mh_checks_judge(checks, around, one_variable);
    bool seen = false;
    assert_true(count >= 16);
    for (size_t at = 0; at < count; at++) {
        bool named = strcmp(checks[at].item, item) == 0;
        seen = seen || named;
        if (checks[at].state != (named ? state : MH_CHECK_PASS))
            print_error("%s: state %d: %s\n", checks[at].item, checks[at].state, checks[at].found);
        assert_int_equal(checks[at].state, named ? state : MH_CHECK_PASS);
        assert_true(strlen(checks[at].found) > 0);
        assert_int_equal(strlen(checks[at].todo) > 0, checks[at].state != MH_CHECK_PASS);
    }
    assert_true(seen);
}

static void a_healthy_machine_passes(void **state)
{
    (void)state;
    mh_surroundings around = healthy();
    expect_only(&around, "clock", MH_CHECK_PASS);
}

#define CHECK_CASE(field, value, item, state)                                                      \
    do {                                                                                           \
        mh_surroundings around = healthy();                                                        \
        around.field = (value);                                                                    \
        expect_only(&around, item, state);                                                         \
    } while (0)

static void each_fault_is_named_and_no_other(void **state)
{
    (void)state;
    CHECK_CASE(clock_synchronised, 0, "clock", MH_CHECK_WARN);
    CHECK_CASE(clock_synchronised, -1, "clock", MH_CHECK_PASS);
    CHECK_CASE(clock_error_s, 3.0, "clock", MH_CHECK_WARN);
    CHECK_CASE(clock_unix_s, 1000, "clock", MH_CHECK_FAIL);
    CHECK_CASE(files_soft, 1024, "open-files", MH_CHECK_WARN);
    CHECK_CASE(files_soft, 100, "open-files", MH_CHECK_FAIL);
    CHECK_CASE(files_soft, MH_NO_LIMIT, "open-files", MH_CHECK_PASS);
    CHECK_CASE(shm_free, 64 * MIB, "shared-memory", MH_CHECK_FAIL);
    CHECK_CASE(shm_free, 500 * MIB, "shared-memory", MH_CHECK_WARN);
    CHECK_CASE(shm_total, MH_NO_LIMIT, "shared-memory", MH_CHECK_FAIL);
    CHECK_CASE(memory_available, 5 * GIB, "memory", MH_CHECK_WARN);
    CHECK_CASE(group.memory_available_bytes, GIB, "memory", MH_CHECK_FAIL);
    CHECK_CASE(swap_used, GIB, "swap", MH_CHECK_WARN);
    CHECK_CASE(swap_used, MIB, "swap", MH_CHECK_PASS);
    CHECK_CASE(group.cpu_quota, 3.5, "cpu-quota", MH_CHECK_WARN);
    CHECK_CASE(group.cpu_quota, 16.0, "cpu-quota", MH_CHECK_PASS);
    CHECK_CASE(cpus_affinity, 1, "cpu-affinity", MH_CHECK_FAIL);
    CHECK_CASE(cpus_affinity, 4, "cpu-affinity", MH_CHECK_WARN);
    CHECK_CASE(processes_soft, 100, "processes", MH_CHECK_WARN);
    CHECK_CASE(group.pids_left, 20, "processes", MH_CHECK_FAIL);
    CHECK_CASE(disk_free, 10 * GIB, "disk-space", MH_CHECK_WARN);
    CHECK_CASE(disk_free, GIB, "disk-space", MH_CHECK_FAIL);
    CHECK_CASE(temporary_free, MIB, "disk-space", MH_CHECK_FAIL);
    CHECK_CASE(max_map_count, 30000, "mappings", MH_CHECK_WARN);
    CHECK_CASE(core_soft, MH_NO_LIMIT, "core-files", MH_CHECK_WARN);
}

static void a_machine_of_one_cpu_may_run_on_one(void **state)
{
    (void)state;
    mh_surroundings around = healthy();
    around.cpus_machine = around.cpus_affinity = 1;
    expect_only(&around, "cpu-affinity", MH_CHECK_PASS);
}

static void texts_are_judged(void **state)
{
    (void)state;
    mh_surroundings around = healthy();
    strcpy(around.hugepages, "always");
    expect_only(&around, "huge-pages", MH_CHECK_WARN);
    around = healthy();
    strcpy(around.network_mounts, "nfs4 at /home");
    expect_only(&around, "network-mounts", MH_CHECK_WARN);
    around = healthy();
    around.core_soft = MH_NO_LIMIT;
    strcpy(around.core_pattern, "|/usr/lib/collect %p");
    expect_only(&around, "core-files", MH_CHECK_PASS);
}

static void devices_without_persistence_are_told(void **state)
{
    (void)state;
    mh_surroundings around = healthy();
    around.gpu_count = 2;
    around.gpus[0].persistent = 1;
    around.gpus[1].persistent = -1;
    expect_only(&around, "gpu", MH_CHECK_PASS);
    around.gpus[1].persistent = 0;
    expect_only(&around, "gpu", MH_CHECK_WARN);
}

static void variables_are_judged(void **state)
{
    static const struct {
        const char *name, *value, *item;
        mh_check_state state;
    } cases[] = {
        {"OMP_NUM_THREADS", "1", "thread-variables", MH_CHECK_PASS},
        {"OMP_NUM_THREADS", "17", "thread-variables", MH_CHECK_WARN},
        {"MKL_NUM_THREADS", "many", "thread-variables", MH_CHECK_WARN},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "collective-timeouts", MH_CHECK_WARN},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", "collective-timeouts", MH_CHECK_PASS},
        {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "5", "collective-timeouts", MH_CHECK_WARN},
    };
    (void)state;
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        mh_surroundings around = healthy();
        variable_name = cases[at].name;
        variable_value = cases[at].value;
        expect_only(&around, cases[at].item, cases[at].state);
    }
    variable_name = NULL;
}

static void surroundings_come_from_the_kernels_files(void **state)
{
    mh_surroundings around;
    tree_write(*state, "proc/meminfo",
               "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 90 kB\nSwapFree: 30 kB\n");
    tree_write(*state, "proc/sys/vm/max_map_count", "65530\n");
    tree_write(*state, "proc/sys/kernel/core_pattern", "/var/core.%p\n");
    tree_write(*state, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    tree_write(*state, "proc/self/cgroup", "0::/job\n4:pids:/p\n");
    tree_write(*state, "proc/self/mountinfo",
               "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
               "30 23 0:27 / /pids rw - cgroup cgroup rw,pids\n"
               "31 23 0:28 / / rw - nfs4 server:/ rw\n");
    tree_write(*state, "sys/fs/cgroup/job/pids.max", "100\n");
    tree_write(*state, "sys/fs/cgroup/job/pids.current", "40\n");
    tree_write(*state, "pids/p/pids.max", "max\n");
    uint64_t live = mh_alloc_live();
    mh_surroundings_read(&around, *state);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(around.memory_total, 1000 * 1024);
    assert_int_equal(around.memory_available, 400 * 1024);
    assert_int_equal(around.swap_used, 60 * 1024);
    assert_int_equal(around.max_map_count, 65530);
    assert_string_equal(around.core_pattern, "/var/core.%p");
    assert_string_equal(around.hugepages, "madvise");
    assert_int_equal(around.group.pids_left, 60);
    assert_string_equal(around.network_mounts, "nfs4 at /");
    assert_true(around.cpus_affinity >= 1 && around.cpus_affinity <= around.cpus_machine);
    assert_true(around.files_soft > 0 && around.clock_unix_s > 1577836800);
}

static void an_empty_tree_passes_for_nothing_known(void **state)
{
    mh_surroundings around;
    mh_check checks[MH_CHECKS_MOST];
    mh_surroundings_read(&around, *state);
    assert_true(around.memory_total == MH_NO_LIMIT && around.max_map_count == MH_NO_LIMIT);
    assert_string_equal(around.hugepages, "");
    assert_string_equal(around.network_mounts, "");
    assert_true(mh_checks_judge(checks, &around, one_variable) >= 16);
}

static void network_mounts_on_the_way_and_below_are_named(void **state)
{
    static const char mounts[] = "1 0 0:1 / / rw - ext4 /dev/sda rw\n"
                                 "2 1 0:2 / /home rw - nfs4 server:/home rw\n"
                                 "3 1 0:3 / /home/me/data\\040set rw - fuse.sshfs x rw\n"
                                 "4 1 0:4 / /home/me/local rw - xfs /dev/sdb rw\n"
                                 "5 1 0:5 / /homes rw - cifs y rw\n"
                                 "6 1 0:6 / /twice rw - nfs z rw\n"
                                 "7 6 0:7 / /twice rw - xfs /dev/sdc rw\n"
                                 "8 7 0:8 / /twice/odd\\040 rw - nfs z rw\n";
    char out[100], small[8];
    (void)state;
    assert_int_equal(mh_parse_network_mounts(mounts, strlen(mounts), "/home/me", out, sizeof out),
                     2);
    assert_string_equal(out, "fuse.sshfs at /home/me/data set, nfs4 at /home");
    assert_int_equal(
        mh_parse_network_mounts(mounts, strlen(mounts), "/home/me/local/x", out, sizeof out), 0);
    assert_string_equal(out, "");
    assert_int_equal(mh_parse_network_mounts(mounts, strlen(mounts), "/homes", small, sizeof small),
                     1);
    assert_string_equal(small, "cifs at");
    /* what is mounted over another hides it */
    assert_int_equal(mh_parse_network_mounts(mounts, strlen(mounts), "/twice", out, sizeof out), 1);
    assert_string_equal(out, "nfs at /twice/odd ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_healthy_machine_passes),
        cmocka_unit_test(each_fault_is_named_and_no_other),
        cmocka_unit_test(a_machine_of_one_cpu_may_run_on_one),
        cmocka_unit_test(texts_are_judged),
        cmocka_unit_test(devices_without_persistence_are_told),
        cmocka_unit_test(variables_are_judged),
        cmocka_unit_test_setup_teardown(surroundings_come_from_the_kernels_files, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(an_empty_tree_passes_for_nothing_known, make_tree,
                                        remove_tree),
        cmocka_unit_test(network_mounts_on_the_way_and_below_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
