/* sha256.c - SHA-256 and HMAC over it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/sha256.h"

#include <string.h>
#if defined __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#endif

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t value, unsigned bits)
{
    return value >> bits | value << (32 - bits);
}

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void add_block_plain(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    for (size_t t = 0; t < 16; t++)
        w[t] = big_endian(block + 4 * t);
    for (size_t t = 16; t < 64; t++) {
        uint32_t s0 = rotated(w[t - 15], 7) ^ rotated(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotated(w[t - 2], 17) ^ rotated(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (size_t t = 0; t < 64; t++) {
        uint32_t s1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
        uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
        uint32_t s0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
        uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    const uint32_t after[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; i++)
        state[i] += after[i];
}

#if defined __x86_64__

#define SHA_NI __attribute__((target("sha,sse4.1")))

static bool has_sha_ni(void)
{
    static _Atomic int known; /* 0: nobody has looked, 1: no, 2: yes */
    unsigned a = 0, b = 0, c = 0, d = 0;
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) {
        bool there = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29); /* SHA */
        there = there && __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 19);      /* SSE4.1 */
        found = there ? 2 : 1;
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found == 2;
}

/* w[t] .. w[t + 3] from the 16 before: `a` the oldest four, `d` the newest. */
SHA_NI static __m128i next_words(__m128i a, __m128i b, __m128i c, __m128i d)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4));
    return _mm_sha256msg2_epu32(sum, d);
}

/* The instructions want the state as a, b, e, f and c, d, g, h, from the highest word down. */
SHA_NI static void add_block_sha_ni(uint32_t state[8], const uint8_t *block)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const int *s = (const int *)state;
    __m128i abef = _mm_set_epi32(s[0], s[1], s[4], s[5]);
    __m128i cdgh = _mm_set_epi32(s[2], s[3], s[6], s[7]);
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[16];
    for (size_t i = 0; i < 16; i++) {
        w[i] = i < 4 ? _mm_shuffle_epi8(
                           _mm_loadu_si128((const __m128i *)(const void *)(block + 16 * i)), swap)
                     : next_words(w[i - 4], w[i - 3], w[i - 2], w[i - 1]);
        __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(round_constants + 4 * i));
        k = _mm_add_epi32(k, w[i]);
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
    }
    uint32_t after[8];
    _mm_storeu_si128((__m128i *)(void *)after, _mm_add_epi32(abef, abef_before));
    _mm_storeu_si128((__m128i *)(void *)(after + 4), _mm_add_epi32(cdgh, cdgh_before));
    const uint32_t ordered[8] = {after[3], after[2], after[7], after[6],
                                 after[1], after[0], after[5], after[4]};
    memcpy(state, ordered, sizeof ordered);
}

#endif

static void add_block(mh_sha256 *hash, const uint8_t *block)
{
#if defined __x86_64__
    if (!hash->plain && has_sha_ni()) {
        add_block_sha_ni(hash->state, block);
        return;
    }
#endif
    add_block_plain(hash->state, block);
}

void mh_sha256_init(mh_sha256 *hash)
{
    /* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
    *hash = (mh_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                  0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void mh_sha256_add(mh_sha256 *hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    size_t held = hash->length % sizeof hash->block;
    hash->length += size;
    if (held) {
        size_t taken = sizeof hash->block - held < size ? sizeof hash->block - held : size;
        memcpy(hash->block + held, bytes, taken);
        bytes += taken;
        size -= taken;
        if (held + taken < sizeof hash->block)
            return;
        add_block(hash, hash->block);
    }
    for (; size >= sizeof hash->block; size -= sizeof hash->block, bytes += sizeof hash->block)
        add_block(hash, bytes);
    if (size)
        memcpy(hash->block, bytes, size);
}

void mh_sha256_end(mh_sha256 *hash, uint8_t out[MH_SHA256_BYTES])
{
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = hash->length * 8;
    uint8_t length[8];
    for (size_t i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    size_t held = hash->length % 64;
    mh_sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    mh_sha256_add(hash, length, sizeof length);
    for (size_t i = 0; i < MH_SHA256_BYTES; i++)
        out[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void mh_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                    uint8_t out[MH_SHA256_BYTES])
{
    mh_sha256 hash;
    uint8_t block[64] = {0}, inner[MH_SHA256_BYTES];
    if (key_size > sizeof block) {
        mh_sha256_init(&hash);
        mh_sha256_add(&hash, key, key_size);
        mh_sha256_end(&hash, block);
    } else if (key_size) {
        memcpy(block, key, key_size);
    }
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36;
    mh_sha256_init(&hash);
    mh_sha256_add(&hash, block, sizeof block);
    mh_sha256_add(&hash, data, size);
    mh_sha256_end(&hash, inner);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36 ^ 0x5c;
    mh_sha256_init(&hash);
    mh_sha256_add(&hash, block, sizeof block);
    mh_sha256_add(&hash, inner, sizeof inner);
    mh_sha256_end(&hash, out);
}

void mh_sha256_hex(const uint8_t hash[MH_SHA256_BYTES], char out[MH_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < MH_SHA256_BYTES; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[MH_SHA256_HEX - 1] = '\0';
}
