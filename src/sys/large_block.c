/* large_block.c - blocks of many pages, on huge ones where the machine allows that
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/large_block.h"

#include <stdint.h>
#include <sys/mman.h>

static size_t in_pages(size_t bytes)
{
    const size_t page = 4096;
    return (bytes + page - 1) & ~(page - 1);
}

void *mh_large_block_new(size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    const size_t size = in_pages(bytes), room = size + MH_LARGE_BLOCK;
    uint8_t *start = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    /* a huge page begins at a multiple of its size: what is too much at both ends goes back */
    const size_t before = -(uintptr_t)start & (MH_LARGE_BLOCK - 1), after = room - before - size;
    if (before)
        (void)munmap(start, before);
    if (after)
        (void)munmap(start + before + size, after);
    (void)madvise(start + before, size, MADV_HUGEPAGE);
    return start + before;
}

void mh_large_block_free(void *block, size_t bytes)
{
    if (block)
        (void)munmap(block, in_pages(bytes));
}
