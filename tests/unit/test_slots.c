/* test_slots.c - the pool of slots: who may have one, and when its memory goes back
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "batch/slots.h"
#include "sys/thread.h"
#include "unit.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#define PAGE ((size_t)4096)

static mh_pool *open_pool(uint64_t budget_bytes)
{
    mh_pool *pool = NULL;
    assert_int_equal(mh_pool_open(&pool, budget_bytes, NULL), MH_OK);
    assert_non_null(pool);
    return pool;
}

static mh_pool *pool_of(uint32_t slots, size_t slot_bytes)
{
    mh_pool *pool = open_pool(0);
    assert_int_equal(mh_pool_reserve(pool, slot_bytes, slots, NULL), MH_OK);
    return pool;
}

static mh_pool_stats stats_of(mh_pool *pool)
{
    mh_pool_stats stats;
    mh_pool_stats_read(pool, &stats);
    return stats;
}

/* Bytes the kernel really keeps for the pool. */
static size_t backed_bytes(const mh_pool *pool)
{
    struct stat about;
    assert_int_equal(fstat(mh_pool_fd(pool), &about), 0);
    return (size_t)about.st_blocks * 512;
}

static void a_new_pool_has_no_memory(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    mh_pool *pool = open_pool(0);
    assert_null(mh_pool_grant(pool));
    assert_int_equal(mh_pool_unheld(pool), 0);
    assert_int_equal(backed_bytes(pool), 0);
    assert_true(mh_pool_map_bytes(pool) >= PAGE);
    mh_pool_unref(pool);
    mh_pool_unref(NULL);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
}

static void slots_are_granted_until_none_is_left(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(3, 5000);
    mh_slot *slots[3];
    for (int i = 0; i < 3; i++) {
        slots[i] = mh_pool_grant(pool);
        assert_non_null(slots[i]);
        assert_int_equal(mh_slot_bytes(slots[i]), 2 * PAGE);
        assert_int_equal(mh_slot_offset(slots[i]) % PAGE, 0);
        memset(mh_slot_data(slots[i]), i + 1, mh_slot_bytes(slots[i]));
    }
    for (int i = 0; i < 3; i++) /* nobody wrote into another's bytes */
        for (size_t at = 0; at < 2 * PAGE; at++)
            assert_int_equal(mh_slot_data(slots[i])[at], i + 1);
    assert_null(mh_pool_grant(pool));
    assert_int_equal(mh_pool_unheld(pool), 3);
    mh_slot_hold(slots[1], 1);
    assert_null(mh_pool_grant(pool));
    assert_int_equal(mh_pool_unheld(pool), 2);
    assert_int_equal(stats_of(pool).held, 1);
    mh_slot_unref(slots[1]);
    assert_int_equal(stats_of(pool).held, 0);
    assert_ptr_equal(mh_pool_grant(pool), slots[1]);
    mh_slot_abandon(slots[2]);
    assert_ptr_equal(mh_pool_grant(pool), slots[2]);
    assert_null(mh_pool_grant(pool));
    assert_int_equal(stats_of(pool).slots, 3);
    assert_int_equal(stats_of(pool).bytes, 6 * PAGE);
    assert_int_equal(backed_bytes(pool), 6 * PAGE);
    mh_pool_unref(pool);
}

static void a_slot_is_free_after_its_last_reference(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(1, 1);
    for (uint32_t refs = 1; refs < 6; refs++) {
        mh_slot *slot = mh_pool_grant(pool);
        assert_non_null(slot);
        mh_slot_hold(slot, refs);
        for (uint32_t ended = 0; ended < refs; ended++) {
            assert_null(mh_pool_grant(pool));
            mh_slot_unref(slot);
        }
    }
    assert_int_equal(mh_pool_unheld(pool), 1);
    mh_pool_unref(pool);
}

