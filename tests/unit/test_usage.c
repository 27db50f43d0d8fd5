/* test_usage.c - processes and the machine, read from fixture trees
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/usage.h"
#include "unit.h"

#define STAT(pid, name, state, parent)                                                             \
#pid " (" name ") " state " " #parent                                                          \
         " 1 1 0 -1 4194304 10 0 0 0 150 50 7 8 20 0 3 0 4242 1000000 25 18446744073709551615 1\n"

#define DISKS                                                                                      \
    "   7       0 loop0 9 0 9 9 0 0 0 0 0 9000 9 0 0 0 0 0 0\n"                                    \
    "   8       0 sda 100 1 2000 50 4 5 600 7 0 300 99 0 0 0 0 0 0\n"                              \
    "   8       1 sda1 100 1 9999 50 4 5 600 7 0 9999 99 0 0 0 0 0 0\n"                            \
    " 259       0 nvme0n1 1 0 8 1 0 0 0 0 0 20 1\n"                                                \
    " 259       1 nvme0n1p1 1 0 8 1 0 0 0 0 0 20 1\n"                                              \
    " 253       0 zram0 1 0 8 1 0 0 0 0 0 20 1\n"

static void process_tree(const char *root)
{
    tree_write(root, "proc/70/stat", STAT(70, "a) (b c", "S", 1));
    tree_write(root, "proc/70/task/70/stat", STAT(70, "a) (b c", "D", 1));
    tree_write(root, "proc/70/task/71/stat", STAT(71, "a", "R", 1));
    tree_write(root, "proc/70/task/70/schedstat", "1000 20 3\n");
    tree_write(root, "proc/70/task/71/schedstat", "2000 30 3\n");
    tree_write(root, "proc/70/io", "rchar: 99\nread_bytes: 8192\nwrite_bytes: 1\n");
    tree_write(root, "proc/70/smaps_rollup",
               "55-7f ---p 0 00:00 0 [rollup]\nRss: 2000 kB\nPss: 12 kB\nPss_Dirty: 3 kB\n"
               "Pss_Anon: 7 kB\nPss_File: 5 kB\n");
    tree_write(root, "proc/70/status", "Name:\ta\nRssAnon:\t 10 kB\nRssFile:\t 90 kB\n");
}

static mh_process_usage read_process(const char *root, int pid, bool pss)
{
    mh_process_usage usage;
    mh_error err;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    assert_int_equal(mh_usage_process(&usage, pid, pss, root, &err), MH_OK);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
    return usage;
}

static void a_process_is_read_from_its_files(void **state)
{
    process_tree(*state);
    mh_process_usage usage = read_process(*state, 70, true);
    assert_int_equal(usage.stat.pid, 70);
    assert_int_equal(usage.stat.parent, 1);
    assert_string_equal(usage.stat.name, "a) (b c");
    assert_int_equal(usage.stat.state, 'S');
    assert_int_equal(usage.stat.threads, 3);
    assert_int_equal(usage.stat.started_ticks, 4242);
    assert_int_equal(usage.stat.rss_bytes, 25 * sysconf(_SC_PAGESIZE));
    assert_int_equal(usage.cpu_ns, 200 * (1000000000 / sysconf(_SC_CLK_TCK)));
    assert_int_equal(usage.delay_ns, 50);
    assert_int_equal(usage.running, 1);
    assert_int_equal(usage.blocked, 1);
    assert_int_equal(usage.read_bytes, 8192);
    assert_int_equal(usage.pss_bytes, 12 * 1024);
    assert_int_equal(usage.pss_file_bytes, 5 * 1024);
    assert_int_equal(usage.rss_file_bytes, 90 * 1024);
}

static void what_may_not_be_read_is_not_read(void **state)
{
    tree_write(*state, "proc/70/stat", STAT(70, "x", "R", 1));
    mh_process_usage usage = read_process(*state, 70, true);
    assert_true(usage.delay_ns == MH_NOT_READ);
    assert_true(usage.read_bytes == MH_NOT_READ);
    assert_true(usage.pss_bytes == MH_NOT_READ && usage.pss_file_bytes == MH_NOT_READ);
    assert_true(usage.rss_file_bytes == MH_NOT_READ);
    assert_int_equal(usage.blocked, 0);
}

static void memory_is_walked_only_when_asked_for(void **state)
{
    process_tree(*state);
    assert_true(read_process(*state, 70, false).pss_bytes == MH_NOT_READ);
}

static void a_process_that_is_not_there_is_an_error(void **state)
{
    mh_process_usage usage;
    mh_error err;
    tree_write(*state, "proc/70/stat", "70 (cut");
    assert_int_equal(mh_usage_process(&usage, 70, true, *state, &err), MH_ERR_NOT_FOUND);
    assert_int_equal(mh_usage_process(&usage, 71, true, *state, &err), MH_ERR_NOT_FOUND);
    assert_string_equal(err.message, "there is no process 71");
}

static void this_process_has_used_a_cpu(void **state)
{
    (void)state;
    mh_process_usage before = read_process("", getpid(), true);
    volatile uint64_t sum = 0;
    for (uint64_t turn = 0; turn < 20 * 1000 * 1000; turn++)
        sum += turn;
    mh_process_usage after = read_process("", getpid(), true);
    assert_int_equal(before.stat.parent, getppid());
    assert_true(after.cpu_ns > before.cpu_ns);
    /* finer than the kernel's ticks */
    assert_true(after.cpu_ns % 1000000 != 0 || before.cpu_ns % 1000000 != 0);
    assert_true(after.stat.rss_bytes > 100000 && after.stat.rss_bytes < MH_NOT_READ);
    assert_int_equal(after.running, 1);
}

