/* test_control.c - the rings between a consumer and its workers
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "entries.h"
#include "sys/clock.h"
#include "sys/thread.h"
#include "unit.h"
#include "workers/control.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

static mh_control *attach(const mh_control *to, uint32_t worker)
{
    mh_control *control = NULL;
    assert_int_equal(mh_control_attach(&control, mh_control_fd(to), worker, NULL), MH_OK);
    return control;
}

/* --- opening and attaching --- */

static void it_opens_and_attaches(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    mh_control *consumer = open_control(3, 2);
    assert_int_equal(mh_control_workers(consumer), 3);
    mh_worker_view view;
    mh_control_view(consumer, 2, &view);
    assert_int_equal(view.state, MH_WORKER_STARTING);
    assert_int_equal(view.pid, 0);
    mh_control *worker = attach(consumer, 2);
    assert_int_equal(mh_control_workers(worker), 3);
    assert_int_not_equal(mh_control_fd(worker), mh_control_fd(consumer));
    mh_control_view(consumer, 2, &view);
    assert_int_equal(view.pid, getpid());
    mh_control_close(worker);
    mh_control_close(consumer);
    mh_control_close(NULL);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
}

static void only_touched_pages_cost_memory(void **state)
{
    (void)state;
    struct stat about;
    mh_control *control = open_control(64, 16); /* 90 MB of rings */
    assert_int_equal(fstat(mh_control_fd(control), &about), 0);
    assert_true((size_t)about.st_blocks * 512 <= 65536);
    mh_control_close(control);
}

static void impossible_numbers_are_refused(void **state)
{
    (void)state;
    static const uint32_t pairs[][2] = {{0, 1}, {1, 0}, {65537, 1}, {1, 65537}, {UINT32_MAX, 2}};
    for (size_t i = 0; i < COUNT(pairs); i++) {
        mh_control *control = NULL;
        assert_int_equal(
            mh_control_open(
                &control,
                &(mh_control_size){.workers = pairs[i][0], .depth = pairs[i][1], .under_way = 1},
                NULL),
            MH_ERR_INVALID);
        assert_null(control);
    }
}

static void there_is_no_worker_of_that_number(void **state)
{
    (void)state;
    mh_control *consumer = open_control(2, 1), *worker = NULL;
    assert_int_equal(mh_control_attach(&worker, mh_control_fd(consumer), 2, NULL), MH_ERR_INVALID);
    assert_int_equal(mh_control_attach(&worker, mh_control_fd(consumer), MH_ANY_WORKER, NULL),
                     MH_ERR_INVALID);
    assert_null(worker);
    mh_control_close(consumer);
}

/* Another memfd with the first `bytes` of a control block's header and its size. */
static int copy_of(const mh_control *control, size_t size)
{
    uint8_t head[64];
    int fd = memfd_create("unit", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(pread(mh_control_fd(control), head, sizeof head, 0), sizeof head);
    size_t wanted = size < sizeof head ? size : sizeof head;
    assert_int_equal(pwrite(fd, head, wanted, 0), wanted);
    return fd;
}

static size_t file_bytes(const mh_control *control)
{
    struct stat about;
    assert_int_equal(fstat(mh_control_fd(control), &about), 0);
    return (size_t)about.st_size;
}

static void a_damaged_header_is_refused(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    mh_control *consumer = open_control(2, 3), *worker = NULL;
    /* magic, version, the numbers and the two entry sizes: no byte of them may differ (one worker
     * or one entry less would do no harm, so flip a high bit) */
    for (off_t at = 0; at < 36; at++) {
        uint8_t byte;
        int fd = copy_of(consumer, file_bytes(consumer));
        assert_int_equal(mh_control_attach(&worker, fd, 1, NULL), MH_OK);
        mh_control_close(worker);
        worker = NULL;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x80;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        mh_error err = {0};
        assert_int_equal(mh_control_attach(&worker, fd, 1, &err), MH_ERR_CORRUPT);
        assert_non_null(strstr(err.message, "control block"));
        assert_null(worker);
        (void)close(fd);
    }
    mh_control_close(consumer);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
}

static void a_damaged_board_is_refused(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    mh_control *consumer = NULL, *worker = NULL;
    const mh_control_size size = {.workers = 2, .depth = 3, .under_way = 4, .board = 1};
    assert_int_equal(mh_control_open(&consumer, &size, NULL), MH_OK);
    assert_int_equal(mh_control_attach(&worker, mh_control_fd(consumer), 1, NULL), MH_OK);
    mh_control_close(worker);
    worker = NULL;
    mh_error err = {0};
    int fd = copy_of(consumer, file_bytes(consumer)); /* all zero behind the header */
    assert_int_equal(mh_control_attach(&worker, fd, 1, &err), MH_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "board"));
    assert_null(worker);
    (void)close(fd);
    mh_control_close(consumer);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
}

