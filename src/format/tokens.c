/* tokens.c - token files: windows over one long line of tokens, and the tokens that follow them
 * SPDX-License-Identifier: Apache-2.0
 *
 * Field x is a window of T tokens, y the window one token later, and `tokens` both in one: T + 1
 * tokens. What is read is units of a fixed size, which stay in memory while samples need them.
 */
#include "format/tokens.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

/* gcc's -O2 leaves loops of unknown length as they are. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define UNIT_BYTES (UINT64_C(4) << 20)
#define BLOCK_PARTS 32

enum { TOKENS, X, Y }; /* tags */

static int tokens_probe(const mh_candidate *candidate)
{
    const size_t length = strlen(candidate->path);
    return !candidate->directory && length > 4 &&
           (strcmp(candidate->path + length - 4, ".bin") == 0 ||
            strcmp(candidate->path + length - 4, ".idx") == 0);
}

/* --- opening --- */

static mh_status read_windows(mh_dataset *dataset, mh_tokens *self, mh_error *err)
{
    const mh_dataset_options *options = &dataset->options;
    const mh_window_texts texts = {.window = options->window,
                                   .stride = options->stride,
                                   .select = options->select,
                                   .target = options->target ? options->target : "token=+1"};
    int has_target;
    if (!options->window)
        return mh_fail(err, MH_ERR_INVALID,
                       "how long are windows? give window token=1024 (x and y of 1024 each)");
    if (options->decode)
        return mh_fail(err, MH_ERR_INVALID, "tokens take no decode");
    self->dim = (mh_window_dim){.name = "token", .length = self->tokens};
    MH_TRY(mh_window_dims_read(&self->dim, 1, &texts, NULL, NULL, &has_target, err));
    if (self->dim.target < 1)
        return mh_fail(err, MH_ERR_INVALID, "the target token=%+lld is not after the window",
                       (long long)self->dim.target);
    self->ahead = (uint64_t)self->dim.target;
    return MH_OK;
}

static mh_status add_fields(mh_dataset *dataset, const mh_tokens *self, mh_error *err)
{
    mh_field field = {.dtype = self->convert.delivered, .dims = 1};
    field.shape[0] = (int64_t)(self->dim.window + self->ahead);
    /* who takes x and y has no use for it */
    MH_TRY(mh_dataset_add_field(dataset, "tokens", TOKENS | MH_TAG_ON_REQUEST, &field, err));
    field.shape[0] = (int64_t)self->dim.window;
    MH_TRY(mh_dataset_add_field(dataset, "x", X, &field, err));
    return mh_dataset_add_field(dataset, "y", Y, &field, err);
}

static void number_units(mh_dataset *dataset, mh_tokens *self)
{
    const uint64_t token_bytes = self->convert.stored_bytes;
    const uint64_t needed = self->dim.window + self->ahead;
    self->unit_tokens = UNIT_BYTES / token_bytes;
    self->unit_shift = (uint32_t)__builtin_ctzll(self->unit_tokens);
    uint64_t most = (needed - 1) / self->unit_tokens + 2, files = self->file_count;
    for (uint32_t i = 0; i < self->file_count; i++) {
        self->files[i].first_unit = dataset->unit_count;
        dataset->unit_count += (self->files[i].tokens + self->unit_tokens - 1) / self->unit_tokens;
    }
    most += 2 * (files < needed ? files - 1 : needed); /* where a window goes over files' ends */
    dataset->units_most = (uint32_t)(most < dataset->unit_count ? most : dataset->unit_count);
    dataset->unit_bytes_most = UNIT_BYTES;
    dataset->by_units = dataset->units_shared = 1;
    dataset->cells = (mh_cells){.dims = 1,
                                .dim = {{.count = self->dim.count,
                                         .start = self->dim.first,
                                         .stride = self->dim.stride,
                                         .cell = self->unit_tokens}}};
    dataset->block_parts = BLOCK_PARTS;
}

