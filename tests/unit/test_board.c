/* test_board.c - batches of which any worker may take the next samples
 * SPDX-License-Identifier: Apache-2.0
 */
#include "entries.h"
#include "sys/thread.h"
#include "unit.h"
#include "workers/board.h"
#include <sched.h>
#include <stdatomic.h>

#define SLOW_NS UINT64_C(100000000) /* samples that are taken one by one */

static mh_board *new_board(uint32_t entries)
{
    size_t bytes = mh_board_bytes(entries);
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, bytes), 0);
    memset(memory, 0, bytes);
    return mh_board_init(memory, entries);
}

static void post(mh_board *board, uint32_t entry, uint64_t position, uint32_t count, bool again)
{
    mh_task *task = mh_board_begin(board, entry);
    task->position = position;
    task->count = count;
    mh_board_publish(board, entry, again);
}

static void a_board_of_another_kind_is_refused(void **state)
{
    (void)state;
    mh_board *board = new_board(2);
    size_t bytes = mh_board_bytes(2);
    assert_ptr_equal(mh_board_attach(board, bytes), board);
    assert_null(mh_board_attach(board, bytes - 1));
    assert_null(mh_board_attach(board, 8));
    *(uint64_t *)(void *)board += 1;
    assert_null(mh_board_attach(board, bytes));
    free(board);
}

static void an_unknown_batch_is_shared_equally(void **state)
{
    (void)state;
    mh_board_run run;
    mh_board *board = new_board(2);
    assert_false(mh_board_open(board));
    assert_false(mh_board_claim(board, 4, 0, &run));
    post(board, 0, 0, 10, false);
    assert_true(mh_board_open(board));
    static const uint32_t lengths[] = {3, 3, 3, 1};
    for (uint32_t i = 0, first = 0; i < COUNT(lengths); first += lengths[i++]) {
        assert_true(mh_board_claim(board, 4, 0, &run));
        assert_int_equal(run.first, first);
        assert_int_equal(run.count, lengths[i]);
    }
    assert_false(mh_board_open(board));
    assert_false(mh_board_claim(board, 4, 0, &run));
    free(board);
}

static void slow_samples_are_taken_one_by_one_and_fast_ones_together(void **state)
{
    (void)state;
    mh_board_run run;
    mh_board *board = new_board(1);
    post(board, 0, 0, 100, false);
    assert_true(mh_board_claim(board, 4, SLOW_NS, &run));
    assert_int_equal(run.count, 1);
    assert_true(mh_board_claim(board, 4, 100000, &run));
    assert_int_equal(run.count, 20); /* of 2 ms */
    assert_true(mh_board_claim(board, 4, 1, &run));
    assert_int_equal(run.first, 21);
    assert_int_equal(run.count, 79);
    free(board);
}

static void the_oldest_batch_comes_first_wherever_it_is_posted(void **state)
{
    (void)state;
    mh_board_run run;
    mh_board *board = new_board(3);
    /* a turn has 32 bits: positions are told apart across their overflow too */
    uint64_t around = UINT64_C(0x7fffffff);
    post(board, 0, around + 1, 1, false);
    post(board, 1, around, 1, true); /* the second time of that position */
    post(board, 2, around - 1, 1, false);
    static const uint32_t order[] = {2, 1, 0};
    for (uint32_t i = 0; i < COUNT(order); i++) {
        assert_true(mh_board_claim(board, 2, SLOW_NS, &run));
        assert_int_equal(run.entry, order[i]);
    }
    free(board);
}

static bool finish(mh_board *board, const mh_board_run *run, uint32_t marks, int64_t width,
                   uint32_t *out_marks)
{
    mh_leaf leaf = {.type_code = 2, .type_bits = 32, .dims = 2, .shape = {4, width}};
    return mh_board_finish(board, run, marks, width ? &leaf : NULL, width ? 1 : 0, out_marks);
}

static void the_last_to_finish_knows_what_all_said(void **state)
{
    (void)state;
    mh_board *board = new_board(1);
    static const struct {
        int64_t widths[4]; /* 0: no row in the slot */
        uint32_t mark, marks, leaves;
    } rows[] = {
        {{7, 7, 7, 7}, 0, 0, 1},
        {{0, 7, 7, 0}, 0, 0, 1},
        {{0, 0, 0, 0}, 0, 0, 0},
        {{7, 7, 8, 7}, 0, MH_RUN_UNLIKE, 1},
        {{7, 7, 7, 7}, MH_RUN_APART, MH_RUN_APART, 1},
        {{7, 8, 7, 7}, MH_RUN_APART, MH_RUN_APART | MH_RUN_UNLIKE, 1},
    };
    for (size_t at = 0; at < COUNT(rows); at++) {
        mh_board_run runs[4];
        mh_leaf leaves[MH_LEAVES_MAX];
        uint32_t marks = 99;
        post(board, 0, at, 4, false);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(mh_board_claim(board, 4, SLOW_NS, &runs[i]));
        static const uint32_t order[] = {2, 0, 3, 1};
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t run = order[i];
            assert_int_equal(
                finish(board, &runs[run], i == 1 ? rows[at].mark : 0, rows[at].widths[run], &marks),
                i == 3);
        }
        assert_int_equal(marks, rows[at].marks);
        assert_int_equal(mh_board_leaves(board, 0, leaves), rows[at].leaves);
        if (rows[at].leaves)
            assert_int_equal(leaves[0].shape[1], rows[at].widths[2] ? rows[at].widths[2] : 7);
    }
    free(board);
}

