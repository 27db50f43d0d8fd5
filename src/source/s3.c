/* s3.c - objects in buckets: S3 and whatever speaks its language
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "source/remote.h"
#include "source/s3_listing.h"
#include "source/s3_place.h"

#include <stdio.h>
#include <string.h>

#define PAGE_BYTES (UINT64_C(16) << 20) /* 1 000 keys of 1 KiB, all of them escapes */

const mh_remote_type mh_remote_s3 = {
    .source = &mh_source_s3,
    .addressing = {.s3 = true,
                   .address = mh_s3_address,
                   .waits = mh_s3_waits,
                   .redact = mh_s3_redact},
    .open = mh_s3_place_open,
    .watch = mh_s3_watch,
    .close = mh_s3_place_close,
};

static mh_status s3_stat(mh_object *object, const mh_source_options *options, mh_error *err)
{
    size_t bucket = 0;
    const char *key = "";
    MH_TRY(mh_s3_split(object->name, &bucket, &key, err));
    if (!*key) /* a bucket answers, too: with a listing */
        return mh_fail(err, MH_ERR_NOT_FOUND, "%.200s is a bucket, not an object", object->name);
    return mh_remote_stat(&mh_remote_s3, object, options, err);
}

static mh_status s3_get(const char *name, const mh_source_options *options, uint64_t most,
                        uint8_t *into, uint64_t *got, mh_error *err)
{
    return mh_remote_get(&mh_remote_s3, name, options, most, into, got, err);
}

static mh_status s3_open(mh_source **out, const mh_objects *objects,
                         const mh_source_options *options, mh_error *err)
{
    return mh_remote_source_open(out, &mh_remote_s3, objects, options, err);
}

/* --- listing --- */

typedef struct listing {
    mh_source_each *each;
    void *context;
    char name[MH_NAME_MOST]; /* "s3://bucket/", then the key */
    size_t bucket;           /* length of the first part */
} listing;

static mh_status give_entry(void *context, const mh_s3_entry *entry, mh_error *err)
{
    listing *list = context;
    if (entry->is_prefix)
        return MH_OK;
    (void)snprintf(list->name + list->bucket, sizeof list->name - list->bucket, "%s", entry->key);
    const mh_object object = {
        .name = list->name, .size = entry->size, .version = mh_etag_version(entry->etag)};
    return list->each(list->context, &object, err);
}

static mh_status read_page(listing *list, mh_request *request, uint8_t *bytes,
                           const mh_source_options *options, mh_s3_page *page, mh_error *err)
{
    request->method = "GET";
    request->room = PAGE_BYTES;
    request->segments[0] = (mh_segment){0, PAGE_BYTES, bytes};
    request->segment_count = 1;
    request->expected.whole = true;
    MH_TRY(mh_remote_ask(&mh_remote_s3, options, request, err));
    mh_status status =
        mh_s3_page_read(page, (const char *)bytes, request->answer->came, give_entry, list, err);
    if (status == MH_ERR_CORRUPT)
        mh_error_prefix(err, "%.200s", request->shown);
    return status;
}

static mh_status list_pages(listing *list, const char *prefix, mh_request *request, uint8_t *bytes,
                            mh_s3_page *page, const mh_source_options *options, mh_error *err)
{
    *page = (mh_s3_page){0};
    do {
        char token[MH_S3_TOKEN_ROOM];
        memcpy(token, page->token, sizeof token);
        const mh_query_pair query[] = {{"list-type", "2"},
                                       {"encoding-type", "url"},
                                       {"prefix", prefix},
                                       {"continuation-token", token}};
        *request = (mh_request){.query = query, .query_count = page->more ? 4 : 3};
        memcpy(request->name, list->name, list->bucket);
        request->name[list->bucket] = '\0';
        MH_TRY(read_page(list, request, bytes, options, page, err));
    } while (page->more);
    return MH_OK;
}

static mh_status s3_list(const char *prefix, const mh_source_options *options, mh_source_each *each,
                         void *context, mh_error *err)
{
    listing *list = mh_calloc(1, sizeof *list);
    mh_request *request = mh_calloc(1, sizeof *request);
    mh_s3_page *page = mh_calloc(1, sizeof *page);
    uint8_t *bytes = mh_calloc(1, PAGE_BYTES);
    const char *key = NULL;
    mh_status status = MH_ERR_NOMEM;
    if (!list || !request || !page || !bytes)
        (void)mh_fail(err, MH_ERR_NOMEM, "no memory to list %.200s", prefix);
    else
        status = mh_s3_split(prefix, &list->bucket, &key, err);
    if (status == MH_OK) {
        list->each = each;
        list->context = context;
        (void)snprintf(list->name, sizeof list->name, "s3://%.*s/", (int)list->bucket, prefix + 5);
        list->bucket += strlen("s3:///");
        status = list_pages(list, key, request, bytes, page, options, err);
    }
    mh_free(bytes);
    mh_free(page);
    mh_free(request);
    mh_free(list);
    return status;
}

const mh_source_type mh_source_s3 = {
    .name = "s3",
    .schemes = "s3",
    .what = "objects in S3, MinIO, Ceph, R2 and Google's XML interface (endpoint_url)",
    .stat = s3_stat,
    .get = s3_get,
    .list = s3_list,
    .open = s3_open,
    .read = mh_remote_read,
    .submit = mh_remote_submit,
    .stats = mh_remote_stats,
    .close = mh_remote_source_close,
};
