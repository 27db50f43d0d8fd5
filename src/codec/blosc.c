/* blosc.c - chunks of Blosc 1: its compressors, shuffle and bitshuffle
 * SPDX-License-Identifier: Apache-2.0
 *
 * Only the calls with a context are used: the others share threads and a lock in the process. The
 * header is checked before the library sees it.
 */
#include "base/error.h"
#include "codec/byte_codec.h"

#include <mh_config.h>

#if MH_HAVE_BLOSC
#include <blosc.h>
#include <limits.h>

#define HEADER_BYTES 16u
#define SNAPPY 2u        /* its number among the compressors */
#define FORMAT_VERSION 2 /* of chunks; 1 was before the format was fixed */

static uint32_t little32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Bytes: version, version of the compressor, flags, size of a number, then three sizes. */
static mh_status header_check(const mh_codec_run *run, mh_error *err)
{
    static const char *const compressors[] = {"blosclz", "lz4", "snappy", "zlib", "zstd"};
    const uint8_t *from = run->from;
    if (run->size < HEADER_BYTES)
        return mh_fail(err, MH_ERR_CORRUPT, "blosc: a chunk of %llu bytes has no header",
                       (unsigned long long)run->size);
    uint32_t decoded = little32(from + 4), block = little32(from + 8), packed = little32(from + 12);
    if (from[0] != FORMAT_VERSION)
        return mh_fail(err, from[0] > FORMAT_VERSION ? MH_ERR_UNSUPPORTED : MH_ERR_CORRUPT,
                       "blosc: a chunk of version %u", from[0]);
    if (packed != run->size || decoded > INT_MAX || from[3] == 0)
        return mh_fail(err, MH_ERR_CORRUPT, "blosc: the header claims %u bytes, there are %llu",
                       packed, (unsigned long long)run->size);
    if (decoded > run->room || (decoded > 0 && (block == 0 || block > decoded)))
        return mh_fail(err, MH_ERR_CORRUPT,
                       "blosc: the header claims %u decoded bytes in blocks of %u, there should be "
                       "%llu",
                       decoded, block, (unsigned long long)run->room);
    unsigned compressor = from[2] >> 5;
    if (compressor >= sizeof compressors / sizeof *compressors)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "blosc: unknown compressor %u", compressor);
    /* not every libblosc has it, and a wheel's is linked without (snappy_stub.c) */
    if (compressor == SNAPPY && !(from[2] & 2))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "blosc: chunks compressed by snappy");
    return MH_OK;
}

static mh_status blosc_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                              mh_error *err)
{
    (void)state;
    (void)settings;
    MH_TRY(header_check(run, err));
    uint32_t claimed = little32(run->from + 4);
    int got = blosc_decompress_ctx(run->from, run->into, claimed, 1);
    if (got < 0 || (uint32_t)got != claimed)
        return mh_fail(err, MH_ERR_CORRUPT, "blosc: damaged bytes");
    run->count = claimed;
    return MH_OK;
}
#endif

const mh_byte_codec mh_codec_blosc = {
    .name = "blosc",
    .what = "Blosc 1 chunks: blosclz, lz4, lz4hc, zlib, zstd, with shuffle or bitshuffle",
#if MH_HAVE_BLOSC
    .encoded_bytes = mh_encoded_packed,
    .decode = blosc_decode,
#else
    .lacks = "libblosc",
#endif
};
