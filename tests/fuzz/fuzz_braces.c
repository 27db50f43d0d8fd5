/* fuzz_braces.c - fuzz target: names with ranges of numbers
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/braces.h"

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
    mh_error err = {0};
    char **list = NULL;
    size_t count = 0;
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    mh_status status = mh_braces_expand(&list, &count, text, 100, &err);
    require(status == MH_OK || (status == MH_ERR_INVALID && err.message[0]));
    require(count <= 100 && (status != MH_OK || count > 0));
    for (size_t i = 0; i < count; i++)
        require(!mh_braces_has(list[i]) || strchr(text, '{') != strrchr(text, '{'));
    require(status != MH_OK || mh_braces_has(text) || (count == 1 && strcmp(list[0], text) == 0));
    mh_braces_free(list, count);
    free(text);
    return 0;
}
