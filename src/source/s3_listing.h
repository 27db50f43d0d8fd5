/* s3_listing.h - what S3 answers to ListObjectsV2
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure: bytes in, entries out.
 */
#ifndef MH_SOURCE_S3_LISTING_H
#define MH_SOURCE_S3_LISTING_H

#include <millhead/error.h>
#include <stdbool.h>

#define MH_S3_KEY_MOST 1024   /* bytes of a key, as S3 has it */
#define MH_S3_TOKEN_ROOM 4096 /* of a continuation token */
#define MH_S3_ETAG_ROOM 128

/* One object, or what keys have in common up to the next '/'. */
typedef struct mh_s3_entry {
    char key[MH_S3_KEY_MOST + 1];
    uint64_t size;
    char etag[MH_S3_ETAG_ROOM]; /* with its quotes; "": not told */
    bool is_prefix;             /* then size and etag are not set */
} mh_s3_entry;

typedef struct mh_s3_page {
    uint64_t entries;
    bool more;                    /* ask again with the token */
    char token[MH_S3_TOKEN_ROOM]; /* of the next page */
} mh_s3_page;

/* Calls `each` for every entry, in their order, until it gives something other than MH_OK, which is
 * then returned. MH_ERR_CORRUPT: it is not a listing, or more than the limits above. */
MH_MUST_CHECK mh_status mh_s3_page_read(mh_s3_page *out, const char *xml, size_t size,
                                        mh_status (*each)(void *context, const mh_s3_entry *entry,
                                                          mh_error *err),
                                        void *context, mh_error *err);

#endif
