/* alloc.h - the allocation seam: every allocation of the core goes through here, so that tests
 * can make any of them fail
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BASE_ALLOC_H
#define MH_BASE_ALLOC_H

#include "mh_config.h"
#include <millhead/error.h>

/* Zeroed memory of count * size bytes (overflow checked); NULL when there is none. Free with
 * mh_free. Any thread. */
void *mh_calloc(size_t count, size_t size);

/* As realloc, with overflow check; the old block stays valid on failure. */
void *mh_realloc(void *block, size_t count, size_t size);

/* NULL allowed. Any thread. */
void mh_free(void *block);

#if MH_TEST_HOOKS

/* Makes allocation number `nth` (1 = the next one) fail, and all later ones too when
 * `persistent`; 0 switches injection off. Returns the allocations counted since the last call. */
uint64_t mh_alloc_fail_at(uint64_t nth, int persistent);

/* Blocks handed out and not yet freed: a test that ends with a number other than it began with
 * has leaked. */
uint64_t mh_alloc_live(void);

#endif

#endif
