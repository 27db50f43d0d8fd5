/* packing.c - documents packed into samples of equal length, by best fit
 * SPDX-License-Identifier: Apache-2.0
 *
 * The samples that have room for so many tokens are a list, and a bit says that the list is not
 * empty: the fullest one with room for a piece is the first bit from its length on.
 */
#include "format/packing.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define ENDS (UINT32_C(1) << 31) /* beside the length */
#define NONE UINT32_MAX

typedef struct piece {
    uint64_t start;
    uint32_t length; /* with ENDS */
} __attribute__((packed)) piece;

/* A piece of the stretch under way, and the sample it is packed into. */
typedef struct waiting {
    piece piece;
    uint32_t sample;
} waiting;

struct mh_packing {
    uint32_t length;
    uint64_t stretch;
    piece *pieces;
    uint64_t piece_count, piece_room;
    uint64_t *firsts; /* of each sample, and the end */
    uint64_t samples, firsts_room;
    uint32_t most;
    /* the stretch under way */
    waiting *list;
    uint64_t count, list_room;
    uint32_t *room_list; /* by room: the last sample that has so much; NONE */
    uint64_t *room_bits;
    uint32_t *next; /* of the stretch's samples: another with as much room */
    uint64_t next_room;
};

mh_status mh_packing_new(mh_packing **out, uint32_t length, uint64_t stretch, mh_error *err)
{
    mh_packing *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to pack documents");
    self->length = length;
    self->stretch = stretch;
    self->room_list = mh_calloc((size_t)length + 1, sizeof *self->room_list);
    self->room_bits = mh_calloc((size_t)length / 64 + 1, sizeof *self->room_bits);
    self->firsts = mh_calloc(1, sizeof *self->firsts);
    self->firsts_room = 1;
    if (!self->room_list || !self->room_bits || !self->firsts) {
        mh_packing_free(self);
        return mh_fail(err, MH_ERR_NOMEM, "no memory to pack documents");
    }
    *out = self;
    return MH_OK;
}

void mh_packing_free(mh_packing *self)
{
    if (!self)
        return;
    mh_free(self->pieces);
    mh_free(self->firsts);
    mh_free(self->list);
    mh_free(self->room_list);
    mh_free(self->room_bits);
    mh_free(self->next);
    mh_free(self);
}

/* Makes room for `needed`; the list doubles. */
static mh_status grow(void **list, uint64_t *room, uint64_t needed, size_t item, mh_error *err)
{
    if (needed <= *room)
        return MH_OK;
    uint64_t more = *room * 2 > needed ? *room * 2 : needed + 64;
    void *longer = mh_realloc(*list, more, item);
    if (!longer)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to pack documents");
    *list = longer;
    *room = more;
    return MH_OK;
}

/* --- samples by their room --- */

static void put_sample(mh_packing *self, uint32_t sample, uint32_t room)
{
    const uint64_t bit = UINT64_C(1) << room % 64;
    self->next[sample] = self->room_bits[room / 64] & bit ? self->room_list[room] : NONE;
    self->room_list[room] = sample;
    self->room_bits[room / 64] |= bit;
}

/* Takes the fullest sample with room for so many tokens, out of its list; NONE: there is none. */
static uint32_t take_sample(mh_packing *self, uint32_t tokens, uint32_t *out_room)
{
    uint64_t word = tokens / 64;
    uint64_t bits = self->room_bits[word] & ~UINT64_C(0) << tokens % 64;
    while (!bits && word < self->length / 64)
        bits = self->room_bits[++word];
    if (!bits)
        return NONE;
    const uint32_t room = (uint32_t)(word * 64) + (uint32_t)__builtin_ctzll(bits);
    const uint32_t sample = self->room_list[room];
    self->room_list[room] = self->next[sample];
    if (self->room_list[room] == NONE)
        self->room_bits[word] &= ~(UINT64_C(1) << room % 64);
    *out_room = room;
    return sample;
}

/* --- a stretch --- */

static uint32_t length_of(const piece *one)
{
    return one->length & ~ENDS;
}

static int longest_first(const void *a, const void *b)
{
    const waiting *left = a, *right = b;
    const uint32_t one = length_of(&left->piece), other = length_of(&right->piece);
    if (one != other)
        return one < other ? 1 : -1;
    return left->piece.start < right->piece.start ? -1 : 1;
}

static int by_sample(const void *a, const void *b)
{
    const waiting *left = a, *right = b;
    if (left->sample != right->sample)
        return left->sample < right->sample ? -1 : 1;
    return left->piece.start < right->piece.start ? -1 : 1;
}

static mh_status keep(mh_packing *self, uint32_t samples, mh_error *err)
{
    MH_TRY(grow((void **)&self->pieces, &self->piece_room, self->piece_count + self->count,
                sizeof *self->pieces, err));
    MH_TRY(grow((void **)&self->firsts, &self->firsts_room, self->samples + samples + 1,
                sizeof *self->firsts, err));
    uint64_t at = 0;
    for (uint32_t sample = 0; sample < samples; sample++) {
        const uint64_t first = at;
        for (; at < self->count && self->list[at].sample == sample; at++)
            self->pieces[self->piece_count++] = self->list[at].piece;
        self->firsts[++self->samples] = self->piece_count;
        if (at - first > self->most)
            self->most = (uint32_t)(at - first);
    }
    self->count = 0;
    return MH_OK;
}

mh_status mh_packing_end(mh_packing *self, mh_error *err)
{
    uint32_t samples = 0, room;
    if (self->count == 0)
        return MH_OK;
    MH_TRY(grow((void **)&self->next, &self->next_room, self->count, sizeof *self->next, err));
    memset(self->room_bits, 0, ((size_t)self->length / 64 + 1) * sizeof *self->room_bits);
    qsort(self->list, self->count, sizeof *self->list, longest_first);
    for (uint64_t i = 0; i < self->count; i++) {
        const uint32_t length = length_of(&self->list[i].piece);
        uint32_t sample = take_sample(self, length, &room);
        if (sample == NONE) {
            sample = samples++;
            room = self->length;
        }
        self->list[i].sample = sample;
        put_sample(self, sample, room - length);
    }
    qsort(self->list, self->count, sizeof *self->list, by_sample);
    return keep(self, samples, err);
}

mh_status mh_packing_add(mh_packing *self, uint64_t start, uint64_t length, mh_error *err)
{
    while (length > 0) {
        const uint32_t here = length < self->length ? (uint32_t)length : self->length;
        if (self->count && start + here - self->list[0].piece.start > self->stretch)
            MH_TRY(mh_packing_end(self, err));
        MH_TRY(
            grow((void **)&self->list, &self->list_room, self->count + 1, sizeof *self->list, err));
        self->list[self->count++] =
            (waiting){.piece = {.start = start, .length = here | (here == length ? ENDS : 0)}};
        start += here;
        length -= here;
    }
    return MH_OK;
}

/* --- looking --- */

uint64_t mh_packing_samples(const mh_packing *self)
{
    return self->samples;
}

uint32_t mh_packing_pieces_most(const mh_packing *self)
{
    return self->most;
}

uint32_t mh_packing_pieces(const mh_packing *self, uint64_t sample)
{
    return (uint32_t)(self->firsts[sample + 1] - self->firsts[sample]);
}

mh_piece_of_text mh_packing_piece(const mh_packing *self, uint64_t sample, uint32_t number)
{
    const piece *one = &self->pieces[self->firsts[sample] + number];
    return (mh_piece_of_text){
        .start = one->start, .length = length_of(one), .ends = (one->length & ENDS) != 0};
}
