/* slots.c - the pool of shared, reusable memory that batches live in
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/slots.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "sys/memory.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Slots start and end on pages, so that an outgrown one can give its pages back. */
#define SLOT_PAGE ((size_t)4096)

enum slot_state {
    SLOT_FREE,
    SLOT_FILLING,
    SLOT_HELD,
    SLOT_FROZEN,  /* held across the user's fork */
    SLOT_RETIRED, /* was frozen; nobody here points into it any more */
    SLOT_GONE,    /* outgrown; its pages are given back */
};

struct mh_slot {
    mh_pool *pool;
    size_t offset;
    size_t bytes;
    bool extra; /* made by mh_pool_grant_extra, and granted only by it */
    _Atomic uint32_t state;
    _Atomic uint32_t refs;
};

struct mh_pool {
    /* set at open, then read-only */
    mh_memory memory;
    uint64_t budget_bytes;
    uint32_t fork_generation;
    /* the owner's thread */
    mh_slot **slots;
    uint32_t slot_count; /* GONE ones included: others may still point at them */
    uint32_t slot_room;
    uint32_t next_grant; /* where the search for a free slot begins */
    size_t slot_bytes;
    size_t end;          /* first byte of the memfd no slot ever had */
    uint64_t live_bytes; /* of all slots that are not GONE */
    /* any thread */
    _Atomic uint32_t refs; /* the owner, and one for every slot with references */
};

static bool pool_forked(const mh_pool *pool)
{
    return pool->fork_generation != mh_fork_generation();
}

mh_status mh_pool_open(mh_pool **out, uint64_t budget_bytes, mh_error *err)
{
    mh_pool *pool = mh_calloc(1, sizeof *pool);
    if (!pool)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a pool of batch slots");
    mh_status status =
        mh_memory_create(&pool->memory, "millhead-batches", mh_memory_map_most(1), SLOT_PAGE, err);
    if (status != MH_OK) {
        mh_free(pool);
        return status;
    }
    pool->budget_bytes = budget_bytes ? budget_bytes : UINT64_MAX;
    pool->fork_generation = mh_fork_generation();
    atomic_init(&pool->refs, 1);
    *out = pool;
    return MH_OK;
}

static void pool_destroy(mh_pool *pool)
{
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        mh_slot *slot = pool->slots[i];
        /* A worker forked for another loader has this memfd too: give the pages back for all.
         * Not those of a batch that a child of the user's may still read. */
        if (atomic_load(&slot->state) == SLOT_FREE)
            mh_memory_release_range(&pool->memory, slot->offset, slot->bytes);
        mh_free(slot);
    }
    mh_free(pool->slots);
    mh_memory_close(&pool->memory);
    mh_free(pool);
}

void mh_pool_unref(mh_pool *pool)
{
    if (!pool || pool_forked(pool))
        return;
    if (atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) == 1)
        pool_destroy(pool);
}

int mh_pool_fd(const mh_pool *pool)
{
    return pool->memory.fd;
}

size_t mh_pool_map_bytes(const mh_pool *pool)
{
    return pool->memory.map_bytes;
}

/* Whether the slot is one that batches of the current size are granted. */
static bool slot_current(const mh_pool *pool, const mh_slot *slot)
{
    return !slot->extra && slot->bytes >= pool->slot_bytes;
}

/* Gives the pages of an outgrown slot back, if nobody uses it. */
static void slot_drop(mh_pool *pool, mh_slot *slot)
{
    uint32_t expected = SLOT_FREE;
    if (atomic_compare_exchange_strong(&slot->state, &expected, SLOT_GONE)) {
        mh_memory_release_range(&pool->memory, slot->offset, slot->bytes);
        pool->live_bytes -= slot->bytes;
    }
}

static mh_status pool_list_slot(mh_pool *pool, mh_slot *slot, mh_error *err)
{
    if (pool->slot_count == pool->slot_room) {
        uint32_t room = pool->slot_room ? pool->slot_room * 2 : 16;
        mh_slot **grown = mh_realloc(pool->slots, room, sizeof(mh_slot *));
        if (!grown)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for a list of %u batch slots", room);
        pool->slots = grown;
        pool->slot_room = room;
    }
    pool->slots[pool->slot_count++] = slot;
    return MH_OK;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + SLOT_PAGE - 1) / SLOT_PAGE * SLOT_PAGE;
}

