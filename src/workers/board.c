/* board.c - batches of which any worker may take the next samples
 * SPDX-License-Identifier: Apache-2.0
 */
#include "workers/board.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#define BOARD_MAGIC UINT64_C(0x6472616f62686d00)
#define CACHE_LINE 64

/* What a run should take: long against the cost of claiming and finishing one (a few microseconds),
 * short against what makes anybody wait. */
#define RUN_NS UINT64_C(2000000)

typedef struct board_entry {
    /* High half: the batch's turn. Low half: samples taken. One word, so that nobody can take
     * samples of a batch that has gone. */
    alignas(CACHE_LINE) _Atomic uint64_t claim;
    _Atomic uint32_t count; /* samples in the batch; 0: closed */
    _Atomic uint32_t done;
    _Atomic uint32_t marks;
    _Atomic uint64_t layout; /* hash of the leaves; 0: nobody has written rows yet */
    /* written by whoever set the layout, read when all are done */
    uint32_t leaf_count;
    mh_leaf leaves[MH_LEAVES_MAX];
    mh_task task;
} board_entry;

struct mh_board {
    uint64_t magic;
    uint32_t entries;
    uint32_t entry_bytes;
};

static board_entry *entry_at(const mh_board *board, uint32_t entry)
{
    assert(entry < board->entries);
    return (board_entry *)(void *)((uint8_t *)(uintptr_t)board + CACHE_LINE) + entry;
}

size_t mh_board_bytes(uint32_t entries)
{
    return CACHE_LINE + entries * sizeof(board_entry);
}

mh_board *mh_board_init(void *memory, uint32_t entries)
{
    mh_board *board = memory;
    *board = (mh_board){
        .magic = BOARD_MAGIC, .entries = entries, .entry_bytes = (uint32_t)sizeof(board_entry)};
    return board;
}

mh_board *mh_board_attach(void *memory, size_t bytes)
{
    mh_board *board = memory;
    if (bytes < sizeof *board || board->magic != BOARD_MAGIC ||
        board->entry_bytes != sizeof(board_entry) || bytes < mh_board_bytes(board->entries))
        return NULL;
    return board;
}

/* --- consumer --- */

mh_task *mh_board_begin(mh_board *board, uint32_t entry)
{
    board_entry *place = entry_at(board, entry);
    atomic_store(&place->count, 0);
    return &place->task;
}

void mh_board_publish(mh_board *board, uint32_t entry, bool again)
{
    board_entry *place = entry_at(board, entry);
    uint32_t turn = (uint32_t)(place->task.position << 1) | again;
    atomic_store(&place->done, 0);
    atomic_store(&place->marks, 0);
    atomic_store(&place->layout, 0);
    place->leaf_count = 0;
    /* The turn before the count: whoever sees the count cannot take by the turn before. */
    atomic_store(&place->claim, (uint64_t)turn << 32);
    atomic_store(&place->count, place->task.count);
}

uint32_t mh_board_leaves(const mh_board *board, uint32_t entry, mh_leaf out[MH_LEAVES_MAX])
{
    const board_entry *place = entry_at(board, entry);
    uint32_t count = atomic_load(&place->layout) ? place->leaf_count : 0;
    if (count > MH_LEAVES_MAX)
        return 0;
    memcpy(out, place->leaves, count * sizeof *out);
    return count;
}

/* --- worker --- */

/* What an entry offers: its claim, and how many samples are left. */
static uint32_t entry_left(const board_entry *place, uint64_t *out_claim, uint32_t *out_count)
{
    uint64_t claim = atomic_load(&place->claim);
    uint32_t count = atomic_load(&place->count);
    uint32_t taken = (uint32_t)claim;
    *out_claim = claim;
    *out_count = count;
    return taken < count ? count - taken : 0;
}

bool mh_board_open(const mh_board *board)
{
    uint64_t claim;
    uint32_t count;
    for (uint32_t i = 0; i < board->entries; i++)
        if (entry_left(entry_at(board, i), &claim, &count))
            return true;
    return false;
}

static uint32_t run_length(uint32_t count, uint32_t left, uint32_t workers, uint64_t sample_ns)
{
    uint64_t want = sample_ns ? RUN_NS / sample_ns : ((uint64_t)count + workers - 1) / workers;
    if (want < 1)
        want = 1;
    return want < left ? (uint32_t)want : left;
}

bool mh_board_claim(mh_board *board, uint32_t workers, uint64_t sample_ns, mh_board_run *out)
{
    for (;;) {
        board_entry *oldest = NULL;
        uint64_t oldest_claim = 0;
        uint32_t oldest_count = 0, oldest_left = 0, number = 0;
        for (uint32_t i = 0; i < board->entries; i++) {
            uint64_t claim;
            uint32_t count;
            board_entry *place = entry_at(board, i);
            uint32_t left = entry_left(place, &claim, &count);
            bool older = !oldest || (int32_t)((claim >> 32) - (oldest_claim >> 32)) < 0;
            if (left && older) {
                oldest = place;
                oldest_claim = claim;
                oldest_count = count;
                oldest_left = left;
                number = i;
            }
        }
        if (!oldest)
            return false;
        uint32_t length = run_length(oldest_count, oldest_left, workers, sample_ns);
        uint64_t expected = oldest_claim;
        if (atomic_compare_exchange_strong(&oldest->claim, &expected, oldest_claim + length)) {
            *out = (mh_board_run){.task = &oldest->task,
                                  .entry = number,
                                  .first = (uint32_t)oldest_claim,
                                  .count = length};
            return true;
        }
    }
}

/* FNV-1a over what must agree between runs. Never 0. */
static uint64_t layout_of(const mh_leaf *leaves, uint32_t leaf_count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ leaf_count;
    for (uint32_t i = 0; i < leaf_count; i++) {
        const mh_leaf *leaf = &leaves[i];
        uint64_t words[4 + MH_LEAF_DIMS] = {leaf->offset, leaf->bytes,
                                            (uint64_t)leaf->type_code << 32 |
                                                (uint64_t)leaf->type_bits << 16 | leaf->dims,
                                            leaf->origin};
        for (uint32_t d = 0; d < leaf->dims && d < MH_LEAF_DIMS; d++)
            words[4 + d] = (uint64_t)leaf->shape[d];
        const uint8_t *bytes = (const uint8_t *)words;
        for (size_t b = 0; b < sizeof words; b++)
            hash = (hash ^ bytes[b]) * UINT64_C(0x100000001b3);
    }
    return hash | 1;
}

bool mh_board_finish(mh_board *board, const mh_board_run *run, uint32_t marks,
                     const mh_leaf *leaves, uint32_t leaf_count, uint32_t *out_marks)
{
    board_entry *place = entry_at(board, run->entry);
    if (leaves) {
        uint64_t own = layout_of(leaves, leaf_count);
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&place->layout, &found, own)) {
            place->leaf_count = leaf_count;
            memcpy(place->leaves, leaves, leaf_count * sizeof *leaves);
        } else if (found != own) {
            marks |= MH_RUN_UNLIKE;
        }
    }
    if (marks)
        atomic_fetch_or(&place->marks, marks);
    uint32_t count = place->task.count; /* once done is added the entry may be another batch's */
    if (atomic_fetch_add(&place->done, run->count) + run->count != count)
        return false;
    *out_marks = atomic_load(&place->marks);
    return true;
}
