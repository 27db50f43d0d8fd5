/* test_control.c - the rings between a consumer and its workers, also when one of them dies
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "sys/clock.h"
#include "sys/thread.h"
#include "unit.h"
#include "workers/control.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define MS UINT64_C(1000000)
#define PATIENCE_NS (20000 * MS)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static mh_control *open_control(uint32_t workers, uint32_t depth)
{
    mh_control *control = NULL;
    assert_int_equal(mh_control_open(&control, workers, depth, NULL), MH_OK);
    return control;
}

static mh_control *attach(const mh_control *to, uint32_t worker)
{
    mh_control *control = NULL;
    assert_int_equal(mh_control_attach(&control, mh_control_fd(to), worker, NULL), MH_OK);
    return control;
}

/* --- entries whose every part tells their number --- */

#define MARKED_BYTES 200

static void task_mark(mh_task *task, uint64_t number)
{
    *task = (mh_task){.position = number,
                      .first = (uint32_t)number + 1,
                      .count = (uint32_t)number + 2,
                      .flags = MH_TASK_INTS,
                      .generation = (uint32_t)number + 3,
                      .slot_offset = number * 5,
                      .slot_bytes = number * 7,
                      .outside = number * 9,
                      .index_bytes = (uint32_t)number * 11,
                      .schema_bytes = (uint32_t)number * 13};
    memset(task->payload, (uint8_t)(number * 17 + 1), MARKED_BYTES);
    task->payload[MH_TASK_PAYLOAD_BYTES - 1] = (uint8_t)(number * 19 + 1);
}

/* As task_mark without the 64 KB of zeroes, for the many. */
static void task_mark_quickly(mh_task *task, uint64_t number)
{
    task->position = number;
    task->slot_offset = number * 5;
    task->schema_bytes = (uint32_t)number * 13;
    task->payload[0] = (uint8_t)(number * 17 + 1);
    task->payload[MH_TASK_PAYLOAD_BYTES - 1] = (uint8_t)(number * 19 + 1);
}

static int task_is(const mh_task *task, uint64_t number)
{
    return task->position == number && task->slot_offset == number * 5 &&
           task->schema_bytes == (uint32_t)number * 13 &&
           task->payload[0] == (uint8_t)(number * 17 + 1) &&
           task->payload[MH_TASK_PAYLOAD_BYTES - 1] == (uint8_t)(number * 19 + 1);
}

static int task_is_whole(const mh_task *task, uint64_t number)
{
    for (size_t at = 0; at < MARKED_BYTES; at++)
        if (task->payload[at] != (uint8_t)(number * 17 + 1))
            return 0;
    return task_is(task, number) && task->first == (uint32_t)number + 1 &&
           task->count == (uint32_t)number + 2 && task->flags == MH_TASK_INTS &&
           task->generation == (uint32_t)number + 3 && task->slot_bytes == number * 7 &&
           task->outside == number * 9 && task->index_bytes == (uint32_t)number * 11;
}

static void result_mark(mh_result *result, uint64_t number)
{
    result->position = number;
    result->kind = MH_RESULT_SLOT;
    result->leaf_count = (uint32_t)number + 1;
    result->state_bytes = (uint32_t)number + 2;
    result->spill_offset = number * 3;
    result->leaves[0].bytes = number * 5;
    result->leaves[MH_LEAVES_MAX - 1].shape[MH_LEAF_DIMS - 1] = (int64_t)number * 7;
    result->state[0] = (uint8_t)(number * 9 + 1);
    result->state[MH_STATE_BYTES - 1] = (uint8_t)(number * 11 + 1);
}

static int result_is(const mh_result *result, uint64_t number)
{
    return result->position == number && result->kind == MH_RESULT_SLOT &&
           result->leaf_count == (uint32_t)number + 1 &&
           result->state_bytes == (uint32_t)number + 2 && result->spill_offset == number * 3 &&
           result->leaves[0].bytes == number * 5 &&
           result->leaves[MH_LEAVES_MAX - 1].shape[MH_LEAF_DIMS - 1] == (int64_t)number * 7 &&
           result->state[0] == (uint8_t)(number * 9 + 1) &&
           result->state[MH_STATE_BYTES - 1] == (uint8_t)(number * 11 + 1);
}

static int put_task(mh_control *control, uint32_t worker, uint64_t number)
{
    mh_task *task = mh_control_task_begin(control, worker);
    if (!task)
        return 0;
    task_mark(task, number);
    mh_control_task_publish(control, worker);
    return 1;
}

