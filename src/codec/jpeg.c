/* jpeg.c - JPEG through libjpeg-turbo: only the rows and columns that are wanted
 * SPDX-License-Identifier: Apache-2.0
 *
 * Entropy coding has no index, so all above a region must be read; but transforming and colour
 * conversion are skipped there and to both sides, and nothing is read below. Measured rules:
 * - Where chroma is subsampled, columns at the edge of a region are smoothed without their
 *   neighbours: regions are widened by one unit of the coding grid (16 pixels) on each side.
 * - Rows are skipped once, from row 0: a second skip may begin inside a group of rows, which
 *   libjpeg-turbo 2.1 does wrong.
 * - Only scales of 1, 1/2, 1/4 and 1/8 have fast transforms.
 *
 * Broken data between intact markers gives the pixels that libjpeg makes of it, as Pillow does. A
 * file that ends too early is an error, whichever region is wanted: its end marker is missing.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "codec/picture_codec.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

/* A progressive file of a few kilobytes may hold thousands of scans, each as dear as the whole
 * picture; encoders write about ten. */
#define SCANS_MOST 500
/* A progressive file's coefficients are all in memory, two bytes each; 256 MiB are 44 megapixels
 * without subsampling, and a header alone can ask for them */
#define COEFFICIENT_BYTES_MOST (256L << 20)

typedef struct jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
    bool truncated;
    bool too_many_scans;
    uint32_t skip;    /* pixels of a row as libjpeg gives it before the region */
    uint32_t columns; /* of a row as libjpeg gives it */
    uint8_t *inks;    /* a row of CMYK */
    size_t inks_bytes;
} jpeg;

/* --- libjpeg's callbacks --- */

static void on_error(j_common_ptr info)
{
    jpeg *state = (jpeg *)info;
    info->err->format_message(info, state->message);
    longjmp(state->failed, 1);
}

static void on_message(j_common_ptr info, int level)
{
    (void)info; /* warnings: the pixels are what libjpeg makes of the data */
    (void)level;
}

static void on_output(j_common_ptr info)
{
    (void)info;
}

static void on_source(j_decompress_ptr info)
{
    (void)info;
}

static boolean on_no_more_input(j_decompress_ptr info)
{
    jpeg *state = (jpeg *)info;
    state->truncated = true;
    longjmp(state->failed, 1);
}

static void on_skip(j_decompress_ptr info, long count)
{
    if (count <= 0)
        return;
    if ((size_t)count > info->src->bytes_in_buffer)
        (void)on_no_more_input(info);
    info->src->next_input_byte += count;
    info->src->bytes_in_buffer -= (size_t)count;
}

static void on_progress(j_common_ptr info)
{
    jpeg *state = (jpeg *)info;
    if (state->info.input_scan_number <= SCANS_MOST)
        return;
    state->too_many_scans = true;
    longjmp(state->failed, 1);
}

/* --- the state --- */

static mh_status state_new(void **out, mh_error *err)
{
    jpeg *state = mh_calloc(1, sizeof *state);
    if (!state)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to decode JPEG");
    state->info.err = jpeg_std_error(&state->errors);
    state->errors.error_exit = on_error;
    state->errors.emit_message = on_message;
    state->errors.output_message = on_output;
    state->source.init_source = on_source;
    state->source.term_source = on_source;
    state->source.fill_input_buffer = on_no_more_input;
    state->source.skip_input_data = on_skip;
    state->source.resync_to_restart = jpeg_resync_to_restart;
    state->progress.progress_monitor = on_progress;
    if (setjmp(state->failed)) {
        mh_status status = mh_fail(err, MH_ERR_NOMEM, "libjpeg: %s", state->message);
        jpeg_destroy_decompress(&state->info);
        mh_free(state);
        return status;
    }
    jpeg_create_decompress(&state->info);
    state->info.mem->max_memory_to_use = COEFFICIENT_BYTES_MOST;
    *out = state;
    return MH_OK;
}

static void state_free(void *memory)
{
    jpeg *state = memory;
    jpeg_destroy_decompress(&state->info);
    mh_free(state->inks);
    mh_free(state);
}

/* --- decoding --- */

/* Writes why libjpeg gave up. */
static mh_status explain(jpeg *state, mh_error *err)
{
    struct jpeg_decompress_struct *info = &state->info;
    jpeg_abort_decompress(info);
    if (state->truncated)
        return mh_fail(err, MH_ERR_CORRUPT, "truncated JPEG: the data ends before the picture");
    if (state->too_many_scans)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "JPEG with over %d scans is refused", SCANS_MOST);
    if (state->errors.msg_code == JERR_NO_BACKING_STORE)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "progressive JPEG of %ux%u pixels is refused: it needs over %ld MiB",
                       info->image_width, info->image_height, COEFFICIENT_BYTES_MOST >> 20);
    if (state->errors.msg_code == JERR_OUT_OF_MEMORY)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to decode JPEG: %s", state->message);
    return mh_fail(err, MH_ERR_CORRUPT, "broken JPEG: %s", state->message);
}

/* Whether an end marker follows: looked for from the end, where it nearly always is. */
static bool has_end(const uint8_t *bytes, size_t size)
{
    for (size_t left = size; left >= 2;) {
        const uint8_t *found = memrchr(bytes, 0xd9, left);
        if (!found)
            return false;
        left = (size_t)(found - bytes);
        if (left > 0 && bytes[left - 1] == 0xff)
            return true;
    }
    return false;
}

