/* room.h - what one thread needs to run plans: codec states and scratch memory
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OP_ROOM_H
#define MH_OP_ROOM_H

#include "codec/picture_codec.h"
#include "op/kernels.h"

#define MH_ROOM_CODECS 4 /* kinds of pictures */

struct mh_image_room {
    const mh_kernels *kernels;
    void *states[MH_ROOM_CODECS]; /* by kind; NULL until the first picture of it */
    mh_weights columns, rows;
    mh_scratch strip;       /* rows as they are decoded */
    mh_scratch ring;        /* rows that are as wide as the result */
    mh_scratch slots;       /* pointers to rows of the ring */
    mh_scratch lines;       /* rows on their way out */
    mh_scratch pictures[2]; /* between stages */
    mh_scene scene;
};

/* Makes the room use plain C: for tests. */
void mh_image_room_use(mh_image_room *room, const mh_kernels *kernels);

/* The codec of a kind and its state, made at the first call. */
MH_MUST_CHECK mh_status mh_image_room_codec(mh_image_room *room, mh_picture_kind kind,
                                            const mh_picture_codec **out, void **out_state,
                                            mh_error *err);

#endif
