/* test_cpu.c - how many CPUs this process may use
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/cpu.h"
#include "unit.h"
#include <sched.h>

static int affinity(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static void set_quota(const char *root, const char *text)
{
    tree_write(root, "proc/self/cgroup", "0::/\n");
    tree_write(root, "proc/self/mountinfo",
               "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    tree_write(root, "sys/fs/cgroup/cpu.max", text);
}

static void without_a_quota_it_is_the_mask(void **state)
{
    assert_int_equal(mh_cpu_allowed(*state), affinity());
    set_quota(*state, "max 100000\n");
    assert_int_equal(mh_cpu_allowed(*state), affinity());
    set_quota(*state, "100000000 1000\n"); /* a quota beyond the mask changes nothing */
    assert_int_equal(mh_cpu_allowed(*state), affinity());
}

static void a_quota_is_rounded_up(void **state)
{
    set_quota(*state, "20000 100000\n");
    assert_int_equal(mh_cpu_allowed(*state), 1);
    set_quota(*state, "100000 100000\n");
    assert_int_equal(mh_cpu_allowed(*state), 1);
    set_quota(*state, "120000 100000\n");
    assert_int_equal(mh_cpu_allowed(*state), affinity() < 2 ? affinity() : 2);
}

static void a_smaller_mask_counts(void **state)
{
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int allowed = mh_cpu_allowed(*state);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(allowed, 1);
}

static void ask(void *root)
{
    assert_true(mh_cpu_allowed(root) >= 1);
}

static void no_memory_still_gives_an_answer(void **state)
{
    set_quota(*state, "100000 100000\n");
    each_allocation_fails(ask, *state);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_TREE(without_a_quota_it_is_the_mask),
        IN_TREE(a_quota_is_rounded_up),
        IN_TREE(a_smaller_mask_counts),
        IN_TREE(no_memory_still_gives_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
