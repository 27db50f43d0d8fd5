/* fuzz_synthetic.c - fuzz target: what a text about synthetic data says is sound
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/synthetic.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_synthetic spec;
    mh_error err = {0};
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    mh_status status = mh_synthetic_parse(&spec, text, &err);
    free(text);
    if (status != MH_OK) {
        require(status == MH_ERR_INVALID && err.message[0] != '\0');
        return 0;
    }
    require(spec.chunk >= 1 && spec.span >= 1 && spec.x.dims >= 1 && spec.x.dims <= MH_DIMS_MOST);
    require(spec.x.dtype.bits % 8 == 0 && spec.x.dtype.bits > 0);
    require(spec.broken >= 0 && spec.broken <= 1);
    for (uint32_t i = 0; i < spec.x.dims; i++)
        require(spec.x.shape[i] >= 1);
    return 0;
}
