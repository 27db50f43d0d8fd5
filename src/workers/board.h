/* board.h - batches of which any worker may take the next samples
 * SPDX-License-Identifier: Apache-2.0
 *
 * The rings of control.h give whole batches to workers chosen beforehand. The board turns that
 * round: the consumer posts batches, and whoever is free takes the next few samples (a run) of the
 * oldest batch that has some left. So the batch that is due first is shared out among all idle
 * workers, and a worker that is stuck in one sample holds nothing but its own run.
 *
 *     consumer                                       any worker
 *     begin .. fill the task .. publish   ------->   claim .. fetch, write rows .. finish
 *     leaves <--- (whoever finishes last sends one result through its own ring) ---+
 *
 * An entry changes by single atomic operations only, so a worker killed anywhere leaves nothing
 * locked. A run it had taken is never finished: the consumer sees the death, not the board.
 */
#ifndef MH_WORKERS_BOARD_H
#define MH_WORKERS_BOARD_H

#include "workers/control.h"

#include <stdbool.h>

/* Samples [first, first + count) of the batch in an entry. */
typedef struct mh_board_run {
    const mh_task *task; /* valid until the run is finished */
    uint32_t entry;
    uint32_t first;
    uint32_t count;
} mh_board_run;

/* What finishers say about a batch; all that was said is known with the last one. */
enum mh_run_marks {
    MH_RUN_APART = 1,  /* some rows are not in the slot */
    MH_RUN_UNLIKE = 2, /* rows in the slot differ in type or shape from run to run */
};

/* Bytes of a board of that many entries, a multiple of 64. */
size_t mh_board_bytes(uint32_t entries);

/* Makes a board in the caller's zeroed, 64-byte aligned memory. */
mh_board *mh_board_init(void *memory, uint32_t entries);

/* A board somebody else made; NULL when the memory does not hold one that fits into `bytes`. */
mh_board *mh_board_attach(void *memory, size_t bytes);

/* --- consumer: one thread at a time --- */

/* The task to fill. The entry must be new, or its last batch finished. */
mh_task *mh_board_begin(mh_board *board, uint32_t entry);

/* Opens the entry to all workers. Batches are taken in the order of their positions; `again`: the
 * second time of a position. */
void mh_board_publish(mh_board *board, uint32_t entry, bool again);

/* The leaves that the finished batch has in its slot; how many, 0 where none has. */
uint32_t mh_board_leaves(const mh_board *board, uint32_t entry, mh_leaf out[MH_LEAVES_MAX]);

/* --- worker --- */

/* Whether there is a sample left to take. */
bool mh_board_open(const mh_board *board);

/* Takes a run of the oldest batch; false when nothing is left. It is as long as can be fetched in
 * about 2 ms when a sample takes `sample_ns`; 0, nobody knows yet: an equal share of the batch. */
bool mh_board_claim(mh_board *board, uint32_t workers, uint64_t sample_ns, mh_board_run *out);

/* Says that a run is done. `leaves`: the whole batch's, with this run's rows written; NULL: no row
 * of the run is in the slot. True for the worker that was last: *out_marks then has all marks. */
bool mh_board_finish(mh_board *board, const mh_board_run *run, uint32_t marks,
                     const mh_leaf *leaves, uint32_t leaf_count, uint32_t *out_marks);

#endif
