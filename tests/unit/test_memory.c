/* test_memory.c - shared memory that grows in place, and the limits it respects
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/cgroup.h"
#include "sys/memory.h"
#include "unit.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#define MB ((size_t)1 << 20)
#define RESERVE (UINT64_C(64) << 20)

static mh_memory create(size_t map_bytes)
{
    mh_memory memory;
    assert_int_equal(mh_memory_create(&memory, "unit", map_bytes, 1, NULL), MH_OK);
    return memory;
}

static void it_grows_in_place(void **state)
{
    (void)state;
    int open = open_descriptors();
    mh_memory memory = create(64 * MB);
    uint8_t *base = memory.base;
    assert_int_equal(memory.map_bytes, 64 * MB);
    assert_int_equal(memory.size_bytes, 0);
    assert_true((fcntl(memory.fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(mh_memory_grow(&memory, 100, NULL), MH_OK);
    assert_true(memory.size_bytes >= 100 && memory.size_bytes < MB);
    memset(memory.base, 0xab, 100);
    for (size_t size = MB; size <= 64 * MB; size *= 2) {
        assert_int_equal(mh_memory_grow(&memory, size, NULL), MH_OK);
        assert_int_equal(memory.size_bytes, size);
        assert_ptr_equal(memory.base, base);
        assert_int_equal(base[size - 1], 0);
        base[size - 1] = 1;
        assert_int_equal(base[99], 0xab);
    }
    assert_int_equal(mh_memory_grow(&memory, 5, NULL), MH_OK); /* never shrinks */
    assert_int_equal(memory.size_bytes, 64 * MB);
    mh_memory_close(&memory);
    assert_int_equal(open_descriptors(), open);
}

static void growth_is_really_backed(void **state)
{
    (void)state;
    struct stat about;
    mh_memory memory = create(256 * MB);
    assert_int_equal(mh_memory_grow(&memory, 130 * MB, NULL), MH_OK); /* more than one step */
    assert_int_equal(fstat(memory.fd, &about), 0);
    assert_int_equal(about.st_size, 130 * MB);
    assert_int_equal((size_t)about.st_blocks * 512, 130 * MB);
    mh_memory_close(&memory);
}

static void growing_leaves_signals_as_they_were(void **state)
{
    (void)state;
    sigset_t one, before, after;
    mh_memory memory = create(MB);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &one, &before), 0);
    assert_int_equal(mh_memory_grow(&memory, MB, NULL), MH_OK);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
    for (int number = 1; number < SIGRTMIN; number++)
        assert_int_equal(sigismember(&after, number), number == SIGUSR1);
    mh_memory_close(&memory);
}

