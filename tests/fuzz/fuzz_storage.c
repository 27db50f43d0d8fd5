/* fuzz_storage.c - fuzz target: options, ini files and messages with secrets in them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/ini.h"
#include "source/redact.h"
#include "source/storage.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static void check_ini(const char *text, size_t size)
{
    char value[16];
    if (mh_ini_find(text, size, "a", "b", value, sizeof value)) {
        require(strlen(value) < sizeof value && mh_ini_has(text, size, "a"));
        require(memmem(text, size, value, strlen(value)) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mh_storage storage;
    mh_error err = {0};
    char shown[32];
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    mh_status status = mh_storage_read(&storage, text, &err);
    require(status == MH_OK || (status == MH_ERR_INVALID && err.message[0]));
    require(status != MH_OK || !*storage.key || *storage.secret);
    check_ini(text, size);
    mh_redact_url(shown, sizeof shown, text);
    require(strlen(shown) < sizeof shown);
    size_t before = strlen(text);
    mh_redact_secret(text, "secret");
    require(strstr(text, "secret") == NULL || strlen(text) < before || before < 6);
    mh_redact(text);
    require(strlen(text) <= before);
    free(text);
    return 0;
}
