/* object_versions.h - the ETag that the first answer about an object had
 * SPDX-License-Identifier: Apache-2.0
 *
 * One thread at a time.
 */
#ifndef MH_SOURCE_OBJECT_VERSIONS_H
#define MH_SOURCE_OBJECT_VERSIONS_H

#include "source/transport.h"

/* Zeroed at first: empty. */
typedef struct mh_object_versions {
    struct mh_object_version *entries; /* a hash table, at most half full */
    uint32_t room, count;
} mh_object_versions;

/* NULL: nothing is known of it. Valid until the next add. */
const char *mh_object_versions_find(const mh_object_versions *versions, uint32_t object);

/* Of an object that is not there yet; `etag` is not "" and has less than MH_ETAG_ROOM bytes. False:
 * no memory. */
bool mh_object_versions_add(mh_object_versions *versions, uint32_t object, const char *etag);

void mh_object_versions_free(mh_object_versions *versions);

#endif
