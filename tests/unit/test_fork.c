/* test_fork.c - the counter that tells a fork from the process before it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fork.h"
#include "unit.h"

static void every_fork_counts_one(void **state)
{
    (void)state;
    uint32_t first = mh_fork_generation();
    assert_int_equal(mh_fork_generation(), first);
    pid_t child = fork();
    if (child == 0) {
        if (mh_fork_generation() != first + 1)
            _exit(1);
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(mh_fork_generation() == first + 2 ? 0 : 1);
        _exit(child_code(grandchild));
    }
    assert_int_equal(child_code(child), 0);
    assert_int_equal(mh_fork_generation(), first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fork_counts_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
