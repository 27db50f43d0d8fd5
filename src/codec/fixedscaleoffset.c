/* fixedscaleoffset.c - numbers stored as value times scale, rounded
 * SPDX-License-Identifier: Apache-2.0
 *
 * As numcodecs has it: decoded = stored / scale + offset, in double precision for stored whole
 * numbers and in their own for others.
 */
#include "base/error.h"
#include "codec/byte_codec.h"

#include <math.h>
#include <string.h>

static mh_status scale_configure(mh_codec_settings *settings, mh_json_view options, mh_error *err)
{
    static const char name[] = "fixedscaleoffset";
    MH_TRY(mh_number_read(&settings->dtype, options, "dtype", name, err));
    settings->astype = settings->dtype;
    if (mh_json_view_kind(mh_json_member(options, "astype")) == MH_JSON_STRING)
        MH_TRY(mh_number_read(&settings->astype, options, "astype", name, err));
    if (settings->dtype.kind != 'f')
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the codec %s of whole numbers", name);
    if (!mh_json_view_double(mh_json_member(options, "scale"), &settings->scale) ||
        !mh_json_view_double(mh_json_member(options, "offset"), &settings->offset) ||
        !isfinite(settings->scale) || !isfinite(settings->offset) || settings->scale == 0)
        return mh_fail(err, MH_ERR_CORRUPT, "the codec %s has no sound scale and offset", name);
    return MH_OK;
}

static uint64_t scale_encoded(const mh_codec_settings *settings, uint64_t decoded, bool *exact)
{
    (void)exact;
    return decoded / settings->dtype.bytes * settings->astype.bytes;
}

/* `work` is the type that is computed in. */
#define SCALE(stored, work, result)                                                                \
    do {                                                                                           \
        stored value;                                                                              \
        result wanted;                                                                             \
        const work scale = (work)settings->scale, offset = (work)settings->offset;                 \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            memcpy(&value, from + i * sizeof value, sizeof value);                                 \
            wanted = (result)((work)value / scale + offset);                                       \
            memcpy(into + i * sizeof wanted, &wanted, sizeof wanted);                              \
        }                                                                                          \
    } while (0)

#define SCALE_TO(stored, work)                                                                     \
    do {                                                                                           \
        if (settings->dtype.bytes == 4)                                                            \
            SCALE(stored, work, float);                                                            \
        else                                                                                       \
            SCALE(stored, work, double);                                                           \
    } while (0)

static void scale(const mh_codec_settings *settings, const uint8_t *from, uint8_t *into,
                  uint64_t count)
{
    const mh_number stored = settings->astype;
    switch (stored.kind << 8 | stored.bytes) {
    case 'f' << 8 | 4:
        SCALE_TO(float, float);
        break;
    case 'f' << 8 | 8:
        SCALE_TO(double, double);
        break;
    case 'i' << 8 | 1:
        SCALE_TO(int8_t, double);
        break;
    case 'i' << 8 | 2:
        SCALE_TO(int16_t, double);
        break;
    case 'i' << 8 | 4:
        SCALE_TO(int32_t, double);
        break;
    case 'i' << 8 | 8:
        SCALE_TO(int64_t, double);
        break;
    case 'u' << 8 | 1:
        SCALE_TO(uint8_t, double);
        break;
    case 'u' << 8 | 2:
        SCALE_TO(uint16_t, double);
        break;
    case 'u' << 8 | 4:
        SCALE_TO(uint32_t, double);
        break;
    default:
        SCALE_TO(uint64_t, double);
    }
}

static mh_status scale_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                              mh_error *err)
{
    const uint64_t count = run->size / settings->astype.bytes;
    (void)state;
    if (run->size % settings->astype.bytes != 0 || count > run->room / settings->dtype.bytes)
        return mh_fail(err, MH_ERR_CORRUPT, "fixedscaleoffset: %llu bytes for %llu decoded ones",
                       (unsigned long long)run->size, (unsigned long long)run->room);
    scale(settings, run->from, run->into, count);
    run->count = count * settings->dtype.bytes;
    return MH_OK;
}

const mh_byte_codec mh_codec_fixedscaleoffset = {
    .name = "fixedscaleoffset",
    .what = "numbers stored as value times scale",
    .configure = scale_configure,
    .encoded_bytes = scale_encoded,
    .decode = scale_decode,
};
