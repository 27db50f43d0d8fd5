/* unit_heap.h - units by their next use: the nearest or the farthest first
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PIPELINE_UNIT_HEAP_H
#define MH_PIPELINE_UNIT_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MH_HEAP_NONE SIZE_MAX

struct mh_resident;

typedef struct mh_unit_heap {
    struct mh_resident **list;
    size_t count, room;
    bool farthest_first;
} mh_unit_heap;

/* Room for `room` units, so that pushing cannot fail. False: no memory. */
bool mh_heap_reserve(mh_unit_heap *heap, size_t room);
void mh_heap_free(mh_unit_heap *heap);

/* A unit is in at most one heap, at unit->heap_at, by its unit->next_use. */
void mh_heap_push(mh_unit_heap *heap, struct mh_resident *unit);
void mh_heap_remove(mh_unit_heap *heap, struct mh_resident *unit);

/* The unit's next use is another. */
void mh_heap_moved(mh_unit_heap *heap, struct mh_resident *unit);

/* NULL: it is empty. */
struct mh_resident *mh_heap_top(const mh_unit_heap *heap);

#endif
