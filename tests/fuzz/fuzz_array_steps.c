/* fuzz_array_steps.c - fuzz target: what a text says of arrays' values is sound
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/steps_text.h"

#include <math.h>
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
    mh_variable variables[] = {{.name = "t2m", .dtype = {2, 32}}, {.name = "u", .dtype = {0, 16}}};
    mh_error err = {0};
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    mh_status status = mh_array_steps_read(variables, 2, text, &err);
    free(text);
    require(status == MH_OK || (status == MH_ERR_INVALID && err.message[0] != '\0'));
    for (int i = 0; status == MH_OK && i < 2; i++) {
        const mh_decoding *decoding = &variables[i].decoding;
        mh_dtype dtype;
        require(!decoding->normalise || (isfinite(decoding->mean) && decoding->std != 0));
        require(!decoding->fill_nan || isfinite(decoding->nan_value));
        require(mh_decoding_dtype(variables[i].dtype, decoding, &dtype, NULL) == MH_OK);
        require(dtype.bits >= 8 && dtype.bits <= 64);
    }
    return 0;
}
