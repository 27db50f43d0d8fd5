/* slots.c - the pool of reusable memory that batches live in, shared with workers or private
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/slots.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "sys/memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/* Slots start and end on pages, so that an outgrown one can give its pages back. */
#define SLOT_PAGE ((size_t)4096)

enum slot_state {
    SLOT_FREE,
    SLOT_FILLING,
    SLOT_HELD,
    SLOT_FROZEN,  /* held across the user's fork */
    SLOT_RETIRED, /* was frozen; nobody here points into it any more */
};

/* A slot leaves FREE only under the pool's lock; every other change of state needs no lock. Whoever
 * makes a slot FREE does not touch it afterwards, so the lock's holder may free the struct. */
struct mh_slot {
    /* set when it is made, then read-only */
    mh_pool *pool;
    size_t offset;
    size_t bytes;
    bool extra; /* made by mh_pool_grant_extra, and granted only by it */
    /* any thread */
    _Atomic uint32_t state;
    _Atomic uint32_t refs;
};

struct mh_pool {
    /* set at open, then read-only; the size of `memory` grows under the lock */
    mh_memory memory;
    uint64_t budget_bytes;
    uint32_t fork_generation;
    /* Under the lock. A fork may happen while another thread holds it: the child has it locked for
     * ever and the rest half changed, so the child looks at the fork generation before all else. */
    struct {
        pthread_mutex_t lock;
        mh_slot **slots; /* in the order of their offsets */
        uint32_t slot_count;
        uint32_t slot_room;
        uint32_t next_grant; /* where the search for a free slot begins */
        size_t slot_bytes;
        uint64_t live_bytes; /* of all slots */
    } sync;
    /* any thread */
    _Atomic uint32_t refs; /* the owner, and one for every slot with references */
};

static bool pool_forked(const mh_pool *pool)
{
    return pool->fork_generation != mh_fork_generation();
}

static mh_status pool_new(mh_pool **out, const mh_memory *memory, uint64_t budget_bytes,
                          mh_error *err)
{
    mh_pool *pool = mh_calloc(1, sizeof *pool);
    if (!pool)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a pool of batch slots");
    pool->memory = *memory;
    pool->budget_bytes = budget_bytes ? budget_bytes : UINT64_MAX;
    pool->fork_generation = mh_fork_generation();
    pool->sync.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_init(&pool->refs, 1);
    *out = pool;
    return MH_OK;
}

mh_status mh_pool_open(mh_pool **out, uint64_t budget_bytes, mh_error *err)
{
    mh_memory memory;
    MH_TRY(mh_memory_create(&memory, "millhead-batches", mh_memory_map_most(1), SLOT_PAGE, err));
    mh_status status = pool_new(out, &memory, budget_bytes, err);
    if (status != MH_OK)
        mh_memory_close(&memory);
    return status;
}

mh_status mh_pool_open_private(mh_pool **out, uint64_t budget_bytes, mh_error *err)
{
    mh_memory memory;
    MH_TRY(mh_memory_create_private(&memory, mh_memory_map_most(1), SLOT_PAGE, err));
    mh_status status = pool_new(out, &memory, budget_bytes, err);
    if (status != MH_OK)
        mh_memory_close(&memory);
    return status;
}

