/* delta.c - differences added up to numbers again
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/byte_codec.h"

#include <string.h>

static mh_status delta_configure(mh_codec_settings *settings, mh_json_view options, mh_error *err)
{
    MH_TRY(mh_number_read(&settings->dtype, options, "dtype", "delta", err));
    settings->astype = settings->dtype;
    if (mh_json_member(options, "astype").text)
        MH_TRY(mh_number_read(&settings->astype, options, "astype", "delta", err));
    if (settings->astype.kind != settings->dtype.kind ||
        settings->astype.bytes != settings->dtype.bytes)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the codec delta with another type when encoded");
    return MH_OK;
}

/* Sums in the number's own type, which wrap round as they did when they were subtracted. */
#define ADD_UP(type)                                                                               \
    do {                                                                                           \
        type sum = 0, value;                                                                       \
        for (uint64_t at = 0; at < size; at += sizeof value) {                                     \
            memcpy(&value, from + at, sizeof value);                                               \
            sum = (type)(sum + value);                                                             \
            memcpy(into + at, &sum, sizeof sum);                                                   \
        }                                                                                          \
    } while (0)

static void add_up(mh_number number, const uint8_t *from, uint8_t *into, uint64_t size)
{
    if (number.kind == 'f' && number.bytes == 4)
        ADD_UP(float);
    else if (number.kind == 'f')
        ADD_UP(double);
    else if (number.bytes == 1)
        ADD_UP(uint8_t);
    else if (number.bytes == 2)
        ADD_UP(uint16_t);
    else if (number.bytes == 4)
        ADD_UP(uint32_t);
    else
        ADD_UP(uint64_t);
}

static mh_status delta_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                              mh_error *err)
{
    (void)state;
    if (run->size > run->room || run->size % settings->dtype.bytes != 0)
        return mh_fail(err, MH_ERR_CORRUPT, "delta: %llu bytes, there should be %llu",
                       (unsigned long long)run->size, (unsigned long long)run->room);
    add_up(settings->dtype, run->from, run->into, run->size);
    run->count = run->size;
    return MH_OK;
}

const mh_byte_codec mh_codec_delta = {
    .name = "delta",
    .what = "differences of numbers",
    .configure = delta_configure,
    .encoded_bytes = mh_encoded_same,
    .decode = delta_decode,
};
