/* slots.h - the pool of reusable memory that batches live in, shared with workers or private
 * SPDX-License-Identifier: Apache-2.0
 *
 * A slot's life:
 *
 *     FREE --grant--> FILLING --hold--> HELD --last unref--> FREE
 *                        |                |
 *                     abandon           freeze (the user forks)
 *                        v                v
 *                      FREE            FROZEN --last unref--> RETIRED
 *
 * A worker process fills the bytes while the slot is FILLING; that the batch is ready is said by a
 * result in the worker's ring, not here: all of this file's bookkeeping is memory of the consumer's
 * process alone, so no crash elsewhere can damage it. The consumer then either copies the bytes and
 * abandons the slot, or holds it for the tensors that point into it.
 *
 * FROZEN: a child the user forks while tensors point into a slot goes on seeing shared memory, so a
 * slot held at that moment is never written again.
 *
 * Threads: any thread may call any of these functions, without Python's lock, while the pool is
 * known to be there: the caller holds the owner's reference, or a slot that is FILLING or HELD and
 * the owner lets go only afterwards. A mutex inside the pool guards the list of slots; reserving
 * holds it while the kernel finds memory, some 20 ms for 64 MB. Abandoning, holding and unref take
 * no lock. A slot belongs to the thread it was granted to until that thread abandons or holds it.
 *
 * Forks: in a child all of this is inert, and the mutex is never touched: another thread of the
 * parent may have held it at that moment. Reserving and granting are refused, figures are 0.
 */
#ifndef MH_BATCH_SLOTS_H
#define MH_BATCH_SLOTS_H

#include <millhead/error.h>

typedef struct mh_pool mh_pool;
typedef struct mh_slot mh_slot;

typedef struct mh_pool_stats {
    uint32_t slots;  /* that can be granted or are in use at the current size */
    uint32_t held;   /* tensors point into them (FROZEN ones too) */
    uint32_t frozen; /* FROZEN or RETIRED: lost to reuse because the user forked */
    uint64_t bytes;  /* backed by memory */
} mh_pool_stats;

/* Opens an empty pool that may back at most `budget_bytes` (0: no budget of its own; the machine's
 * and the cgroup's limits always count). One memfd, no memory yet. The caller owns one reference.
 * Errors: MH_ERR_NOMEM, MH_ERR_IO. */
MH_MUST_CHECK mh_status mh_pool_open(mh_pool **out, uint64_t budget_bytes, mh_error *err);

/* The same in memory of this process alone, for threads to fill: a child that the user forks has a
 * copy, so that nothing is ever frozen. Errors: MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_pool_open_private(mh_pool **out, uint64_t budget_bytes, mh_error *err);

/* Drops the owner's reference. The memory goes with the last held slot. NULL allowed. */
void mh_pool_unref(mh_pool *pool);

/* The memfd, for workers to attach; it stays the pool's. -1: the pool is private. */
int mh_pool_fd(const mh_pool *pool);

/* Address space to map when attaching. */
size_t mh_pool_map_bytes(const mh_pool *pool);

/* What a slot for so many bytes takes of the budget. Pure. */
size_t mh_pool_slot_bytes(size_t bytes);

/* Makes sure that `count` slots of at least `slot_bytes` exist, FROZEN and RETIRED ones apart.
 * A larger size than before replaces the old slots: free ones now, others when they come back.
 * Slots made before a refusal stay usable; where not even one of a larger size could be made, the
 * old ones do. Errors: MH_ERR_NOMEM with the figures, MH_ERR_FORKED. Takes the lock. */
MH_MUST_CHECK mh_status mh_pool_reserve(mh_pool *pool, size_t slot_bytes, uint32_t count,
                                        mh_error *err);

/* A slot for a worker to fill, or NULL when none is free. Takes the lock. */
mh_slot *mh_pool_grant(mh_pool *pool);

/* A FILLING slot of its own size, for something that fits nowhere else (an index of many numbers).
 * Errors as mh_pool_reserve. Takes the lock. */
MH_MUST_CHECK mh_status mh_pool_grant_extra(mh_pool *pool, mh_slot **out, size_t bytes,
                                            mh_error *err);

/* Slots that are neither held nor lost. What is left for batches under way. Takes the lock. */
uint32_t mh_pool_unheld(mh_pool *pool);

/* Those of them that have at least `slot_bytes`. Takes the lock. */
uint32_t mh_pool_unheld_of(mh_pool *pool, size_t slot_bytes);

/* FILLING -> FREE: the batch was copied out, or its worker is dead and waited for. The slot may be
 * gone afterwards. Takes no lock. */
void mh_slot_abandon(mh_slot *slot);

/* FILLING -> HELD with `refs` references, each ended by mh_slot_unref. Keeps the pool alive.
 * Takes no lock. */
void mh_slot_hold(mh_slot *slot, uint32_t refs);

/* Ends one reference. Takes no lock and allocates nothing. Inert after a fork. */
void mh_slot_unref(mh_slot *slot);

/* The slot's bytes in this process, their offset in the memfd and their number. */
uint8_t *mh_slot_data(const mh_slot *slot);
size_t mh_slot_offset(const mh_slot *slot);
size_t mh_slot_bytes(const mh_slot *slot);

/* HELD -> FROZEN for every slot: call right before the user forks. Takes the lock, and has let go
 * of it on return; what other threads hold from then until the fork is not frozen. */
void mh_pool_freeze_held(mh_pool *pool);

/* Takes the lock. All 0 after a fork. */
void mh_pool_stats_read(mh_pool *pool, mh_pool_stats *out);

#endif