static void a_short_block_is_refused(void **state)
{
    (void)state;
    mh_control *consumer = open_control(2, 3), *worker = NULL;
    size_t whole = file_bytes(consumer);
    const size_t sizes[] = {0, 1, 27, 4095, 4096, 8192, whole / 2, whole - 4096};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int fd = copy_of(consumer, sizes[i]);
        assert_int_equal(mh_control_attach(&worker, fd, 0, NULL), MH_ERR_CORRUPT);
        assert_null(worker);
        (void)close(fd);
    }
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_not_equal(mh_control_attach(&worker, ends[0], 0, NULL), MH_OK);
    assert_int_not_equal(mh_control_attach(&worker, -1, 0, NULL), MH_OK);
    assert_null(worker);
    (void)close(ends[0]);
    (void)close(ends[1]);
    mh_control_close(consumer);
}

static void open_and_attach(void *argument)
{
    (void)argument;
    int open = open_descriptors();
    mh_control *consumer = NULL, *worker = NULL;
    mh_status status = mh_control_open(
        &consumer, &(mh_control_size){.workers = 2, .depth = 2, .under_way = 1}, NULL);
    assert_true(status == MH_OK ? consumer != NULL : status == MH_ERR_NOMEM && !consumer);
    if (consumer) {
        status = mh_control_attach(&worker, mh_control_fd(consumer), 1, NULL);
        assert_true(status == MH_OK ? worker != NULL : status == MH_ERR_NOMEM && !worker);
    }
    mh_control_close(worker);
    mh_control_close(consumer);
    assert_int_equal(open_descriptors(), open);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    each_allocation_fails(open_and_attach, NULL);
}

/* --- the rings, one side after the other --- */

static void entries_come_out_in_order(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 5; depth++) {
        mh_control *consumer = open_control(2, depth), *worker = attach(consumer, 1);
        uint64_t asked = 0, done = 0, answered = 0;
        for (uint32_t lap = 0; lap < 40; lap++) {
            while (put_task(consumer, 1, asked))
                asked++;
            assert_int_equal(asked - done, depth); /* a full ring takes no more */
            uint32_t some = 1 + lap % depth;
            for (uint32_t i = 0; i < some; i++) {
                const mh_task *task = mh_control_task_wait(worker, 0);
                assert_non_null(task);
                assert_true(task_is_whole(task, done));
                mh_control_task_done(worker);
                put_result(worker, done++);
            }
            for (uint32_t i = 0; i < some; i++) {
                assert_int_equal(mh_control_result_wait(consumer, 1, 0), 1);
                const mh_result *result = mh_control_result_peek(consumer, 1);
                assert_non_null(result);
                assert_ptr_equal(mh_control_result_peek(consumer, 1), result);
                assert_true(result_is(result, answered++));
                mh_control_result_done(consumer, 1);
            }
            assert_null(mh_control_result_peek(consumer, 1));
            assert_int_equal(mh_control_result_wait(consumer, 1, 0), 0);
        }
        assert_null(mh_control_result_peek(consumer, 0)); /* the other's rings are its own */
        assert_true(put_task(consumer, 0, 0));
        mh_control_close(worker);
        mh_control_close(consumer);
    }
}

