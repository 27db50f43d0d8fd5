/* lz4.c - blocks of LZ4 with their decoded size before them, as numcodecs writes them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/byte_codec.h"

#include <mh_config.h>

#if MH_HAVE_LZ4
#include <limits.h>
#include <lz4.h>

#define SIZE_BYTES 4u /* little endian */

static mh_status lz4_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                            mh_error *err)
{
    const uint8_t *from = run->from;
    (void)state;
    (void)settings;
    if (run->size < SIZE_BYTES || run->size > INT_MAX)
        return mh_fail(err, MH_ERR_CORRUPT, "lz4: a block of %llu bytes",
                       (unsigned long long)run->size);
    uint32_t claimed =
        from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    if (claimed > run->room || claimed > INT_MAX)
        return mh_fail(err, MH_ERR_CORRUPT, "lz4: the block claims %u bytes, there should be %llu",
                       claimed, (unsigned long long)run->room);
    int got = LZ4_decompress_safe((const char *)from + SIZE_BYTES, (char *)run->into,
                                  (int)(run->size - SIZE_BYTES), (int)claimed);
    if (got < 0 || (uint32_t)got != claimed)
        return mh_fail(err, MH_ERR_CORRUPT, "lz4: damaged bytes");
    run->count = claimed;
    return MH_OK;
}
#endif

const mh_byte_codec mh_codec_lz4 = {
    .name = "lz4",
    .what = "LZ4 blocks with their size, as numcodecs writes them",
#if MH_HAVE_LZ4
    .encoded_bytes = mh_encoded_packed,
    .decode = lz4_decode,
#else
    .lacks = "liblz4",
#endif
};
