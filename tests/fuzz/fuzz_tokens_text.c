/* fuzz_tokens_text.c - fuzz target: what a text says of token files is sound
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/tokens_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static void check_dtype(mh_dtype dtype)
{
    require(dtype.bits == 0 || dtype.bits == 8 || dtype.bits == 16 || dtype.bits == 32 ||
            dtype.bits == 64);
    require(dtype.code <= 1);
}

static void check_token(int64_t token)
{
    require(token >= INT32_MIN && token <= UINT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mh_tokens_text made;
    mh_error err = {0};
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    mh_status status = mh_tokens_text_read(&made, text, &err);
    free(text);
    require(status == MH_OK || (status == MH_ERR_INVALID && err.message[0] != '\0'));
    if (status != MH_OK)
        return 0;
    require(made.path[0] != '\0' && memchr(made.path, '\0', sizeof made.path) != NULL);
    check_dtype(made.stored);
    check_dtype(made.delivered);
    check_token(made.eos);
    check_token(made.pad);
    return 0;
}