static mh_status pool_add_slot(mh_pool *pool, size_t bytes, mh_error *err)
{
    if (pool->live_bytes + bytes > pool->budget_bytes)
        return mh_fail(err, MH_ERR_NOMEM,
                       "another batch slot of %zu bytes would go beyond the memory budget: %llu of "
                       "%llu bytes are in use",
                       bytes, (unsigned long long)pool->live_bytes,
                       (unsigned long long)pool->budget_bytes);
    MH_TRY(mh_memory_grow(&pool->memory, pool->end + bytes, err));
    mh_slot *slot = mh_calloc(1, sizeof *slot);
    if (!slot)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch slot");
    slot->pool = pool;
    slot->offset = pool->end;
    slot->bytes = bytes;
    mh_status status = pool_list_slot(pool, slot, err);
    if (status != MH_OK) {
        mh_free(slot);
        return status;
    }
    pool->end += bytes;
    pool->live_bytes += bytes;
    return MH_OK;
}

/* Slots of the current size that are not lost to a fork. */
static uint32_t pool_usable(const mh_pool *pool)
{
    uint32_t usable = 0;
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        const mh_slot *slot = pool->slots[i];
        uint32_t state = atomic_load(&slot->state);
        usable += slot_current(pool, slot) && state <= SLOT_HELD;
    }
    return usable;
}

/* Changes to larger slots: the free small ones make room. Nothing is dropped for a size of which
 * not even one slot would fit. */
static mh_status pool_enlarge(mh_pool *pool, size_t slot_bytes, mh_error *err)
{
    uint64_t free_bytes = 0;
    for (uint32_t i = 0; i < pool->slot_count; i++)
        if (!pool->slots[i]->extra && atomic_load(&pool->slots[i]->state) == SLOT_FREE)
            free_bytes += pool->slots[i]->bytes;
    if (pool->live_bytes - free_bytes + slot_bytes > pool->budget_bytes)
        return mh_fail(err, MH_ERR_NOMEM,
                       "a batch slot of %zu bytes does not fit into the memory budget of %llu",
                       slot_bytes, (unsigned long long)pool->budget_bytes);
    bool room = pool->live_bytes + slot_bytes <= pool->budget_bytes;
    if (room) /* see that the machine agrees before giving anything up */
        MH_TRY(pool_add_slot(pool, slot_bytes, err));
    pool->slot_bytes = slot_bytes;
    for (uint32_t i = 0; i < pool->slot_count; i++)
        if (!slot_current(pool, pool->slots[i]) && !pool->slots[i]->extra)
            slot_drop(pool, pool->slots[i]);
    return MH_OK;
}

mh_status mh_pool_reserve(mh_pool *pool, size_t slot_bytes, uint32_t count, mh_error *err)
{
    if (pool_forked(pool))
        return mh_fail(err, MH_ERR_FORKED, "this pool of batch slots belongs to another process");
    if (slot_bytes == 0 || slot_bytes > SIZE_MAX / 4)
        return mh_fail(err, MH_ERR_INVALID, "a batch slot cannot have %zu bytes", slot_bytes);
    slot_bytes = whole_pages(slot_bytes);
    if (slot_bytes > pool->slot_bytes)
        MH_TRY(pool_enlarge(pool, slot_bytes, err));
    for (uint32_t have = pool_usable(pool); have < count; have++)
        MH_TRY(pool_add_slot(pool, pool->slot_bytes, err));
    return MH_OK;
}

/* A free extra slot that is large enough and not wastefully so. */
static mh_slot *pool_find_extra(mh_pool *pool, size_t bytes)
{
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        mh_slot *slot = pool->slots[i];
        uint32_t expected = SLOT_FREE;
        if (slot->extra && slot->bytes >= bytes && slot->bytes / 4 <= bytes &&
            atomic_compare_exchange_strong(&slot->state, &expected, SLOT_FILLING))
            return slot;
    }
    return NULL;
}

