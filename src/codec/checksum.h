/* checksum.h - CRC-32C
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_CODEC_CHECKSUM_H
#define MH_CODEC_CHECKSUM_H

#include <stdint.h>

/* CRC-32C (Castagnoli) of the bytes, as RFC 3720 has it. Any thread. */
uint32_t mh_crc32c(const uint8_t *bytes, uint64_t size);

/* The same without instructions of the CPU for it: tests compare both. */
uint32_t mh_crc32c_plain(const uint8_t *bytes, uint64_t size);

#endif