static void reserving_the_same_or_less_changes_nothing(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(2, 2 * PAGE);
    mh_slot *slot = mh_pool_grant(pool);
    assert_int_equal(mh_pool_reserve(pool, 2 * PAGE, 2, NULL), MH_OK);
    assert_int_equal(mh_pool_reserve(pool, 1, 1, NULL), MH_OK);
    assert_int_equal(stats_of(pool).slots, 2);
    assert_int_equal(mh_pool_reserve(pool, 1, 3, NULL), MH_OK); /* of the size there is */
    assert_int_equal(stats_of(pool).bytes, 6 * PAGE);
    mh_slot_abandon(slot);
    mh_pool_unref(pool);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(1, PAGE);
    assert_int_equal(mh_pool_reserve(pool, 0, 1, NULL), MH_ERR_INVALID);
    assert_int_equal(mh_pool_reserve(pool, SIZE_MAX, 1, NULL), MH_ERR_INVALID);
    assert_int_equal(stats_of(pool).slots, 1);
    assert_non_null(mh_pool_grant(pool));
    mh_pool_unref(pool);
}

static void a_larger_size_replaces_the_old_slots(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(3, PAGE);
    mh_slot *held = mh_pool_grant(pool), *filling = mh_pool_grant(pool);
    mh_slot_hold(held, 1);
    memset(mh_slot_data(held), 0x5a, PAGE);
    memset(mh_slot_data(filling), 0xa5, PAGE);
    assert_int_equal(mh_pool_reserve(pool, 3 * PAGE, 2, NULL), MH_OK);
    /* the free one went at once, the two in use are still there */
    assert_int_equal(stats_of(pool).slots, 2);
    assert_int_equal(stats_of(pool).bytes, 8 * PAGE);
    assert_int_equal(backed_bytes(pool), 8 * PAGE);
    for (size_t at = 0; at < PAGE; at++) {
        assert_int_equal(mh_slot_data(held)[at], 0x5a);
        assert_int_equal(mh_slot_data(filling)[at], 0xa5);
    }
    mh_slot_unref(held);
    mh_slot_abandon(filling);
    mh_slot *large[2] = {mh_pool_grant(pool), mh_pool_grant(pool)};
    for (int i = 0; i < 2; i++) {
        assert_non_null(large[i]);
        assert_int_equal(mh_slot_bytes(large[i]), 3 * PAGE);
    }
    assert_null(mh_pool_grant(pool));
    assert_int_equal(stats_of(pool).bytes, 6 * PAGE);
    assert_int_equal(backed_bytes(pool), 6 * PAGE);
    mh_pool_unref(pool);
}

static void beyond_the_budget_is_refused_with_figures(void **state)
{
    (void)state;
    mh_error err = {0};
    mh_pool *pool = open_pool(3 * PAGE + 100);
    assert_int_equal(mh_pool_reserve(pool, PAGE, 5, &err), MH_ERR_NOMEM);
    assert_non_null(strstr(err.message, "slot of 4096 bytes"));
    assert_non_null(strstr(err.message, "12288 of 12388 bytes"));
    mh_slot *extra = NULL;
    assert_int_equal(mh_pool_grant_extra(pool, &extra, 1, NULL), MH_ERR_NOMEM);
    assert_null(extra);
    mh_slot *slots[3];
    for (int i = 0; i < 3; i++) {
        slots[i] = mh_pool_grant(pool);
        assert_non_null(slots[i]);
        memset(mh_slot_data(slots[i]), 1, PAGE);
    }
    assert_null(mh_pool_grant(pool));
    mh_slot_abandon(slots[0]);
    assert_ptr_equal(mh_pool_grant(pool), slots[0]);
    assert_int_equal(mh_pool_reserve(pool, PAGE, 3, NULL), MH_OK);
    mh_pool_unref(pool);
}

static void the_machine_is_a_budget_too(void **state)
{
    (void)state;
    mh_error err = {0};
    mh_pool *pool = pool_of(1, PAGE);
    assert_int_equal(mh_pool_reserve(pool, (size_t)1 << 50, 1, &err), MH_ERR_NOMEM);
    assert_non_null(strstr(err.message, "MB needed"));
    mh_pool_unref(pool);
}