static void a_task_not_done_is_given_again(void **state)
{
    (void)state;
    mh_control *consumer = open_control(1, 2), *worker = attach(consumer, 0);
    assert_null(mh_control_task_wait(worker, 0));
    assert_true(put_task(consumer, 0, 5));
    assert_true(task_is_whole(mh_control_task_wait(worker, 0), 5));
    assert_true(task_is_whole(mh_control_task_wait(worker, 0), 5));
    mh_control_task_done(worker);
    assert_null(mh_control_task_wait(worker, 0));
    mh_control_close(worker);
    mh_control_close(consumer);
}

static void waiting_ends_with_its_time(void **state)
{
    (void)state;
    mh_control *consumer = open_control(2, 1), *worker = attach(consumer, 0);
    uint64_t began = mh_clock_ns();
    assert_int_equal(mh_control_result_wait(consumer, 0, 20 * MS), 0);
    assert_int_equal(mh_control_result_wait(consumer, MH_ANY_WORKER, 20 * MS), 0);
    assert_false(mh_control_consumer_waits(consumer)); /* any more, to an onlooker */
    assert_null(mh_control_task_wait(worker, 20 * MS));
    uint64_t spent = mh_clock_ns() - began;
    assert_true(spent >= 50 * MS && spent < PATIENCE_NS);
    mh_control_close(worker);
    mh_control_close(consumer);
}

static void spilled_results_are_counted(void **state)
{
    (void)state;
    mh_control *consumer = open_control(2, 2);
    mh_control *first = attach(consumer, 0), *second = attach(consumer, 1);
    assert_int_equal(mh_control_spill_read(first), 0);
    mh_control_spill_done(consumer, 1);
    mh_control_spill_done(consumer, 1);
    mh_control_spill_done(consumer, 0);
    assert_int_equal(mh_control_spill_read(first), 1);
    assert_int_equal(mh_control_spill_read(second), 2);
    mh_control_close(first);
    mh_control_close(second);
    mh_control_close(consumer);
}

static void the_view_follows_the_worker(void **state)
{
    (void)state;
    mh_worker_view view;
    mh_control *consumer = open_control(1, 2), *worker = attach(consumer, 0);
    assert_null(mh_control_task_wait(worker, 0));
    mh_control_view(consumer, 0, &view);
    assert_int_equal(view.state, MH_WORKER_IDLE);
    assert_int_equal(view.tasks, 0);
    assert_true(put_task(consumer, 0, 70));
    assert_true(put_task(consumer, 0, 71));
    for (uint64_t position = 70; position < 72; position++) {
        assert_non_null(mh_control_task_wait(worker, 0));
        mh_control_view(consumer, 0, &view);
        assert_int_equal(view.state, MH_WORKER_FETCHING);
        assert_int_equal(view.position, position);
        assert_int_equal(view.offset, 0); /* not the last task's */
        uint64_t heard = view.heartbeat_ns;
        assert_true(heard > 0 && heard <= mh_clock_ns());
        mh_control_set_sample(worker, 13);
        mh_control_view(consumer, 0, &view);
        assert_int_equal(view.offset, 13);
        mh_control_set_state(worker, MH_WORKER_COLLATING);
        mh_control_view(consumer, 0, &view);
        assert_int_equal(view.state, MH_WORKER_COLLATING);
        uint64_t busy = view.busy_ns;
        mh_control_task_done(worker);
        usleep(2000);
        put_result(worker, position);
        mh_control_view(consumer, 0, &view);
        assert_true(view.busy_ns >= busy + 2 * MS);
        assert_true(view.heartbeat_ns >= heard + 2 * MS);
        assert_int_equal(view.tasks, position - 69);
    }
    assert_int_equal(view.threads, 0);
    for (uint32_t threads = 3; threads > 0; threads--)
        mh_control_set_threads(worker, threads);
    mh_control_set_state(worker, MH_WORKER_LEFT);
    mh_control_view(consumer, 0, &view);
    assert_int_equal(view.threads, 3);
    assert_int_equal(view.state, MH_WORKER_LEFT);
    mh_control_set_state(worker, (mh_worker_state)77); /* another process's word */
    mh_control_view(consumer, 0, &view);
    assert_true(view.state <= MH_WORKER_LEFT);
    mh_control_close(worker);
    mh_control_close(consumer);
}

