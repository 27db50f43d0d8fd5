/* slots.h - the pool of shared, reusable memory that batches live in
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
 */
#ifndef MH_BATCH_SLOTS_H
#define MH_BATCH_SLOTS_H

#include <millhead/error.h>

typedef struct mh_pool mh_pool;
typedef struct mh_slot mh_slot;

/* Leaves of a batch start at multiples of this: a cache line, and what torch's kernels like. */
#define MH_LEAF_ALIGN 64

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

/* Drops the owner's reference. The memory goes with the last held slot. NULL allowed. */
void mh_pool_unref(mh_pool *pool);

/* The memfd, for workers to attach; it stays the pool's. */
int mh_pool_fd(const mh_pool *pool);

/* Address space to map when attaching. */
size_t mh_pool_map_bytes(const mh_pool *pool);

/* Makes sure that `count` slots of at least `slot_bytes` exist, FROZEN and RETIRED ones apart.
 * A larger size than before replaces the old slots: free ones now, others when they come back.
 * Slots made before a refusal stay usable. Errors: MH_ERR_NOMEM with the figures, MH_ERR_FORKED.
 * The owner's thread. */
MH_MUST_CHECK mh_status mh_pool_reserve(mh_pool *pool, size_t slot_bytes, uint32_t count,
                                        mh_error *err);

/* A slot for a worker to fill, or NULL when none is free. The owner's thread. */
mh_slot *mh_pool_grant(mh_pool *pool);

/* A FILLING slot of its own size, for something that fits nowhere else (an index of many numbers).
 * Errors as mh_pool_reserve. The owner's thread. */
MH_MUST_CHECK mh_status mh_pool_grant_extra(mh_pool *pool, mh_slot **out, size_t bytes,
                                            mh_error *err);

/* Slots that are neither held nor lost. What is left for batches under way. */
uint32_t mh_pool_unheld(const mh_pool *pool);

/* FILLING -> FREE: the batch was copied out, or its worker is dead and waited for. */
void mh_slot_abandon(mh_slot *slot);

/* FILLING -> HELD with `refs` references, each ended by mh_slot_unref. Keeps the pool alive. */
void mh_slot_hold(mh_slot *slot, uint32_t refs);

/* Ends one reference. Any thread; takes no lock and allocates nothing. Inert after a fork. */
void mh_slot_unref(mh_slot *slot);

/* The slot's bytes in this process, their offset in the memfd and their number. */
uint8_t *mh_slot_data(const mh_slot *slot);
size_t mh_slot_offset(const mh_slot *slot);
size_t mh_slot_bytes(const mh_slot *slot);

/* HELD -> FROZEN for every slot: call right before the user forks. The owner's thread. */
void mh_pool_freeze_held(mh_pool *pool);

void mh_pool_stats_read(const mh_pool *pool, mh_pool_stats *out);

#endif
