/* memory.c - what prefetched batches take, and how many would fit
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/plan.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "sys/memory.h"

/* Slots beside those under way, for the loop to hold (docs/architecture.md). */
#define HELD_BATCHES 3

void mh_plan_memory_options_init_sized(mh_plan_memory_options *options, size_t struct_size)
{
    const mh_plan_memory_options defaults = {.prefetch = 2, .ranks = 1};
    mh_sized_write(options, struct_size, &defaults, sizeof defaults);
}

static mh_status memory_check(int value, int least, const char *what, mh_error *err)
{
    if (value < least || value > MH_PLAN_MOST)
        return mh_fail(err, MH_ERR_INVALID, "%s is %d, must be %d to %d", what, value, least,
                       MH_PLAN_MOST);
    return MH_OK;
}

/* Below 2^42, whatever the options. */
static uint64_t batches_of(int workers, int prefetch)
{
    if (workers == 0)
        return 1; /* the loop makes each itself */
    return (uint64_t)workers * (uint64_t)prefetch + HELD_BATCHES;
}

/* Of `each` batches per unit beside those held, how many units fit into `room` batches. */
static int units_that_fit(uint64_t room, int each)
{
    if (room < HELD_BATCHES + 1)
        return 0;
    uint64_t units = (room - HELD_BATCHES) / (uint64_t)each;
    return units < MH_PLAN_MOST ? (int)units : MH_PLAN_MOST;
}

static void find_room(mh_plan_memory *plan, uint64_t given)
{
    mh_memory_room room;
    mh_memory_room_read(&room, "");
    plan->machine_bytes = room.machine_bytes;
    plan->cgroup_bytes = room.group_bytes;
    plan->available_bytes = given ? given : room.available_bytes;
}

mh_status mh_plan_memory_make(mh_plan_memory *out, const mh_plan_memory_options *given,
                              mh_error *err)
{
    mh_plan_memory_options taken, *options = &taken;
    if (!out || !given)
        return mh_fail(err, MH_ERR_INVALID, "the plan needs options and a place for its result");
    MH_TRY(MH_SIZED_TAKE(options, given, mh_plan_memory_options, available_bytes, err));
    MH_TRY(memory_check(options->workers, 0, "the number of workers", err));
    MH_TRY(memory_check(options->prefetch, 1, "the prefetch", err));
    MH_TRY(memory_check(options->ranks, 1, "the number of ranks", err));
    if (options->batch_bytes == 0)
        return mh_fail(err, MH_ERR_INVALID, "a batch of 0 bytes, must be at least 1");

    mh_plan_memory plan = {.batches = batches_of(options->workers, options->prefetch)};
    uint64_t of_each; /* one batch of every rank */
    if (__builtin_mul_overflow(options->batch_bytes, (uint64_t)options->ranks, &of_each) ||
        __builtin_mul_overflow(of_each, plan.batches, &plan.needed_bytes))
        return mh_fail(err, MH_ERR_INVALID, "the bytes of all batches do not fit 64 bits");
    find_room(&plan, options->available_bytes);
    plan.fits = plan.needed_bytes <= plan.available_bytes;
    if (options->workers > 0)
        plan.most_prefetch = units_that_fit(plan.available_bytes / of_each, options->workers);
    plan.most_workers = units_that_fit(plan.available_bytes / of_each, options->prefetch);
    *out = plan;
    return MH_OK;
}