/* A counter of a worker's block, found by its value, which no other word there may have. */
static uint64_t *find_counter(uint8_t *block, uint64_t value)
{
    uint64_t *found = NULL, *words = (uint64_t *)(void *)block;
    for (size_t at = 0; at < 16; at++) {
        if (words[at] != value)
            continue;
        assert_null(found);
        found = &words[at];
    }
    assert_non_null(found);
    return found;
}

static void a_damaged_counter_gives_no_result(void **state)
{
    (void)state;
    static const uint64_t damages[] = {2, 1, 0, 8, 9, 1000, UINT64_C(1) << 63, UINT64_MAX};
    mh_control *consumer = open_control(1, 5), *worker = attach(consumer, 0);
    uint8_t *mapped =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, mh_control_fd(consumer), 0);
    assert_true(mapped != MAP_FAILED);
    for (uint64_t i = 0; i < 5; i++)
        assert_true(put_task(consumer, 0, i));
    for (uint64_t i = 0; i < 5; i++) {
        assert_non_null(mh_control_task_wait(worker, 0));
        mh_control_task_done(worker);
    }
    for (uint64_t i = 0; i < 3; i++)
        put_result(worker, i);
    for (uint64_t i = 0; i < 2; i++) {
        assert_true(result_is(mh_control_result_peek(consumer, 0), i));
        mh_control_result_done(consumer, 0);
    }
    /* two are read, so 3 .. 7 can be and 2 is none; everything else cannot be */
    uint64_t *results_put = find_counter(mapped + 4096, 3);
    assert_true(result_is(mh_control_result_peek(consumer, 0), 2));
    for (size_t i = 0; i < COUNT(damages); i++) {
        *results_put = damages[i];
        assert_null(mh_control_result_peek(consumer, 0));
    }
    *results_put = 3;
    assert_true(result_is(mh_control_result_peek(consumer, 0), 2));
    assert_int_equal(munmap(mapped, 8192), 0);
    mh_control_close(worker);
    mh_control_close(consumer);
}

/* --- two threads --- */

#define MANY 200000

/* Both sides use one handle, which serves for worker 0 as well: a thread sanitizer knows memory by
 * its address, so with two mappings it would see nothing. */
typedef struct both_sides {
    mh_control *control;
    uint64_t wait_ns; /* 0: look again and again */
    _Atomic uint64_t wrong;
} both_sides;

static void *worker_thread(void *argument)
{
    both_sides *sides = argument;
    mh_control *control = sides->control;
    uint64_t number = 0;
    while (!mh_control_stopped(control)) {
        const mh_task *task = mh_control_task_wait(control, sides->wait_ns);
        if (!task) {
            sched_yield();
            continue;
        }
        if (!task_is(task, number))
            atomic_fetch_add(&sides->wrong, 1);
        mh_control_set_sample(control, (uint32_t)number);
        mh_control_task_done(control);
        put_result(control, number++);
    }
    return NULL;
}

static int take_result(const both_sides *sides, uint64_t number, uint64_t began)
{
    mh_control *control = sides->control;
    const mh_result *result;
    while (!(result = mh_control_result_peek(control, 0))) {
        if (sides->wait_ns)
            (void)mh_control_result_wait(control, number % 2 ? 0 : MH_ANY_WORKER, sides->wait_ns);
        else
            sched_yield();
        if (mh_clock_ns() - began > 2 * PATIENCE_NS)
            return 0; /* a wake-up is missing */
    }
    int right = result_is(result, number);
    mh_control_result_done(control, 0);
    return right;
}

