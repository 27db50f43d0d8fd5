/* shuffle.c - the first bytes of all numbers, then the second ones: put together again
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/byte_codec.h"

static mh_status shuffle_configure(mh_codec_settings *settings, mh_json_view options, mh_error *err)
{
    int64_t bytes = 4; /* what numcodecs takes where nothing is said */
    mh_json_view given = mh_json_member(options, "elementsize");
    if (given.text && (!mh_json_view_int64(given, &bytes) || bytes < 1 || bytes > 65536))
        return mh_fail(err, MH_ERR_CORRUPT, "the codec shuffle has no sound elementsize");
    settings->item_bytes = (uint32_t)bytes;
    return MH_OK;
}

/* Inlined with a constant, so that the inner loop has no jumps. */
static inline __attribute__((always_inline)) void unshuffle(const uint8_t *from, uint8_t *into,
                                                            uint64_t count, uint64_t item)
{
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t byte = 0; byte < item; byte++)
            into[i * item + byte] = from[byte * count + i];
}

static mh_status shuffle_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                                mh_error *err)
{
    const uint64_t item = settings->item_bytes, count = run->size / item;
    (void)state;
    if (run->size > run->room || run->size % item != 0)
        return mh_fail(err, MH_ERR_CORRUPT, "shuffle: %llu bytes, there should be %llu",
                       (unsigned long long)run->size, (unsigned long long)run->room);
    switch (item) {
    case 2:
        unshuffle(run->from, run->into, count, 2);
        break;
    case 4:
        unshuffle(run->from, run->into, count, 4);
        break;
    case 8:
        unshuffle(run->from, run->into, count, 8);
        break;
    default:
        unshuffle(run->from, run->into, count, item);
    }
    run->count = run->size;
    return MH_OK;
}

const mh_byte_codec mh_codec_shuffle = {
    .name = "shuffle",
    .what = "numbers byte by byte",
    .configure = shuffle_configure,
    .encoded_bytes = mh_encoded_same,
    .decode = shuffle_decode,
};
