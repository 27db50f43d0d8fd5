/* tokens_packed.c - token files whose documents are packed into samples by best fit
 * SPDX-License-Identifier: Apache-2.0
 *
 * x is the pieces of a sample one behind the other, then padding; y the token that follows each in
 * its document, or MH_TOKENS_IGNORED; cu_seqlens where each piece begins, and the end. Padding
 * counts as one more piece there.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/tokens.h"

#include <string.h>

/* --- which documents there are --- */

/* The length of a sample: --window token=N, and nothing else of windows. */
static mh_status read_length(const mh_dataset *dataset, uint32_t *out, mh_error *err)
{
    const mh_dataset_options *options = &dataset->options;
    mh_window_dim dim = {.name = "token", .length = MH_PACK_LONGEST};
    const mh_window_texts texts = {.window = options->window};
    int has_target;
    if (!options->window)
        return mh_fail(err, MH_ERR_INVALID, "how long are samples? give window token=2048");
    if (options->stride || options->select || options->target || options->decode)
        return mh_fail(err, MH_ERR_INVALID,
                       "packed documents take no stride, select, target or decode");
    MH_TRY(mh_window_dims_read(&dim, 1, &texts, NULL, NULL, &has_target, err));
    *out = (uint32_t)dim.window;
    return MH_OK;
}

static mh_status begin_packing(const mh_dataset *dataset, mh_tokens *self, mh_error *err)
{
    uint32_t length = 0;
    const uint64_t stretch = MH_TOKENS_UNIT_BYTES / (self->stored.bits / 8u);
    MH_TRY(read_length(dataset, &length, err));
    if (length > stretch)
        return mh_fail(err, MH_ERR_INVALID,
                       "samples of %u tokens are too long to be packed: %llu "
                       "are the most",
                       length, (unsigned long long)stretch);
    self->dim = (mh_window_dim){.name = "token", .window = length};
    return mh_packing_new(&self->packing, length, stretch, err);
}

/* A token at any alignment, as it is stored. */
static int64_t token_at(const uint8_t *bytes, mh_dtype dtype)
{
    uint64_t raw = 0;
    memcpy(&raw, bytes, dtype.bits / 8u); /* little endian, as this machine */
    if (dtype.code == 0 && dtype.bits < 64 && raw >> (dtype.bits - 1))
        raw |= ~UINT64_C(0) << dtype.bits;
    return (int64_t)raw;
}

/* A file of bare tokens that is read for the ends of its documents. */
typedef struct scan {
    mh_source *source;
    uint8_t *bytes;
    uint64_t document; /* where the one under way begins */
} scan;

static mh_status scan_part(mh_tokens *self, const mh_tokens_file *file, uint64_t first,
                           uint64_t tokens, scan *at, mh_error *err)
{
    const uint64_t width = self->stored.bits / 8u;
    const mh_read read = {.object = file->object,
                          .offset = file->data_offset + first * width,
                          .size = tokens * width,
                          .into = at->bytes};
    uint64_t got = 0;
    MH_TRY(mh_source_read(at->source, &read, &got, err));
    for (uint64_t i = 0; i < tokens; i++) {
        if (token_at(at->bytes + i * width, self->stored) != self->eos)
            continue;
        const uint64_t end = file->first + first + i + 1;
        MH_TRY(mh_packing_add(self->packing, at->document, end - at->document, err));
        at->document = end;
    }
    return MH_OK;
}

static mh_status scan_file(mh_dataset *dataset, mh_tokens *self, const mh_tokens_file *file,
                           mh_error *err)
{
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    const uint64_t most = MH_TOKENS_UNIT_BYTES / (self->stored.bits / 8u);
    const uint64_t end = file->first + file->tokens;
    scan at = {.document = file->first, .bytes = mh_calloc(MH_TOKENS_UNIT_BYTES, 1)};
    mh_status status = at.bytes ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory to look for eos");
    if (status == MH_OK)
        status = dataset->source->open(&at.source, &dataset->objects, &options, err);
    for (uint64_t first = 0; status == MH_OK && first < file->tokens; first += most) {
        const uint64_t left = file->tokens - first;
        status = scan_part(self, file, first, left < most ? left : most, &at, err);
    }
    if (status == MH_OK) /* the last one may end with the file */
        status = mh_packing_add(self->packing, at.document, end - at.document, err);
    mh_source_close(at.source);
    mh_free(at.bytes);
    return status;
}

mh_status mh_tokens_pack_file(mh_dataset *dataset, mh_tokens *self, const mh_megatron_index *index,
                              mh_error *err)
{
    if (!self->packed)
        return MH_OK;
    if (!self->packing)
        MH_TRY(begin_packing(dataset, self, err));
    const mh_tokens_file *file = &self->files[self->file_count - 1];
    uint64_t start = file->first;
    if (!index && !self->has_eos)
        return mh_fail(err, MH_ERR_INVALID,
                       "where do documents end? Without an .idx give the token behind each: "
                       "pack=bestfit,eos=50256");
    if (!index)
        MH_TRY(scan_file(dataset, self, file, err));
    for (uint64_t i = 0; index && i < index->documents; i++) {
        const uint64_t length = mh_megatron_document(index, i);
        MH_TRY(mh_packing_add(self->packing, start, length, err));
        start += length;
    }
    return mh_packing_end(self->packing, err);
}

/* --- the dataset --- */