static void pass_many(uint64_t wait_ns)
{
    mh_thread thread = {0};
    both_sides sides = {.control = open_control(1, 4), .wait_ns = wait_ns};
    uint64_t asked = 0, taken = 0, right = 0, began = mh_clock_ns();
    assert_int_equal(mh_thread_start(&thread, "worker", worker_thread, &sides, NULL), MH_OK);
    for (; taken < MANY && right == taken; taken++) {
        mh_task *task;
        while (asked < MANY && asked - taken < 4 &&
               (task = mh_control_task_begin(sides.control, 0))) {
            task_mark_quickly(task, asked++);
            mh_control_task_publish(sides.control, 0);
        }
        right += take_result(&sides, taken, began);
    }
    mh_control_stop(sides.control);
    mh_thread_join(&thread);
    assert_int_equal(right, MANY);
    assert_int_equal(sides.wrong, 0);
    mh_control_close(sides.control);
}

static void many_entries_pass_between_sleepers(void **state)
{
    (void)state;
    pass_many(1000 * MS);
}

static void many_entries_pass_without_a_sleep(void **state)
{
    (void)state;
    pass_many(0);
}

static void *tasks_thread(void *argument)
{
    both_sides *sides = argument;
    for (uint64_t number = 0; !mh_control_stopped(sides->control);) {
        const mh_task *task = mh_control_task_wait(sides->control, 100 * MS);
        if (!task)
            continue;
        if (!task_is(task, number++))
            atomic_fetch_add(&sides->wrong, 1);
        mh_control_task_done(sides->control);
    }
    return NULL;
}

/* No result comes back, so that nothing but the ring says when an entry may be written again. */
static void a_full_ring_alone_holds_the_consumer_back(void **state)
{
    (void)state;
    mh_thread thread = {0};
    mh_worker_view view = {0};
    both_sides sides = {.control = open_control(1, 3)};
    uint64_t asked = 0, began = mh_clock_ns();
    assert_int_equal(mh_thread_start(&thread, "tasks", tasks_thread, &sides, NULL), MH_OK);
    while (view.tasks < 20000 && mh_clock_ns() - began < 2 * PATIENCE_NS) {
        mh_task *task = asked < 20000 ? mh_control_task_begin(sides.control, 0) : NULL;
        if (task) {
            task_mark_quickly(task, asked++);
            mh_control_task_publish(sides.control, 0);
        } else {
            sched_yield();
        }
        mh_control_view(sides.control, 0, &view);
    }
    mh_control_stop(sides.control);
    mh_thread_join(&thread);
    assert_int_equal(view.tasks, 20000);
    assert_int_equal(sides.wrong, 0);
    mh_control_close(sides.control);
}

/* --- another process --- */

static pid_t start_worker(const mh_control *consumer, uint32_t number)
{
    pid_t child = fork();
    if (child == 0) {
        child_begin();
        _exit(worker_process(mh_control_fd(consumer), number));
    }
    assert_true(child > 0);
    return child;
}

static void a_real_process_works(void **state)
{
    (void)state;
    mh_control *consumer = open_control(2, 3);
    pid_t children[2] = {start_worker(consumer, 0), start_worker(consumer, 1)};
    uint64_t asked[2] = {0}, taken[2] = {0};
    uint64_t began = mh_clock_ns();
    while (taken[0] < 2000 || taken[1] < 2000) {
        for (uint32_t w = 0; w < 2; w++)
            while (asked[w] < 2000 && asked[w] - taken[w] < 3 && put_task(consumer, w, asked[w]))
                asked[w]++;
        (void)mh_control_result_wait(consumer, MH_ANY_WORKER, 1000 * MS);
        for (uint32_t w = 0; w < 2; w++) {
            const mh_result *result = mh_control_result_peek(consumer, w);
            if (!result)
                continue;
            assert_true(result_is(result, taken[w]++));
            mh_control_result_done(consumer, w);
        }
        assert_true(mh_clock_ns() - began < PATIENCE_NS);
    }
    mh_control_stop(consumer);
    for (uint32_t w = 0; w < 2; w++) {
        mh_worker_view view;
        assert_int_equal(child_code(children[w]), 0);
        mh_control_view(consumer, w, &view);
        assert_int_equal(view.state, MH_WORKER_LEFT);
        assert_int_equal(view.pid, children[w]);
        assert_int_equal(view.tasks, 2000);
        assert_int_equal(view.offset, 2);
    }
    mh_control_close(consumer);
}