static void children_are_found_with_their_own(void **state)
{
    int *pids;
    size_t count;
    mh_error err;
    tree_write(*state, "proc/10/stat", STAT(10, "main", "S", 1));
    tree_write(*state, "proc/11/stat", STAT(11, "worker", "S", 10));
    tree_write(*state, "proc/12/stat", STAT(12, "its child", "S", 11));
    tree_write(*state, "proc/13/stat", STAT(13, "worker", "S", 10));
    tree_write(*state, "proc/14/stat", STAT(14, "another's", "S", 9));
    tree_write(*state, "proc/meminfo", "MemTotal: 1 kB\n");
    assert_int_equal(mh_usage_children(&pids, &count, 10, *state, &err), MH_OK);
    assert_int_equal(count, 3);
    int sum = 0;
    for (size_t at = 0; at < count; at++)
        sum += pids[at];
    assert_int_equal(sum, 11 + 12 + 13);
    assert_int_equal(pids[2], 12); /* after both of its elders */
    mh_free(pids);
    assert_int_equal(mh_usage_children(&pids, &count, 14, *state, &err), MH_OK);
    assert_int_equal(count, 0);
    mh_free(pids);
}

static void children_are_those_that_the_kernel_lists(void **state)
{
    int *pids;
    size_t count;
    mh_error err;
    tree_write(*state, "proc/10/stat", STAT(10, "main", "S", 1));
    tree_write(*state, "proc/14/stat", STAT(14, "not listed", "S", 10));
    tree_write(*state, "proc/10/task/10/children", "11 13 ");
    tree_write(*state, "proc/10/task/15/children", "16 ");
    tree_write(*state, "proc/11/task/11/children", "12 11 ");
    tree_write(*state, "proc/13/task/13/children", "");
    assert_int_equal(mh_usage_children(&pids, &count, 10, *state, &err), MH_OK);
    assert_int_equal(count, 4);
    int sum = 0;
    for (size_t at = 0; at < count; at++)
        sum += pids[at];
    assert_int_equal(sum, 11 + 13 + 16 + 12);
    assert_int_equal(pids[3], 12); /* after its elders, in whichever order their threads came */
    mh_free(pids);
    assert_int_equal(mh_usage_children(&pids, &count, 13, *state, &err), MH_OK);
    assert_int_equal(count, 0);
    mh_free(pids);
}

static void children_once(void *root)
{
    int *pids;
    size_t count;
    mh_error err;
    mh_status status = mh_usage_children(&pids, &count, 10, root, &err);
    if (status == MH_OK)
        mh_free(pids);
    else
        assert_int_equal(status, MH_ERR_NOMEM);
}

