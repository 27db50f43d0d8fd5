/* test_storage.c - options of remote data, sections of ini files, and secrets that are taken out
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include "base/ini.h"
#include "source/redact.h"
#include "source/storage.h"

static void options_are_read_from_pairs(void **state)
{
    mh_storage storage;
    mh_error err;
    (void)state;
    assert_int_equal(mh_storage_read(&storage,
                                     "key=K,secret=a/b+c=%2Cd%25,endpoint_url=http://h:9000,"
                                     "anon=true,timeout=2.5",
                                     &err),
                     MH_OK);
    assert_string_equal(storage.secret, "a/b+c=,d%");
    assert_string_equal(storage.endpoint_url, "http://h:9000");
    assert_true(storage.anon);
    assert_true(storage.timeout_s == 2.5);
    assert_int_equal(mh_storage_read(&storage, NULL, &err), MH_OK);
    assert_string_equal(storage.key, "");
    assert_true(storage.timeout_s > 0);
}

static void wrong_options_are_named_without_their_values(void **state)
{
    static const struct {
        const char *text, *named;
    } bad[] = {
        {"secrte=hunter2", "secrte"},       {"anon=hunter2", "anon"},
        {"style=hunter2", "style"},         {"hunter2", "KEY=VALUE"},
        {"timeout=hunter2", "timeout"},     {"timeout=0", "timeout"},
        {"key=hunter2", "secret"},          {"key=hunter2%0a,secret=s", "key"},
        {"key=hunter2%00,secret=s", "key"},
    };
    mh_storage storage;
    mh_error err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mh_storage_read(&storage, bad[i].text, &err), MH_ERR_INVALID);
        assert_non_null(strstr(err.message, bad[i].named));
        assert_null(strstr(err.message, "hunter2"));
    }
}

static void sections_give_their_values(void **state)
{
    static const char text[] = "[default]\naws_access_key_id = A\r\n# aws_access_key_id = no\n"
                               "region=eu\n[profile two]  ; x\nregion = us\n  nested = no\n"
                               "region = us-2\nempty =\n";
    char out[16];
    (void)state;
    assert_true(mh_ini_find(text, sizeof text - 1, "default", "aws_access_key_id", out, 16));
    assert_string_equal(out, "A");
    assert_true(mh_ini_find(text, sizeof text - 1, "profile two", "region", out, 16));
    assert_string_equal(out, "us-2");
    assert_true(mh_ini_find(text, sizeof text - 1, "profile two", "empty", out, 16));
    assert_string_equal(out, "");
    assert_false(mh_ini_find(text, sizeof text - 1, "profile two", "nested", out, 16));
    assert_false(mh_ini_find(text, sizeof text - 1, "two", "region", out, 16));
    assert_false(mh_ini_find(text, sizeof text - 1, "default", "region", out, 2));
    assert_true(mh_ini_has(text, sizeof text - 1, "profile two"));
    assert_false(mh_ini_has(text, sizeof text - 1, "two"));
}

static void expect_redacted(const char *text, const char *expected)
{
    char shown[512];
    (void)snprintf(shown, sizeof shown, "%s", text);
    mh_redact(shown);
    assert_string_equal(shown, expected);
}

static void secrets_are_taken_out_of_texts(void **state)
{
    (void)state;
    expect_redacted("cannot read https://me:pw@host/a/b?X-Amz-Signature=abcd&x=1 now",
                    "cannot read https://host/a/b now");
    expect_redacted("Authorization: AWS4-HMAC-SHA256 Credential=AKIA/2026, Signature=0123",
                    "Authorization: ***, Signature=***");
    expect_redacted("authorization: Bearer abcdef", "authorization: ***");
    expect_redacted("{\"SecretAccessKey\": \"abcd\", \"aws_secret_access_key\":\"efgh\"}",
                    "{\"SecretAccessKey\": \"***\", \"aws_secret_access_key\":\"***\"}");
    expect_redacted("the key is new: retry", "the key is new: retry");
    expect_redacted("x-amz-security-token:abcdef z", "x-amz-security-token:*** z");
    char text[] = "got hunter2hunter2 and hunter";
    mh_redact_secret(text, "hunter2");
    assert_string_equal(text, "got ****** and hunter");
}

static void urls_are_shown_without_user_and_query(void **state)
{
    char out[64], small[12];
    (void)state;
    mh_redact_url(out, sizeof out, "https://u:p@h:8443/a/b?sig=1#x");
    assert_string_equal(out, "https://h:8443/a/b");
    mh_redact_url(out, sizeof out, "https://h?u@h");
    assert_string_equal(out, "https://h");
    mh_redact_url(out, sizeof out, "/plain/path?x");
    assert_string_equal(out, "/plain/path?x");
    mh_redact_url(small, sizeof small, "https://u:p@host/long");
    assert_string_equal(small, "https://hos");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read_from_pairs),
        cmocka_unit_test(wrong_options_are_named_without_their_values),
        cmocka_unit_test(sections_give_their_values),
        cmocka_unit_test(secrets_are_taken_out_of_texts),
        cmocka_unit_test(urls_are_shown_without_user_and_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