static void an_extra_slot_has_its_own_size(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(1, 4 * PAGE);
    mh_slot *small = NULL, *large = NULL;
    assert_int_equal(mh_pool_grant_extra(pool, &small, 10, NULL), MH_OK);
    assert_int_equal(mh_pool_grant_extra(pool, &large, 5 * PAGE, NULL), MH_OK);
    assert_int_equal(mh_slot_bytes(small), PAGE);
    assert_int_equal(mh_slot_bytes(large), 5 * PAGE);
    memset(mh_slot_data(small), 1, PAGE);
    memset(mh_slot_data(large), 2, 5 * PAGE);
    mh_slot *usual = mh_pool_grant(pool);
    assert_non_null(usual);
    memset(mh_slot_data(usual), 3, 4 * PAGE);
    assert_null(mh_pool_grant(pool));
    assert_int_equal(mh_slot_data(small)[PAGE - 1], 1);
    assert_int_equal(mh_slot_data(large)[5 * PAGE - 1], 2);
    /* free again, they serve the next extras of about their size, and never a batch */
    mh_slot_abandon(small);
    mh_slot_abandon(large);
    assert_null(mh_pool_grant(pool));
    mh_slot *again = NULL;
    for (int lap = 0; lap < 100; lap++) {
        assert_int_equal(mh_pool_grant_extra(pool, &again, 4 * PAGE, NULL), MH_OK);
        assert_ptr_equal(again, large);
        mh_slot_abandon(again);
    }
    assert_int_equal(mh_pool_grant_extra(pool, &again, 1, NULL), MH_OK);
    assert_ptr_equal(again, small);
    assert_int_equal(backed_bytes(pool), 10 * PAGE);
    assert_int_equal(mh_pool_grant_extra(pool, &again, SIZE_MAX - 10, NULL), MH_ERR_INVALID);
    mh_pool_unref(pool);
}

static void a_refused_larger_size_leaves_the_small_slots(void **state)
{
    (void)state;
    mh_error err = {0};
    mh_pool *pool = open_pool(8 * PAGE);
    assert_int_equal(mh_pool_reserve(pool, PAGE, 3, NULL), MH_OK);
    assert_int_equal(mh_pool_reserve(pool, 9 * PAGE, 3, &err), MH_ERR_NOMEM);
    assert_non_null(strstr(err.message, "slot of 36864 bytes"));
    assert_int_equal(stats_of(pool).slots, 3);
    assert_non_null(mh_pool_grant(pool));
    mh_pool_unref(pool);
    pool = open_pool(8 * PAGE); /* what extra slots take is not to be had for larger ones */
    mh_slot *extra = NULL;
    assert_int_equal(mh_pool_reserve(pool, PAGE, 2, NULL), MH_OK);
    assert_int_equal(mh_pool_grant_extra(pool, &extra, 4 * PAGE, NULL), MH_OK);
    mh_slot_abandon(extra);
    assert_int_equal(mh_pool_reserve(pool, 5 * PAGE, 1, NULL), MH_ERR_NOMEM);
    assert_int_equal(stats_of(pool).slots, 2);
    mh_pool_unref(pool);
    pool = pool_of(2, PAGE); /* no budget: the machine refuses */
    assert_int_equal(mh_pool_reserve(pool, (size_t)1 << 50, 1, &err), MH_ERR_NOMEM);
    assert_int_equal(stats_of(pool).slots, 2);
    assert_non_null(mh_pool_grant(pool));
    mh_pool_unref(pool);
}

