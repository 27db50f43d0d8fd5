/* test_braces.c - names with ranges of numbers
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include "base/braces.h"

#include <string.h>

static void expect(const char *text, const char *joined)
{
    mh_error err = {0};
    char **list = NULL, all[256] = "";
    size_t count = 0;
    assert_int_equal(mh_braces_expand(&list, &count, text, 100, &err), MH_OK);
    for (size_t i = 0; i < count; i++)
        (void)snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", list[i]);
    assert_string_equal(all, joined);
    mh_braces_free(list, count);
}

static void names_are_those_of_the_shell(void **state)
{
    (void)state;
    expect("t-{08..11}.npy", "t-08.npy t-09.npy t-10.npy t-11.npy");
    expect("t-{8..11}", "t-8 t-9 t-10 t-11");
    expect("{0..1}/{5..6}", "0/5 0/6 1/5 1/6");
    expect("{000..1}", "000 001");
    expect("{7..7}", "7");
}

static void what_is_no_range_stays(void **state)
{
    static const char *const texts[] = {
        "",        "x.npy", "{a,b}", "{1..}", "{..2}", "{1...3}", "{1..b}",
        "{-1..2}", "{1..2", "}{",    "{1.2}", "{{x}}", "${HOME}", "{1..1234567890123456}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_false(mh_braces_has(texts[i]));
        expect(texts[i], texts[i]);
    }
    expect("{{1..2}}", "{1} {2}");
}

static void what_makes_no_sense_is_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"{9..3}", "{9..3} goes down"},
               {"{1..101}", "more than 100 names"},
               {"{1..20}{1..20}", "more than 100 names"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mh_error err = {0};
        char **list = NULL;
        size_t count = 0;
        assert_int_equal(mh_braces_expand(&list, &count, bad[i].text, 100, &err), MH_ERR_INVALID);
        assert_non_null(strstr(err.message, bad[i].says));
        mh_braces_free(list, count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_the_shell),
        cmocka_unit_test(what_is_no_range_stays),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
