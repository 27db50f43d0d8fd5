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

/* A stage while it runs. */
typedef struct pass {
    mh_image_room *room;
    const mh_intake *intake;
    const mh_outlet *outlet;
    const mh_picture_codec *codec; /* NULL: rows are in memory */
    void *state;
    mh_row_layout layout;
    uint32_t channels;
    bool flip_y;
    uint64_t pixel_bytes;  /* of a row of the result */
    const uint8_t *next;   /* memory: the next row's first pixel */
    uint64_t strip_stride; /* decoder: of a row in the strip */
    uint32_t left;         /* rows yet to be taken in */
    uint32_t taken;        /* rows in the ring, ever */
    uint32_t ring_rows;
    uint64_t ring_stride;
    uint8_t *ring;
    uint8_t *line;
    const uint8_t **slots;
} pass;

/* --- rows in --- */

/* Pillow's convert("L"). */
static void to_grey(uint8_t *row, uint64_t pixels)
{
    for (uint64_t i = 0; i < pixels; i++) {
        uint32_t sum = row[3 * i] * 19595U + row[3 * i + 1] * 38470U + row[3 * i + 2] * 7471U;
        row[i] = (uint8_t)((sum + 0x8000) >> 16);
    }
}

/* The next `count` rows of what is cut out; each is readable for MH_ROW_SLACK bytes more. */
static mh_status take(pass *pass, const uint8_t **out, uint32_t count, mh_error *err)
{
    if (!pass->codec) {
        for (uint32_t i = 0; i < count; i++) {
            out[i] = pass->next;
            pass->next += (uint64_t)pass->intake->map.size.width * pass->channels;
        }
        return MH_OK;
    }
    uint8_t *into[MH_ACROSS_ROWS];
    for (uint32_t i = 0; i < count; i++)
        into[i] = (uint8_t *)pass->room->strip.memory + i * pass->strip_stride;
    MH_TRY(pass->codec->rows(pass->state, into, count, err));
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *first = into[i] + pass->layout.lead;
        if (pass->intake->decode == MH_DECODE_GREY)
            to_grey(first, pass->room->columns.end - pass->room->columns.first);
        out[i] = first;
    }
    return MH_OK;
}

static void pick(const mh_weights *weights, const uint8_t *from, uint8_t *to, uint32_t channels)
{
    for (uint32_t i = 0; i < weights->count; i++)
        for (uint32_t channel = 0; channel < channels; channel++)
            to[(size_t)i * channels + channel] =
                from[(size_t)weights->starts[i] * channels + channel];
}

/* Takes in up to MH_ACROSS_ROWS rows and puts them into the ring as wide as the result. */
static mh_status fill(pass *pass, mh_error *err)
{
    const mh_weights *columns = &pass->room->columns;
    const uint8_t *from[MH_ACROSS_ROWS];
    uint8_t *to[MH_ACROSS_ROWS];
    uint32_t count = pass->left < MH_ACROSS_ROWS ? pass->left : MH_ACROSS_ROWS;
    MH_TRY(take(pass, from, count, err));
    for (uint32_t i = 0; i < count; i++)
        to[i] = pass->ring + (pass->taken + i) % pass->ring_rows * pass->ring_stride;
    if (columns->kind == MH_WEIGHTS_BLEND)
        pass->room->kernels->across(columns, from, to, count, pass->channels);
    for (uint32_t i = 0; i < count; i++)
        if (columns->kind == MH_WEIGHTS_SAME)
            memcpy(to[i], from[i], pass->pixel_bytes);
        else if (columns->kind == MH_WEIGHTS_PICK)
            pick(columns, from[i], to[i], pass->channels);
    pass->taken += count;
    pass->left -= count;
    return MH_OK;
}

/* --- rows out --- */

static const uint8_t *ring_row(const pass *pass, uint32_t number)
{
    return pass->ring + number % pass->ring_rows * pass->ring_stride;
}

