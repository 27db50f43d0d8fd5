/* fuzz_megatron_index.c - fuzz target: an index that is taken fits its .bin, whatever the bytes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/megatron_index.h"

#include <stdlib.h>

#define BIN_BYTES 24 /* of which the corpus's sound ones are */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_megatron_index index = {0};
    mh_error err = {0};
    mh_status status = mh_megatron_index_read(&index, data, size, BIN_BYTES, &err);
    if (status != MH_OK) {
        require(status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED);
        require(err.message[0] != '\0');
        return 0;
    }
    require(index.dtype.code <= 1 && index.dtype.bits >= 8 && index.dtype.bits <= 64);
    require(index.tokens * (index.dtype.bits / 8u) == BIN_BYTES);
    require(index.lengths + index.sequences * 12 == index.firsts);
    require(index.firsts + (index.documents + 1) * 8 <= data + size);
    return 0;
}
