/* residency.h - units in memory: which are wanted, which are there, which must go
 * SPDX-License-Identifier: Apache-2.0
 *
 * A unit's life:
 *
 *     planned --> WANTED --memory reserved--> FETCHING --> DECODING --> READY --last use--> gone
 *                    ^                            |  (nothing to decode) ^ |
 *                    |                            +----------------------+ |
 *                    +------------------ evicted, with uses to come -------+
 *
 * The plan says which sample uses which unit, as far as it reaches. Units are fetched in the order
 * of their first use; where memory is short, the one whose next use is farthest goes, which is the
 * best choice there is. Memory is taken once, for a unit's bytes as read and decoded together, so
 * nobody waits for memory while holding some. The head, the lowest sample that is not placed, may
 * evict whatever is not being read; others leave room for the dearest sample. So it never stalls.
 *
 * No I/O, no thread, no lock: the loader's lock is around all calls.
 */
#ifndef MH_PIPELINE_RESIDENCY_H
#define MH_PIPELINE_RESIDENCY_H

#include "format/format.h"
#include "pipeline/buffers.h"
#include "pipeline/times.h"
#include "pipeline/unit_heap.h"
#include <stdbool.h>

typedef enum mh_unit_state {
    MH_UNIT_WANTED,
    MH_UNIT_FETCHING,
    MH_UNIT_DECODING,
    MH_UNIT_READY,
    MH_UNIT_FAILED /* its samples fail with its error */
} mh_unit_state;

/* One sample's use of one unit. */
typedef struct mh_use {
    struct mh_resident *unit;
    struct mh_sample *sample;
    struct mh_use *next; /* of the unit, by position */
    uint64_t position;   /* of the sample */
} mh_use;

/* A sample of the plan. What follows `uses` is the loader's. */
typedef struct mh_sample {
    uint64_t position; /* in the plan: grows from sample to sample */
    uint32_t waiting;  /* units that are neither READY nor FAILED */
    uint32_t use_count;
    mh_use *uses; /* room for dataset->units_most */
    struct mh_sample *next;
    bool queued;         /* in a list of samples to place */
    bool over;           /* placed, skipped or failed */
    uint8_t substitutes; /* tried so far */
} mh_sample;

typedef struct mh_resident {
    uint64_t id;
    mh_unit unit;
    mh_unit_state state;
    uint32_t pins;    /* tasks that read it */
    uint8_t *read;    /* bytes as they were read; NULL: none, or gone */
    uint8_t *decoded; /* NULL: there is nothing to decode, or not yet */
    uint64_t got;     /* bytes that were read */
    bool missing;     /* there is no such object */
    mh_use *first, *last;
    uint64_t next_use;             /* position of `first`; UINT64_MAX: none is planned */
    uint64_t held_bytes;           /* of its blocks */
    size_t heap_at;                /* place in a heap; MH_HEAP_NONE */
    bool evicted;                  /* it was here before */
    bool unused;                   /* fetched, and no sample has used it yet */
    mh_unit_times times;           /* the loader's */
    mh_error *error;               /* of a FAILED one; NULL: no memory for it */
    struct mh_resident *next_same; /* of the table; or of a free list */
    struct mh_resident *next;      /* of a list of the loader's */
} mh_resident;

typedef struct mh_residency_counts {
    uint64_t fetched, decoded, refetched, bytes_peak;
} mh_residency_counts;

typedef struct mh_residency mh_residency;

/* A sample that waits no more; or again waits, when a unit was evicted, and is reported later. */
typedef void mh_sample_ready(void *context, mh_sample *sample);

/* Bytes that the units of one sample need: the least budget. */
uint64_t mh_residency_least(const mh_dataset *dataset);

/* budget_bytes is for units, at least mh_residency_least. *out is untouched on failure.
 * MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_residency_open(mh_residency **out, const mh_dataset *dataset,
                                          uint64_t budget_bytes, mh_sample_ready *ready,
                                          void *context, mh_error *err);
void mh_residency_close(mh_residency *residency); /* NULL allowed */

/* Plans a sample whose position is set: makes its uses. `ready` comes at once where all units are
 * there. On failure it has none. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_residency_plan(mh_residency *residency, mh_sample *sample,
                                          uint64_t number, mh_error *err);

/* Whether all units of the dataset are there, or on their way, to stay: nothing has to be known of
 * samples to come. */
bool mh_residency_complete(const mh_residency *residency);

/* What may be fetched in the place of another unit, even one that is not planned to be used. The
 * earlier that is done the more is read again, for a unit that is used until then would have made
 * room at no cost. So only what is needed at positions below `soon`, or while fewer than `ahead`
 * units were fetched that no sample has used yet. */
typedef struct mh_reach {
    uint64_t head; /* position of the lowest sample that is not placed: always goes first */
    uint64_t soon;
    uint64_t ahead;
} mh_reach;

/* Whether a unit waits to be fetched, and may be unless memory is in use. */
bool mh_residency_wants(const mh_residency *residency, const mh_reach *reach);

/* The next unit to fetch, into unit->read; NULL: none, or no room now. Where the machine has no
 * memory the unit fails. */
mh_resident *mh_residency_fetch(mh_residency *residency, const mh_reach *reach);

/* The bytes have come, unit->got of them. True: they are to be decoded, into unit->decoded. */
bool mh_residency_fetched(mh_residency *residency, mh_resident *unit);
void mh_residency_decoded(mh_residency *residency, mh_resident *unit);
void mh_residency_failed(mh_residency *residency, mh_resident *unit, const mh_error *err);

/* A task reads the units of the sample: they stay until mh_residency_finish. */
void mh_residency_pin(mh_residency *residency, mh_sample *sample);

/* The sample, which was pinned, needs its units no more. */
void mh_residency_finish(mh_residency *residency, mh_sample *sample);

/* Forgets the plan and all units; nothing is being fetched, decoded or read. */
void mh_residency_clear(mh_residency *residency);

void mh_residency_counts_read(const mh_residency *residency, mh_residency_counts *out);

/* The bytes as they were read, and those that samples are placed from. */
static inline mh_bytes mh_resident_read(const mh_resident *unit)
{
    return (mh_bytes){.data = unit->missing ? NULL : unit->read, .size = unit->got};
}

static inline mh_bytes mh_resident_bytes(const mh_resident *unit)
{
    if (unit->decoded)
        return (mh_bytes){.data = unit->decoded, .size = unit->unit.decoded_bytes};
    return mh_resident_read(unit);
}

#endif
