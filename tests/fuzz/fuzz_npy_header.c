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

/* Every value of a member lies inside the element. */
static void check_member(const mh_npy_member *member, uint64_t item_bytes)
{
    uint64_t value = member->dtype.bits / 8, last = member->offset;
    int empty = 0;
    require(value > 0 && member->dims <= MH_DIMS_MOST && member->offset <= item_bytes);
    require(member->swap == 1 || member->swap == 2 || member->swap == 4 || member->swap == 8);
    for (uint32_t i = 0; i < member->dims; i++) {
        require(member->shape[i] >= 0);
        empty |= member->shape[i] == 0;
    }
    for (uint32_t i = 0; i < member->dims && !empty; i++)
        last += ((uint64_t)member->shape[i] - 1) * member->strides[i];
    require(empty || (last <= item_bytes && value <= item_bytes - last));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mh_npy_header header;
    mh_error err = {0};
    mh_status status = mh_npy_header_read(&header, data, size, &err);
    if (status != MH_OK) {
        require(status == MH_ERR_CORRUPT || status == MH_ERR_UNSUPPORTED);
        require(err.message[0] != '\0');
        return 0;
    }
    uint64_t bytes = header.item_bytes;
    require(header.dims <= MH_DIMS_MOST + 1);
    require(header.data_offset <= size);
    require(header.member_count > 0 && header.member_count <= MH_NPY_MEMBERS_MOST);
    for (uint32_t i = 0; i < header.member_count; i++)
        check_member(&header.members[i], header.item_bytes);
    for (uint32_t i = 0; i < header.dims; i++) {
        require(header.shape[i] >= 0);
        bytes *= (uint64_t)header.shape[i];
    }
    require(bytes == header.data_bytes);
    return 0;
}
