/* test_json.c - JSON read and written
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/json.h"
#include "base/jsonout.h"
#include "unit.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* One letter a token: { } [ ] k(ey) s(tring) n(umber) t f 0(null), and . at the end or ! for an
 * error. The text lies in a block of its size, so that a sanitizer sees one byte too far. */
static void tokens(const char *text, size_t size, char *out)
{
    static const char letters[] = "!.0ftnsk{}[]";
    mh_json json;
    mh_json_token token;
    char *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, text, size);
    mh_json_init(&json, exact, size);
    do
        *out++ = letters[mh_json_next(&json, &token)];
    while (token.kind > MH_JSON_END);
    assert_true(mh_json_next(&json, &token) <= MH_JSON_END); /* stays over */
    *out = '\0';
    free(exact);
}

static void test_structure(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tokens;
    } cases[] = {
        {"{}", "{}."},
        {" [ ] ", "[]."},
        {"{\"a\":1}", "{kn}."},
        {"\t{\"a\" : [1, 2,{}] ,\r\n\"b\": null}", "{k[nn{}]k0}."},
        {"[true,false,null,\"\",-0.5e+3]", "[tf0sn]."},
        {"3", "n."},
        {"\"a\"", "s."},
        {"{}{}", "{}."}, /* one value only */
        {"", "!"},
        {"  ", "!"},
        {"{", "{!"},
        {"{\"a\"", "{k!"},
        {"{\"a\":", "{k!"},
        {"{\"a\":1", "{kn!"},
        {"{\"a\":1,", "{kn!"},
        {"{\"a\":1,}", "{kn!"},
        {"{,}", "{!"},
        {"{1:2}", "{!"},
        {"{\"a\" 1}", "{k!"},
        {"{\"a\":1 \"b\":2}", "{kn!"},
        {"[1,]", "[n!"},
        {"[,1]", "[!"},
        {"[1 2]", "[n!"},
        {"[1}", "[n!"},
        {"{\"a\":1]", "{kn!"},
        {"]", "!"},
        {"nul", "!"},
        {"True", "!"},
        {"NaN", "!"},
        {"Infinity", "!"},
        {"'a'", "!"},
        {"/**/1", "!"},
        {"\xef\xbb\xbf{}", "!"}, /* a byte order mark is the caller's business */
    };
    for (size_t at = 0; at < COUNT(cases); at++) {
        char found[64];
        tokens(cases[at].text, strlen(cases[at].text), found);
        if (strcmp(found, cases[at].tokens) != 0)
            fail_msg("%s gives %s, expected %s", cases[at].text, found, cases[at].tokens);
    }
}

static void test_nothing_but_the_text_is_read(void **state)
{
    (void)state;
    static const char text[] = "{\"key\": [1.5e3, \"v\\u00e9\xc3\xa9\", true, {\"x\": null}]}";
    char found[64];
    for (size_t cut = 0; cut < sizeof text - 1; cut++) {
        tokens(text, cut, found);
        assert_int_equal(found[strlen(found) - 1], '!');
    }
    tokens("1\0", 2, found);
    assert_string_equal(found, "n.");
    tokens("[1\0]", 4, found);
    assert_string_equal(found, "[n!");
}

static void test_depth_is_limited(void **state)
{
    (void)state;
    char text[2 * MH_JSON_DEPTH + 3], found[4 * MH_JSON_DEPTH];
    memset(text, '[', MH_JSON_DEPTH);
    memset(text + MH_JSON_DEPTH, ']', MH_JSON_DEPTH);
    tokens(text, 2 * MH_JSON_DEPTH, found);
    assert_int_equal(found[2 * MH_JSON_DEPTH], '.');
    memset(text, '[', sizeof text);
    tokens(text, sizeof text, found);
    assert_int_equal(strlen(found), MH_JSON_DEPTH + 1);
    assert_int_equal(found[MH_JSON_DEPTH], '!');
}

