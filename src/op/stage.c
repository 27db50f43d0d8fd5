/* stage.c - one stage of a scene: rows come in, are cut, resized and flipped, and go out
 * SPDX-License-Identifier: Apache-2.0
 *
 * Rows stream: a few are decoded, made as wide as the result, and kept in a ring until the rows of
 * the result that need them are written. So a large picture passes through little memory, which
 * stays in the CPU's cache.
 */
#include "op/stage.h"

#include <math.h>
#include <string.h>

/* Rows that are taken in at a time. Decoding and resizing each want all of the CPU's first cache:
 * the less often they take turns, the better, as long as the rows between them stay in the second.
 */
#define TAKEN_ROWS 16

/* A stage while it runs. */
typedef struct stage_pass {
    mh_image_room *room;
    const mh_intake *intake;
    const mh_outlet *outlet;
    const mh_picture_codec *codec; /* NULL: rows are in memory */
    void *state;
    mh_row_layout layout;
    uint32_t channels;
    bool flip_y;
    uint64_t in_bytes;   /* of a row of what is cut out */
    uint64_t out_bytes;  /* of a row of the result */
    const uint8_t *next; /* memory: the next row's first pixel */
    uint32_t left;       /* rows yet to be taken in */
    uint32_t taken;      /* rows in the ring, ever */
    uint32_t ring_rows;
    uint64_t ring_stride;
    uint8_t *ring;
    uint64_t line_stride;
    uint8_t *lines; /* MH_ACROSS_ROWS rows on their way out */
    const uint8_t **slots;
} stage_pass;

/* --- rows in --- */

/* Pillow's convert("L"). */
static void to_grey(uint8_t *row, uint64_t pixels)
{
    for (uint64_t i = 0; i < pixels; i++) {
        uint32_t sum = row[3 * i] * 19595U + row[3 * i + 1] * 38470U + row[3 * i + 2] * 7471U;
        row[i] = (uint8_t)((sum + 0x8000) >> 16);
    }
}

/* The next `count` rows of what is cut out, at out[i]; decoded ones into[i] is memory for. Each is
 * readable for MH_ROW_SLACK bytes more. */
static mh_status take(stage_pass *pass, uint8_t *const *into, const uint8_t **out, uint32_t count,
                      mh_error *err)
{
    pass->left -= count;
    if (!pass->codec) {
        for (uint32_t i = 0; i < count; i++) {
            out[i] = pass->next;
            pass->next += (uint64_t)pass->intake->map.size.width * pass->channels;
        }
        return MH_OK;
    }
    MH_TRY(pass->codec->rows(pass->state, into, count, err));
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *first = into[i] + pass->layout.lead;
        if (pass->intake->decode == MH_DECODE_GREY)
            to_grey(first, pass->in_bytes);
        out[i] = first;
    }
    return MH_OK;
}

static uint32_t take_count(const stage_pass *pass)
{
    return pass->left < TAKEN_ROWS ? pass->left : TAKEN_ROWS;
}

/* Bytes that a row of what is cut out needs in memory. */
static uint64_t row_stride(const stage_pass *pass)
{
    uint64_t bytes = pass->codec ? pass->layout.bytes : pass->in_bytes;
    return (bytes + MH_ROW_SLACK + 63) / 64 * 64;
}

/* How many rows one of the result needs at most. */
static uint32_t rows_most(const mh_weights *rows)
{
    return rows->kind == MH_WEIGHTS_BLEND ? rows->stride : 1;
}

static uint32_t first_row(const mh_weights *rows, uint32_t y)
{
    return rows->kind == MH_WEIGHTS_SAME ? y : rows->starts[y];
}

static uint32_t end_row(const mh_weights *rows, uint32_t y)
{
    return first_row(rows, y) + (rows->kind == MH_WEIGHTS_BLEND ? rows->lengths[y] : 1);
}