static void a_machine_that_refuses_leaves_small_slots_within_a_full_budget(void **state)
{
    (void)state;
    mh_error err = {0};
    size_t all = (size_t)1 << 50; /* the budget has room for it once the small slots are gone */
    mh_pool *pool = open_pool(all);
    assert_int_equal(mh_pool_reserve(pool, PAGE, 3, NULL), MH_OK);
    mh_slot *used = mh_pool_grant(pool);
    assert_int_equal(mh_pool_reserve(pool, all - PAGE, 3, &err), MH_ERR_NOMEM);
    assert_non_null(strstr(err.message, "available"));
    assert_int_equal(stats_of(pool).slots, 3);
    assert_int_equal(stats_of(pool).bytes, 3 * PAGE);
    mh_slot_abandon(used);
    for (int i = 0; i < 3; i++)
        assert_non_null(mh_pool_grant(pool));
    assert_null(mh_pool_grant(pool));
    mh_pool_unref(pool);
}

/* The addresses of slots that are gone serve again: else the map would be used up in the end. */
static void enlargements_stay_within_few_addresses(void **state)
{
    (void)state;
    struct stat about;
    uint64_t live = mh_alloc_live();
    const size_t budget_pages = 64;
    mh_pool *pool = open_pool(budget_pages * PAGE);
    uint64_t empty = mh_alloc_live();
    for (size_t pages = 1; pages <= budget_pages; pages++) {
        mh_status status = mh_pool_reserve(pool, pages * PAGE, 4, NULL);
        assert_int_equal(status, 4 * pages <= budget_pages ? MH_OK : MH_ERR_NOMEM);
        mh_slot *slot = mh_pool_grant(pool);
        assert_non_null(slot);
        assert_int_equal(mh_slot_bytes(slot), pages * PAGE);
        memset(mh_slot_data(slot), 1, pages * PAGE);
        mh_slot_hold(slot, 1);
        mh_slot_unref(slot);
    }
    assert_int_equal(fstat(mh_pool_fd(pool), &about), 0);
    assert_in_range((size_t)about.st_size, budget_pages * PAGE, 2 * budget_pages * PAGE);
    assert_int_equal(backed_bytes(pool), budget_pages * PAGE);
    assert_int_equal(mh_alloc_live(), empty + 2); /* the list and one slot */
    mh_pool_unref(pool);
    assert_int_equal(mh_alloc_live(), live);
}

static void a_gap_is_filled_beside_slots_in_use(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(5, PAGE);
    mh_slot *slots[5], *filler = NULL;
    for (int i = 0; i < 5; i++) {
        slots[i] = mh_pool_grant(pool);
        memset(mh_slot_data(slots[i]), i + 1, PAGE);
    }
    size_t gap = mh_slot_offset(slots[1]);
    assert_int_equal(mh_slot_offset(slots[2]), gap + PAGE);
    mh_slot_abandon(slots[1]);
    mh_slot_abandon(slots[2]);
    assert_int_equal(mh_pool_reserve(pool, 8 * PAGE, 1, NULL), MH_OK);
    assert_int_equal(mh_pool_grant_extra(pool, &filler, 2 * PAGE, NULL), MH_OK);
    assert_int_equal(mh_slot_offset(filler), gap);
    assert_int_equal(mh_slot_data(filler)[0], 0);
    memset(mh_slot_data(filler), 9, 2 * PAGE);
    memset(mh_slot_data(mh_pool_grant(pool)), 10, 8 * PAGE);
    const int kept[] = {0, 3, 4};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        for (size_t at = 0; at < PAGE; at++)
            assert_int_equal(mh_slot_data(slots[kept[i]])[at], kept[i] + 1);
    assert_int_equal(backed_bytes(pool), 13 * PAGE);
    mh_pool_unref(pool);
}

