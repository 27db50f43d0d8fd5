/* tokens.c - token files: windows over one long line of tokens, and the tokens that follow them
 * SPDX-License-Identifier: Apache-2.0
 *
 * Field x is a window of T tokens, y the window one token later, and `tokens` both in one: T + 1
 * tokens. What is read is units of a fixed size, which stay in memory while samples need them.
 */
#include "format/tokens.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/few_files.h"

#include <string.h>

/* gcc's -O2 leaves loops of unknown length as they are. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define BLOCK_PARTS 32

/* A folder of .bin files, with an .idx or more: Megatron's, as `millhead synth tokens` writes them.
 */
static mh_status token_files(mh_few_files *folder, const char *path, mh_error *err)
{
    MH_TRY(mh_few_files_list(folder, path, ".bin .idx", err));
    size_t data = 0;
    for (size_t at = 0; at < folder->count; at++) {
        char *name = folder->paths[at];
        if (strcmp(name + strlen(name) - 4, ".bin") == 0)
            folder->paths[data++] = name;
        else
            mh_free(name);
    }
    if (data == folder->count) /* any files that somebody called .bin */
        mh_few_files_deinit(folder);
    else
        folder->count = data;
    return MH_OK;
}

static int folder_probe(const mh_candidate *candidate)
{
    mh_few_files folder;
    if (candidate->source != &mh_source_file ||
        token_files(&folder, candidate->path, NULL) != MH_OK)
        return 0;
    int found = folder.count > 0;
    mh_few_files_deinit(&folder);
    return found;
}

