/* storage.h - how remote data is reached: storage_options={...}, --storage KEY=VALUE,...
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_STORAGE_H
#define MH_SOURCE_STORAGE_H

#include <millhead/error.h>
#include <stdbool.h>

#define MH_STORAGE_TOKEN_ROOM 4096

/* Texts that are "" are not given. Holds secrets: wipe it with mh_storage_wipe. */
typedef struct mh_storage {
    char endpoint_url[512];
    char region[64];
    char profile[128];
    char key[160], secret[160], token[MH_STORAGE_TOKEN_ROOM];
    bool anon;         /* requests are not signed */
    bool virtual_host; /* bucket.host/key, else host/bucket/key; as given, else by the endpoint */
    bool path_style;
    bool link_local; /* addresses such as 169.254.169.254 may be read */
    char ca_file[512];
    double timeout_s; /* of one request with all its repeats */
} mh_storage;

/* `text` is "endpoint_url=http://127.0.0.1:9000,anon=true", with commas and percent signs in values
 * as %2C and %25; NULL and "" are nothing. Pure. MH_ERR_INVALID names the key that is wrong, never
 * a value. */
MH_MUST_CHECK mh_status mh_storage_read(mh_storage *out, const char *text, mh_error *err);

void mh_storage_wipe(mh_storage *storage);

#endif
