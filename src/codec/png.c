/* png.c - PNG: the usual kind by png_plain.c, any other through libpng
 * SPDX-License-Identifier: Apache-2.0
 *
 * Rows are compressed as one stream, so all above a region is read; nothing below it is.
 * Interlaced pictures are read whole. A file that ends too early is an error, whichever region is
 * wanted: its chunks do not lead to an end chunk.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "codec/png_chunks.h"
#include "codec/png_plain.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

/* What libpng may allocate for one chunk; texts and profiles are never more in sound files. */
#define CHUNK_BYTES_MOST (8U << 20)
/* An interlaced picture is in memory as a whole, and a header alone can ask for it. */
#define INTERLACED_BYTES_MOST (256U << 20)

typedef struct png_state {
    png_structp png;
    png_infop info;
    jmp_buf failed;
    char message[200];
    bool no_memory;
    bool truncated;
    const uint8_t *bytes;
    uint64_t size, at;
    mh_png_rows rows;
    uint32_t x, width; /* of the region */
    uint8_t *stored;   /* one row; interlaced: all of them */
    uint64_t stored_bytes;
    uint64_t row_bytes;
    uint32_t next; /* interlaced: the row that comes next */
    bool is_plain; /* this picture goes without libpng */
    mh_png_plain plain;
} png_state;

/* --- libpng's callbacks --- */

static void on_error(png_structp png, png_const_charp message)
{
    png_state *state = png_get_error_ptr(png);
    (void)snprintf(state->message, sizeof state->message, "%s", message);
    longjmp(state->failed, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void on_read(png_structp png, png_bytep into, size_t count)
{
    png_state *state = png_get_io_ptr(png);
    if (count > state->size - state->at) {
        state->truncated = true;
        longjmp(state->failed, 1);
    }
    memcpy(into, state->bytes + state->at, count);
    state->at += count;
}

static png_voidp on_allocate(png_structp png, png_alloc_size_t bytes)
{
    png_state *state = png_get_mem_ptr(png);
    void *block = mh_calloc(bytes, 1);
    state->no_memory = state->no_memory || !block;
    return block;
}

static void on_free(png_structp png, png_voidp block)
{
    (void)png;
    mh_free(block);
}

/* --- the state --- */

static mh_status state_new(void **out, mh_error *err)
{
    *out = mh_calloc(1, sizeof(png_state));
    return *out ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory to decode PNG");
}

static void end(void *memory)
{
    png_state *state = memory;
    png_destroy_read_struct(&state->png, &state->info, NULL);
}

static void state_free(void *memory)
{
    png_state *state = memory;
    end(state);
    mh_png_plain_free(&state->plain);
    mh_free(state->stored);
    mh_free(state);
}

static mh_status explain(png_state *state, mh_error *err)
{
    end(state);
    if (state->no_memory)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to decode PNG");
    if (state->truncated)
        return mh_fail(err, MH_ERR_CORRUPT, "truncated PNG: the data ends before the picture");
    return mh_fail(err, MH_ERR_CORRUPT, "broken PNG: %s", state->message);
}

/* --- decoding --- */

/* Whether the chunks lead to an end chunk. */
static bool has_end(const uint8_t *bytes, uint64_t size)
{
    uint64_t at = MH_PNG_CHUNKS_AT;
    for (mh_png_chunk found; mh_png_chunk_next(bytes, size, &at, &found);)
        if (mh_png_chunk_is(&found, "IEND"))
            return true;
    return false;
}

static mh_status check(const png_state *state, const mh_picture_wanted *wanted, mh_error *err)
{
    const mh_picture *picture = &wanted->picture;
    if (wanted->pixels == MH_PIXELS_STORED && (picture->channels != 1 || picture->bits > 8))
        return mh_fail(
            err, MH_ERR_UNSUPPORTED,
            "a mask needs one channel of up to 8 bits, and this PNG has %d of %d: decode "
            "it as rgb or grey",
            picture->channels, picture->bits);
    if (!has_end(state->bytes, state->size))
        return mh_fail(err, MH_ERR_CORRUPT, "truncated PNG: the data ends before the picture");
    if (picture->progressive && state->row_bytes * picture->height > INTERLACED_BYTES_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "interlaced PNG of %ux%u pixels is refused: it needs over %u MiB",
                       picture->width, picture->height, INTERLACED_BYTES_MOST >> 20);
    return MH_OK;
}

static mh_status reserve(png_state *state, uint64_t bytes, mh_error *err)
{
    if (bytes <= state->stored_bytes)
        return MH_OK;
    mh_free(state->stored);
    state->stored = mh_realloc(NULL, bytes, 1);
    state->stored_bytes = state->stored ? bytes : 0;
    return state->stored ? MH_OK
                         : mh_fail(err, MH_ERR_NOMEM, "no memory for %llu bytes of pixels",
                                   (unsigned long long)bytes);
}

static mh_status start(png_state *state, mh_error *err)
{
    state->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, state, on_error, on_warning, state,
                                          on_allocate, on_free);
    state->info = state->png ? png_create_info_struct(state->png) : NULL;
    if (!state->info)
        return explain(state, err);
    png_set_read_fn(state->png, state, on_read);
    png_set_user_limits(state->png, MH_PICTURE_SIDE_MOST, MH_PICTURE_SIDE_MOST);
    png_set_chunk_malloc_max(state->png, CHUNK_BYTES_MOST);
    png_read_info(state->png, state->info);
    if (png_get_rowbytes(state->png, state->info) != state->row_bytes)
        png_error(state->png, "its header does not fit its rows");
    png_colorp palette;
    int colours = 0;
    (void)png_get_PLTE(state->png, state->info, &palette, &colours);
    for (int i = 0; i < colours && i < 256; i++) {
        const uint8_t colour[3] = {palette[i].red, palette[i].green, palette[i].blue};
        memcpy(state->rows.palette[i], colour, sizeof colour);
    }
    return MH_OK;
}

/* Passes over what is above the region; reads all of an interlaced picture. */
static void skip_to(png_state *state, uint32_t y)
{
    state->next = y;
    if (state->is_plain) {
        for (uint32_t row = 0; row < y; row++)
            (void)mh_png_plain_row(&state->plain);
        return;
    }
    if (!state->rows.picture.progressive) {
        for (uint32_t row = 0; row < y; row++)
            png_read_row(state->png, state->stored, NULL);
        return;
    }
    int passes = png_set_interlace_handling(state->png);
    png_start_read_image(state->png);
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t row = 0; row < state->rows.picture.height; row++)
            png_read_row(state->png, state->stored + row * state->row_bytes, NULL);
}