static int sleep_until_stopped(int fd)
{
    mh_control *control = NULL;
    if (mh_control_attach(&control, fd, 0, NULL) != MH_OK)
        return 1;
    uint64_t began = mh_clock_ns();
    while (!mh_control_stopped(control) && mh_clock_ns() - began < 2 * PATIENCE_NS)
        if (mh_control_task_wait(control, 2 * PATIENCE_NS))
            return 2;
    return mh_clock_ns() - began < PATIENCE_NS ? 0 : 3;
}

static void stopping_wakes_a_sleeper(void **state)
{
    (void)state;
    mh_worker_view view = {0};
    mh_control *consumer = open_control(1, 2);
    pid_t child = fork();
    if (child == 0) {
        child_begin();
        _exit(sleep_until_stopped(mh_control_fd(consumer)));
    }
    for (uint64_t began = mh_clock_ns();
         view.state != MH_WORKER_IDLE && mh_clock_ns() - began < PATIENCE_NS;) {
        usleep(1000);
        mh_control_view(consumer, 0, &view);
    }
    assert_int_equal(view.state, MH_WORKER_IDLE);
    usleep(20000); /* asleep by now */
    mh_control_stop(consumer);
    assert_int_equal(child_code(child), 0);
    mh_control_close(consumer);
}

static void a_stopped_worker_gets_no_task(void **state)
{
    (void)state;
    mh_control *consumer = open_control(1, 2), *worker = attach(consumer, 0);
    assert_int_equal(mh_control_stopped(worker), 0);
    assert_true(put_task(consumer, 0, 1));
    mh_control_stop(consumer);
    assert_int_equal(mh_control_stopped(worker), 1);
    uint64_t began = mh_clock_ns();
    assert_null(mh_control_task_wait(worker, 2 * PATIENCE_NS));
    assert_true(mh_clock_ns() - began < PATIENCE_NS);
    mh_control_close(worker);
    mh_control_close(consumer);
}

/* A fork of the consumer's must neither stop the workers nor unmap. */
static void a_forked_copy_of_the_consumer_is_inert(void **state)
{
    (void)state;
    mh_control *consumer = open_control(1, 2);
    pid_t child = fork();
    if (child == 0) {
        mh_control_stop(consumer);
        mh_control_close(consumer);
        _exit(mh_control_workers(consumer) == 1 ? 0 : 1);
    }
    assert_int_equal(child_code(child), 0);
    assert_int_equal(mh_control_stopped(consumer), 0);
    mh_control_close(consumer);
}

static void the_dead_are_still_to_be_seen(void **state)
{
    (void)state;
    mh_worker_view view;
    mh_control *consumer = open_control(2, 2);
    assert_true(put_task(consumer, 1, 41));
    pid_t child = fork();
    if (child == 0) {
        mh_control *worker = NULL;
        if (mh_control_attach(&worker, mh_control_fd(consumer), 1, NULL) == MH_OK &&
            mh_control_task_wait(worker, PATIENCE_NS)) {
            mh_control_task_done(worker);
            for (uint32_t sample = 0; sample < 6; sample++)
                mh_control_set_sample(worker, sample);
            (void)raise(SIGKILL);
        }
        _exit(1);
    }
    assert_int_equal(child_code(child), 128 + SIGKILL);
    mh_control_view(consumer, 1, &view);
    assert_int_equal(view.state, MH_WORKER_FETCHING);
    assert_int_equal(view.pid, child);
    assert_int_equal(view.position, 41);
    assert_int_equal(view.offset, 5);
    assert_int_equal(view.tasks, 1);
    assert_null(mh_control_result_peek(consumer, 1));
    assert_int_equal(mh_control_result_wait(consumer, 1, 10 * MS), 0);
    mh_control_stop(consumer); /* nobody is there to hear it */
    mh_control_close(consumer);
}