/* Memory for the ring, the list of its rows and the rows on their way out. */
static mh_status reserve(stage_pass *pass, uint64_t ring_stride, uint64_t line_bytes, mh_error *err)
{
    mh_image_room *room = pass->room;
    uint32_t most = rows_most(&room->rows);
    pass->ring_rows = most + TAKEN_ROWS;
    pass->ring_stride = ring_stride;
    pass->line_stride = (line_bytes + MH_ROW_SLACK + 63) / 64 * 64;
    pass->ring = mh_scratch_get(&room->ring, pass->ring_rows * ring_stride, err);
    pass->slots = mh_scratch_get(&room->slots, most * sizeof(uint8_t *), err);
    pass->lines = mh_scratch_get(&room->lines, 2 * MH_ACROSS_ROWS * pass->line_stride, err);
    return pass->ring && pass->slots && pass->lines ? MH_OK : MH_ERR_NOMEM;
}

static uint8_t *ring_row(const stage_pass *pass, uint32_t number)
{
    return pass->ring + number % pass->ring_rows * pass->ring_stride;
}

/* Where row `y` of the result goes. */
static uint32_t place_of(const stage_pass *pass, uint32_t y)
{
    return pass->flip_y ? pass->outlet->size.height - 1 - y : y;
}

/* --- first across, then down --- */

static void pick(const mh_weights *weights, const uint8_t *from, uint8_t *to, uint32_t channels)
{
    for (uint32_t i = 0; i < weights->count; i++)
        for (uint32_t channel = 0; channel < channels; channel++)
            to[(size_t)i * channels + channel] =
                from[(size_t)weights->starts[i] * channels + channel];
}