static uint64_t mixed(uint64_t state, uint64_t value)
{
    state = (state ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return state ^ state >> 29;
}

/* Changes with what is packed where. */
static uint64_t fingerprint(const mh_tokens *self)
{
    uint64_t state = mixed(self->stored.bits, (uint64_t)self->pad);
    for (uint64_t i = 0; i < mh_packing_samples(self->packing); i++)
        for (uint32_t k = 0; k < mh_packing_pieces(self->packing, i); k++) {
            const mh_piece_of_text piece = mh_packing_piece(self->packing, i, k);
            state = mixed(state, piece.start << 1 | (uint64_t)piece.ends);
            state = mixed(state, piece.length);
        }
    return state;
}

mh_status mh_tokens_packed_open(mh_dataset *dataset, mh_tokens *self, mh_error *err)
{
    mh_field field = {.dtype = self->convert.delivered, .dims = 1};
    const mh_dtype to = self->convert.delivered;
    if (to.code != 0 || to.bits < 16)
        return mh_fail(err, MH_ERR_INVALID,
                       "y of packed documents holds %d where a document ends: give as=int32 or "
                       "as=int64",
                       MH_TOKENS_IGNORED);
    field.shape[0] = (int64_t)self->dim.window;
    MH_TRY(mh_dataset_add_field(dataset, "x", MH_TOKENS_X, &field, err));
    MH_TRY(mh_dataset_add_field(dataset, "y", MH_TOKENS_Y, &field, err));
    field = (mh_field){.dtype = {0, 32}, .dims = 1, .ragged = 1};
    field.shape[0] = (int64_t)mh_packing_pieces_most(self->packing) + 2;
    MH_TRY(mh_dataset_add_field(dataset, "cu_seqlens", MH_TOKENS_CU_SEQLENS, &field, err));
    dataset->count = mh_packing_samples(self->packing);
    dataset->units_most = (uint32_t)(dataset->unit_count < 2 ? dataset->unit_count : 2);
    dataset->cells = mh_cells_of_runs(dataset->count, self->unit_tokens / self->dim.window + 1);
    dataset->fingerprint = fingerprint(self);
    return MH_OK;
}

/* --- samples --- */

/* The tokens that a sample needs lie from *first to *end: a stretch, and one more. */
static void extent(const mh_tokens *self, uint64_t sample, uint64_t *first, uint64_t *end)
{
    const uint32_t pieces = mh_packing_pieces(self->packing, sample);
    const mh_piece_of_text last = mh_packing_piece(self->packing, sample, pieces - 1);
    *first = mh_packing_piece(self->packing, sample, 0).start;
    *end = last.start + last.length + !last.ends;
}

uint32_t mh_tokens_packed_units(const mh_tokens *self, uint64_t sample, uint64_t *ids)
{
    uint64_t first, end;
    extent(self, sample, &first, &end);
    return mh_tokens_units(self, first, end, ids);
}

static uint64_t used_of(const mh_tokens *self, uint64_t sample)
{
    uint64_t used = 0;
    for (uint32_t k = 0; k < mh_packing_pieces(self->packing, sample); k++)
        used += mh_packing_piece(self->packing, sample, k).length;
    return used;
}

void mh_tokens_packed_measure(const mh_tokens *self, uint64_t sample, int64_t *shape)
{
    const int padded = used_of(self, sample) < self->dim.window;
    shape[0] = (int64_t)mh_packing_pieces(self->packing, sample) + 1 + padded;
}

static void fill(uint8_t *into, uint32_t width, int64_t value, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        memcpy(into + i * width, &value, width); /* little endian */
}

/* Field x, or y: the tokens one later. */
static void place_tokens(const mh_tokens *self, const mh_placing *placing, int later, uint8_t *into)
{
    const uint32_t width = self->convert.delivered_bytes;
    uint64_t first, end, left = self->dim.window;
    extent(self, placing->sample, &first, &end);
    for (uint32_t k = 0; k < mh_packing_pieces(self->packing, placing->sample); k++) {
        const mh_piece_of_text piece = mh_packing_piece(self->packing, placing->sample, k);
        const uint64_t known = piece.length - (later && piece.ends ? 1u : 0u);
        if (known > 0)
            mh_tokens_place(self, placing->units, first, piece.start + (later ? 1u : 0u), known,
                            into);
        fill(into + known * width, width, MH_TOKENS_IGNORED, piece.length - known);
        into += (uint64_t)piece.length * width;
        left -= piece.length;
    }
    fill(into, width, later ? MH_TOKENS_IGNORED : self->pad, left);
}

static void place_begins(const mh_tokens *self, uint64_t sample, uint8_t *into)
{
    const uint32_t pieces = mh_packing_pieces(self->packing, sample);
    int32_t at = 0;
    for (uint32_t k = 0; k < pieces; k++, into += sizeof at) {
        memcpy(into, &at, sizeof at);
        at += (int32_t)mh_packing_piece(self->packing, sample, k).length;
    }
    memcpy(into, &at, sizeof at);
    if ((uint64_t)at < self->dim.window) {
        at = (int32_t)self->dim.window;
        memcpy(into + sizeof at, &at, sizeof at);
    }
}

void mh_tokens_packed_place(const mh_dataset *dataset, const mh_placing *placing)
{
    const mh_tokens *self = dataset->own;
    for (size_t i = 0; i < dataset->field_count; i++)
        if (dataset->tags[i] == MH_TOKENS_CU_SEQLENS)
            place_begins(self, placing->sample, placing->into[i]);
        else
            place_tokens(self, placing, dataset->tags[i] == MH_TOKENS_Y, placing->into[i]);
}
