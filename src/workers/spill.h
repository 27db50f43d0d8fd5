/* spill.h - a worker's own memory for batches that do not fit into a slot
 * SPDX-License-Identifier: Apache-2.0
 *
 * The worker writes, the consumer reads and says in order what it has read (mh_control_spill_read).
 * At most `depth` pieces are unread at a time, so placing one is a search through a handful.
 */
#ifndef MH_WORKERS_SPILL_H
#define MH_WORKERS_SPILL_H

#include "sys/memory.h"
#include "workers/control.h"

typedef struct mh_spill mh_spill;

/* The worker's side of a memfd the consumer made; the descriptor stays the caller's. `depth`: most
 * unread pieces. Errors: MH_ERR_NOMEM, MH_ERR_IO. */
MH_MUST_CHECK mh_status mh_spill_open(mh_spill **out, int fd, size_t map_bytes, uint32_t depth,
                                      mh_error *err);

void mh_spill_close(mh_spill *spill);

/* For a process that takes another's place, before it places anything: `placed` pieces are read,
 * and then one call for each that is not, in their order. What lies there stays. */
void mh_spill_begin_at(mh_spill *spill, uint64_t placed);
void mh_spill_inherit(mh_spill *spill, uint64_t offset, uint64_t bytes);

/* Both, for what other processes of the same worker have sent and nobody has read. */
void mh_spill_inherit_results(mh_spill *spill, const mh_control *control, uint32_t worker);

/* Pieces since the beginning. */
uint64_t mh_spill_placed(const mh_spill *spill);

/* Room for `bytes`, at *out_offset of the memfd; `read` is how many pieces the consumer has read
 * since the beginning. Errors: MH_ERR_NOMEM with figures. */
MH_MUST_CHECK mh_status mh_spill_place(mh_spill *spill, uint64_t bytes, uint64_t read,
                                       uint64_t *out_offset, mh_error *err);

/* Where an offset of mh_spill_place lies in this process. */
uint8_t *mh_spill_data(const mh_spill *spill, uint64_t offset);

/* Gives the memory back when every piece is read. */
void mh_spill_trim(mh_spill *spill, uint64_t read);

#endif