mh_status mh_pool_grant_extra(mh_pool *pool, mh_slot **out, size_t bytes, mh_error *err)
{
    if (pool_forked(pool))
        return mh_fail(err, MH_ERR_FORKED, "this pool of batch slots belongs to another process");
    if (bytes > SIZE_MAX / 4)
        return mh_fail(err, MH_ERR_INVALID, "a slot cannot have %zu bytes", bytes);
    bytes = whole_pages(bytes ? bytes : 1);
    mh_slot *slot = pool_find_extra(pool, bytes);
    if (!slot) {
        MH_TRY(pool_add_slot(pool, bytes, err));
        slot = pool->slots[pool->slot_count - 1];
        slot->extra = true;
        atomic_store(&slot->state, SLOT_FILLING);
    }
    *out = slot;
    return MH_OK;
}

mh_slot *mh_pool_grant(mh_pool *pool)
{
    if (pool_forked(pool))
        return NULL;
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        uint32_t at = (pool->next_grant + i) % pool->slot_count;
        mh_slot *slot = pool->slots[at];
        uint32_t expected = SLOT_FREE;
        if (slot->extra || atomic_load_explicit(&slot->state, memory_order_relaxed) != SLOT_FREE)
            continue;
        if (!slot_current(pool, slot)) {
            slot_drop(pool, slot);
            continue;
        }
        /* acquire: the last reader's accesses happened before we hand the bytes out again */
        if (atomic_compare_exchange_strong(&slot->state, &expected, SLOT_FILLING)) {
            pool->next_grant = at + 1;
            return slot;
        }
    }
    return NULL;
}

uint32_t mh_pool_unheld(const mh_pool *pool)
{
    uint32_t unheld = 0;
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        const mh_slot *slot = pool->slots[i];
        unheld += slot_current(pool, slot) && atomic_load(&slot->state) < SLOT_HELD;
    }
    return unheld;
}

void mh_slot_abandon(mh_slot *slot)
{
    if (pool_forked(slot->pool))
        return;
    assert(atomic_load(&slot->state) == SLOT_FILLING);
    atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_release);
}

void mh_slot_hold(mh_slot *slot, uint32_t refs)
{
    assert(refs > 0 && atomic_load(&slot->state) == SLOT_FILLING);
    atomic_fetch_add_explicit(&slot->pool->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&slot->refs, refs, memory_order_relaxed);
    atomic_store_explicit(&slot->state, SLOT_HELD, memory_order_release);
}

void mh_slot_unref(mh_slot *slot)
{
    mh_pool *pool = slot->pool;
    if (pool_forked(pool))
        return;
    if (atomic_fetch_sub_explicit(&slot->refs, 1, memory_order_acq_rel) != 1)
        return;
    uint32_t expected = SLOT_HELD;
    if (!atomic_compare_exchange_strong(&slot->state, &expected, SLOT_FREE))
        atomic_store(&slot->state, SLOT_RETIRED); /* frozen in the meantime */
    mh_pool_unref(pool);
}

uint8_t *mh_slot_data(const mh_slot *slot)
{
    return slot->pool->memory.base + slot->offset;
}

size_t mh_slot_offset(const mh_slot *slot)
{
    return slot->offset;
}

size_t mh_slot_bytes(const mh_slot *slot)
{
    return slot->bytes;
}

void mh_pool_freeze_held(mh_pool *pool)
{
    if (pool_forked(pool))
        return;
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        uint32_t expected = SLOT_HELD;
        (void)atomic_compare_exchange_strong(&pool->slots[i]->state, &expected, SLOT_FROZEN);
    }
}

void mh_pool_stats_read(const mh_pool *pool, mh_pool_stats *out)
{
    mh_pool_stats stats = {.bytes = pool->live_bytes, .slots = pool_usable(pool)};
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        uint32_t state = atomic_load(&pool->slots[i]->state);
        stats.held += state == SLOT_HELD || state == SLOT_FROZEN;
        stats.frozen += state == SLOT_FROZEN || state == SLOT_RETIRED;
    }
    *out = stats;
}