static void a_frozen_slot_is_never_granted_again(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(3, PAGE);
    mh_slot *held = mh_pool_grant(pool), *filling = mh_pool_grant(pool);
    mh_slot_hold(held, 2);
    mh_slot_unref(held);
    mh_pool_freeze_held(pool);
    mh_pool_freeze_held(pool);
    mh_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.held, 1);
    assert_int_equal(stats.frozen, 1);
    assert_int_equal(stats.slots, 2);
    mh_slot_unref(held);
    stats = stats_of(pool);
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.frozen, 1);
    mh_slot_abandon(filling); /* was not held: as good as ever */
    for (int round = 0; round < 4; round++) {
        mh_slot *one = mh_pool_grant(pool), *two = mh_pool_grant(pool);
        assert_non_null(one);
        assert_non_null(two);
        assert_ptr_not_equal(one, held);
        assert_ptr_not_equal(two, held);
        assert_null(mh_pool_grant(pool));
        mh_slot_abandon(one);
        mh_slot_abandon(two);
    }
    assert_int_equal(mh_pool_unheld(pool), 2);
    assert_int_equal(mh_pool_reserve(pool, PAGE, 3, NULL), MH_OK); /* makes up for the lost one */
    assert_int_equal(mh_pool_unheld(pool), 3);
    assert_int_equal(stats_of(pool).bytes, 4 * PAGE);
    mh_pool_unref(pool);
}

static void the_pool_outlives_its_owner(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    mh_pool *pool = pool_of(4, PAGE);
    mh_slot *first = mh_pool_grant(pool), *second = mh_pool_grant(pool);
    mh_slot_hold(first, 2);
    mh_slot_hold(second, 1);
    memset(mh_slot_data(first), 11, PAGE);
    memset(mh_slot_data(second), 22, PAGE);
    mh_pool_unref(pool);
    mh_slot_unref(second);
    mh_slot_unref(first);
    assert_true(mh_alloc_live() > live);
    assert_int_equal(open_descriptors(), open + 1);
    for (size_t at = 0; at < PAGE; at++)
        assert_int_equal(mh_slot_data(first)[at], 11);
    mh_slot_data(first)[0] = 33;
    mh_slot_unref(first);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
}

static void a_frozen_slot_keeps_the_pool_as_well(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    mh_pool *pool = pool_of(1, PAGE);
    mh_slot *slot = mh_pool_grant(pool);
    mh_slot_hold(slot, 1);
    mh_pool_freeze_held(pool);
    mh_pool_unref(pool);
    assert_int_equal(mh_slot_data(slot)[0], 0);
    mh_slot_unref(slot);
    assert_int_equal(mh_alloc_live(), live);
}

static void what_a_forked_child_may_read_stays_when_the_pool_goes(void **state)
{
    (void)state;
    uint8_t found[2];
    mh_pool *pool = pool_of(2, PAGE);
    mh_slot *frozen = mh_pool_grant(pool), *usual = mh_pool_grant(pool);
    off_t frozen_at = (off_t)mh_slot_offset(frozen), usual_at = (off_t)mh_slot_offset(usual);
    int fd = dup(mh_pool_fd(pool)); /* the child's */
    assert_true(fd >= 0);
    memset(mh_slot_data(frozen), 11, PAGE);
    memset(mh_slot_data(usual), 22, PAGE);
    mh_slot_hold(frozen, 1);
    mh_pool_freeze_held(pool);
    mh_slot_unref(frozen);
    mh_slot_abandon(usual);
    mh_pool_unref(pool);
    assert_int_equal(pread(fd, &found[0], 1, frozen_at), 1);
    assert_int_equal(pread(fd, &found[1], 1, usual_at), 1);
    assert_int_equal(found[0], 11);
    assert_int_equal(found[1], 0); /* given back */
    assert_int_equal(close(fd), 0);
}

/* --- threads --- */

#define READERS 3
#define HANDS 16

/* What the owner gave a reader. Only the hand-over orders memory: what comes back is ordered by
 * mh_slot_unref alone, so that a thread sanitizer would see if that were not enough. */
typedef struct reader {
    mh_thread thread;
    _Atomic(mh_slot *) hands[HANDS];
    _Atomic uint64_t given;
    _Atomic uint64_t taken;
    _Atomic int last; /* nothing more will be given */
    _Atomic uint64_t torn;
} reader;