static void pool_destroy(mh_pool *pool)
{
    for (uint32_t i = 0; i < pool->sync.slot_count; i++) {
        mh_slot *slot = pool->sync.slots[i];
        /* A worker forked for another loader has this memfd too: give the pages back for all.
         * Not those of a batch that a child of the user's may still read. */
        if (atomic_load(&slot->state) == SLOT_FREE)
            mh_memory_release_range(&pool->memory, slot->offset, slot->bytes);
        mh_free(slot);
    }
    mh_free(pool->sync.slots);
    (void)pthread_mutex_destroy(&pool->sync.lock);
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

/* --- the list of slots --- */

/* Whether the slot is one that batches of the current size are granted. */
static bool slot_current_locked(const mh_pool *pool, const mh_slot *slot)
{
    return !slot->extra && slot->bytes >= pool->sync.slot_bytes;
}

static mh_status list_grow_locked(mh_pool *pool, mh_error *err)
{
    if (pool->sync.slot_count < pool->sync.slot_room)
        return MH_OK;
    uint32_t room = pool->sync.slot_room ? pool->sync.slot_room * 2 : 16;
    mh_slot **grown = mh_realloc(pool->sync.slots, room, sizeof(mh_slot *));
    if (!grown)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a list of %u batch slots", room);
    pool->sync.slots = grown;
    pool->sync.slot_room = room;
    return MH_OK;
}

/* The lowest range between the slots where `bytes` fit; the last one ends with the map. Returns
 * where the new slot goes in the list. */
static uint32_t find_range_locked(const mh_pool *pool, size_t bytes, size_t *offset)
{
    uint32_t at = 0;
    for (*offset = 0; at < pool->sync.slot_count; at++) {
        const mh_slot *slot = pool->sync.slots[at];
        if (slot->offset - *offset >= bytes)
            break;
        *offset = slot->offset + slot->bytes;
    }
    return at;
}

static mh_status add_slot_locked(mh_pool *pool, size_t bytes, bool extra, mh_slot **out,
                                 mh_error *err)
{
    size_t offset;
    if (pool->sync.live_bytes + bytes > pool->budget_bytes)
        return mh_fail(err, MH_ERR_NOMEM,
                       "another batch slot of %zu bytes would go beyond the memory budget: %llu of "
                       "%llu bytes are in use",
                       bytes, (unsigned long long)pool->sync.live_bytes,
                       (unsigned long long)pool->budget_bytes);
    MH_TRY(list_grow_locked(pool, err));
    uint32_t at = find_range_locked(pool, bytes, &offset);
    mh_slot *slot = mh_calloc(1, sizeof *slot);
    if (!slot)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a batch slot");
    mh_status status = mh_memory_back(&pool->memory, offset, bytes, err);
    if (status != MH_OK) {
        mh_free(slot);
        return status;
    }
    *slot = (mh_slot){.pool = pool, .offset = offset, .bytes = bytes, .extra = extra};
    mh_slot **place = pool->sync.slots + at;
    memmove(place + 1, place, (pool->sync.slot_count - at) * sizeof(mh_slot *));
    *place = slot;
    pool->sync.slot_count++;
    pool->sync.live_bytes += bytes;
    if (out)
        *out = slot;
    return MH_OK;
}

/* Gives the pages and addresses of outgrown slots back that nobody uses, and forgets them. */
static void drop_outgrown_locked(mh_pool *pool)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < pool->sync.slot_count; i++) {
        mh_slot *slot = pool->sync.slots[i];
        if (slot->extra || slot_current_locked(pool, slot) ||
            atomic_load(&slot->state) != SLOT_FREE) {
            pool->sync.slots[kept++] = slot;
            continue;
        }
        mh_memory_release_range(&pool->memory, slot->offset, slot->bytes);
        pool->sync.live_bytes -= slot->bytes;
        mh_free(slot);
    }
    pool->sync.slot_count = kept;
}

/* Slots of the current size, and of at least `bytes`, in a state up to `last`. */
static uint32_t count_slots_locked(const mh_pool *pool, size_t bytes, enum slot_state last)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool->sync.slot_count; i++) {
        const mh_slot *slot = pool->sync.slots[i];
        count += slot_current_locked(pool, slot) && slot->bytes >= bytes &&
                 atomic_load(&slot->state) <= last;
    }
    return count;
}

/* --- reserving --- */

size_t mh_pool_slot_bytes(size_t bytes)
{
    return (bytes + SLOT_PAGE - 1) / SLOT_PAGE * SLOT_PAGE;
}

/* Drops the free small slots for a larger one; where the machine refuses that, makes them again. */
static mh_status replace_slots_locked(mh_pool *pool, size_t slot_bytes, mh_error *err)
{
    size_t before_bytes = pool->sync.slot_bytes;
    uint32_t before = count_slots_locked(pool, 0, SLOT_HELD);
    pool->sync.slot_bytes = slot_bytes;
    drop_outgrown_locked(pool);
    mh_status status = add_slot_locked(pool, slot_bytes, false, NULL, err);
    if (status == MH_OK)
        return MH_OK;
    pool->sync.slot_bytes = before_bytes;
    for (uint32_t have = count_slots_locked(pool, 0, SLOT_HELD); have < before; have++)
        if (add_slot_locked(pool, before_bytes, false, NULL, NULL) != MH_OK)
            break;
    return status;
}

/* Changes to larger slots, of which there is one afterwards: the free small ones make room. Nothing
 * is dropped for a size of which not even one slot would fit. */
static mh_status enlarge_locked(mh_pool *pool, size_t slot_bytes, mh_error *err)
{
    uint64_t free_bytes = 0;
    for (uint32_t i = 0; i < pool->sync.slot_count; i++) {
        const mh_slot *slot = pool->sync.slots[i];
        if (!slot->extra && atomic_load(&slot->state) == SLOT_FREE)
            free_bytes += slot->bytes;
    }
    if (pool->sync.live_bytes - free_bytes + slot_bytes > pool->budget_bytes)
        return mh_fail(err, MH_ERR_NOMEM,
                       "a batch slot of %zu bytes does not fit into the memory budget of %llu",
                       slot_bytes, (unsigned long long)pool->budget_bytes);
    if (pool->sync.live_bytes + slot_bytes > pool->budget_bytes)
        return replace_slots_locked(pool, slot_bytes, err);
    /* see that the machine agrees before giving anything up */
    MH_TRY(add_slot_locked(pool, slot_bytes, false, NULL, err));
    pool->sync.slot_bytes = slot_bytes;
    drop_outgrown_locked(pool);
    return MH_OK;
}

