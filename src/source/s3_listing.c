/* s3_listing.c - what S3 answers to ListObjectsV2
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/s3_listing.h"

#include "base/error.h"
#include "source/xml.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_ROOM MH_S3_TOKEN_ROOM

typedef struct reader {
    mh_xml xml;
    mh_s3_page *page;
    mh_s3_entry entry;
    bool url_encoded; /* keys are, as asked for with encoding-type=url */
    bool in_entry, has_key;
    char value[VALUE_ROOM]; /* of the element that was closed last */
} reader;

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "a%2Fb+c" in place. False: it is not encoded so. */
static bool decode_url(char *text)
{
    char *out = text;
    for (; *text; text++) {
        if (*text == '%') {
            int high = hex_digit(text[1]), low = high < 0 ? -1 : hex_digit(text[2]);
            if (low < 0 || (high == 0 && low == 0))
                return false;
            *out++ = (char)(high << 4 | low);
            text += 2;
        } else {
            *out++ = *text == '+' ? ' ' : *text;
        }
    }
    *out = '\0';
    return true;
}

static bool take_key(reader *r)
{
    if (r->url_encoded && !decode_url(r->value))
        return false;
    size_t length = strlen(r->value);
    if (length == 0 || length > MH_S3_KEY_MOST)
        return false;
    memcpy(r->entry.key, r->value, length + 1);
    r->has_key = true;
    return true;
}

static bool take_size(reader *r)
{
    char *end;
    if (r->value[0] < '0' || r->value[0] > '9')
        return false;
    r->entry.size = strtoull(r->value, &end, 10);
    return *end == '\0';
}

static bool take_text(char *out, size_t room, const char *text)
{
    size_t length = strlen(text);
    if (length >= room)
        return false;
    memcpy(out, text, length + 1);
    return true;
}

/* An element of the listing ended; the text in it is r->value. */
static bool take_element(reader *r, const mh_xml_token *name)
{
    if (r->in_entry && (mh_xml_is(name, "Key") || mh_xml_is(name, "Prefix")))
        return take_key(r);
    if (r->in_entry && mh_xml_is(name, "Size"))
        return take_size(r);
    if (r->in_entry && mh_xml_is(name, "ETag"))
        return take_text(r->entry.etag, sizeof r->entry.etag, r->value);
    if (mh_xml_is(name, "IsTruncated"))
        r->page->more = strcmp(r->value, "true") == 0;
    if (mh_xml_is(name, "NextContinuationToken"))
        return take_text(r->page->token, sizeof r->page->token, r->value);
    return true;
}

static void open_element(reader *r, const mh_xml_token *name)
{
    r->value[0] = '\0';
    bool is_prefix = mh_xml_is(name, "CommonPrefixes");
    if (r->xml.depth != 2 || !(is_prefix || mh_xml_is(name, "Contents")))
        return;
    r->in_entry = true;
    r->has_key = false;
    r->entry = (mh_s3_entry){.is_prefix = is_prefix};
}

static mh_status fail(mh_error *err, const reader *r)
{
    return mh_fail(err, MH_ERR_CORRUPT, "the listing is not understood at byte %zu", r->xml.at);
}

/* Servers may say EncodingType behind the keys that it is about. */
static bool is_url_encoded(const char *xml, size_t size)
{
    char type[16];
    return mh_xml_find(xml, size, "EncodingType", type, sizeof type) && strcmp(type, "url") == 0;
}

mh_status mh_s3_page_read(mh_s3_page *out, const char *xml, size_t size,
                          mh_status (*each)(void *context, const mh_s3_entry *entry, mh_error *err),
                          void *context, mh_error *err)
{
    reader r = {.page = out, .url_encoded = is_url_encoded(xml, size)};
    mh_xml_token token;
    bool is_listing = false;
    *out = (mh_s3_page){0};
    mh_xml_init(&r.xml, xml, size);
    while (mh_xml_next(&r.xml, &token) > MH_XML_END) {
        if (token.kind == MH_XML_OPEN) {
            is_listing = is_listing || (r.xml.depth == 1 && mh_xml_is(&token, "ListBucketResult"));
            open_element(&r, &token);
        } else if (token.kind == MH_XML_TEXT) {
            if (!mh_xml_text(&token, r.value, sizeof r.value))
                return fail(err, &r);
        } else if (r.in_entry && r.xml.depth == 1) {
            r.in_entry = false;
            if (!r.has_key)
                return fail(err, &r);
            out->entries++;
            MH_TRY(each(context, &r.entry, err));
        } else {
            if (!take_element(&r, &token))
                return fail(err, &r);
            r.value[0] = '\0';
        }
    }
    if (token.kind == MH_XML_ERROR || !is_listing || (out->more && !*out->token))
        return fail(err, &r);
    return MH_OK;
}