static void *reader_run(void *argument)
{
    reader *self = argument;
    for (;;) {
        int last = atomic_load_explicit(&self->last, memory_order_acquire);
        uint64_t taken = atomic_load_explicit(&self->taken, memory_order_relaxed);
        if (taken == atomic_load_explicit(&self->given, memory_order_acquire)) {
            if (last)
                return NULL;
            sched_yield();
            continue;
        }
        mh_slot *slot = atomic_load_explicit(&self->hands[taken % HANDS], memory_order_relaxed);
        const uint8_t *data = mh_slot_data(slot);
        if (data[0] != data[PAGE - 1])
            atomic_fetch_add_explicit(&self->torn, 1, memory_order_relaxed);
        mh_slot_unref(slot);
        atomic_store_explicit(&self->taken, taken + 1, memory_order_relaxed);
    }
}

static void reader_give(reader *to, mh_slot *slot)
{
    uint64_t given = atomic_load_explicit(&to->given, memory_order_relaxed);
    while (given - atomic_load_explicit(&to->taken, memory_order_relaxed) == HANDS)
        sched_yield();
    atomic_store_explicit(&to->hands[given % HANDS], slot, memory_order_relaxed);
    atomic_store_explicit(&to->given, given + 1, memory_order_release);
}

static void readers_start(reader *readers)
{
    memset(readers, 0, READERS * sizeof *readers);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(
            mh_thread_start(&readers[i].thread, "reader", reader_run, &readers[i], NULL), MH_OK);
}

static void readers_end(reader *readers)
{
    for (int i = 0; i < READERS; i++)
        atomic_store_explicit(&readers[i].last, 1, memory_order_release);
    for (int i = 0; i < READERS; i++)
        mh_thread_join(&readers[i].thread);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(readers[i].torn, 0);
}

/* A slot with the round's number in its first and last byte. */
static mh_slot *grant_marked(mh_pool *pool, uint32_t round)
{
    mh_slot *slot;
    while (!(slot = mh_pool_grant(pool)))
        sched_yield();
    mh_slot_data(slot)[0] = (uint8_t)round;
    mh_slot_data(slot)[PAGE - 1] = (uint8_t)round;
    return slot;
}

static void references_end_on_other_threads(void **state)
{
    (void)state;
    reader readers[READERS];
    mh_pool *pool = pool_of(4, PAGE);
    readers_start(readers);
    for (uint32_t round = 0; round < 30000; round++) {
        mh_slot *slot = grant_marked(pool, round);
        uint32_t refs = 1 + round % READERS;
        mh_slot_hold(slot, refs);
        for (uint32_t i = 0; i < refs; i++)
            reader_give(&readers[(round + i) % READERS], slot);
    }
    readers_end(readers);
    assert_int_equal(stats_of(pool).held, 0);
    assert_int_equal(mh_pool_unheld(pool), 4);
    mh_pool_unref(pool);
}

/* The user forks again and again: slots freeze while other threads let go of them. */
static void slots_freeze_while_others_unref(void **state)
{
    (void)state;
    reader readers[READERS];
    mh_pool *pool = pool_of(4, PAGE);
    readers_start(readers);
    for (uint32_t round = 0; round < 600; round++) {
        assert_int_equal(mh_pool_reserve(pool, PAGE, 4, NULL), MH_OK);
        mh_slot *slot = grant_marked(pool, round);
        mh_slot_hold(slot, READERS);
        for (uint32_t i = 0; i < READERS; i++)
            reader_give(&readers[i], slot);
        if (round % 2)
            mh_pool_freeze_held(pool);
    }
    readers_end(readers);
    mh_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.bytes, (stats.slots + stats.frozen) * PAGE);
    assert_int_equal(mh_pool_unheld(pool), stats.slots);
    mh_pool_unref(pool);
}

static void the_last_reference_may_end_anywhere(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    reader readers[READERS];
    readers_start(readers);
    for (uint32_t round = 0; round < 500; round++) {
        mh_pool *pool = pool_of(1, PAGE);
        mh_slot *slot = grant_marked(pool, round);
        mh_slot_hold(slot, READERS);
        for (uint32_t i = 0; i < READERS; i++)
            reader_give(&readers[i], slot);
        mh_pool_unref(pool);
    }
    readers_end(readers);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
}

