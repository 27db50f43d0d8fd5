/* bitround.c - numbers whose last bits were rounded off when they were written: nothing to undo
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/byte_codec.h"

#include <string.h>

static mh_status bitround_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                                 mh_error *err)
{
    (void)state;
    (void)settings;
    if (run->size > run->room)
        return mh_fail(err, MH_ERR_CORRUPT, "bitround: %llu bytes, there should be %llu",
                       (unsigned long long)run->size, (unsigned long long)run->room);
    memcpy(run->into, run->from, run->size);
    run->count = run->size;
    return MH_OK;
}

const mh_byte_codec mh_codec_bitround = {
    .name = "bitround",
    .what = "numbers rounded when they were written",
    .encoded_bytes = mh_encoded_same,
    .decode = bitround_decode,
};
