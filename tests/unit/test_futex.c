/* test_futex.c - sleeping on a shared word
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/clock.h"
#include "sys/futex.h"
#include "unit.h"
#include <sys/mman.h>

#define MS UINT64_C(1000000)

static void a_changed_word_does_not_sleep(void **state)
{
    (void)state;
    _Atomic uint32_t word = 1;
    uint64_t start = mh_clock_ns();
    errno = 0;
    mh_futex_wait(&word, 0, 10000 * MS);
    assert_true(mh_clock_ns() - start < 5000 * MS);
    assert_int_equal(errno, 0);
}

static void the_time_out_ends_the_sleep(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    uint64_t start = mh_clock_ns();
    while (mh_clock_ns() - start < 20 * MS) /* a signal may cut a sleep short */
        mh_futex_wait(&word, 0, 20 * MS);
    assert_true(mh_clock_ns() - start < 5000 * MS);
}

static void another_process_wakes(void **state)
{
    (void)state;
    _Atomic uint32_t *word =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(word != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        while (atomic_load(word) == 0)
            mh_futex_wait(word, 0, 30000 * MS);
        atomic_store(word, 2);
        mh_futex_wake(word);
        _exit(0);
    }
    uint64_t start = mh_clock_ns();
    usleep(20000); /* likely asleep by now; right either way */
    atomic_store(word, 1);
    mh_futex_wake(word);
    while (atomic_load(word) == 1)
        mh_futex_wait(word, 1, 30000 * MS);
    assert_true(mh_clock_ns() - start < 20000 * MS); /* woken, not timed out */
    assert_int_equal(child_code(child), 0);
    assert_int_equal(munmap(word, 4096), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_changed_word_does_not_sleep),
        cmocka_unit_test(the_time_out_ends_the_sleep),
        cmocka_unit_test(another_process_wakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