#define POOL_USERS 4
#define POOL_ROUNDS 4000

/* A thread that does all a producer of batches may do with a pool. */
typedef struct pool_user {
    mh_thread thread;
    mh_pool *pool;
    uint8_t number;
    uint32_t granted;
    uint32_t torn; /* slots that another thread wrote to at the same time */
} pool_user;

static void user_fill(pool_user *self, mh_slot *slot, bool hold)
{
    uint8_t *data = mh_slot_data(slot);
    size_t last = mh_slot_bytes(slot) - 1;
    data[0] = data[last] = self->number;
    sched_yield();
    self->torn += data[0] != self->number || data[last] != self->number;
    self->granted++;
    if (!hold) {
        mh_slot_abandon(slot);
        return;
    }
    mh_slot_hold(slot, 2);
    mh_slot_unref(slot);
    mh_slot_unref(slot);
}

static void *user_run(void *argument)
{
    pool_user *self = argument;
    for (uint32_t round = 1; round <= POOL_ROUNDS; round++) {
        mh_slot *slot = NULL;
        if (round % 100 == 0) /* larger and larger */
            self->torn += mh_pool_reserve(self->pool, round / 100 * PAGE, 6, NULL) != MH_OK;
        if (round % 1000 == 0)
            mh_pool_freeze_held(self->pool);
        if (round % 7 == 0)
            self->torn +=
                mh_pool_grant_extra(self->pool, &slot, (1 + round % 3) * PAGE, NULL) != MH_OK;
        else
            slot = mh_pool_grant(self->pool);
        if (slot)
            user_fill(self, slot, round % 2);
        /* what another thread held while this one froze is made up for by the next reserve */
        uint32_t unheld = mh_pool_unheld(self->pool);
        mh_pool_stats stats = stats_of(self->pool);
        self->torn += stats.slots + stats.frozen < 6 || stats.bytes < stats.slots * PAGE;
        self->torn += unheld + stats.frozen < 6 - (POOL_USERS - 1);
    }
    return NULL;
}

static void threads_share_a_pool(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    pool_user users[POOL_USERS];
    mh_pool *pool = pool_of(6, PAGE);
    memset(users, 0, sizeof users);
    for (int i = 0; i < POOL_USERS; i++) {
        users[i].pool = pool;
        users[i].number = (uint8_t)(i + 1);
        assert_int_equal(mh_thread_start(&users[i].thread, "user", user_run, &users[i], NULL),
                         MH_OK);
    }
    for (int i = 0; i < POOL_USERS; i++)
        mh_thread_join(&users[i].thread);
    for (int i = 0; i < POOL_USERS; i++) {
        assert_int_equal(users[i].torn, 0);
        assert_true(users[i].granted > POOL_ROUNDS / 7);
    }
    while (mh_pool_grant(pool))
        continue; /* drops what is outgrown on the way */
    mh_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.slots, 6);
    assert_int_equal(backed_bytes(pool), stats.bytes);
    mh_pool_unref(pool);
    assert_int_equal(mh_alloc_live(), live);
}

/* --- forks --- */

static int child_finds_all_inert(mh_pool *pool, mh_slot *held, mh_slot *filling)
{
    mh_slot *extra = NULL;
    uint64_t live = mh_alloc_live();
    if (mh_pool_reserve(pool, PAGE, 9, NULL) != MH_ERR_FORKED)
        return 1;
    if (mh_pool_grant_extra(pool, &extra, 1, NULL) != MH_ERR_FORKED || extra)
        return 2;
    if (mh_pool_grant(pool))
        return 3;
    mh_slot_abandon(filling);
    mh_pool_freeze_held(pool);
    for (int i = 0; i < 10; i++) { /* more often than there are references */
        mh_slot_unref(held);
        mh_pool_unref(pool);
    }
    mh_pool_stats stats = stats_of(pool);
    if (stats.held || stats.frozen || stats.slots || stats.bytes || mh_pool_unheld(pool))
        return 4;
    if (mh_alloc_live() != live)
        return 5;
    return mh_slot_data(held)[7] == 77 ? 0 : 6;
}

