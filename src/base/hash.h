/* hash.h - 64 bits that tell damaged bytes from sound ones
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BASE_HASH_H
#define MH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* A hash of our own, for files of our own: several GB/s, the same on every machine, not for
 * adversaries. Pure. */
uint64_t mh_hash64(const void *bytes, size_t size, uint64_t seed);

#endif