static mh_status tokens_open(mh_dataset *dataset, const char *const *paths, size_t count,
                             mh_error *err)
{
    mh_tokens *self = dataset->own = mh_calloc(1, sizeof *self);
    mh_tokens_text *text = mh_calloc(1, sizeof *text);
    mh_status status = self && text ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for tokens");
    for (size_t i = 0; status == MH_OK && i < count; i++) {
        status = mh_tokens_text_read(text, paths[i], err);
        if (status == MH_OK && text->stored.bits)
            self->stored = text->stored;
        if (status == MH_OK && text->delivered.bits)
            self->delivered = text->delivered;
        if (status == MH_OK)
            status = mh_tokens_add_file(dataset, self, text->path, err);
    }
    mh_free(text);
    MH_TRY(status);
    MH_TRY(read_windows(dataset, self, err));
    const mh_decoding cast = {.cast = self->delivered.bits ? self->delivered : (mh_dtype){0, 64}};
    MH_TRY(mh_convert_init(&self->convert, self->stored, 0, &cast, err));
    MH_TRY(add_fields(dataset, self, err));
    number_units(dataset, self);
    dataset->count = self->dim.count;
    dataset->fingerprint = (uint64_t)self->stored.code << 8 | self->stored.bits;
    return MH_OK;
}

/* --- units --- */

/* The file that holds a token. */
static const mh_tokens_file *file_of(const mh_tokens *self, uint64_t token)
{
    uint32_t low = 0, high = self->file_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        *(self->files[middle].first <= token ? &low : &high) = middle;
    }
    return &self->files[low];
}

/* Tokens from `token` on that lie in one unit; *offset: the first of them, in the unit. */
static uint64_t run_of(const mh_tokens *self, uint64_t token, uint64_t *id, uint64_t *offset)
{
    const mh_tokens_file *file = file_of(self, token);
    const uint64_t local = token - file->first, left = file->tokens - local;
    *id = file->first_unit + (local >> self->unit_shift);
    *offset = local & (self->unit_tokens - 1);
    return left < self->unit_tokens - *offset ? left : self->unit_tokens - *offset;
}

static uint64_t begin_of(const mh_tokens *self, uint64_t sample)
{
    return self->dim.first + sample * self->dim.stride;
}

static uint32_t tokens_units_of(const mh_dataset *dataset, uint64_t sample, uint64_t *ids)
{
    const mh_tokens *self = dataset->own;
    uint64_t token = begin_of(self, sample), offset;
    const uint64_t end = token + self->dim.window + self->ahead;
    uint32_t count = 0;
    while (token < end)
        token += run_of(self, token, &ids[count++], &offset);
    return count;
}

static mh_unit tokens_unit(const mh_dataset *dataset, uint64_t id)
{
    const mh_tokens *self = dataset->own;
    uint32_t low = 0, high = self->file_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        *(self->files[middle].first_unit <= id ? &low : &high) = middle;
    }
    const mh_tokens_file *file = &self->files[low];
    const uint64_t first = (id - file->first_unit) * self->unit_tokens, left = file->tokens - first;
    const uint64_t bytes = self->convert.stored_bytes;
    return (mh_unit){.object = file->object,
                     .offset = file->data_offset + first * bytes,
                     .size = (left < self->unit_tokens ? left : self->unit_tokens) * bytes};
}

/* --- placing --- */

/* The usual pairs have a loop of their own: straight from the unit to the sample's place. */
#define WIDEN(stored, delivered)                                                                   \
    static void widen_##stored##_##delivered(const uint8_t *from, uint8_t *into, uint64_t count)   \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            stored narrow;                                                                         \
            memcpy(&narrow, from + i * sizeof narrow, sizeof narrow);                              \
            const delivered wide = narrow;                                                         \
            memcpy(into + i * sizeof wide, &wide, sizeof wide);                                    \
        }                                                                                          \
    }
