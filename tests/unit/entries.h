/* entries.h - for the tests of the rings: entries that tell their number, and a worker
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_TESTS_ENTRIES_H
#define MH_TESTS_ENTRIES_H

#include "unit.h"
#include "workers/control.h"
#include <signal.h>
#include <sys/prctl.h>

#define MS UINT64_C(1000000)
#define PATIENCE_NS (20000 * MS)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static inline mh_control *open_control(uint32_t workers, uint32_t depth)
{
    mh_control *control = NULL;
    const mh_control_size size = {.workers = workers, .depth = depth, .under_way = workers * depth};
    assert_int_equal(mh_control_open(&control, &size, NULL), MH_OK);
    return control;
}

/* --- every part of an entry tells its number --- */

#define MARKED_BYTES 200

static inline void task_mark(mh_task *task, uint64_t number)
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
static inline void task_mark_quickly(mh_task *task, uint64_t number)
{
    task->position = number;
    task->slot_offset = number * 5;
    task->schema_bytes = (uint32_t)number * 13;
    task->payload[0] = (uint8_t)(number * 17 + 1);
    task->payload[MH_TASK_PAYLOAD_BYTES - 1] = (uint8_t)(number * 19 + 1);
}

static inline int task_is(const mh_task *task, uint64_t number)
{
    return task->position == number && task->slot_offset == number * 5 &&
           task->schema_bytes == (uint32_t)number * 13 &&
           task->payload[0] == (uint8_t)(number * 17 + 1) &&
           task->payload[MH_TASK_PAYLOAD_BYTES - 1] == (uint8_t)(number * 19 + 1);
}

static inline int task_is_whole(const mh_task *task, uint64_t number)
{
    for (size_t at = 0; at < MARKED_BYTES; at++)
        if (task->payload[at] != (uint8_t)(number * 17 + 1))
            return 0;
    return task_is(task, number) && task->first == (uint32_t)number + 1 &&
           task->count == (uint32_t)number + 2 && task->flags == MH_TASK_INTS &&
           task->generation == (uint32_t)number + 3 && task->slot_bytes == number * 7 &&
           task->outside == number * 9 && task->index_bytes == (uint32_t)number * 11;
}

static inline void result_mark(mh_result *result, uint64_t number)
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

static inline int result_is(const mh_result *result, uint64_t number)
{
    return result->position == number && result->kind == MH_RESULT_SLOT &&
           result->leaf_count == (uint32_t)number + 1 &&
           result->state_bytes == (uint32_t)number + 2 && result->spill_offset == number * 3 &&
           result->leaves[0].bytes == number * 5 &&
           result->leaves[MH_LEAVES_MAX - 1].shape[MH_LEAF_DIMS - 1] == (int64_t)number * 7 &&
           result->state[0] == (uint8_t)(number * 9 + 1) &&
           result->state[MH_STATE_BYTES - 1] == (uint8_t)(number * 11 + 1);
}

static inline int put_task(mh_control *control, uint32_t worker, uint64_t number)
{
    mh_task *task = mh_control_task_begin(control, worker);
    if (!task)
        return 0;
    task_mark(task, number);
    mh_control_task_publish(control, worker);
    return 1;
}

static inline void put_result(mh_control *control, uint64_t number)
{
    result_mark(mh_control_result_begin(control), number);
    mh_control_result_publish(control);
}

/* --- processes --- */

/* Whatever becomes of the test, its children end. Also a stopped one, which no alarm reaches. */
static inline void child_begin(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(60);
}

/* Serves until the consumer stops. Exit codes: 0 good, others say what was wrong. */
static inline int worker_process(int fd, uint32_t number)
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

#endif
