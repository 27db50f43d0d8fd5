/* unit_heap.c - a binary heap that knows where each of its units is
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "pipeline/residency.h"

static bool before(const mh_unit_heap *heap, const mh_resident *a, const mh_resident *b)
{
    return heap->farthest_first ? a->next_use > b->next_use : a->next_use < b->next_use;
}

static void put(mh_unit_heap *heap, size_t at, mh_resident *unit)
{
    heap->list[at] = unit;
    unit->heap_at = at;
}

static void rise(mh_unit_heap *heap, size_t at)
{
    mh_resident *unit = heap->list[at];
    for (; at > 0 && before(heap, unit, heap->list[(at - 1) / 2]); at = (at - 1) / 2)
        put(heap, at, heap->list[(at - 1) / 2]);
    put(heap, at, unit);
}

static void sink(mh_unit_heap *heap, size_t at)
{
    mh_resident *unit = heap->list[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < heap->count && before(heap, heap->list[child + 1], heap->list[child]))
            child++;
        if (child >= heap->count || !before(heap, heap->list[child], unit))
            break;
        put(heap, at, heap->list[child]);
        at = child;
    }
    put(heap, at, unit);
}

bool mh_heap_reserve(mh_unit_heap *heap, size_t room)
{
    if (room <= heap->room)
        return true;
    size_t wanted = heap->room ? 2 * heap->room : 64;
    wanted = wanted < room ? room : wanted;
    void *list = mh_realloc(heap->list, wanted, sizeof(mh_resident *));
    if (!list)
        return false;
    heap->list = list;
    heap->room = wanted;
    return true;
}

void mh_heap_free(mh_unit_heap *heap)
{
    mh_free(heap->list);
}

void mh_heap_push(mh_unit_heap *heap, mh_resident *unit)
{
    put(heap, heap->count, unit);
    rise(heap, heap->count++);
}

void mh_heap_remove(mh_unit_heap *heap, mh_resident *unit)
{
    size_t at = unit->heap_at;
    mh_resident *last = heap->list[--heap->count];
    unit->heap_at = MH_HEAP_NONE;
    if (last == unit)
        return;
    put(heap, at, last);
    mh_heap_moved(heap, last);
}

void mh_heap_moved(mh_unit_heap *heap, mh_resident *unit)
{
    rise(heap, unit->heap_at);
    sink(heap, unit->heap_at);
}

mh_resident *mh_heap_top(const mh_unit_heap *heap)
{
    return heap->count ? heap->list[0] : NULL;
}
