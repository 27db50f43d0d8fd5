/* op_decode.c - decode: encoded bytes become pixels
 * SPDX-License-Identifier: Apache-2.0
 *
 * The step itself is carried out by run.c; here is how it is written.
 */
#include "op/step.h"

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_WORD, .slot = 0, .choices = "rgb grey mask"},
    {.kind = MH_ARGUMENT_WORD, .slot = 1, .choices = "exif"},
    {.kind = MH_ARGUMENT_END},
};

const mh_op mh_op_decode = {
    .name = "decode",
    .usage = "[rgb | grey | mask] [exif]",
    .what = "pixels as Pillow's convert(\"RGB\") or \"L\"; mask: labels as stored; exif: turned "
            "upright",
    .place = MH_OP_FIRST,
    .arguments = arguments,
};