static mh_json_token first_token(const char *text)
{
    mh_json json;
    mh_json_token token;
    mh_json_init(&json, text, strlen(text));
    (void)mh_json_next(&json, &token);
    return token;
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *meant; /* NULL: an error */
    } cases[] = {
        {"\"plain, and longer than eight bytes\"", "plain, and longer than eight bytes"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"1234567\\n\"", "1234567\n"},
        {"\"\\u0041\\u00e9\\u20AC\"", "A\xc3\xa9\xe2\x82\xac"},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"},
        {"\"\xf0\x9f\x98\x80\xc3\xa9\"", "\xf0\x9f\x98\x80\xc3\xa9"},
        {"\"\x7f\"", "\x7f"},
        {"\"\\ud83d\"", NULL}, /* half a pair */
        {"\"\\ud83dx\"", NULL},
        {"\"\\ude00\"", NULL},
        {"\"\\ud83d\\u0041\"", NULL},
        {"\"\\x41\"", NULL},
        {"\"\\u004\"", NULL},
        {"\"\\u00g0\"", NULL},
        {"\"\\", NULL},
        {"\"12345678", NULL},
        {"\"\n\"", NULL},
        {"\"12345678\t\"", NULL},
        {"\"\xc0\xaf\"", NULL},         /* overlong */
        {"\"\xe0\x80\x80\"", NULL},     /* overlong */
        {"\"\xed\xa0\x80\"", NULL},     /* a surrogate */
        {"\"\xf4\x90\x80\x80\"", NULL}, /* beyond the last */
        {"\"\xf5\x80\x80\x80\"", NULL},
        {"\"\xff\"", NULL},
        {"\"\x80\"", NULL},
        {"\"\xc3\"", NULL},
    };
    for (size_t at = 0; at < COUNT(cases); at++) {
        mh_json_token token = first_token(cases[at].text);
        char text[64];
        if ((token.kind == MH_JSON_STRING) != (cases[at].meant != NULL))
            fail_msg("%s: kind %d", cases[at].text, (int)token.kind);
        if (!cases[at].meant)
            continue;
        assert_int_equal(mh_json_text(&token, text, sizeof text), strlen(cases[at].meant));
        assert_string_equal(text, cases[at].meant);
    }
    mh_json_token token = first_token("\"a\\u0000b\"");
    char text[8];
    assert_int_equal(mh_json_text(&token, text, sizeof text), 3);
    assert_memory_equal(text, "a\0b", 4);
}

static void test_long_text_is_cut_between_characters(void **state)
{
    (void)state;
    mh_json_token token = first_token("\"ab\xc3\xa9\\u00e9\"");
    static const size_t lengths[] = {0, 0, 1, 2, 2, 4, 4, 6, 6};
    for (size_t room = 0; room < COUNT(lengths); room++) {
        char text[16] = "untouched";
        assert_int_equal(mh_json_text(&token, text, room), lengths[room]);
        if (room)
            assert_int_equal(strlen(text), lengths[room]);
    }
}

static void test_names(void **state)
{
    (void)state;
    mh_json_token token = first_token("\"name\"");
    assert_true(mh_json_is(&token, "name"));
    assert_false(mh_json_is(&token, "nam"));
    assert_false(mh_json_is(&token, "names"));
    token = first_token("\"n\\n\"");
    assert_false(mh_json_is(&token, "n\\n"));
}

