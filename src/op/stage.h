/* stage.h - one stage of a scene: rows come in, are cut, resized and flipped, and go out
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OP_STAGE_H
#define MH_OP_STAGE_H

#include "op/finish.h"
#include "op/room.h"

/* Pixels in memory, row after row. */
typedef struct mh_pixmap {
    uint8_t *pixels;
    mh_size size;
} mh_pixmap;

/* Where a stage's rows come from: an encoded picture, or pixels that the stage before left. */
typedef struct mh_intake {
    const uint8_t *bytes; /* encoded; NULL: pixels */
    uint64_t size;
    mh_picture picture;
    uint32_t shrink; /* 1, 2, 4 or 8 */
    uint8_t decode;  /* MH_DECODE_... */
    mh_pixmap map;
} mh_intake;

/* Where they go: pixels into memory of `stride` bytes a row, or values by mh_finish_row. */
typedef struct mh_outlet {
    uint8_t *into;
    uint64_t stride;
    const mh_finish *finish; /* NULL: pixels as they are */
    mh_size size;
} mh_outlet;

/* Everything of the stage but padding and colours. The outlet's size is the window's. */
MH_MUST_CHECK mh_status mh_stage_run(const mh_stage *stage, mh_image_room *room,
                                     const mh_intake *intake, uint32_t channels,
                                     const mh_outlet *outlet, mh_error *err);

#endif
