/* fuzz_s3_listing.c - fuzz target: whatever a server answers, a listing stays within its limits
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/s3_listing.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static mh_status check(void *context, const mh_s3_entry *entry, mh_error *err)
{
    size_t *count = context;
    (void)err;
    size_t length = strnlen(entry->key, sizeof entry->key);
    require(length > 0 && length <= MH_S3_KEY_MOST);
    require(memchr(entry->etag, '\0', sizeof entry->etag) != NULL);
    (*count)++;
    return MH_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_s3_page page;
    mh_error err = {0};
    size_t count = 0;
    char *text = malloc(size ? size : 1); /* of exactly this size: a byte more is caught */
    require(text != NULL);
    memcpy(text, data, size);
    mh_status status = mh_s3_page_read(&page, text, size, check, &count, &err);
    free(text);
    require(status == MH_OK || (status == MH_ERR_CORRUPT && err.message[0]));
    require(status != MH_OK || page.entries == count);
    require(!(status == MH_OK && page.more) || page.token[0]);
    return 0;
}
