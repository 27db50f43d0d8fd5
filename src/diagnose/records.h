/* records.h - a growing array of equal records that can be found by their key
 * SPDX-License-Identifier: Apache-2.0
 *
 * A record begins with its key. Plain memory, one thread at a time; all zero but `size` is empty.
 * Pointers to records are valid until the next add.
 */
#ifndef MH_DIAGNOSE_RECORDS_H
#define MH_DIAGNOSE_RECORDS_H

#include <millhead/error.h>

/* A batch as consumer and worker both know it: worker's nth of an epoch of a loader. Where
 * something else is meant by the parts, its record says so. */
typedef struct mh_record_key {
    uint32_t loader, epoch;
    int32_t worker;
    uint32_t nth;
} mh_record_key;

typedef struct mh_records {
    size_t size; /* of a record */
    size_t count;
    size_t room;
    char *items;
    uint32_t *index; /* record number + 1; 0: free */
    size_t slots;    /* a power of two */
} mh_records;

/* The record added last with this key; NULL: none. */
void *mh_records_find(const mh_records *records, mh_record_key key);

/* A new record with this key and zeroes behind it; NULL: no memory. */
void *mh_records_add(mh_records *records, mh_record_key key);

/* The one there is, or a new one. */
void *mh_records_get(mh_records *records, mh_record_key key);

static inline void *mh_records_at(const mh_records *records, size_t number)
{
    return records->items + number * records->size;
}

static inline size_t mh_records_number(const mh_records *records, const void *record)
{
    return (size_t)((const char *)record - records->items) / records->size;
}

void mh_records_deinit(mh_records *records);

/* Makes room for one more element of `size` bytes in a plain array. False: no memory. */
int mh_array_reserve(void **items, size_t *room, size_t count, size_t size);

#endif