/* Row `y` of the result, where its rows are in the ring. */
static void put(pass *pass, uint32_t y)
{
    const mh_weights *rows = &pass->room->rows;
    const mh_outlet *outlet = pass->outlet;
    uint32_t place = pass->flip_y ? outlet->size.height - 1 - y : y;
    uint32_t first = rows->kind == MH_WEIGHTS_SAME ? y : rows->starts[y];
    uint8_t *to = outlet->finish ? pass->line : outlet->into + place * outlet->stride;
    const uint8_t *made = to;
    if (rows->kind == MH_WEIGHTS_BLEND) {
        for (uint32_t i = 0; i < rows->lengths[y]; i++)
            pass->slots[i] = ring_row(pass, first + i);
        pass->room->kernels->down(rows, y, pass->slots, to, (uint32_t)pass->pixel_bytes);
    } else if (outlet->finish) {
        made = ring_row(pass, first);
    } else {
        memcpy(to, ring_row(pass, first), pass->pixel_bytes);
    }
    if (outlet->finish)
        mh_finish_row(outlet->finish, outlet->into, outlet->size, place, made);
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

static mh_status begin_decoding(pass *pass, mh_box region, mh_error *err)
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
    void *memory;
    MH_TRY(mh_image_room_codec(pass->room, intake->picture.kind, &pass->codec, &pass->state, err));
    MH_TRY(
        pass->codec->begin(pass->state, intake->bytes, intake->size, &wanted, &pass->layout, err));
    pass->strip_stride = (pass->layout.bytes + MH_ROW_SLACK + 63) / 64 * 64;
    return mh_scratch_get(&pass->room->strip, pass->strip_stride * MH_ACROSS_ROWS, &memory, err);
}

/* Memory for the ring, the list of its rows and a row of the result. */
static mh_status reserve(pass *pass, mh_error *err)
{
    mh_image_room *room = pass->room;
    uint32_t most = room->rows.kind == MH_WEIGHTS_BLEND ? room->rows.stride : 1;
    void *ring, *slots, *line;
    pass->ring_rows = most + MH_ACROSS_ROWS;
    pass->ring_stride = (pass->pixel_bytes + MH_ROW_SLACK + 63) / 64 * 64;
    MH_TRY(mh_scratch_get(&room->ring, pass->ring_rows * pass->ring_stride, &ring, err));
    MH_TRY(mh_scratch_get(&room->slots, most * sizeof(uint8_t *), &slots, err));
    MH_TRY(mh_scratch_get(&room->line, pass->pixel_bytes, &line, err));
    pass->ring = ring;
    pass->slots = slots;
    pass->line = line;
    return MH_OK;
}

/* Every pixel stays where it is: rows are decoded or copied straight to their place. */
static mh_status copy(pass *pass, mh_error *err)
{
    uint8_t *to = pass->outlet->into;
    while (pass->left > 0) {
        const uint8_t *from;
        if (pass->codec && pass->intake->decode != MH_DECODE_GREY &&
            pass->layout.bytes == pass->pixel_bytes) {
            MH_TRY(pass->codec->rows(pass->state, &to, 1, err));
        } else {
            MH_TRY(take(pass, &from, 1, err));
            memcpy(to, from, pass->pixel_bytes);
        }
        to += pass->outlet->stride;
        pass->left--;
    }
    return MH_OK;
}

static mh_status stream(pass *pass, mh_error *err)
{
    const mh_weights *rows = &pass->room->rows;
    if (rows->kind == MH_WEIGHTS_SAME && pass->room->columns.kind == MH_WEIGHTS_SAME &&
        !pass->flip_y && !pass->outlet->finish)
        return copy(pass, err);
    MH_TRY(reserve(pass, err));
    for (uint32_t y = 0; y < rows->count; y++) {
        uint32_t end = rows->kind == MH_WEIGHTS_BLEND  ? rows->starts[y] + rows->lengths[y]
                       : rows->kind == MH_WEIGHTS_PICK ? rows->starts[y] + 1
                                                       : y + 1;
        while (pass->taken < end)
            MH_TRY(fill(pass, err));
        put(pass, y);
    }
    return MH_OK;
}

mh_status mh_stage_run(const mh_stage *stage, mh_image_room *room, const mh_intake *intake,
                       uint32_t channels, const mh_outlet *outlet, mh_error *err)
{
    mh_box region;
    pass pass = {.room = room,
                 .intake = intake,
                 .outlet = outlet,
                 .channels = channels,
                 .flip_y = stage->flip_y,
                 .pixel_bytes = (uint64_t)stage->window.width * channels};
    MH_TRY(weigh(stage, room, intake, &region, err));
    pass.left = region.height;
    if (!intake->bytes) {
        uint64_t first = (uint64_t)region.y * intake->map.size.width + region.x;
        pass.next = intake->map.pixels + first * channels;
        return stream(&pass, err);
    }
    mh_status status = begin_decoding(&pass, region, err);
    if (status == MH_OK)
        status = stream(&pass, err);
    if (pass.state)
        pass.codec->end(pass.state);
    return status;
}
