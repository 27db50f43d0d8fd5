/* credentials.h - who is asking S3: keys from where AWS's own tools look for them
 * SPDX-License-Identifier: Apache-2.0
 *
 * In this order: the options, the environment, the profile in ~/.aws, a web identity token, the
 * metadata service of EC2.
 */
#ifndef MH_SOURCE_CREDENTIALS_H
#define MH_SOURCE_CREDENTIALS_H

#include "source/storage.h"

/* Secrets: wipe them with explicit_bzero. */
typedef struct mh_credentials {
    bool anonymous; /* none: requests are not signed */
    char key[160], secret[160], token[MH_STORAGE_TOKEN_ROOM];
    int64_t got, expires; /* seconds since 1970; expires 0: never */
} mh_credentials;

/* One small HTTP exchange: `body` NULL is a GET, else a POST, or a PUT without body where it is "".
 * The answer's text into `out`; *status is HTTP's. Waits. */
typedef mh_status mh_credentials_call(void *context, const char *url, const char *const *headers,
                                      const char *body, char *out, size_t room, int *status,
                                      mh_error *err);

/* Looks for credentials. Where the options name a way that does not work, that is an error: nobody
 * wants another identity than the one asked for. Where there is none at all, MH_ERR_NOT_FOUND with
 * what to set. `call` may be NULL: then the network is not asked. */
MH_MUST_CHECK mh_status mh_credentials_find(mh_credentials *out, const mh_storage *storage,
                                            mh_credentials_call *call, void *context,
                                            mh_error *err);

/* Whether to get new ones: 5 minutes before the old ones end, or in the last quarter of a short
 * life. */
bool mh_credentials_due(const mh_credentials *credentials, int64_t now);

/* A setting of the profile (storage, AWS_PROFILE, default) in ~/.aws/config or credentials. False:
 * it is not there. */
bool mh_credentials_setting(const mh_storage *storage, const char *name, char *out, size_t room);

#define MH_REGION_ROOM 64

/* The region: of the options, AWS_REGION, AWS_DEFAULT_REGION, the profile, else us-east-1. */
void mh_credentials_region(const mh_storage *storage, char out[MH_REGION_ROOM]);

/* "2026-11-18T16:00:00Z" as seconds since 1970; 0: it is anything else. Pure. */
int64_t mh_time_read(const char *text);

#endif
