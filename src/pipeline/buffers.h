/* buffers.h - memory for units: blocks that are used again instead of being freed
 * SPDX-License-Identifier: Apache-2.0
 *
 * One lock around all calls is the caller's.
 */
#ifndef MH_PIPELINE_BUFFERS_H
#define MH_PIPELINE_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#define MH_BUFFER_CLASSES 256

typedef struct mh_buffers {
    uint64_t limit;         /* most bytes, those that wait for their next use among them */
    uint64_t used, waiting; /* bytes of blocks given out; of those that wait */
    struct mh_free_block *free[MH_BUFFER_CLASSES];
} mh_buffers;

/* What a block for so many bytes takes: up to a quarter more. 0 for 0 bytes. */
uint64_t mh_buffer_bytes(uint64_t bytes);

/* A block, not zeroed; NULL: no memory. Blocks that wait are freed to stay below the limit; that
 * those in use stay below it is for the caller to see to. */
void *mh_buffers_get(mh_buffers *buffers, uint64_t bytes);

/* Gives a block of so many bytes back. NULL allowed. */
void mh_buffers_put(mh_buffers *buffers, void *block, uint64_t bytes);

/* Frees what waits. */
void mh_buffers_trim(mh_buffers *buffers);

#endif
