/* deflate.c - gzip members and zlib streams, whole buffers at a time
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/byte_codec.h"

#include <mh_config.h>

#if MH_HAVE_DEFLATE
#include <libdeflate.h>

static mh_status deflate_state_new(void **out, mh_error *err)
{
    *out = libdeflate_alloc_decompressor();
    return *out ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for deflate");
}

static void deflate_state_free(void *state)
{
    libdeflate_free_decompressor(state);
}

static mh_status deflate_status(enum libdeflate_result result, const char *name, mh_error *err)
{
    if (result == LIBDEFLATE_SUCCESS)
        return MH_OK;
    return mh_fail(err, MH_ERR_CORRUPT, "%s: %s", name,
                   result == LIBDEFLATE_INSUFFICIENT_SPACE ? "more bytes than there should be"
                                                           : "damaged bytes");
}

/* A gzip file may have several members behind each other. */
static mh_status gzip_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                             mh_error *err)
{
    size_t at = 0, count = 0;
    (void)settings;
    do {
        size_t taken = 0, got = 0;
        MH_TRY(deflate_status(libdeflate_gzip_decompress_ex(state, run->from + at, run->size - at,
                                                            run->into + count, run->room - count,
                                                            &taken, &got),
                              "gzip", err));
        at += taken;
        count += got;
    } while (at < run->size);
    run->count = count;
    return MH_OK;
}

static mh_status zlib_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                             mh_error *err)
{
    size_t taken = 0, got = 0;
    (void)settings;
    MH_TRY(deflate_status(libdeflate_zlib_decompress_ex(state, run->from, run->size, run->into,
                                                        run->room, &taken, &got),
                          "zlib", err));
    if (taken != run->size)
        return mh_fail(err, MH_ERR_CORRUPT, "zlib: bytes behind the end");
    run->count = got;
    return MH_OK;
}
#endif

const mh_byte_codec mh_codec_gzip = {
    .name = "gzip",
    .what = "gzip members",
#if MH_HAVE_DEFLATE
    .encoded_bytes = mh_encoded_packed,
    .state_new = deflate_state_new,
    .state_free = deflate_state_free,
    .decode = gzip_decode,
#else
    .lacks = "libdeflate",
#endif
};

const mh_byte_codec mh_codec_zlib = {
    .name = "zlib",
    .what = "zlib streams",
#if MH_HAVE_DEFLATE
    .encoded_bytes = mh_encoded_packed,
    .state_new = deflate_state_new,
    .state_free = deflate_state_free,
    .decode = zlib_decode,
#else
    .lacks = "libdeflate",
#endif
};
