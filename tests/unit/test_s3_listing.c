/* test_s3_listing.c - listings of S3 as servers write them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include "source/s3_listing.h"
#include "source/xml.h"

#define HEAD                                                                                       \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- - -->"                                       \
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"           \
    "<Prefix>data/</Prefix><KeyCount>2</KeyCount>"
#define ONE                                                                                        \
    "<Contents><Key>data/a&amp;b &#x1F600;&#233;.npy</Key><LastModified>x</LastModified>"          \
    "<ETag>&quot;0123&quot;</ETag><Owner><ID>7</ID></Owner><Size>18446744073709551615</Size>"      \
    "</Contents>"

typedef struct found {
    mh_s3_entry entries[4];
    size_t count;
} found;

static mh_status keep(void *context, const mh_s3_entry *entry, mh_error *err)
{
    found *all = context;
    (void)err;
    if (all->count == 4)
        return MH_END;
    all->entries[all->count++] = *entry;
    return MH_OK;
}

static mh_status read_text(found *all, mh_s3_page *page, const char *xml)
{
    mh_error err;
    *all = (found){0};
    return mh_s3_page_read(page, xml, strlen(xml), keep, all, &err);
}

static void a_page_gives_its_entries(void **state)
{
    mh_s3_page page;
    found all;
    (void)state;
    assert_int_equal(read_text(&all, &page,
                               HEAD "<IsTruncated>true</IsTruncated>" ONE
                                    "<NextContinuationToken>a/+b=</NextContinuationToken>"
                                    "<CommonPrefixes><Prefix>data/sub/</Prefix></CommonPrefixes>"
                                    "<Contents/></ListBucketResult>"),
                     MH_ERR_CORRUPT); /* the last entry has no key */
    assert_int_equal(read_text(&all, &page,
                               HEAD "<IsTruncated>true</IsTruncated>" ONE
                                    "<NextContinuationToken>a/+b=</NextContinuationToken>"
                                    "<CommonPrefixes><Prefix>data/sub/</Prefix></CommonPrefixes>"
                                    "</ListBucketResult>\n"),
                     MH_OK);
    assert_int_equal(all.count, 2);
    assert_int_equal(page.entries, 2);
    assert_string_equal(all.entries[0].key, "data/a&b \xf0\x9f\x98\x80\xc3\xa9.npy");
    assert_string_equal(all.entries[0].etag, "\"0123\"");
    assert_true(all.entries[0].size == UINT64_MAX);
    assert_false(all.entries[0].is_prefix);
    assert_string_equal(all.entries[1].key, "data/sub/");
    assert_true(all.entries[1].is_prefix);
    assert_true(page.more);
    assert_string_equal(page.token, "a/+b=");
}

static void encoded_keys_are_decoded_where_the_server_says_so(void **state)
{
    mh_s3_page page;
    found all;
    (void)state;
    const char *plain = HEAD "<Contents><Key>a%2Fb+c</Key><Size>1</Size></Contents>";
    char text[1024];
    (void)snprintf(text, sizeof text, "%s</ListBucketResult>", plain);
    assert_int_equal(read_text(&all, &page, text), MH_OK);
    assert_string_equal(all.entries[0].key, "a%2Fb+c");
    (void)snprintf(text, sizeof text, "%s<EncodingType>url</EncodingType></ListBucketResult>",
                   plain);
    assert_int_equal(read_text(&all, &page, text), MH_OK);
    assert_string_equal(all.entries[0].key, "a/b c");
}

static void what_is_no_listing_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "<Error><Code>NoSuchBucket</Code></Error>",
        HEAD,                                                      /* not closed */
        HEAD "</Other>",                                           /* closed wrongly */
        HEAD "<IsTruncated>true</IsTruncated></ListBucketResult>", /* no token */
        HEAD "<Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>",
        HEAD "<Contents><Key>a&bad;</Key></Contents></ListBucketResult>",
        HEAD "<Contents><Key>a&#0;</Key></Contents></ListBucketResult>",
        "<!DOCTYPE x [<!ENTITY a \"b\">]>" HEAD
        "<Contents><Key>&a;</Key></Contents></ListBucketResult>",
    };
    mh_s3_page page;
    found all;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_text(&all, &page, bad[i]), MH_ERR_CORRUPT);
}

static void a_listing_ends_when_the_caller_says_so(void **state)
{
    mh_s3_page page;
    found all;
    (void)state;
    assert_int_equal(read_text(&all, &page, HEAD ONE ONE ONE ONE ONE "</ListBucketResult>"),
                     MH_END);
    assert_int_equal(all.count, 4);
}

static void one_element_is_found_by_its_name(void **state)
{
    static const char xml[] = "<e:Error><Code>NoSuchKey</Code><Empty/><Message>a &lt; b</Message>"
                              "</e:Error>";
    char out[16];
    (void)state;
    assert_true(mh_xml_find(xml, sizeof xml - 1, "Message", out, sizeof out));
    assert_string_equal(out, "a < b");
    assert_false(mh_xml_find(xml, sizeof xml - 1, "Empty", out, sizeof out));
    assert_false(mh_xml_find(xml, sizeof xml - 1, "None", out, sizeof out));
    assert_false(mh_xml_find(xml, sizeof xml - 1, "Code", out, 9));
    assert_true(mh_xml_find(xml, sizeof xml - 1, "Code", out, 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_gives_its_entries),
        cmocka_unit_test(encoded_keys_are_decoded_where_the_server_says_so),
        cmocka_unit_test(what_is_no_listing_is_refused),
        cmocka_unit_test(a_listing_ends_when_the_caller_says_so),
        cmocka_unit_test(one_element_is_found_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