static void put_result(mh_control *control, uint64_t number)
{
    result_mark(mh_control_result_begin(control), number);
    mh_control_result_publish(control);
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
        assert_int_equal(mh_control_open(&control, pairs[i][0], pairs[i][1], NULL), MH_ERR_INVALID);
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
    /* magic, version, workers, depth and the two entry sizes: no byte of them may differ (one
     * worker or one entry less would do no harm, so flip a high bit) */
    for (off_t at = 0; at < 28; at++) {
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
    mh_status status = mh_control_open(&consumer, 2, 2, NULL);
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
    mh_control_set_state(worker, MH_WORKER_LEFT);
    mh_control_view(consumer, 0, &view);
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

/* Whatever becomes of the test, its children end. Also a stopped one, which no alarm reaches. */
static void child_begin(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(60);
}

/* Serves until the consumer stops. Exit codes: 0 good, others say what was wrong. */
static int worker_process(int fd, uint32_t number)
{
    mh_control *control = NULL;
    if (mh_control_attach(&control, fd, number, NULL) != MH_OK)
        return 1;
    for (uint64_t next = 0; !mh_control_stopped(control);) {
        const mh_task *task = mh_control_task_wait(control, 1000 * MS);
        if (!task)
            continue;
        if (!task_is_whole(task, next))
            return 2;
        for (uint32_t sample = 0; sample < 3; sample++)
            mh_control_set_sample(control, sample);
        mh_control_task_done(control);
        put_result(control, next++);
    }
    mh_control_set_state(control, MH_WORKER_LEFT);
    mh_control_close(control);
    return 0;
}

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

/* --- crash points --- */

#define DEPTH 4
#define TASKS 12

static const struct crash {
    const char *name;
    int by_worker; /* which side reaches it */
    uint64_t seen; /* whole entries the other side sees when it happens for the second time */
} crashes[] = {
    [MH_POINT_TASK_WRITTEN] = {"task-written", 0, 1},
    [MH_POINT_TASK_PUBLISHED] = {"task-published", 0, 2},
    [MH_POINT_TASK_TAKEN] = {"task-taken", 1, 1},
    [MH_POINT_SAMPLE] = {"sample", 1, 0},
    [MH_POINT_TASK_DONE] = {"task-done", 1, 1},
    [MH_POINT_RESULT_BEGUN] = {"result-begun", 1, 1},
    [MH_POINT_RESULT_WRITTEN] = {"result-written", 1, 1},
    [MH_POINT_RESULT_PUBLISHED] = {"result-published", 1, 2},
    [MH_POINT_RESULT_TAKEN] = {"result-taken", 0, DEPTH + 1},
    [MH_POINT_RESULT_DONE] = {"result-done", 0, DEPTH + 1},
};
_Static_assert(COUNT(crashes) == MH_POINT_COUNT, "a crash point without a test");

/* Arms a point for its second time. */
static int arm(mh_point point, int signal)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s:2:%d", crashes[point].name, signal);
    return mh_point_arm(text, NULL) == MH_OK;
}

/* One step of a consumer that keeps its worker's ring full; 0 when a result is not whole. */
static int consume(mh_control *control, uint64_t *asked, uint64_t *taken)
{
    while (*asked < TASKS && *asked - *taken < DEPTH && put_task(control, 0, *asked))
        (*asked)++;
    (void)mh_control_result_wait(control, 0, 5 * MS);
    const mh_result *result = mh_control_result_peek(control, 0);
    if (!result)
        return 1;
    if (!result_is(result, *taken))
        return 0;
    (*taken)++;
    mh_control_result_done(control, 0);
    return 1;
}

/* The state letter of /proc/PID/stat: 'T' stopped, 'Z' dead. */
static char process_state(pid_t pid)
{
    char path[64], letter = '?';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 'X';
    if (fscanf(file, "%*d (%*[^)]) %c", &letter) != 1)
        letter = '?';
    (void)fclose(file);
    return letter;
}

static int process_out(pid_t pid)
{
    char letter = process_state(pid);
    return letter == 'T' || letter == 'Z' || letter == 'X';
}

/* The worker meets its end; this process is the consumer that must not notice anything but that
 * no more results come. */
static void worker_dies_at(mh_point point, int signal)
{
    uint64_t asked = 0, taken = 0, began = mh_clock_ns();
    mh_control *consumer = open_control(1, DEPTH);
    pid_t child = fork();
    if (child == 0) {
        child_begin();
        _exit(arm(point, signal) ? worker_process(mh_control_fd(consumer), 0) : 9);
    }
    while (!process_out(child) && mh_clock_ns() - began < PATIENCE_NS)
        assert_true(consume(consumer, &asked, &taken));
    assert_true(process_out(child));
    for (int i = 0; i < 3; i++) /* what it sent before */
        assert_true(consume(consumer, &asked, &taken));
    assert_int_equal(taken, crashes[point].seen);
    assert_null(mh_control_result_peek(consumer, 0));
    mh_worker_view view;
    mh_control_view(consumer, 0, &view);
    assert_int_equal(view.pid, child);
    assert_int_equal(view.position, point == MH_POINT_SAMPLE ? 0 : 1);
    if (point == MH_POINT_SAMPLE)
        assert_int_equal(view.offset, 1);
    if (signal == SIGSTOP)
        assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(child_code(child), 128 + SIGKILL);
    mh_control_close(consumer);
}

/* Opens, says under which number its memfd is to be had, waits for the worker, works and dies. */
static int consumer_process(mh_point point, int signal, int line)
{
    char go;
    mh_control *control = NULL;
    uint64_t asked = 0, taken = 0, began = mh_clock_ns();
    if (mh_control_open(&control, 1, DEPTH, NULL) != MH_OK)
        return 1;
    int fd = mh_control_fd(control);
    if (write(line, &fd, sizeof fd) != sizeof fd || read(line, &go, 1) != 1)
        return 2;
    if (!arm(point, signal))
        return 3;
    while (mh_clock_ns() - began < PATIENCE_NS)
        if (!consume(control, &asked, &taken))
            return 4;
    return 5;
}

static mh_control *attach_to(pid_t pid, int fd_there)
{
    char path[64];
    mh_control *control = NULL;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd_there);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(mh_control_attach(&control, fileno(file), 0, NULL), MH_OK);
    assert_int_equal(fclose(file), 0);
    return control;
}