/* --- looking on --- */

/* A result as a worker of batches sends it. */
static void send_result(mh_control *worker, uint64_t position, uint64_t fetch_ns)
{
    mh_result *result = mh_control_result_begin(worker);
    *result = (mh_result){.position = position,
                          .kind = MH_RESULT_SLOT,
                          .samples = 8,
                          .fetch_ns = fetch_ns,
                          .collate_ns = 5};
    mh_control_result_publish(worker);
}

static void an_onlooker_sees_and_changes_nothing(void **state)
{
    (void)state;
    mh_control *consumer = open_control(2, 2), *worker = attach(consumer, 1), *onlooker = NULL;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", mh_control_fd(consumer));
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* so that a store would be a fault */
    assert_true(fd >= 0);
    assert_int_equal(mh_control_look(&onlooker, fd, NULL), MH_OK);
    (void)close(fd);
    assert_int_equal(mh_control_workers(onlooker), 2);
    assert_int_equal(mh_control_depth(onlooker), 2);
    assert_int_equal(mh_control_under_way(onlooker), 4);
    assert_false(mh_control_has_board(onlooker));
    assert_false(mh_control_consumer_waits(onlooker));
    mh_worker_view view;
    mh_control_view(onlooker, 1, &view);
    assert_int_equal(view.pid, getpid());
    mh_control_view(onlooker, 0, &view);
    assert_int_equal(view.pid, 0); /* it is no worker */
    mh_ring_counts counts;
    mh_control_counts(onlooker, 1, &counts);
    assert_int_equal(counts.results_put, 0);
    send_result(worker, 40, 1000);
    mh_control_counts(onlooker, 1, &counts);
    assert_int_equal(counts.results_put, 1);
    assert_int_equal(counts.results_read, 0);
    assert_non_null(mh_control_result_peek(consumer, 1)); /* it is still the consumer's */
    mh_control_close(onlooker);
    mh_control_close(worker);
    mh_control_close(consumer);
}

/* A place in a ring may be written again once its result is read and the ring has come round. */
static void a_note_is_given_while_its_place_is_its_own(void **state)
{
    (void)state;
    mh_control *consumer = open_control(1, 2), *worker = attach(consumer, 0);
    mh_result_note note;
    assert_false(mh_control_result_note(consumer, 0, 0, &note));
    send_result(worker, 40, 1000);
    assert_true(mh_control_result_note(consumer, 0, 0, &note));
    assert_int_equal(note.position, 40);
    assert_int_equal(note.kind, MH_RESULT_SLOT);
    assert_int_equal(note.samples, 8);
    assert_int_equal(note.fetch_ns, 1000);
    assert_int_equal(note.collate_ns, 5);
    assert_true(note.published_ns > 0);
    send_result(worker, 41, 2000);
    assert_true(mh_control_result_note(consumer, 0, 0, &note)); /* full: nobody writes */
    mh_control_result_done(consumer, 0);
    assert_false(mh_control_result_note(consumer, 0, 0, &note)); /* somebody may be writing */
    assert_true(mh_control_result_note(consumer, 0, 1, &note));
    assert_int_equal(note.position, 41);
    mh_control_close(worker);
    mh_control_close(consumer);
}

static void what_is_no_block_is_not_looked_at(void **state)
{
    (void)state;
    int open = open_descriptors();
    uint64_t live = mh_alloc_live();
    mh_control *onlooker = NULL;
    int fd = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(mh_control_look(&onlooker, fd, NULL), MH_ERR_CORRUPT);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(mh_control_look(&onlooker, fd, NULL), MH_ERR_CORRUPT);
    assert_null(onlooker);
    (void)close(fd);
    assert_int_equal(open_descriptors(), open);
    assert_int_equal(mh_alloc_live(), live);
}

