/* records.c - a growing array of equal records that can be found by their key
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/records.h"

#include "base/alloc.h"
#include <string.h>

#define FIRST_SLOTS 1024
#define FIRST_ROOM 256

int mh_array_reserve(void **items, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return 1;
    size_t larger = *room ? *room + *room / 2 : FIRST_ROOM;
    void *grown = mh_realloc(*items, larger, size);
    if (!grown)
        return 0;
    *items = grown;
    *room = larger;
    return 1;
}

static size_t key_hash(mh_record_key key)
{
    uint64_t a = (uint64_t)key.loader << 32 | key.epoch;
    uint64_t b = (uint64_t)(uint32_t)key.worker << 32 | key.nth;
    /* Multiplications by large odd numbers; the high bits are the well mixed ones. */
    uint64_t mixed = (a * UINT64_C(0x9e3779b97f4a7c15) ^ b) * UINT64_C(0xd6e8feb86659fd93);
    return (size_t)(mixed ^ mixed >> 32);
}

static int same_key(const mh_records *records, uint32_t number, mh_record_key key)
{
    return memcmp(mh_records_at(records, number), &key, sizeof key) == 0;
}

/* Where the key is, or the free place where it would be. */
static size_t slot_of(const mh_records *records, mh_record_key key)
{
    size_t at = key_hash(key) & (records->slots - 1);
    while (records->index[at] && !same_key(records, records->index[at] - 1, key))
        at = (at + 1) & (records->slots - 1);
    return at;
}

void *mh_records_find(const mh_records *records, mh_record_key key)
{
    if (!records->slots)
        return NULL;
    uint32_t found = records->index[slot_of(records, key)];
    return found ? mh_records_at(records, found - 1) : NULL;
}

/* A larger index, half empty at least. */
static int index_grow(mh_records *records)
{
    size_t slots = records->slots ? records->slots * 2 : FIRST_SLOTS;
    uint32_t *index = mh_calloc(slots, sizeof *index);
    if (!index)
        return 0;
    mh_free(records->index);
    records->index = index;
    records->slots = slots;
    for (size_t number = 0; number < records->count; number++) {
        mh_record_key key;
        memcpy(&key, mh_records_at(records, number), sizeof key);
        index[slot_of(records, key)] = (uint32_t)number + 1; /* the last of equal keys stays */
    }
    return 1;
}

void *mh_records_add(mh_records *records, mh_record_key key)
{
    void *items = records->items;
    if (records->count >= UINT32_MAX - 1 ||
        !mh_array_reserve(&items, &records->room, records->count, records->size))
        return NULL;
    records->items = items;
    if (records->count * 2 >= records->slots && !index_grow(records))
        return NULL;
    void *record = mh_records_at(records, records->count);
    memset(record, 0, records->size);
    memcpy(record, &key, sizeof key);
    records->index[slot_of(records, key)] = (uint32_t)++records->count;
    return record;
}

void *mh_records_get(mh_records *records, mh_record_key key)
{
    void *found = mh_records_find(records, key);
    return found ? found : mh_records_add(records, key);
}

void mh_records_deinit(mh_records *records)
{
    mh_free(records->items);
    mh_free(records->index);
    *records = (mh_records){.size = records->size};
}