static void test_numbers(void **state)
{
    (void)state;
    enum { NO_INT = 1, NO_UINT = 2 };
    static const struct {
        const char *text;
        double real;
        int64_t whole;
        uint64_t natural;
        int lacks;
    } cases[] = {
        {"0", 0, 0, 0, 0},
        {"-0", -0.0, 0, 0, 0},
        {"42", 42, 42, 42, 0},
        {"-7", -7, -7, 0, NO_UINT},
        {"9223372036854775807", 9223372036854775807.0, INT64_MAX, INT64_MAX, 0},
        {"9223372036854775808", 9223372036854775808.0, 0, UINT64_C(1) << 63, NO_INT},
        {"-9223372036854775808", -9223372036854775808.0, INT64_MIN, 0, NO_UINT},
        {"-9223372036854775809", -9223372036854775809.0, 0, 0, NO_INT | NO_UINT},
        {"18446744073709551615", 18446744073709551615.0, 0, UINT64_MAX, NO_INT},
        {"18446744073709551616", 18446744073709551616.0, 0, 0, NO_INT | NO_UINT},
        {"99999999999999999999", 1e20, 0, 0, NO_INT | NO_UINT},
        {"1.0", 1, 0, 0, NO_INT | NO_UINT},
        {"1e2", 100, 0, 0, NO_INT | NO_UINT},
        {"0.1", 0.1, 0, 0, NO_INT | NO_UINT},
        {"-12.5", -12.5, 0, 0, NO_INT | NO_UINT},
        {"1710286538.5655951", 1710286538.5655951, 0, 0, NO_INT | NO_UINT},
        {"9007199254740993", 9007199254740993.0, INT64_C(9007199254740993),
         UINT64_C(9007199254740993), 0},
        {"1E-7", 1e-7, 0, 0, NO_INT | NO_UINT},
        {"1e400", HUGE_VAL, 0, 0, NO_INT | NO_UINT},
        {"1e-400", 0, 0, 0, NO_INT | NO_UINT},
    };
    for (size_t at = 0; at < COUNT(cases); at++) {
        mh_json_token token = first_token(cases[at].text);
        double real;
        int64_t whole = 0;
        uint64_t natural = 0;
        assert_int_equal(token.kind, MH_JSON_NUMBER_VALUE);
        assert_true(mh_json_double(&token, &real));
        assert_true(real == cases[at].real && !signbit(real) == !signbit(cases[at].real));
        assert_int_equal(mh_json_int64(&token, &whole), !(cases[at].lacks & NO_INT));
        assert_int_equal(mh_json_uint64(&token, &natural), !(cases[at].lacks & NO_UINT));
        assert_true(whole == cases[at].whole && natural == cases[at].natural);
    }
    static const char *const wrong[] = {"-", "01", "-01", "1.", ".5", "1e", "1e+", "+1", "-a"};
    for (size_t at = 0; at < COUNT(wrong); at++) {
        char found[8];
        tokens(wrong[at], strlen(wrong[at]), found);
        assert_string_equal(found, "!");
    }
    mh_json_token token = first_token("\"1\"");
    double real;
    assert_false(mh_json_double(&token, &real));
}

static void test_too_long_a_number_is_refused(void **state)
{
    (void)state;
    char text[MH_JSON_NUMBER + 2];
    double value;
    memset(text, '0', sizeof text - 1);
    text[0] = '1';
    text[1] = '.';
    text[sizeof text - 1] = '\0';
    assert_int_equal(first_token(text).kind, MH_JSON_ERROR);
    text[MH_JSON_NUMBER] = '\0';
    mh_json_token token = first_token(text);
    assert_true(mh_json_double(&token, &value));
    assert_true(value == 1.0);
}

static void test_skipping(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": {\"b\": [1, {\"c\": 2}]}, \"d\": 3}";
    mh_json json;
    mh_json_token token;
    mh_json_init(&json, text, strlen(text));
    assert_int_equal(mh_json_next(&json, &token), MH_JSON_OBJECT);
    assert_int_equal(mh_json_next(&json, &token), MH_JSON_KEY);
    assert_int_equal(mh_json_next(&json, &token), MH_JSON_OBJECT);
    assert_true(mh_json_skip(&json, &token));
    assert_int_equal(mh_json_next(&json, &token), MH_JSON_KEY);
    assert_true(mh_json_is(&token, "d"));
    assert_true(mh_json_skip(&json, &token));
    assert_int_equal(mh_json_next(&json, &token), MH_JSON_NUMBER_VALUE);
    mh_json_init(&json, "[[1", 3);
    assert_int_equal(mh_json_next(&json, &token), MH_JSON_ARRAY);
    assert_false(mh_json_skip(&json, &token));
}

/* --- writing --- */

static void write_some(mh_jsonout *out)
{
    mh_jsonout_object(out);
    mh_jsonout_key(out, "text");
    mh_jsonout_string(out, "a\"\\\n\x01\xc3\xa9\xff/");
    mh_jsonout_key(out, "numbers");
    mh_jsonout_array(out);
    mh_jsonout_int(out, INT64_MIN);
    mh_jsonout_uint(out, UINT64_MAX);
    mh_jsonout_double(out, 0.1);
    mh_jsonout_double(out, 3);
    mh_jsonout_double(out, 1e300);
    mh_jsonout_double(out, NAN);
    mh_jsonout_double(out, 1710286538.5655951);
    mh_jsonout_thousandths(out, 12034);
    mh_jsonout_array_end(out);
    mh_jsonout_newline(out);
    mh_jsonout_key(out, "empty");
    mh_jsonout_object(out);
    mh_jsonout_object_end(out);
    mh_jsonout_key(out, "words");
    mh_jsonout_array(out);
    mh_jsonout_bool(out, true);
    mh_jsonout_bool(out, false);
    mh_jsonout_null(out);
    mh_jsonout_array_end(out);
    mh_jsonout_object_end(out);
}

