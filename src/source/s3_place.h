/* s3_place.h - where buckets are and who asks for them: URLs, signatures, credentials
 * SPDX-License-Identifier: Apache-2.0
 *
 * The functions are those of mh_remote_type and mh_addressing, which have their contracts.
 */
#ifndef MH_SOURCE_S3_PLACE_H
#define MH_SOURCE_S3_PLACE_H

#include "source/remote.h"

mh_status mh_s3_place_open(void **out, const mh_storage *storage, mh_error *err);
void mh_s3_place_close(void *place);
void mh_s3_watch(void *place, mh_requests *requests);
mh_status mh_s3_address(void *place, const mh_request *request, mh_attempt *attempt, mh_error *err);
bool mh_s3_waits(void *place, bool now, bool *failed, mh_error *err);
void mh_s3_redact(void *place, char *text);

/* "s3://bucket/key": the length of the bucket's name, and the key; which may be "". Pure.
 * MH_ERR_INVALID: there is no bucket. */
MH_MUST_CHECK mh_status mh_s3_split(const char *name, size_t *out_bucket, const char **out_key,
                                    mh_error *err);

#endif