static int tokens_probe(const mh_candidate *candidate)
{
    const size_t length = strlen(candidate->path);
    if (candidate->directory)
        return folder_probe(candidate);
    return length > 4 && (strcmp(candidate->path + length - 4, ".bin") == 0 ||
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
    MH_TRY(
        mh_dataset_add_field(dataset, "tokens", MH_TOKENS_BOTH | MH_TAG_ON_REQUEST, &field, err));
    field.shape[0] = (int64_t)self->dim.window;
    MH_TRY(mh_dataset_add_field(dataset, "x", MH_TOKENS_X, &field, err));
    return mh_dataset_add_field(dataset, "y", MH_TOKENS_Y, &field, err);
}

static void number_units(mh_dataset *dataset, mh_tokens *self)
{
    self->unit_tokens = MH_TOKENS_UNIT_BYTES / self->convert.stored_bytes;
    self->unit_shift = (uint32_t)__builtin_ctzll(self->unit_tokens);
    for (uint32_t i = 0; i < self->file_count; i++) {
        self->files[i].first_unit = dataset->unit_count;
        dataset->unit_count += (self->files[i].tokens + self->unit_tokens - 1) / self->unit_tokens;
    }
    dataset->unit_bytes_most = MH_TOKENS_UNIT_BYTES;
    dataset->by_units = dataset->units_shared = 1;
    dataset->block_parts = BLOCK_PARTS;
}

static void describe_windows(mh_dataset *dataset, const mh_tokens *self)
{
    const uint64_t needed = self->dim.window + self->ahead;
    uint64_t most = (needed - 1) / self->unit_tokens + 2, files = self->file_count;
    most += 2 * (files < needed ? files - 1 : needed); /* where a window goes over files' ends */
    dataset->units_most = (uint32_t)(most < dataset->unit_count ? most : dataset->unit_count);
    dataset->cells = (mh_cells){.dims = 1,
                                .dim = {{.count = self->dim.count,
                                         .start = self->dim.first,
                                         .stride = self->dim.stride,
                                         .cell = self->unit_tokens}}};
    dataset->count = self->dim.count;
    dataset->fingerprint = (uint64_t)self->stored.code << 8 | self->stored.bits;
}

/* What all texts say, as one; the dtype of one file holds for those after it. */
static void take_text(mh_tokens *self, const mh_tokens_text *text)
{
    if (text->stored.bits)
        self->stored = text->stored;
    if (text->delivered.bits)
        self->delivered = text->delivered;
    if (text->has_eos)
        self->eos = text->eos;
    self->has_eos = self->has_eos || text->has_eos;
    self->pad = text->pad ? text->pad : self->pad;
    self->packed = self->packed || text->packed;
}

static mh_status add_path(mh_dataset *dataset, mh_tokens *self, const char *path, mh_error *err)
{
    mh_few_files folder = {.count = 0};
    mh_status status = MH_OK;
    if (dataset->source == &mh_source_file)
        MH_TRY(token_files(&folder, path, err));
    if (!folder.count)
        return mh_tokens_add_file(dataset, self, path, err);
    for (size_t at = 0; status == MH_OK && at < folder.count; at++)
        status = mh_tokens_add_file(dataset, self, folder.paths[at], err);
    mh_few_files_deinit(&folder);
    return status;
}

static mh_status tokens_open(mh_dataset *dataset, const char *const *paths, size_t count,
                             mh_error *err)
{
    mh_tokens *self = dataset->own = mh_calloc(1, sizeof *self);
    mh_tokens_text *text = mh_calloc(1, sizeof *text);
    mh_status status = self && text ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for tokens");
    for (size_t i = 0; status == MH_OK && i < count; i++) {
        status = mh_tokens_text_read(text, paths[i], err);
        if (status == MH_OK)
            take_text(self, text);
        if (status == MH_OK)
            status = add_path(dataset, self, text->path, err);
    }
    mh_free(text);
    MH_TRY(status);
    if (!self->packed)
        MH_TRY(read_windows(dataset, self, err));
    const mh_decoding cast = {.cast = self->delivered.bits ? self->delivered : (mh_dtype){0, 64}};
    MH_TRY(mh_convert_init(&self->convert, self->stored, 0, &cast, err));
    number_units(dataset, self);
    if (self->packed)
        return mh_tokens_packed_open(dataset, self, err);
    describe_windows(dataset, self);
    return add_fields(dataset, self, err);
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

uint32_t mh_tokens_units(const mh_tokens *self, uint64_t first, uint64_t end, uint64_t *ids)
{
    uint64_t offset;
    uint32_t count = 0;
    while (first < end)
        first += run_of(self, first, &ids[count++], &offset);
    return count;
}

static uint32_t tokens_units_of(const mh_dataset *dataset, uint64_t sample, uint64_t *ids)
{
    const mh_tokens *self = dataset->own;
    if (self->packing)
        return mh_tokens_packed_units(self, sample, ids);
    const uint64_t first = begin_of(self, sample);
    return mh_tokens_units(self, first, first + self->dim.window + self->ahead, ids);
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

void mh_tokens_place(const mh_tokens *self, const mh_bytes *units, uint64_t first, uint64_t token,
                     uint64_t count, uint8_t *into)
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
    (void)err;
    if (self->packing) {
        mh_tokens_packed_place(dataset, placing);
        return MH_OK;
    }
    const uint64_t begin = begin_of(self, placing->sample);
    for (size_t i = 0; i < dataset->field_count; i++) {
        const uint32_t tag = dataset->tags[i];
        mh_tokens_place(self, placing->units, begin, begin + (tag == MH_TOKENS_Y ? self->ahead : 0),
                        self->dim.window + (tag == MH_TOKENS_BOTH ? self->ahead : 0),
                        placing->into[i]);
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
    if (self->packing) /* documents from here and there */
        return;
    const uint64_t needed = self->dim.window + self->ahead, item = self->convert.stored_bytes;
    uint64_t id, offset, run = run_of(self, begin_of(self, sample), &id, &offset);
    const uint64_t here = (run < needed ? run : needed) * item;
    const uint8_t *from = units->data + offset * item;
    for (uint64_t at = 0; at < here && at < WARM_MOST; at += CACHE_LINE)
        __builtin_prefetch(from + at, 0, 2); /* the first cache takes few at a time */
}

static void tokens_close(mh_dataset *dataset)
{
    mh_tokens *self = dataset->own;
    if (!self)
        return;
    mh_packing_free(self->packing);
    mh_free(self->files);
    mh_free(self);
}

static void tokens_measure(const mh_dataset *dataset, uint32_t tag, uint64_t sample, int64_t *shape)
{
    (void)tag; /* one field is ragged */
    mh_tokens_packed_measure(dataset->own, sample, shape);
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
    .measure = tokens_measure,
    .close = tokens_close,
};
