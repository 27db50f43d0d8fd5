/* crc32c.c - a checksum before or behind the bytes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/byte_codec.h"
#include "codec/checksum.h"

#include <string.h>

#if defined __x86_64__
#include <nmmintrin.h>
#endif

#define CHECKSUM_BYTES 4u               /* little endian */
#define POLYNOMIAL UINT32_C(0x82F63B78) /* 0x1EDC6F41 with its bits turned round */

/* What four bits that are shifted out do to the rest: small enough to stand here as it is. */
static uint32_t after_four_bits(uint32_t crc)
{
    for (int bit = 0; bit < 4; bit++)
        crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
    return crc;
}

uint32_t mh_crc32c_plain(const uint8_t *bytes, uint64_t size)
{
    uint32_t table[16], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 16; i++)
        table[i] = after_four_bits(i);
    for (uint64_t at = 0; at < size; at++) {
        crc ^= bytes[at];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

#if defined __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(const uint8_t *bytes, uint64_t size)
{
    uint64_t crc = UINT32_MAX, at = 0;
    for (; size - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; at < size; at++)
        crc = _mm_crc32_u8((uint32_t)crc, bytes[at]);
    return ~(uint32_t)crc;
}
#endif

uint32_t mh_crc32c(const uint8_t *bytes, uint64_t size)
{
#if defined __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return crc32c_sse42(bytes, size);
#endif
    return mh_crc32c_plain(bytes, size);
}

/* --- the codec --- */

/* Zarr 3 puts the checksum behind the bytes; numcodecs also before them. */
static mh_status crc32c_configure(mh_codec_settings *settings, mh_json_view options, mh_error *err)
{
    mh_json_view location = mh_json_member(options, "location");
    settings->checksum_at_start = mh_json_view_is(location, "start");
    if (location.text && !settings->checksum_at_start && !mh_json_view_is(location, "end"))
        return mh_fail(err, MH_ERR_CORRUPT, "the codec crc32c has an unknown location");
    return MH_OK;
}

static uint64_t crc32c_encoded(const mh_codec_settings *settings, uint64_t decoded, bool *exact)
{
    (void)settings;
    (void)exact;
    return decoded + CHECKSUM_BYTES;
}

static mh_status crc32c_decode(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                               mh_error *err)
{
    (void)state;
    if (run->size < CHECKSUM_BYTES || run->size - CHECKSUM_BYTES > run->room)
        return mh_fail(err, MH_ERR_CORRUPT, "crc32c: %llu bytes, there should be %llu",
                       (unsigned long long)run->size,
                       (unsigned long long)run->room + CHECKSUM_BYTES);
    uint64_t size = run->size - CHECKSUM_BYTES;
    const uint8_t *bytes = run->from + (settings->checksum_at_start ? CHECKSUM_BYTES : 0);
    const uint8_t *sum = settings->checksum_at_start ? run->from : bytes + size;
    uint32_t told =
        sum[0] | (uint32_t)sum[1] << 8 | (uint32_t)sum[2] << 16 | (uint32_t)sum[3] << 24;
    uint32_t found = mh_crc32c(bytes, size);
    if (found != told)
        return mh_fail(err, MH_ERR_CORRUPT, "crc32c: the bytes have %08x, stored is %08x", found,
                       told);
    memcpy(run->into, bytes, size);
    run->count = size;
    return MH_OK;
}

const mh_byte_codec mh_codec_crc32c = {
    .name = "crc32c",
    .what = "a CRC-32C before or behind the bytes",
    .configure = crc32c_configure,
    .encoded_bytes = crc32c_encoded,
    .decode = crc32c_decode,
};