static mh_status begin(void *memory, const uint8_t *bytes, uint64_t size,
                       const mh_picture_wanted *wanted, mh_row_layout *out, mh_error *err)
{
    png_state *state = memory;
    state->bytes = bytes;
    state->size = size;
    state->at = 0;
    state->no_memory = state->truncated = false;
    state->rows.picture = wanted->picture;
    state->rows.pixels = wanted->pixels;
    state->x = wanted->x;
    state->width = wanted->width;
    state->row_bytes = mh_png_row_bytes(&wanted->picture);
    mh_png_palette_init(&state->rows);
    MH_TRY(check(state, wanted, err));
    uint32_t kept = wanted->picture.progressive ? wanted->picture.height : 1;
    MH_TRY(reserve(state, state->row_bytes * kept, err));
    state->is_plain = mh_png_plain_begin(&state->plain, &state->rows, bytes, size);
    if (setjmp(state->failed))
        return explain(state, err);
    if (!state->is_plain)
        MH_TRY(start(state, err));
    skip_to(state, wanted->y);
    *out = (mh_row_layout){(uint64_t)wanted->width * (wanted->pixels == MH_PIXELS_RGB ? 3 : 1), 0};
    return MH_OK;
}

static mh_status rows(void *memory, uint8_t *const *into, uint32_t count, mh_error *err)
{
    png_state *state = memory;
    if (setjmp(state->failed))
        return explain(state, err);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *row = state->stored;
        if (state->is_plain)
            row = mh_png_plain_row(&state->plain);
        else if (state->rows.picture.progressive)
            row += state->next++ * state->row_bytes;
        else
            png_read_row(state->png, state->stored, NULL);
        mh_png_row_convert(&state->rows, row, state->x, state->width, into[i]);
    }
    return MH_OK;
}

const mh_picture_codec mh_codec_png = {
    .name = "png",
    .suffixes = ".png",
    .what = "PNG with libpng: all kinds, palettes as colours or as labels",
    .kind = MH_PICTURE_PNG,
    .state_new = state_new,
    .state_free = state_free,
    .begin = begin,
    .rows = rows,
    .end = end,
};