/* Pixels in which a row comes from libjpeg. */
static J_COLOR_SPACE output_space(const mh_picture_wanted *wanted)
{
    if (wanted->picture.channels == 4)
        return JCS_CMYK;
    return wanted->pixels == MH_PIXELS_STORED ? JCS_GRAYSCALE : JCS_EXT_RGB;
}

static mh_status start(jpeg *state, const uint8_t *bytes, uint64_t size,
                       const mh_picture_wanted *wanted, mh_error *err)
{
    struct jpeg_decompress_struct *info = &state->info;
    state->source.next_input_byte = bytes;
    state->source.bytes_in_buffer = size;
    state->truncated = state->too_many_scans = false;
    info->src = &state->source;
    info->progress = &state->progress;
    (void)jpeg_read_header(info, TRUE);
    if (info->image_width != wanted->picture.width || info->image_height != wanted->picture.height)
        return mh_fail(err, MH_ERR_CORRUPT, "broken JPEG: it has two frame headers");
    state->truncated = !has_end(state->source.next_input_byte, state->source.bytes_in_buffer);
    if (state->truncated)
        return explain(state, err);
    info->out_color_space = output_space(wanted);
    info->scale_num = 8 / wanted->shrink;
    info->scale_denom = 8;
    (void)jpeg_start_decompress(info);
    return MH_OK;
}

/* Cuts rows to the region and what it needs to the sides. */
static void crop(jpeg *state, const mh_picture_wanted *wanted)
{
    struct jpeg_decompress_struct *info = &state->info;
    JDIMENSION margin = 0, first = wanted->x, width = wanted->width;
    if (info->max_h_samp_factor > 1)
        margin = (JDIMENSION)(info->max_h_samp_factor * DCTSIZE);
    first -= first < margin ? first : margin;
    width = wanted->x + wanted->width + margin;
    width = (width > info->output_width ? info->output_width : width) - first;
    if (first > 0 || width < info->output_width)
        jpeg_crop_scanline(info, &first, &width);
    else
        first = 0;
    state->skip = wanted->x - first;
    state->columns = info->output_width;
}

static mh_status begin(void *memory, const uint8_t *bytes, uint64_t size,
                       const mh_picture_wanted *wanted, mh_row_layout *out, mh_error *err)
{
    jpeg *state = memory;
    if (wanted->pixels == MH_PIXELS_STORED && wanted->picture.channels != 1)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "a mask needs one channel, and this JPEG has %d: decode it as rgb or grey",
                       wanted->picture.channels);
    if (setjmp(state->failed))
        return explain(state, err);
    MH_TRY(start(state, bytes, size, wanted, err));
    crop(state, wanted);
    uint32_t channels = wanted->pixels == MH_PIXELS_RGB ? 3 : 1;
    size_t inks_bytes = (size_t)state->columns * 4;
    if (wanted->picture.channels == 4 && inks_bytes > state->inks_bytes) {
        uint8_t *grown = mh_realloc(state->inks, inks_bytes, 1);
        if (!grown)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for a row of %zu bytes", inks_bytes);
        state->inks = grown;
        state->inks_bytes = inks_bytes;
    }
    *out = (mh_row_layout){(uint64_t)state->columns * channels, (uint64_t)state->skip * channels};
    if (wanted->y > 0)
        (void)jpeg_skip_scanlines(&state->info, wanted->y);
    return MH_OK;
}

/* a * b / 255, rounded */
static uint32_t share(uint32_t a, uint32_t b)
{
    uint32_t product = a * b + 128;
    return (product + (product >> 8)) >> 8;
}

/* Inks as Adobe stores them, 255 for none, as light. */
static void inks_to_light(uint8_t *out, const uint8_t *inks, uint32_t pixels)
{
    for (uint32_t i = 0; i < pixels; i++, inks += 4, out += 3) {
        uint32_t black = inks[3];
        for (int channel = 0; channel < 3; channel++)
            out[channel] = (uint8_t)(black - share(255U - inks[channel], black));
    }
}

static mh_status rows(void *memory, uint8_t *const *into, uint32_t count, mh_error *err)
{
    jpeg *state = memory;
    if (setjmp(state->failed))
        return explain(state, err);
    for (uint32_t done = 0; done < count; done++) {
        bool inks = state->info.out_color_space == JCS_CMYK;
        JSAMPROW row = inks ? state->inks : into[done];
        if (jpeg_read_scanlines(&state->info, &row, 1) == 0)
            return mh_fail(err, MH_ERR_CORRUPT, "broken JPEG: it has too few rows");
        if (inks)
            inks_to_light(into[done], state->inks, state->columns);
    }
    return MH_OK;
}

static void end(void *memory)
{
    jpeg *state = memory;
    jpeg_abort_decompress(&state->info);
}

const mh_picture_codec mh_codec_jpeg = {
    .name = "jpeg",
    .suffixes = ".jpg .jpeg",
    .what = "JPEG with libjpeg-turbo: regions, scales, grey, CMYK, progressive",
    .kind = MH_PICTURE_JPEG,
    .state_new = state_new,
    .state_free = state_free,
    .begin = begin,
    .rows = rows,
    .end = end,
};
