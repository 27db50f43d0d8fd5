/* fuzz_npy_header.c - fuzz target: what an .npy header says is sound, whatever the bytes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/npy_header.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_npy_header header;
    mh_error err = {0};
    mh_status status = mh_npy_header_read(&header, data, size, &err);
    if (status != MH_OK) {
        require(status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED);
        require(err.message[0] != '\0');
        return 0;
    }
    uint64_t bytes = header.dtype.bits / 8;
    require(bytes > 0 && header.dims <= MH_DIMS_MOST + 1);
    require(header.data_offset <= size);
    for (uint32_t i = 0; i < header.dims; i++) {
        require(header.shape[i] >= 0);
        bytes *= (uint64_t)header.shape[i];
    }
    require(bytes == header.data_bytes);
    return 0;
}