static mh_status reserve_locked(mh_pool *pool, size_t slot_bytes, uint32_t count, mh_error *err)
{
    if (slot_bytes > pool->sync.slot_bytes)
        MH_TRY(enlarge_locked(pool, slot_bytes, err));
    for (uint32_t have = count_slots_locked(pool, 0, SLOT_HELD); have < count; have++)
        MH_TRY(add_slot_locked(pool, pool->sync.slot_bytes, false, NULL, err));
    return MH_OK;
}

mh_status mh_pool_reserve(mh_pool *pool, size_t slot_bytes, uint32_t count, mh_error *err)
{
    if (pool_forked(pool))
        return mh_fail(err, MH_ERR_FORKED, "this pool of batch slots belongs to another process");
    if (slot_bytes == 0 || slot_bytes > SIZE_MAX / 4)
        return mh_fail(err, MH_ERR_INVALID, "a batch slot cannot have %zu bytes", slot_bytes);
    pthread_mutex_lock(&pool->sync.lock);
    mh_status status = reserve_locked(pool, mh_pool_slot_bytes(slot_bytes), count, err);
    pthread_mutex_unlock(&pool->sync.lock);
    return status;
}

/* --- granting --- */

/* A free extra slot that is large enough and not wastefully so. */
static mh_slot *find_extra_locked(mh_pool *pool, size_t bytes)
{
    for (uint32_t i = 0; i < pool->sync.slot_count; i++) {
        mh_slot *slot = pool->sync.slots[i];
        if (slot->extra && slot->bytes >= bytes && slot->bytes / 4 <= bytes &&
            atomic_load(&slot->state) == SLOT_FREE)
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
    mh_status status = MH_OK;
    bytes = mh_pool_slot_bytes(bytes ? bytes : 1);
    pthread_mutex_lock(&pool->sync.lock);
    mh_slot *slot = find_extra_locked(pool, bytes);
    if (!slot)
        status = add_slot_locked(pool, bytes, true, &slot, err);
    if (slot) {
        atomic_store(&slot->state, SLOT_FILLING);
        *out = slot;
    }
    pthread_mutex_unlock(&pool->sync.lock);
    return status;
}

static mh_slot *grant_locked(mh_pool *pool)
{
    bool outgrown = false;
    mh_slot *granted = NULL;
    for (uint32_t i = 0; !granted && i < pool->sync.slot_count; i++) {
        uint32_t at = (pool->sync.next_grant + i) % pool->sync.slot_count;
        mh_slot *slot = pool->sync.slots[at];
        /* acquire: the last reader's accesses happened before we hand the bytes out again */
        if (slot->extra || atomic_load_explicit(&slot->state, memory_order_acquire) != SLOT_FREE)
            continue;
        if (slot_current_locked(pool, slot)) {
            atomic_store_explicit(&slot->state, SLOT_FILLING, memory_order_relaxed);
            pool->sync.next_grant = at + 1;
            granted = slot;
        } else {
            outgrown = true;
        }
    }
    if (outgrown)
        drop_outgrown_locked(pool);
    return granted;
}

mh_slot *mh_pool_grant(mh_pool *pool)
{
    if (pool_forked(pool))
        return NULL;
    pthread_mutex_lock(&pool->sync.lock);
    mh_slot *slot = grant_locked(pool);
    pthread_mutex_unlock(&pool->sync.lock);
    return slot;
}

uint32_t mh_pool_unheld(mh_pool *pool)
{
    return mh_pool_unheld_of(pool, 0);
}

uint32_t mh_pool_unheld_of(mh_pool *pool, size_t slot_bytes)
{
    if (pool_forked(pool))
        return 0;
    pthread_mutex_lock(&pool->sync.lock);
    uint32_t unheld = count_slots_locked(pool, slot_bytes, SLOT_FILLING);
    pthread_mutex_unlock(&pool->sync.lock);
    return unheld;
}

/* --- a slot's life --- */

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

/* --- the whole pool --- */

void mh_pool_freeze_held(mh_pool *pool)
{
    if (pool_forked(pool) || pool->memory.fd < 0)
        return;
    pthread_mutex_lock(&pool->sync.lock);
    for (uint32_t i = 0; i < pool->sync.slot_count; i++) {
        uint32_t expected = SLOT_HELD;
        (void)atomic_compare_exchange_strong(&pool->sync.slots[i]->state, &expected, SLOT_FROZEN);
    }
    pthread_mutex_unlock(&pool->sync.lock);
}

void mh_pool_stats_read(mh_pool *pool, mh_pool_stats *out)
{
    *out = (mh_pool_stats){0};
    if (pool_forked(pool))
        return;
    pthread_mutex_lock(&pool->sync.lock);
    out->bytes = pool->sync.live_bytes;
    out->slots = count_slots_locked(pool, 0, SLOT_HELD);
    for (uint32_t i = 0; i < pool->sync.slot_count; i++) {
        uint32_t state = atomic_load(&pool->sync.slots[i]->state);
        out->held += state == SLOT_HELD || state == SLOT_FROZEN;
        out->frozen += state == SLOT_FROZEN || state == SLOT_RETIRED;
    }
    pthread_mutex_unlock(&pool->sync.lock);
}
