/* buffers.c - free lists by size, four sizes for each doubling
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/buffers.h"

#include "base/alloc.h"
#include "sys/large_block.h"

#define LEAST 64u /* bytes: room for a link, and a cache line */

typedef struct mh_free_block {
    struct mh_free_block *next;
} free_block;

/* The size class: bytes are rounded up to (4 + c % 4) << (c / 4), times LEAST / 4. */
static unsigned class_of(uint64_t bytes)
{
    uint64_t quarters = (bytes + LEAST / 4 - 1) / (LEAST / 4);
    if (quarters <= 4)
        return 0;
    unsigned shift = 61u - (unsigned)__builtin_clzll(quarters); /* quarters >> shift is 4 to 7 */
    uint64_t up = (quarters + (UINT64_C(1) << shift) - 1) >> shift;
    return 4 * shift + (unsigned)(up - 4);
}

static uint64_t class_bytes(unsigned class)
{
    return (UINT64_C(4) + class % 4) << (class / 4) << 4;
}

uint64_t mh_buffer_bytes(uint64_t bytes)
{
    const uint64_t most = UINT64_C(1) << 60; /* beyond any memory */
    return bytes == 0 ? 0 : bytes > most ? most : class_bytes(class_of(bytes));
}

static void *block_new(uint64_t bytes)
{
    return bytes < MH_LARGE_BLOCK ? mh_calloc(bytes, 1) : mh_large_block_new(bytes);
}

static void block_free(void *block, uint64_t bytes)
{
    if (bytes < MH_LARGE_BLOCK)
        mh_free(block);
    else
        mh_large_block_free(block, bytes);
}

/* Until at most so many bytes wait; the largest blocks first. */
static void trim_to(mh_buffers *self, uint64_t most)
{
    for (unsigned class = MH_BUFFER_CLASSES; class -- > 0 && self->waiting > most;)
        while (self->free[class] && self->waiting > most) {
            free_block *block = self->free[class];
            self->free[class] = block->next;
            self->waiting -= class_bytes(class);
            block_free(block, class_bytes(class));
        }
}

void mh_buffers_trim(mh_buffers *self)
{
    trim_to(self, 0);
}

void *mh_buffers_get(mh_buffers *self, uint64_t bytes)
{
    uint64_t size = mh_buffer_bytes(bytes);
    unsigned class = class_of(bytes);
    free_block *block = class < MH_BUFFER_CLASSES ? self->free[class] : NULL;
    if (block) {
        self->free[class] = block->next;
        self->waiting -= size;
    } else {
        uint64_t taken = self->used + size;
        trim_to(self, taken < self->limit ? self->limit - taken : 0);
        block = block_new(size);
    }
    if (block)
        self->used += size;
    return block;
}

void mh_buffers_put(mh_buffers *self, void *given, uint64_t bytes)
{
    free_block *block = given;
    if (!block)
        return;
    uint64_t size = mh_buffer_bytes(bytes);
    unsigned class = class_of(bytes);
    self->used -= size;
    self->waiting += size;
    block->next = self->free[class];
    self->free[class] = block;
}
