/* sha256.h - SHA-256 and HMAC over it, as FIPS 180-4 and RFC 2104 have them
 * SPDX-License-Identifier: Apache-2.0
 *
 * Requests to S3 are signed with it. Pure functions; written here so that a wheel does not depend
 * on the version of a cryptography library.
 */
#ifndef MH_BASE_SHA256_H
#define MH_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MH_SHA256_BYTES 32
#define MH_SHA256_HEX 65 /* with the NUL */

/* Caller's memory. */
typedef struct mh_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[64];
    bool plain; /* the C code, even where the processor has instructions for it: set by tests */
} mh_sha256;

void mh_sha256_init(mh_sha256 *hash);
void mh_sha256_add(mh_sha256 *hash, const void *data, size_t size);
void mh_sha256_end(mh_sha256 *hash, uint8_t out[MH_SHA256_BYTES]);

/* HMAC-SHA-256 of `data` with a key of any length. */
void mh_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                    uint8_t out[MH_SHA256_BYTES]);

/* A hash as lower-case text with a NUL at its end. */
void mh_sha256_hex(const uint8_t hash[MH_SHA256_BYTES], char out[MH_SHA256_HEX]);

#endif
