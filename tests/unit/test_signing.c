/* test_signing.c - SHA-256, HMAC and encoded targets against published values
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whole signatures are compared with botocore's in tests/python/remote/test_signing.py.
 */
#include "unit.h"

#include "source/sigv4.h"

static void expect_hash(const char *data, size_t repeat, const char *expected)
{
    mh_sha256 hash;
    uint8_t bytes[MH_SHA256_BYTES];
    char hex[MH_SHA256_HEX];
    mh_sha256_init(&hash);
    for (size_t i = 0; i < repeat; i++)
        mh_sha256_add(&hash, data, strlen(data));
    mh_sha256_end(&hash, bytes);
    mh_sha256_hex(bytes, hex);
    assert_string_equal(hex, expected);
}

/* NIST's examples, and a million times "a". */
static void sha256_gives_the_published_hashes(void **state)
{
    (void)state;
    expect_hash("", 1, MH_SIGV4_NO_BODY);
    expect_hash("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_hash("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* In pieces of every size, over every boundary of a block. */
static void sha256_does_not_depend_on_the_pieces(void **state)
{
    char data[200];
    uint8_t expected[MH_SHA256_BYTES], bytes[MH_SHA256_BYTES];
    mh_sha256 hash;
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7);
    for (size_t size = 0; size <= sizeof data; size++) {
        mh_sha256_init(&hash);
        mh_sha256_add(&hash, data, size);
        mh_sha256_end(&hash, expected);
        for (size_t piece = 1; piece < 70; piece++) {
            mh_sha256_init(&hash);
            for (size_t at = 0; at < size; at += piece)
                mh_sha256_add(&hash, data + at, size - at < piece ? size - at : piece);
            mh_sha256_end(&hash, bytes);
            assert_memory_equal(bytes, expected, sizeof bytes);
        }
    }
}

/* The C code, which processors with instructions for SHA-256 do not run. */
static void plain_sha256_gives_the_same(void **state)
{
    char data[1000];
    uint8_t plain[MH_SHA256_BYTES], other[MH_SHA256_BYTES];
    mh_sha256 hash;
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * i + 3 * i);
    for (size_t size = 0; size <= sizeof data; size++) {
        mh_sha256_init(&hash);
        hash.plain = true;
        mh_sha256_add(&hash, data, size);
        mh_sha256_end(&hash, plain);
        mh_sha256_init(&hash);
        mh_sha256_add(&hash, data, size);
        mh_sha256_end(&hash, other);
        assert_memory_equal(plain, other, sizeof plain);
    }
}

/* RFC 4231, cases 1, 2 and 6: the last key is longer than a block. */
static void hmac_gives_the_published_values(void **state)
{
    uint8_t key[131], out[MH_SHA256_BYTES];
    char hex[MH_SHA256_HEX];
    (void)state;
    memset(key, 0x0b, 20);
    mh_hmac_sha256(key, 20, "Hi There", 8, out);
    mh_sha256_hex(out, hex);
    assert_string_equal(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    mh_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out);
    mh_sha256_hex(out, hex);
    assert_string_equal(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    mh_hmac_sha256(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                   out);
    mh_sha256_hex(out, hex);
    assert_string_equal(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void targets_are_encoded_and_sorted(void **state)
{
    char target[256];
    const mh_query_pair query[] = {
        {"prefix", "a/b c"}, {"a-b", "2"}, {"a", "z"}, {"list-type", "2"}, {"a", "b"}};
    (void)state;
    assert_true(mh_sigv4_target(target, sizeof target, "/b/dt=2024/x+y:\xc3\xa9 ~.npy", NULL, 0));
    assert_string_equal(target, "/b/dt%3D2024/x%2By%3A%C3%A9%20~.npy");
    assert_true(mh_sigv4_target(target, sizeof target, "/b", query, 5));
    assert_string_equal(target, "/b?a=b&a=z&a-b=2&list-type=2&prefix=a%2Fb%20c");
    assert_true(mh_sigv4_target(target, sizeof target, "", NULL, 0));
    assert_string_equal(target, "/");
}

static void what_does_not_fit_is_refused(void **state)
{
    char target[8];
    mh_query_pair many[MH_QUERY_PAIRS_MOST + 1];
    (void)state;
    assert_true(mh_sigv4_target(target, sizeof target, "/234567", NULL, 0));
    assert_false(mh_sigv4_target(target, sizeof target, "/2345678", NULL, 0));
    assert_false(mh_sigv4_target(target, sizeof target, "/%%%", NULL, 0));
    for (size_t i = 0; i < MH_QUERY_PAIRS_MOST + 1; i++)
        many[i] = (mh_query_pair){"", ""};
    assert_false(mh_sigv4_target(target, sizeof target, "/", many, MH_QUERY_PAIRS_MOST + 1));
    mh_sigv4_headers headers;
    mh_sigv4_day day = {0};
    char key[600];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    const mh_sigv4_keys keys = {.key = key, .secret = "s"};
    const mh_sigv4_request request = {"GET", "h", "/", "r", "s3", 0};
    assert_false(mh_sigv4_sign(&headers, &day, &request, &keys));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_gives_the_published_hashes),
        cmocka_unit_test(sha256_does_not_depend_on_the_pieces),
        cmocka_unit_test(plain_sha256_gives_the_same),
        cmocka_unit_test(hmac_gives_the_published_values),
        cmocka_unit_test(targets_are_encoded_and_sorted),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