static const char some[] =
    "{\"text\": \"a\\\"\\\\\\u000a\\u0001\xc3\xa9?/\", "
    "\"numbers\": [-9223372036854775808, 18446744073709551615, 0.1, 3.0, 1e+300, null, "
    "1710286538.5655951, 12.034],\n"
    "\"empty\": {}, \"words\": [true, false, null]}";

static void write_into_memory(void *unused)
{
    (void)unused;
    mh_jsonout out;
    mh_error err;
    mh_jsonout_init(&out, NULL);
    write_some(&out);
    mh_status status = mh_jsonout_finish(&out, &err);
    if (status == MH_OK)
        assert_string_equal(out.text, some);
    else
        assert_int_equal(status, MH_ERR_NOMEM);
    mh_jsonout_deinit(&out);
}

static void test_writing(void **state)
{
    (void)state;
    write_into_memory(NULL);
    each_allocation_fails(write_into_memory, NULL);
}

static void test_writing_into_a_file(void **state)
{
    (void)state;
    char path[128], *text;
    mh_jsonout out;
    (void)snprintf(path, sizeof path, "%s/out.json", (const char *)*state);
    FILE *file = fopen(path, "w+");
    assert_non_null(file);
    mh_jsonout_init(&out, file);
    mh_jsonout_array(&out);
    for (int at = 0; at < 10000; at++)
        mh_jsonout_int(&out, at);
    mh_jsonout_array_end(&out);
    assert_int_equal(mh_jsonout_finish(&out, NULL), MH_OK);
    assert_true(out.room < 1 << 18); /* passed on, not gathered */
    mh_jsonout_deinit(&out);
    long size = ftell(file);
    text = malloc((size_t)size);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    mh_json json;
    mh_json_token token;
    mh_json_init(&json, text, (size_t)size);
    assert_int_equal(mh_json_next(&json, &token), MH_JSON_ARRAY);
    for (int64_t at = 0, value; at < 10000; at++) {
        assert_int_equal(mh_json_next(&json, &token), MH_JSON_NUMBER_VALUE);
        assert_true(mh_json_int64(&token, &value) && value == at);
    }
    assert_int_equal(mh_json_next(&json, &token), MH_JSON_ARRAY_END);
    free(text);
    assert_int_equal(fclose(file), 0);

    file = fopen("/dev/full", "w");
    if (file) {
        mh_error err;
        mh_jsonout_init(&out, file);
        mh_jsonout_int(&out, 1);
        assert_int_equal(mh_jsonout_finish(&out, &err), MH_ERR_IO);
        assert_int_equal(err.sys_errno, ENOSPC);
        mh_jsonout_deinit(&out);
        (void)fclose(file);
    }
}

static void test_there_is_always_room_for_the_end_of_the_text(void **state)
{
    (void)state;
    char text[65] = "";
    for (size_t length = 0; length < sizeof text - 1; length++) {
        mh_jsonout out;
        mh_jsonout_init(&out, NULL);
        mh_jsonout_string(&out, text);
        assert_int_equal(mh_jsonout_finish(&out, NULL), MH_OK);
        assert_int_equal(out.length, length + 2);
        assert_true(out.length < out.room);
        mh_jsonout_deinit(&out);
        text[length] = 'a';
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_nothing_but_the_text_is_read),
        cmocka_unit_test(test_depth_is_limited),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_long_text_is_cut_between_characters),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_too_long_a_number_is_refused),
        cmocka_unit_test(test_skipping),
        cmocka_unit_test(test_writing),
        cmocka_unit_test_setup_teardown(test_writing_into_a_file, make_tree, remove_tree),
        cmocka_unit_test(test_there_is_always_room_for_the_end_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