/* Makes rows as wide as the result. */
static void widen(const stage_pass *pass, const uint8_t *const *from, uint8_t *const *to,
                  uint32_t count)
{
    const mh_weights *columns = &pass->room->columns;
    if (columns->kind == MH_WEIGHTS_BLEND) {
        pass->room->kernels->across(columns, from, to, count, pass->channels);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        if (columns->kind == MH_WEIGHTS_SAME)
            memcpy(to[i], from[i], pass->out_bytes);
        else
            pick(columns, from[i], to[i], pass->channels);
}

/* Takes in some rows and puts them into the ring as wide as the result. */
static mh_status fill_wide(stage_pass *pass, uint64_t strip_stride, mh_error *err)
{
    const uint8_t *from[TAKEN_ROWS];
    uint8_t *strip[TAKEN_ROWS], *to[TAKEN_ROWS];
    uint32_t count = take_count(pass);
    for (uint32_t i = 0; i < TAKEN_ROWS; i++) {
        strip[i] = (uint8_t *)pass->room->strip.memory + i * strip_stride;
        to[i] = ring_row(pass, pass->taken + i);
    }
    MH_TRY(take(pass, strip, from, count, err));
    for (uint32_t i = 0; i < count; i += MH_ACROSS_ROWS)
        widen(pass, from + i, to + i, count - i < MH_ACROSS_ROWS ? count - i : MH_ACROSS_ROWS);
    pass->taken += count;
    return MH_OK;
}

/* Row `y` of the result from wide rows of the ring. */
static void put_down(stage_pass *pass, uint32_t y)
{
    const mh_weights *rows = &pass->room->rows;
    const mh_outlet *outlet = pass->outlet;
    uint32_t place = place_of(pass, y), first = first_row(rows, y);
    uint8_t *to = outlet->finish ? pass->lines : outlet->into + place * outlet->stride;
    const uint8_t *made = to;
    if (rows->kind == MH_WEIGHTS_BLEND) {
        for (uint32_t i = 0; i < rows->lengths[y]; i++)
            pass->slots[i] = ring_row(pass, first + i);
        pass->room->kernels->down(rows, y, pass->slots, to, (uint32_t)pass->out_bytes);
    } else if (outlet->finish) {
        made = ring_row(pass, first);
    } else {
        memcpy(to, ring_row(pass, first), pass->out_bytes);
    }
    if (outlet->finish)
        mh_finish_row(outlet->finish, outlet->into, outlet->size, place, made);
}

static mh_status across_then_down(stage_pass *pass, mh_error *err)
{
    const mh_weights *rows = &pass->room->rows;
    uint64_t strip_stride = row_stride(pass);
    uint64_t ring_stride = (pass->out_bytes + MH_ROW_SLACK + 63) / 64 * 64;
    if (!mh_scratch_get(&pass->room->strip, strip_stride * TAKEN_ROWS, err))
        return MH_ERR_NOMEM;
    MH_TRY(reserve(pass, ring_stride, pass->out_bytes, err));
    for (uint32_t y = 0; y < rows->count; y++) {
        while (pass->taken < end_row(rows, y))
            MH_TRY(fill_wide(pass, strip_stride, err));
        put_down(pass, y);
    }
    return MH_OK;
}

/* --- first down, then across --- */

/* Takes some rows into the ring as they are. */
static mh_status fill_narrow(stage_pass *pass, mh_error *err)
{
    const uint8_t *from[TAKEN_ROWS];
    uint8_t *into[TAKEN_ROWS];
    uint32_t count = take_count(pass);
    for (uint32_t i = 0; i < TAKEN_ROWS; i++)
        into[i] = ring_row(pass, pass->taken + i);
    MH_TRY(take(pass, into, from, count, err));
    for (uint32_t i = 0; i < count && !pass->codec; i++)
        memcpy(into[i], from[i], pass->in_bytes);
    pass->taken += count;
    return MH_OK;
}

/* Rows y - count to y of the result from the narrow rows on their way out. */
static void put_across(stage_pass *pass, uint32_t y, uint32_t count)
{
    const mh_outlet *outlet = pass->outlet;
    const uint8_t *from[MH_ACROSS_ROWS];
    uint8_t *to[MH_ACROSS_ROWS];
    for (uint32_t i = 0; i < count; i++) {
        from[i] = pass->lines + i * pass->line_stride;
        to[i] = outlet->finish ? pass->lines + (MH_ACROSS_ROWS + i) * pass->line_stride
                               : outlet->into + place_of(pass, y - count + i) * outlet->stride;
    }
    widen(pass, from, to, count);
    for (uint32_t i = 0; i < count && outlet->finish; i++)
        mh_finish_row(outlet->finish, outlet->into, outlet->size, place_of(pass, y - count + i),
                      to[i]);
}

static mh_status down_then_across(stage_pass *pass, mh_error *err)
{
    const mh_weights *rows = &pass->room->rows;
    uint64_t lead = pass->codec ? pass->layout.lead : 0;
    uint64_t wider = pass->in_bytes > pass->out_bytes ? pass->in_bytes : pass->out_bytes;
    uint32_t ready = 0;
    MH_TRY(reserve(pass, row_stride(pass), wider, err));
    for (uint32_t y = 0; y < rows->count; y++) {
        while (pass->taken < end_row(rows, y))
            MH_TRY(fill_narrow(pass, err));
        for (uint32_t i = 0; i < rows->lengths[y]; i++)
            pass->slots[i] = ring_row(pass, rows->starts[y] + i) + lead;
        pass->room->kernels->down(rows, y, pass->slots, pass->lines + ready * pass->line_stride,
                                  (uint32_t)pass->in_bytes);
        if (++ready == MH_ACROSS_ROWS || y + 1 == rows->count) {
            put_across(pass, y + 1, ready);
            ready = 0;
        }
    }
    return MH_OK;
}

/* --- the stage --- */

/* What is wanted along one side. A shrunk picture's part lies between its pixels. */
static mh_side side_of(uint32_t at, uint32_t length, uint32_t there, uint32_t shrink, uint32_t *out)
{
    if (shrink == 1) {
        *out = at;
        return (mh_side){.in = length, .from = 0, .to = length};
    }
    uint32_t first = at / shrink, end = (at + length + shrink - 1) / shrink;
    uint32_t most = (there + shrink - 1) / shrink;
    end = end < most ? end : most;
    *out = first;
    return (mh_side){.in = end - first,
                     .from = (double)at / shrink - first,
                     .to = (double)(at + length) / shrink - first};
}

/* Works out the weights of both sides and the region that they need. */
static mh_status weigh(const mh_stage *stage, mh_image_room *room, const mh_intake *intake,
                       mh_box *region, mh_error *err)
{
    mh_size there =
        intake->bytes ? (mh_size){intake->picture.width, intake->picture.height} : intake->map.size;
    uint32_t x, y;
    mh_side columns = side_of(stage->crop.x, stage->crop.width, there.width, intake->shrink, &x);
    mh_side rows = side_of(stage->crop.y, stage->crop.height, there.height, intake->shrink, &y);
    columns.filter = rows.filter = stage->filter;
    columns.out = stage->resized.width;
    columns.first = stage->window.x;
    columns.count = stage->window.width;
    columns.flip = stage->flip_x;
    rows.out = stage->resized.height;
    rows.first = stage->window.y;
    rows.count = stage->window.height;
    MH_TRY(mh_weights_make(&room->columns, &columns, err));
    MH_TRY(mh_weights_make(&room->rows, &rows, err));
    *region = (mh_box){x + room->columns.first, y + room->rows.first,
                       room->columns.end - room->columns.first, room->rows.end - room->rows.first};
    return MH_OK;
}

static mh_status begin_decoding(stage_pass *pass, mh_box region, mh_error *err)
{
    const mh_intake *intake = pass->intake;
    mh_picture_wanted wanted = {
        .picture = intake->picture,
        .pixels = intake->decode == MH_DECODE_MASK ? MH_PIXELS_STORED : MH_PIXELS_RGB,
        .shrink = intake->shrink,
        .x = region.x,
        .y = region.y,
        .width = region.width,
        .height = region.height,
    };
    MH_TRY(mh_image_room_codec(pass->room, intake->picture.kind, &pass->codec, &pass->state, err));
    return pass->codec->begin(pass->state, intake->bytes, intake->size, &wanted, &pass->layout,
                              err);
}

/* Every pixel stays where it is: rows are decoded or copied straight to their place. */
static mh_status copy(stage_pass *pass, mh_error *err)
{
    uint8_t *to = pass->outlet->into;
    bool straight = pass->codec && pass->intake->decode != MH_DECODE_GREY &&
                    pass->layout.bytes == pass->out_bytes;
    uint8_t *strip = mh_scratch_get(&pass->room->strip, row_stride(pass), err);
    if (!strip)
        return MH_ERR_NOMEM;
    for (; pass->left > 0; to += pass->outlet->stride) {
        const uint8_t *from;
        MH_TRY(take(pass, straight ? &to : &strip, &from, 1, err));
        if (!straight)
            memcpy(to, from, pass->out_bytes);
    }
    return MH_OK;
}

/* Which way comes first decides how intermediate values are rounded. This is Pillow's choice from
 * version 13 on; earlier versions always go across first. */
static bool is_down_first(const mh_stage *stage, const mh_image_room *room)
{
    int64_t rows = (int64_t)stage->crop.height - stage->resized.height;
    int64_t columns = (int64_t)stage->crop.width - stage->resized.width;
    return room->rows.kind == MH_WEIGHTS_BLEND && room->columns.kind == MH_WEIGHTS_BLEND &&
           rows > 0 && rows > 2 * columns;
}

static mh_status stream(const mh_stage *stage, stage_pass *pass, mh_error *err)
{
    const mh_image_room *room = pass->room;
    if (room->rows.kind == MH_WEIGHTS_SAME && room->columns.kind == MH_WEIGHTS_SAME &&
        !pass->flip_y && !pass->outlet->finish)
        return copy(pass, err);
    return is_down_first(stage, room) ? down_then_across(pass, err) : across_then_down(pass, err);
}

mh_status mh_stage_run(const mh_stage *stage, mh_image_room *room, const mh_intake *intake,
                       uint32_t channels, const mh_outlet *outlet, mh_error *err)
{
    mh_box region;
    stage_pass pass = {.room = room,
                       .intake = intake,
                       .outlet = outlet,
                       .channels = channels,
                       .flip_y = stage->flip_y,
                       .out_bytes = (uint64_t)stage->window.width * channels};
    MH_TRY(weigh(stage, room, intake, &region, err));
    pass.left = region.height;
    pass.in_bytes = (uint64_t)region.width * channels;
    if (!intake->bytes) {
        uint64_t first = (uint64_t)region.y * intake->map.size.width + region.x;
        pass.next = intake->map.pixels + first * channels;
        return stream(stage, &pass, err);
    }
    mh_status status = begin_decoding(&pass, region, err);
    if (status == MH_OK)
        status = stream(stage, &pass, err);
    if (pass.state)
        pass.codec->end(pass.state);
    return status;
}