WIDEN(uint16_t, int32_t)
WIDEN(uint16_t, int64_t)
WIDEN(uint32_t, int64_t)
WIDEN(int32_t, int64_t)

static void copy(const mh_convert *convert, const uint8_t *from, uint8_t *into, uint64_t count)
{
    const mh_dtype to = convert->delivered;
    switch (to.code == 0 ? convert->stored.code << 16 | convert->stored.bits << 8 | to.bits : 0) {
    case 1 << 16 | 16 << 8 | 32:
        widen_uint16_t_int32_t(from, into, count);
        break;
    case 1 << 16 | 16 << 8 | 64:
        widen_uint16_t_int64_t(from, into, count);
        break;
    case 1 << 16 | 32 << 8 | 64:
        widen_uint32_t_int64_t(from, into, count);
        break;
    case 32 << 8 | 64:
        widen_int32_t_int64_t(from, into, count);
        break;
    default:
        convert->row(convert, from, convert->stored_bytes, into, count);
    }
}

/* `count` tokens of the line from `token` on; units[0] is the one that `first` is in. */
static void place_field(const mh_tokens *self, const mh_bytes *units, uint64_t first,
                        uint64_t token, uint64_t count, uint8_t *into)
{
    uint64_t id, offset, run = run_of(self, first, &id, &offset);
    while (token >= first + run) { /* y may begin behind the first unit */
        first += run;
        units++;
        run = run_of(self, first, &id, &offset);
    }
    offset += token - first;
    run -= token - first;
    while (count > 0) {
        const uint64_t here = run < count ? run : count;
        copy(&self->convert, units->data + offset * self->convert.stored_bytes, into, here);
        into += here * self->convert.delivered_bytes;
        token += here;
        count -= here;
        units++;
        if (count > 0)
            run = run_of(self, token, &id, &offset);
    }
}

static mh_status tokens_place(const mh_dataset *dataset, const mh_placing *placing, mh_error *err)
{
    const mh_tokens *self = dataset->own;
    const uint64_t begin = begin_of(self, placing->sample);
    (void)err;
    for (size_t i = 0; i < dataset->field_count; i++) {
        const uint32_t tag = dataset->tags[i];
        place_field(self, placing->units, begin, begin + (tag == Y ? self->ahead : 0),
                    self->dim.window + (tag == TOKENS ? self->ahead : 0), placing->into[i]);
    }
    return MH_OK;
}

/* Bytes of a window that are asked for ahead: what a CPU can have on its way at a time. */
#define WARM_MOST 8192u
#define CACHE_LINE 64u

/* A window begins anywhere: without this every one would wait for memory. */
static void tokens_warm(const mh_dataset *dataset, uint64_t sample, const mh_bytes *units)
{
    const mh_tokens *self = dataset->own;
    const uint64_t needed = self->dim.window + self->ahead, item = self->convert.stored_bytes;
    uint64_t id, offset, run = run_of(self, begin_of(self, sample), &id, &offset);
    const uint64_t here = (run < needed ? run : needed) * item;
    const uint8_t *from = units->data + offset * item;
    for (uint64_t at = 0; at < here && at < WARM_MOST; at += CACHE_LINE)
        __builtin_prefetch(from + at);
}

static void tokens_close(mh_dataset *dataset)
{
    mh_tokens *self = dataset->own;
    if (!self)
        return;
    mh_free(self->files);
    mh_free(self);
}

const mh_format mh_format_tokens = {
    .name = "tokens",
    .what = "token files (.bin, Megatron's .bin with .idx, .npy): windows and what follows them",
    .suffixes = ".bin .idx",
    .takes = MH_TAKES_WINDOW,
    .probe = tokens_probe,
    .open = tokens_open,
    .units_of = tokens_units_of,
    .unit = tokens_unit,
    .warm = tokens_warm,
    .place = tokens_place,
    .close = tokens_close,
};
