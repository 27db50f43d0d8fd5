/* alloc.c - the allocation seam: checked allocations, which tests can count and make fail
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#if MH_TEST_HOOKS

/* Relaxed everywhere: these are counters, they order nothing. */
static _Atomic uint64_t asked;   /* allocations since the last mh_alloc_fail_at */
static _Atomic uint64_t fail_at; /* 0: injection is off */
static _Atomic int fail_on;      /* whether later ones fail too */
static _Atomic uint64_t live;

static bool alloc_refused(void)
{
    uint64_t nth = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed) + 1;
    uint64_t chosen = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (chosen == 0 || nth < chosen)
        return false;
    return nth == chosen || atomic_load_explicit(&fail_on, memory_order_relaxed) != 0;
}

static void live_add(int blocks)
{
    atomic_fetch_add_explicit(&live, (uint64_t)blocks, memory_order_relaxed);
}

uint64_t mh_alloc_fail_at(uint64_t nth, int persistent)
{
    /* Off first, so that no allocation of another thread meets a half-changed setting. */
    atomic_store_explicit(&fail_at, 0, memory_order_relaxed);
    uint64_t counted = atomic_exchange_explicit(&asked, 0, memory_order_relaxed);
    atomic_store_explicit(&fail_on, persistent, memory_order_relaxed);
    atomic_store_explicit(&fail_at, nth, memory_order_relaxed);
    return counted;
}

uint64_t mh_alloc_live(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed);
}

#else

static bool alloc_refused(void)
{
    return false;
}

static void live_add(int blocks)
{
    (void)blocks;
}

#endif

/* An empty request becomes one byte, so that NULL always means failure. */
static bool alloc_bytes(size_t count, size_t size, size_t *out_bytes)
{
    if (__builtin_mul_overflow(count, size, out_bytes))
        return false;
    if (*out_bytes == 0)
        *out_bytes = 1;
    return true;
}

void *mh_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (alloc_refused() || !alloc_bytes(count, size, &bytes))
        return NULL;
    void *block = calloc(1, bytes);
    if (block)
        live_add(1);
    return block;
}

void *mh_realloc(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (alloc_refused() || !alloc_bytes(count, size, &bytes))
        return NULL;
    void *moved = realloc(block, bytes);
    if (moved && !block)
        live_add(1);
    return moved;
}

void mh_free(void *block)
{
    if (!block)
        return;
    live_add(-1);
    free(block);
}
