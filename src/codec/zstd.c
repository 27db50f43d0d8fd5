/* zstd.c - Zstandard frames
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/byte_codec.h"

#include <mh_config.h>

#if MH_HAVE_ZSTD
#include <zstd.h>

static mh_status zstd_state_new(void **out, mh_error *err)
{
    *out = ZSTD_createDCtx();
    return *out ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for zstd");
}

static void zstd_state_free(void *state)
{
    ZSTD_freeDCtx(state);
}

/* All frames in one call: the output itself is the window, so that a frame that claims a large one
 * allocates nothing. */
static mh_status zstd_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                             mh_error *err)
{
    (void)settings;
    size_t got = ZSTD_decompressDCtx(state, run->into, run->room, run->from, run->size);
    if (ZSTD_isError(got))
        return mh_fail(err, MH_ERR_CORRUPT, "zstd: %s", ZSTD_getErrorName(got));
    run->count = got;
    return MH_OK;
}
#endif

const mh_byte_codec mh_codec_zstd = {
    .name = "zstd",
    .what = "Zstandard",
#if MH_HAVE_ZSTD
    .encoded_bytes = mh_encoded_packed,
    .state_new = zstd_state_new,
    .state_free = zstd_state_free,
    .decode = zstd_decode,
#else
    .lacks = "libzstd",
#endif
};
