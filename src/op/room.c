/* room.c - what one thread needs to run plans: codec states and scratch memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/room.h"

mh_status mh_image_room_new(mh_image_room **out, mh_error *err)
{
    mh_image_room *room = mh_calloc(1, sizeof *room);
    if (!room)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to process pictures");
    room->kernels = mh_kernels_best();
    *out = room;
    return MH_OK;
}

void mh_image_room_free(mh_image_room *room)
{
    if (!room)
        return;
    for (const mh_picture_codec *const *codec = mh_picture_codecs; *codec; codec++)
        if (room->states[(*codec)->kind])
            (*codec)->state_free(room->states[(*codec)->kind]);
    mh_weights_deinit(&room->columns);
    mh_weights_deinit(&room->rows);
    mh_scratch_free(&room->strip);
    mh_scratch_free(&room->ring);
    mh_scratch_free(&room->slots);
    mh_scratch_free(&room->lines);
    mh_scratch_free(&room->pictures[0]);
    mh_scratch_free(&room->pictures[1]);
    mh_free(room);
}

void mh_image_room_use(mh_image_room *room, const mh_kernels *kernels)
{
    room->kernels = kernels;
}

mh_status mh_image_room_codec(mh_image_room *room, mh_picture_kind kind,
                              const mh_picture_codec **out, void **out_state, mh_error *err)
{
    MH_TRY(mh_picture_codec_find(out, kind, err));
    if (!room->states[kind])
        MH_TRY((*out)->state_new(&room->states[kind], err));
    *out_state = room->states[kind];
    return MH_OK;
}