/* The consumer meets its end; this process is the worker, which finishes what it was given. */
static void consumer_dies_at(mh_point point, int signal)
{
    int line[2], fd_there;
    uint64_t seen = 0, began = mh_clock_ns();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
    pid_t child = fork();
    if (child == 0) {
        child_begin();
        _exit(consumer_process(point, signal, line[1]));
    }
    assert_int_equal(read(line[0], &fd_there, sizeof fd_there), sizeof fd_there);
    mh_control *worker = attach_to(child, fd_there);
    assert_int_equal(write(line[0], "g", 1), 1);
    for (int idle = 0; idle < 3 && mh_clock_ns() - began < PATIENCE_NS;) {
        int out = process_out(child); /* looked at before the ring: its last entry is not missed */
        const mh_task *task = mh_control_task_wait(worker, 5 * MS);
        if (!task) {
            idle += out;
            continue;
        }
        assert_true(task_is_whole(task, seen));
        mh_control_task_done(worker);
        put_result(worker, seen++);
    }
    assert_true(process_out(child));
    assert_int_equal(seen, crashes[point].seen);
    if (signal == SIGSTOP)
        assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(child_code(child), 128 + SIGKILL);
    (void)close(line[0]);
    (void)close(line[1]);
    mh_control_close(worker);
}

static void a_crash_at_any_point_leaves_whole_entries(void **state)
{
    (void)state;
    static const int signals[] = {SIGKILL, SIGSTOP};
    for (size_t s = 0; s < COUNT(signals); s++) {
        for (int point = 0; point < MH_POINT_COUNT; point++) {
            print_message("%s, signal %d\n", crashes[point].name, signals[s]);
            if (crashes[point].by_worker)
                worker_dies_at((mh_point)point, signals[s]);
            else
                consumer_dies_at((mh_point)point, signals[s]);
        }
    }
}

static void only_known_points_can_be_armed(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",           "sample",     "sample:1",
        "sample:x:9", "nosuch:1:9", ":1:9",
        "sample 1 9", "SAMPLE:1:9", "a-name-much-longer-than-any-of-the-points:1:9"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        mh_error err = {0};
        assert_int_equal(mh_point_arm(texts[i], &err), MH_ERR_INVALID);
        assert_non_null(strstr(err.message, "NAME:NTH:SIGNAL"));
    }
    for (int point = 0; point < MH_POINT_COUNT; point++) {
        pid_t child = fork(); /* arming cannot be undone */
        if (child == 0)
            _exit(arm((mh_point)point, SIGKILL) ? 0 : 1);
        assert_int_equal(child_code(child), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_opens_and_attaches),
        cmocka_unit_test(only_touched_pages_cost_memory),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(there_is_no_worker_of_that_number),
        cmocka_unit_test(a_damaged_header_is_refused),
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
        cmocka_unit_test(only_known_points_can_be_armed),
        cmocka_unit_test(a_crash_at_any_point_leaves_whole_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