static void a_forked_child_finds_everything_inert(void **state)
{
    (void)state;
    mh_pool *pool = pool_of(3, PAGE);
    mh_slot *held = mh_pool_grant(pool), *filling = mh_pool_grant(pool);
    mh_slot_hold(held, 2);
    mh_slot_data(held)[7] = 77;
    pid_t child = fork();
    if (child == 0)
        _exit(child_finds_all_inert(pool, held, filling));
    assert_int_equal(child_code(child), 0);
    assert_int_equal(stats_of(pool).held, 1);
    assert_non_null(mh_pool_grant(pool)); /* the third one, and then no more */
    assert_null(mh_pool_grant(pool));
    mh_slot_unref(held);
    assert_null(mh_pool_grant(pool));
    mh_slot_unref(held);
    assert_ptr_equal(mh_pool_grant(pool), held);
    mh_slot_data(held)[7] = 0;
    mh_pool_unref(pool);
}

/* --- no memory --- */

static void open_reserve_and_use(void *argument)
{
    (void)argument;
    mh_pool *pool = NULL;
    mh_error err;
    int open = open_descriptors();
    mh_status status = mh_pool_open(&pool, 0, &err);
    if (status != MH_OK) {
        assert_int_equal(status, MH_ERR_NOMEM);
        assert_null(pool);
        assert_int_equal(open_descriptors(), open);
        return;
    }
    /* twenty: the list of slots grows once on the way */
    status = mh_pool_reserve(pool, PAGE, 20, &err);
    assert_true(status == MH_OK || status == MH_ERR_NOMEM);
    uint32_t granted = 0, there = stats_of(pool).slots;
    for (mh_slot *slot; (slot = mh_pool_grant(pool)); granted++)
        memset(mh_slot_data(slot), 1, mh_slot_bytes(slot));
    assert_int_equal(granted, there);
    assert_true(status == MH_OK ? granted == 20 : granted < 20);
    mh_slot *extra = NULL;
    status = mh_pool_grant_extra(pool, &extra, 3 * PAGE, &err);
    assert_true(status == MH_OK ? extra != NULL : status == MH_ERR_NOMEM && !extra);
    mh_pool_unref(pool);
    assert_int_equal(open_descriptors(), open);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    each_allocation_fails(open_reserve_and_use, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_pool_has_no_memory),
        cmocka_unit_test(slots_are_granted_until_none_is_left),
        cmocka_unit_test(a_slot_is_free_after_its_last_reference),
        cmocka_unit_test(reserving_the_same_or_less_changes_nothing),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(a_larger_size_replaces_the_old_slots),
        cmocka_unit_test(beyond_the_budget_is_refused_with_figures),
        cmocka_unit_test(the_machine_is_a_budget_too),
        cmocka_unit_test(an_extra_slot_has_its_own_size),
        cmocka_unit_test(a_refused_larger_size_leaves_the_small_slots),
        cmocka_unit_test(a_machine_that_refuses_leaves_small_slots_within_a_full_budget),
        cmocka_unit_test(enlargements_stay_within_few_addresses),
        cmocka_unit_test(a_gap_is_filled_beside_slots_in_use),
        cmocka_unit_test(a_frozen_slot_is_never_granted_again),
        cmocka_unit_test(the_pool_outlives_its_owner),
        cmocka_unit_test(a_frozen_slot_keeps_the_pool_as_well),
        cmocka_unit_test(what_a_forked_child_may_read_stays_when_the_pool_goes),
        cmocka_unit_test(references_end_on_other_threads),
        cmocka_unit_test(slots_freeze_while_others_unref),
        cmocka_unit_test(the_last_reference_may_end_anywhere),
        cmocka_unit_test(threads_share_a_pool),
        cmocka_unit_test(a_forked_child_finds_everything_inert),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