static void more_leaves_than_there_can_be_are_none(void **state)
{
    (void)state;
    static const mh_leaf leaves[MH_LEAVES_MAX + 1];
    mh_leaf found[MH_LEAVES_MAX];
    mh_board_run run;
    uint32_t marks;
    mh_board *board = new_board(1);
    post(board, 0, 0, 2, false);
    assert_true(mh_board_claim(board, 1, SLOW_NS, &run));
    (void)mh_board_finish(board, &run, 0, leaves, COUNT(leaves), &marks); /* a damaged worker */
    assert_int_equal(mh_board_leaves(board, 0, found), 0);
    free(board);
}

/* --- many at once --- */

enum { BATCHES = 400, ENTRIES = 4, SAMPLES = 37, THREADS = 4 };

static struct {
    mh_board *board;
    _Atomic uint32_t taken[BATCHES][SAMPLES];
    _Atomic uint32_t whole[BATCHES];
    _Atomic bool stop;
} crowd;

static void *take_runs(void *unused)
{
    (void)unused;
    mh_board_run run;
    uint32_t marks;
    while (!atomic_load(&crowd.stop)) {
        if (!mh_board_claim(crowd.board, THREADS, 400000, &run)) {
            sched_yield();
            continue;
        }
        uint64_t position = run.task->position;
        for (uint32_t i = 0; i < run.count; i++)
            atomic_fetch_add(&crowd.taken[position][run.first + i], 1);
        if (finish(crowd.board, &run, 0, 3, &marks)) {
            assert_int_equal(marks, 0);
            atomic_fetch_add(&crowd.whole[position], 1);
        }
    }
    return NULL;
}

static void every_sample_is_taken_once_and_every_batch_ends_once(void **state)
{
    (void)state;
    mh_thread threads[THREADS];
    memset(&crowd, 0, sizeof crowd);
    crowd.board = new_board(ENTRIES);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(mh_thread_start(&threads[i], "taker", take_runs, NULL, NULL), MH_OK);
    for (uint32_t position = 0; position < BATCHES; position++) {
        while (position >= ENTRIES && !atomic_load(&crowd.whole[position - ENTRIES]))
            sched_yield();
        post(crowd.board, position % ENTRIES, position, SAMPLES, false);
    }
    for (uint32_t position = BATCHES - ENTRIES; position < BATCHES; position++)
        while (!atomic_load(&crowd.whole[position]))
            sched_yield();
    atomic_store(&crowd.stop, true);
    for (int i = 0; i < THREADS; i++)
        mh_thread_join(&threads[i]);
    for (uint32_t position = 0; position < BATCHES; position++) {
        assert_int_equal(crowd.whole[position], 1);
        for (uint32_t i = 0; i < SAMPLES; i++)
            assert_int_equal(crowd.taken[position][i], 1);
    }
    free(crowd.board);
}

/* --- behind a control block --- */

static void a_post_reaches_a_worker_through_the_control_block(void **state)
{
    (void)state;
    mh_board_run run;
    mh_control *consumer = NULL, *worker = NULL, *plain = NULL;
    assert_int_equal(
        mh_control_open(&consumer,
                        &(mh_control_size){.workers = 2, .depth = 3, .under_way = 4, .board = 1},
                        NULL),
        MH_OK);
    assert_int_equal(mh_control_attach(&worker, mh_control_fd(consumer), 1, NULL), MH_OK);
    assert_non_null(mh_control_board(worker));
    assert_false(mh_control_run_wait(worker, 0, 1000, &run));
    mh_task *task = mh_board_begin(mh_control_board(consumer), 2);
    task->position = 9;
    task->count = 6;
    mh_control_publish_batch(consumer, 2, false);
    assert_true(mh_control_run_wait(worker, 0, 1000000000, &run));
    assert_true(mh_control_run_wait(worker, 0, 1000000000, &run));
    assert_int_equal(run.first, 3);
    mh_worker_view view;
    mh_control_view(consumer, 1, &view);
    assert_int_equal(view.position, 9);
    assert_int_equal(view.offset, 3);
    assert_int_equal(view.state, MH_WORKER_FETCHING);
    for (int i = 0; i < 3; i++) {
        assert_true(mh_control_result_room(worker));
        mh_control_result_begin(worker)->kind = MH_RESULT_WHOLE;
        mh_control_result_publish(worker);
    }
    assert_false(mh_control_result_room(worker));
    assert_non_null(mh_control_result_peek(consumer, 1));
    mh_control_result_done(consumer, 1);
    assert_true(mh_control_result_room(worker));
    mh_control_stop(consumer);
    assert_false(mh_control_run_wait(worker, 0, 1000000000, &run));
    mh_control_close(worker);
    mh_control_close(consumer);
    assert_int_equal(
        mh_control_open(&plain, &(mh_control_size){.workers = 1, .depth = 1, .under_way = 1}, NULL),
        MH_OK);
    assert_null(mh_control_board(plain));
    mh_control_close(plain);
    assert_int_equal(
        mh_control_open(
            &plain, &(mh_control_size){.workers = 1, .depth = 1, .under_way = 65537, .board = 1},
            NULL),
        MH_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_board_of_another_kind_is_refused),
        cmocka_unit_test(an_unknown_batch_is_shared_equally),
        cmocka_unit_test(slow_samples_are_taken_one_by_one_and_fast_ones_together),
        cmocka_unit_test(the_oldest_batch_comes_first_wherever_it_is_posted),
        cmocka_unit_test(the_last_to_finish_knows_what_all_said),
        cmocka_unit_test(more_leaves_than_there_can_be_are_none),
        cmocka_unit_test(every_sample_is_taken_once_and_every_batch_ends_once),
        cmocka_unit_test(a_post_reaches_a_worker_through_the_control_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