static void another_process_goes_on_where_one_stopped(void **state)
{
    (void)state;
    mh_over_limit_view over_limit;
    mh_worker_view view;
    mh_control *consumer = open_control(2, 2);
    mh_control *worker = attach(consumer, 1);
    for (uint64_t n = 0; n < 2; n++) {
        task_mark(mh_control_task_begin(consumer, 1), n);
        mh_control_task_publish(consumer, 1);
    }
    assert_non_null(mh_control_task_wait(worker, PATIENCE_NS));
    mh_control_task_done(worker);
    assert_false(mh_control_over_limit(consumer, 1, &over_limit));
    mh_control_set_over_limit(worker, MH_OVER_LIMIT_ENDED, 77);
    mh_control_close(worker);
    assert_false(mh_control_over_limit(consumer, 0, &over_limit));
    assert_true(mh_control_over_limit(consumer, 1, &over_limit));
    assert_int_equal(over_limit.over_limit, MH_OVER_LIMIT_ENDED);
    assert_int_equal(over_limit.bytes, 77);
    assert_int_equal(over_limit.results_put, 0);
    mh_control_replace_worker(consumer, 1);
    assert_false(mh_control_over_limit(consumer, 1, &over_limit));
    mh_control_view(consumer, 1, &view);
    assert_int_equal(view.state, MH_WORKER_STARTING);
    assert_int_equal(view.pid, 0);
    worker = attach(consumer, 1);
    for (uint64_t n = 0; n < 2; n++) { /* the first one again */
        const mh_task *task = mh_control_task_wait(worker, PATIENCE_NS);
        assert_non_null(task);
        assert_true(task_is(task, n));
        mh_control_task_done(worker);
        mh_control_result_begin(worker)->position = n;
        mh_control_result_publish(worker);
        assert_int_equal(mh_control_result_sent(worker, n)->position, n);
    }
    mh_control_set_over_limit(worker, MH_OVER_LIMIT_LEAVES, 78);
    mh_control_view(consumer, 1, &view);
    assert_int_equal(view.state, MH_WORKER_LEFT);
    mh_control_replace_worker(consumer, 1);
    assert_null(mh_control_task_wait(worker, 0)); /* nothing is made twice */
    mh_control_set_over_limit(worker, MH_OVER_LIMIT_STAYS, 79);
    assert_true(mh_control_over_limit(consumer, 1, &over_limit));
    mh_control_over_limit_seen(consumer, 1);
    assert_false(mh_control_over_limit(consumer, 1, &over_limit));
    mh_control_close(worker);
    mh_control_close(consumer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_opens_and_attaches),
        cmocka_unit_test(only_touched_pages_cost_memory),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(there_is_no_worker_of_that_number),
        cmocka_unit_test(a_damaged_header_is_refused),
        cmocka_unit_test(a_damaged_board_is_refused),
        cmocka_unit_test(a_short_block_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(entries_come_out_in_order),
        cmocka_unit_test(a_task_not_done_is_given_again),
        cmocka_unit_test(waiting_ends_with_its_time),
        cmocka_unit_test(spilled_results_are_counted),
        cmocka_unit_test(the_view_follows_the_worker),
        cmocka_unit_test(a_damaged_counter_gives_no_result),
        cmocka_unit_test(many_entries_pass_between_sleepers),
        cmocka_unit_test(many_entries_pass_without_a_sleep),
        cmocka_unit_test(a_full_ring_alone_holds_the_consumer_back),
        cmocka_unit_test(a_real_process_works),
        cmocka_unit_test(stopping_wakes_a_sleeper),
        cmocka_unit_test(a_stopped_worker_gets_no_task),
        cmocka_unit_test(a_forked_copy_of_the_consumer_is_inert),
        cmocka_unit_test(the_dead_are_still_to_be_seen),
        cmocka_unit_test(an_onlooker_sees_and_changes_nothing),
        cmocka_unit_test(a_note_is_given_while_its_place_is_its_own),
        cmocka_unit_test(another_process_goes_on_where_one_stopped),
        cmocka_unit_test(what_is_no_block_is_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
