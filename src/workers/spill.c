/* spill.c - a worker's own memory for batches that do not fit into a slot
 * SPDX-License-Identifier: Apache-2.0
 */
#include "workers/spill.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdbool.h>

typedef struct piece {
    uint64_t offset;
    uint64_t bytes;
} piece;

struct mh_spill {
    mh_memory memory;
    uint32_t depth;
    uint64_t placed; /* pieces since the beginning */
    uint64_t read;   /* of them, read by the consumer */
    piece pieces[];  /* number n at n % depth; [read, placed) are unread */
};

mh_status mh_spill_open(mh_spill **out, int fd, size_t map_bytes, uint32_t depth, mh_error *err)
{
    mh_spill *spill = mh_calloc(1, sizeof *spill + depth * sizeof(piece));
    if (!spill)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a worker's spill table");
    mh_status status = mh_memory_attach(&spill->memory, fd, map_bytes, err);
    if (status != MH_OK) {
        mh_free(spill);
        return status;
    }
    spill->depth = depth;
    *out = spill;
    return MH_OK;
}

void mh_spill_close(mh_spill *spill)
{
    if (!spill)
        return;
    mh_memory_close(&spill->memory);
    mh_free(spill);
}

void mh_spill_begin_at(mh_spill *spill, uint64_t placed)
{
    spill->placed = spill->read = placed;
    spill->memory.size_bytes = 0; /* what is not inherited may be a hole by now: ask for it again */
}

static uint64_t page_rounded(uint64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

void mh_spill_inherit(mh_spill *spill, uint64_t offset, uint64_t bytes)
{
    bytes = page_rounded(bytes);
    spill->pieces[spill->placed++ % spill->depth] = (piece){offset, bytes};
    if (offset + bytes > spill->memory.size_bytes)
        spill->memory.size_bytes = (size_t)(offset + bytes);
}

/* The pieces of a result, in the order they were placed: how many, and with a spill as inherited.
 */
static unsigned pieces_of(const mh_result *result, mh_spill *spill)
{
    bool state = result->state_bytes > MH_STATE_BYTES;
    bool batch = result->kind == MH_RESULT_GENERAL || result->kind == MH_RESULT_ERROR ||
                 result->kind == MH_RESULT_PART;
    if (spill && state)
        mh_spill_inherit(spill, result->state_offset, result->state_bytes);
    if (spill && batch)
        mh_spill_inherit(spill, result->spill_offset, result->spill_bytes);
    return (unsigned)state + (unsigned)batch;
}

void mh_spill_inherit_results(mh_spill *spill, const mh_control *control, uint32_t worker)
{
    mh_ring_counts counts;
    mh_control_counts(control, worker, &counts);
    if (counts.results_put == 0)
        return;
    uint64_t unread = 0;
    for (uint64_t n = counts.results_read; n < counts.results_put; n++)
        unread += pieces_of(mh_control_result_sent(control, n), NULL);
    const mh_result *last = mh_control_result_sent(control, counts.results_put - 1);
    mh_spill_begin_at(spill, last->spill_placed - unread);
    for (uint64_t n = counts.results_read; n < counts.results_put; n++)
        (void)pieces_of(mh_control_result_sent(control, n), spill);
}

uint64_t mh_spill_placed(const mh_spill *spill)
{
    return spill->placed;
}

static void note_read(mh_spill *spill, uint64_t read)
{
    if (read > spill->read && read <= spill->placed)
        spill->read = read;
}

static bool range_free(const mh_spill *spill, uint64_t offset, uint64_t bytes)
{
    for (uint64_t n = spill->read; n < spill->placed; n++) {
        const piece *taken = &spill->pieces[n % spill->depth];
        if (offset < taken->offset + taken->bytes && taken->offset < offset + bytes)
            return false;
    }
    return true;
}

/* The lowest place that overlaps no unread piece: the start, or right behind one of them. */
static uint64_t lowest_place(const mh_spill *spill, uint64_t bytes)
{
    uint64_t best = UINT64_MAX;
    if (range_free(spill, 0, bytes))
        return 0;
    for (uint64_t n = spill->read; n < spill->placed; n++) {
        const piece *taken = &spill->pieces[n % spill->depth];
        uint64_t behind = taken->offset + taken->bytes;
        if (behind < best && range_free(spill, behind, bytes))
            best = behind;
    }
    return best;
}

mh_status mh_spill_place(mh_spill *spill, uint64_t bytes, uint64_t read, uint64_t *out_offset,
                         mh_error *err)
{
    note_read(spill, read);
    if (spill->placed - spill->read >= spill->depth)
        return mh_fail(err, MH_ERR_INTERNAL, "more than %u unread batches in a worker's memory",
                       spill->depth);
    if (bytes > SIZE_MAX / 4)
        return mh_fail(err, MH_ERR_NOMEM, "a batch of %llu bytes", (unsigned long long)bytes);
    bytes = page_rounded(bytes);
    uint64_t offset = lowest_place(spill, bytes);
    if (offset + bytes > spill->memory.size_bytes)
        MH_TRY(mh_memory_grow(&spill->memory, (size_t)(offset + bytes), err));
    spill->pieces[spill->placed++ % spill->depth] = (piece){offset, bytes};
    *out_offset = offset;
    return MH_OK;
}

uint8_t *mh_spill_data(const mh_spill *spill, uint64_t offset)
{
    return spill->memory.base + offset;
}

void mh_spill_trim(mh_spill *spill, uint64_t read)
{
    note_read(spill, read);
    if (spill->memory.size_bytes == 0 || spill->read != spill->placed)
        return;
    mh_memory_release_range(&spill->memory, 0, spill->memory.size_bytes);
    spill->memory.size_bytes = 0; /* so that the next piece asks for its memory again */
}