/* The limit on files' sizes ends the growth at its second step. */
static void growth_that_fails_halfway_takes_nothing(void **state)
{
    (void)state;
    struct rlimit usual, small;
    struct stat about;
    mh_error err;
    mh_memory memory = create(256 * MB);
    assert_int_equal(mh_memory_grow(&memory, MB, NULL), MH_OK);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = (struct rlimit){.rlim_cur = 100 * MB, .rlim_max = usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    mh_status status = mh_memory_grow(&memory, 130 * MB, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(status, MH_ERR_IO);
    assert_int_equal(err.sys_errno, EFBIG);
    assert_int_equal(memory.size_bytes, MB);
    assert_int_equal(fstat(memory.fd, &about), 0);
    assert_int_equal(about.st_size, MB);
    assert_true((size_t)about.st_blocks * 512 < 64 * MB); /* its first step; huge pages aside */
    assert_true(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    assert_int_equal(mh_memory_grow(&memory, 130 * MB, NULL), MH_OK);
    mh_memory_close(&memory);
}

/* The child maps what the parent made, sees what it wrote, also what it grew afterwards. */
static int child_attaches(int fd, int ready, int go)
{
    mh_memory memory;
    char byte;
    if (mh_memory_attach(&memory, fd, 8 * MB, NULL) != MH_OK || memory.fd == fd)
        return 1;
    if (memory.size_bytes != MB || memory.base[5] != 55)
        return 2;
    memory.base[6] = 66;
    if (write(ready, "x", 1) != 1)
        return 6;
    if (read(go, &byte, 1) != 1)
        return 3;
    if (memory.base[8 * MB - 1] != 88)
        return 4;
    mh_memory_close(&memory);
    return fcntl(fd, F_GETFD) < 0 ? 5 : 0;
}

static void another_process_attaches(void **state)
{
    (void)state;
    int ready[2], go[2];
    char byte;
    mh_memory memory = create(8 * MB);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(mh_memory_grow(&memory, MB, NULL), MH_OK);
    memory.base[5] = 55;
    pid_t child = fork();
    if (child == 0)
        _exit(child_attaches(memory.fd, ready[1], go[0]));
    assert_int_equal(close(ready[1]), 0); /* so that a child that fails ends the read */
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(memory.base[6], 66);
    assert_int_equal(mh_memory_grow(&memory, 8 * MB, NULL), MH_OK);
    memory.base[8 * MB - 1] = 88;
    assert_int_equal(write(go[1], "x", 1), 1);
    assert_int_equal(child_code(child), 0);
    (void)close(ready[0]);
    (void)close(go[0]);
    (void)close(go[1]);
    mh_memory_close(&memory);
}

static void the_size_can_be_read_again(void **state)
{
    (void)state;
    mh_memory memory = create(16 * MB), other;
    assert_int_equal(mh_memory_attach(&other, memory.fd, 16 * MB, NULL), MH_OK);
    assert_int_equal(other.size_bytes, 0);
    assert_int_equal(mh_memory_grow(&memory, 3 * MB, NULL), MH_OK);
    mh_memory_refresh(&other);
    assert_int_equal(other.size_bytes, 3 * MB);
    assert_true((fcntl(other.fd, F_GETFD) & FD_CLOEXEC) != 0);
    mh_memory_close(&other);
    /* never more than is mapped */
    assert_int_equal(mh_memory_attach(&other, memory.fd, 2 * MB, NULL), MH_OK);
    mh_memory_refresh(&other);
    assert_int_equal(other.size_bytes, 2 * MB);
    mh_memory_close(&other);
    mh_memory_close(&memory);
}

static void what_is_backed_is_known_after_growth(void **state)
{
    (void)state;
    mh_memory memory = create(16 * MB), other;
    assert_int_equal(mh_memory_attach(&other, memory.fd, 2 * MB, NULL), MH_OK);
    assert_true(mh_memory_has(&other, 0, 0));
    assert_false(mh_memory_has(&other, 0, 1));
    assert_int_equal(mh_memory_grow(&memory, MB, NULL), MH_OK);
    assert_true(mh_memory_has(&other, 0, MB));
    assert_true(mh_memory_has(&other, MB, 0));
    assert_false(mh_memory_has(&other, 1, MB));
    assert_false(mh_memory_has(&other, MB + 1, 0));
    assert_false(mh_memory_has(&other, UINT64_MAX, 2));
    assert_false(mh_memory_has(&other, 2, UINT64_MAX));
    assert_int_equal(mh_memory_grow(&memory, 3 * MB, NULL), MH_OK);
    assert_true(mh_memory_has(&other, MB, MB));
    assert_false(mh_memory_has(&other, 2 * MB, 1)); /* not mapped */
    mh_memory_close(&other);
    mh_memory_close(&memory);
}

static void attaching_nonsense_fails(void **state)
{
    (void)state;
    int open = open_descriptors(), ends[2];
    mh_memory memory = {.fd = -3};
    mh_error err;
    assert_int_equal(mh_memory_attach(&memory, -1, MB, &err), MH_ERR_IO);
    assert_int_equal(err.sys_errno, EBADF);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(mh_memory_attach(&memory, ends[0], MB, &err), MH_ERR_IO);
    (void)close(ends[0]);
    (void)close(ends[1]);
    mh_memory source = create(MB);
    assert_int_equal(mh_memory_attach(&memory, source.fd, SIZE_MAX / 2, &err), MH_ERR_NOMEM);
    mh_memory_close(&source);
    assert_int_equal(memory.fd, -3);
    assert_int_equal(open_descriptors(), open);
}

static void a_released_range_reads_as_zero(void **state)
{
    (void)state;
    struct stat before, after;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    mh_memory memory = create(MB);
    assert_int_equal(mh_memory_grow(&memory, 8 * page, NULL), MH_OK);
    memset(memory.base, 1, 8 * page);
    assert_int_equal(fstat(memory.fd, &before), 0);
    mh_memory_release_range(&memory, page + 1, 4 * page); /* inwards: pages 2, 3 and 4 */
    assert_int_equal(fstat(memory.fd, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_int_equal((size_t)(before.st_blocks - after.st_blocks) * 512, 3 * page);
    for (size_t at = 0; at < 8 * page; at++)
        assert_int_equal(memory.base[at], at / page >= 2 && at / page <= 4 ? 0 : 1);
    mh_memory_release_range(&memory, 1, page); /* no whole page in it */
    mh_memory_release_range(&memory, MB, SIZE_MAX);
    assert_int_equal(memory.base[page], 1);
    mh_memory_release_range(&memory, 5 * page, SIZE_MAX);
    assert_int_equal(memory.base[5 * page - 1], 0);
    assert_int_equal(memory.base[8 * page - 1], 0);
    assert_int_equal(memory.base[2 * page - 1], 1);
    mh_memory_close(&memory);
}

static void too_much_is_refused_with_both_figures(void **state)
{
    (void)state;
    static const size_t sizes[] = {(size_t)1 << 50, SIZE_MAX / 2, SIZE_MAX};
    mh_error err;
    struct stat about;
    mh_memory memory = create(MB);
    assert_int_equal(mh_memory_grow(&memory, 4096, NULL), MH_OK);
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        double needed = 0, available = 0;
        memset(&err, 0, sizeof err);
        assert_int_equal(mh_memory_grow(&memory, sizes[at], &err), MH_ERR_NOMEM);
        assert_int_equal(sscanf(err.message, "shared memory: %lf MB needed, %lf MB available",
                                &needed, &available),
                         2);
        assert_true(needed > 1e9 && available > 0 && available < needed);
    }
    assert_int_equal(memory.size_bytes, 4096);
    assert_int_equal(fstat(memory.fd, &about), 0);
    assert_int_equal(about.st_size, 4096);
    mh_memory_close(&memory);
}

static void beyond_the_map_is_refused(void **state)
{
    (void)state;
    mh_error err;
    mh_memory memory = create(MB);
    assert_int_equal(mh_memory_grow(&memory, 2 * MB, &err), MH_ERR_NOMEM);
    assert_non_null(strstr(err.message, "2.1 MB needed, 1.0 MB available"));
    assert_int_equal(memory.size_bytes, 0);
    mh_memory_close(&memory);
}

/* Bytes of address space in use, which under a sanitizer is nearly all there is. */
static size_t address_space(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu", &pages), 1);
    assert_int_equal(fclose(file), 0);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void the_map_is_halved_until_it_fits(void **state)
{
    (void)state;
    struct rlimit before, tight;
    int open = open_descriptors();
    mh_memory memory = {.fd = -3};
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = address_space() + 3072 * MB;
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    mh_status refused = mh_memory_create(&memory, "unit", 16384 * MB, 8192 * MB, NULL);
    int untouched = memory.fd;
    mh_status created = mh_memory_create(&memory, "unit", 16384 * MB, MB, NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(refused, MH_ERR_NOMEM);
    assert_int_equal(untouched, -3);
    assert_int_equal(created, MH_OK);
    assert_int_equal(memory.map_bytes, 2048 * MB);
    assert_int_equal(mh_memory_grow(&memory, MB, NULL), MH_OK);
    mh_memory_close(&memory);
    assert_int_equal(open_descriptors(), open);
}

static void more_than_any_address_space_fails(void **state)
{
    (void)state;
    mh_error err;
    mh_memory memory = {.fd = -3};
    size_t huge = (size_t)1 << 60;
    assert_int_equal(mh_memory_create(&memory, "unit", huge, huge, &err), MH_ERR_NOMEM);
    assert_int_equal(mh_memory_create(&memory, "unit", SIZE_MAX, SIZE_MAX, &err), MH_ERR_NOMEM);
    assert_int_equal(memory.fd, -3);
}

static void without_descriptors_it_fails(void **state)
{
    (void)state;
    struct rlimit before, none;
    mh_error err;
    mh_memory memory = {.fd = -3};
    mh_memory source = create(MB);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    mh_status created = mh_memory_create(&memory, "unit", MB, MB, &err);
    mh_status attached = mh_memory_attach(&memory, source.fd, MB, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(created, MH_ERR_IO);
    assert_int_equal(err.sys_errno, EMFILE);
    assert_int_equal(attached, MH_ERR_IO);
    assert_int_equal(memory.fd, -3);
    mh_memory_close(&source);
}

static void closing_is_always_allowed(void **state)
{
    (void)state;
    mh_memory memory = {.fd = -1}, zero = {0};
    mh_memory_close(NULL);
    mh_memory_close(&memory);
    mh_memory_close(&zero);
    assert_true(fcntl(0, F_GETFD) >= 0 || errno == EBADF);
    memory = create(MB);
    mh_memory_close(&memory);
    assert_int_equal(memory.fd, -1);
    assert_null(memory.base);
    mh_memory_close(&memory);
}

static mh_memory_room room_of(const char *root)
{
    mh_memory_room room;
    memset(&room, 0xff, sizeof room);
    mh_memory_room_read(&room, root);
    return room;
}

static void room_is_the_least_of_machine_and_group(void **state)
{
    mh_memory_room room = room_of(*state);
    assert_true(room.total_bytes == MH_NO_LIMIT && room.available_bytes == MH_NO_LIMIT);
    tree_write(*state, "proc/meminfo",
               "MemTotal:  1048576 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB\n");
    room = room_of(*state);
    assert_int_equal(room.total_bytes, UINT64_C(1) << 30);
    assert_int_equal(room.available_bytes, (UINT64_C(512) << 20) - RESERVE);
    tree_write(*state, "proc/self/cgroup", "0::/\n");
    tree_write(*state, "proc/self/mountinfo",
               "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    tree_write(*state, "sys/fs/cgroup/memory.max", "268435456\n");
    tree_write(*state, "sys/fs/cgroup/memory.current", "104857600\n");
    room = room_of(*state);
    assert_int_equal(room.total_bytes, UINT64_C(256) << 20);
    assert_int_equal(room.available_bytes, (UINT64_C(156) << 20) - RESERVE);
    assert_int_equal(room.machine_bytes, UINT64_C(512) << 20);
    assert_int_equal(room.group_bytes, UINT64_C(156) << 20);
    tree_write(*state, "sys/fs/cgroup/memory.current", "240000000\n");
    assert_int_equal(room_of(*state).available_bytes, 0);
}

static void read_room(void *root)
{
    mh_memory_room room;
    mh_memory_room_read(&room, root);
}

static void grow_a_little(void *memory)
{
    mh_memory *mine = memory;
    assert_int_equal(mh_memory_grow(mine, mine->size_bytes + 1, NULL), MH_OK);
}

static void no_memory_for_reading_is_no_limit(void **state)
{
    tree_write(*state, "proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n");
    each_allocation_fails(read_room, *state);
    mh_memory memory = create(16 * MB);
    each_allocation_fails(grow_a_little, &memory);
    mh_memory_close(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows_in_place),
        cmocka_unit_test(growth_is_really_backed),
        cmocka_unit_test(growing_leaves_signals_as_they_were),
        cmocka_unit_test(growth_that_fails_halfway_takes_nothing),
        cmocka_unit_test(another_process_attaches),
        cmocka_unit_test(the_size_can_be_read_again),
        cmocka_unit_test(what_is_backed_is_known_after_growth),
        cmocka_unit_test(attaching_nonsense_fails),
        cmocka_unit_test(a_released_range_reads_as_zero),
        cmocka_unit_test(too_much_is_refused_with_both_figures),
        cmocka_unit_test(beyond_the_map_is_refused),
        cmocka_unit_test(the_map_is_halved_until_it_fits),
        cmocka_unit_test(more_than_any_address_space_fails),
        cmocka_unit_test(without_descriptors_it_fails),
        cmocka_unit_test(closing_is_always_allowed),
        cmocka_unit_test_setup_teardown(room_is_the_least_of_machine_and_group, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(no_memory_for_reading_is_no_limit, make_tree, remove_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