static void children_cope_without_memory(void **state)
{
    tree_write(*state, "proc/10/stat", STAT(10, "main", "S", 1));
    tree_write(*state, "proc/11/stat", STAT(11, "worker", "S", 10));
    each_allocation_fails(children_once, *state);
    tree_write(*state, "proc/10/task/10/children", "11 ");
    each_allocation_fails(children_once, *state);
}

static void the_machine_is_read_from_its_files(void **state)
{
    mh_system_usage usage;
    uint64_t tick = 1000000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    tree_write(*state, "proc/stat",
               "cpu  10 20 30 400 50 1 2 3 77 88\ncpu0 1 2\ncpu1 1 2\nintr 5\n");
    tree_write(*state, "proc/diskstats", DISKS);
    tree_write(
        *state, "proc/net/dev",
        "Inter-|   Receive\n face |bytes packets\n    lo: 999 1\n  eth0:1000 1\n ib0: 24 1\n");
    tree_write(*state, "proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 4 kB\n");
    tree_write(*state, "proc/pressure/io",
               "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0 total=7\n");
    mh_usage_system(&usage, *state);
    assert_int_equal(usage.cpus, 2);
    assert_int_equal(usage.busy_ns, 66 * tick); /* guests are in user already */
    assert_int_equal(usage.idle_ns, 400 * tick);
    assert_int_equal(usage.iowait_ns, 50 * tick);
    assert_int_equal(usage.disk_count, 2);
    assert_string_equal(usage.disks[0].name, "sda");
    assert_int_equal(usage.disks[0].read_bytes, 2000 * 512);
    assert_int_equal(usage.disks[0].busy_ns, 300 * 1000000);
    assert_string_equal(usage.disks[1].name, "nvme0n1");
    assert_int_equal(usage.net_read_bytes, 1024);
    assert_int_equal(usage.available_bytes, 4096);
    assert_int_equal(usage.psi_io_ns, 123000);
    assert_true(usage.psi_cpu_ns == MH_NOT_READ && usage.psi_memory_ns == MH_NOT_READ);
}

static void an_empty_machine_is_not_read(void **state)
{
    mh_system_usage usage;
    mh_usage_system(&usage, *state);
    assert_int_equal(usage.cpus, 0);
    assert_int_equal(usage.disk_count, 0);
    assert_true(usage.busy_ns == MH_NOT_READ && usage.net_read_bytes == MH_NOT_READ);
    assert_true(usage.available_bytes == MH_NOT_READ && usage.psi_cpu_ns == MH_NOT_READ);
}

/* Since boot sdb was the busier one; in each interval it is whichever is. */
static void the_busiest_disk_is_that_of_the_moment(void **state)
{
    (void)state;
    mh_busiest_disk sum = {0};
    mh_system_usage now = {.disk_count = 2, .disks = {{"sda", 500, 100}, {"sdb", 1000000, 90000}}};
    mh_busiest_disk_look(&sum, &now);
    assert_int_equal(sum.busy_ns, 0);
    now.disks[0] = (mh_disk_usage){"sda", 700, 180};
    now.disks[1].busy_ns += 5;
    mh_busiest_disk_look(&sum, &now);
    assert_int_equal(sum.busy_ns, 80);
    assert_int_equal(sum.read_bytes, 200);
    /* one that comes later, or starts again at nothing, counts from then on */
    now.disks[0] = (mh_disk_usage){"sda", 1, 1};
    now.disks[1] = (mh_disk_usage){"sdc", 4000, 4000};
    mh_busiest_disk_look(&sum, &now);
    assert_int_equal(sum.busy_ns, 80);
    now.disks[1].busy_ns += 30;
    mh_busiest_disk_look(&sum, &now);
    assert_int_equal(sum.busy_ns, 110);
    assert_int_equal(sum.read_bytes, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_process_is_read_from_its_files, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(what_may_not_be_read_is_not_read, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(memory_is_walked_only_when_asked_for, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(a_process_that_is_not_there_is_an_error, make_tree,
                                        remove_tree),
        cmocka_unit_test(this_process_has_used_a_cpu),
        cmocka_unit_test_setup_teardown(children_are_found_with_their_own, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(children_are_those_that_the_kernel_lists, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(children_cope_without_memory, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(the_machine_is_read_from_its_files, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(an_empty_machine_is_not_read, make_tree, remove_tree),
        cmocka_unit_test(the_busiest_disk_is_that_of_the_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
