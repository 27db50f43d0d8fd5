/* test_event_lines.c - lines of events: their text, when they are due, forks and lack of memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/event_lines.h"
#include "unit.h"

#include <limits.h>

static void check_text(mh_lines *lines, const char *wanted)
{
    size_t bytes;
    const char *text = mh_lines_take_text(lines, &bytes);
    assert_int_equal(bytes, strlen(wanted));
    if (bytes)
        assert_memory_equal(text, wanted, bytes);
}

static void put_line(mh_lines *lines, mh_reading began, mh_reading ended)
{
    mh_lines_begin(lines, "wait", began, ended);
    mh_lines_put(lines, "batch", 3);
    mh_lines_end(lines);
}

static void lines_are_json_and_are_taken_once(void **state)
{
    (void)state;
    mh_lines lines = {0};
    check_text(&lines, "");
    put_line(&lines, (mh_reading){10, 5, 2}, (mh_reading){30, 12, 4});
    put_line(&lines, (mh_reading){0, 0, -1}, (mh_reading){7, 7, -1});
    check_text(&lines, "{\"event\":\"wait\",\"t\":10,\"ns\":20,\"cpu\":7,\"delay\":2,\"batch\":3}\n"
                       "{\"event\":\"wait\",\"t\":0,\"ns\":7,\"cpu\":7,\"batch\":3}\n");
    check_text(&lines, "");
    mh_lines_free(&lines);
}

static void numbers_are_whole(void **state)
{
    (void)state;
    char wanted[128];
    mh_lines lines = {0};
    mh_lines_begin(&lines, "x", (mh_reading){0, 0, -1}, (mh_reading){0, 0, -1});
    mh_lines_put(&lines, "least", LLONG_MIN);
    mh_lines_put(&lines, "most", LLONG_MAX);
    mh_lines_put(&lines, "below", -1);
    mh_lines_end(&lines);
    (void)snprintf(wanted, sizeof wanted,
                   "{\"event\":\"x\",\"t\":0,\"ns\":0,\"cpu\":0,\"least\":%lld,\"most\":%lld,"
                   "\"below\":-1}\n",
                   LLONG_MIN, LLONG_MAX);
    check_text(&lines, wanted);
    mh_lines_free(&lines);
}

static void a_delay_is_no_more_than_the_time_off_the_cpus(void **state)
{
    (void)state;
    mh_lines lines = {0};
    put_line(&lines, (mh_reading){0, 0, 0}, (mh_reading){10, 7, 9});
    put_line(&lines, (mh_reading){0, 0, 0}, (mh_reading){10, 11, 9});
    put_line(&lines, (mh_reading){0, 0, 5}, (mh_reading){10, 0, 4}); /* another thread's */
    check_text(&lines, "{\"event\":\"wait\",\"t\":0,\"ns\":10,\"cpu\":7,\"delay\":3,\"batch\":3}\n"
                       "{\"event\":\"wait\",\"t\":0,\"ns\":10,\"cpu\":11,\"delay\":0,\"batch\":3}\n"
                       "{\"event\":\"wait\",\"t\":0,\"ns\":10,\"cpu\":0,\"batch\":3}\n");
    mh_lines_free(&lines);
}

static void lines_of_others_are_appended(void **state)
{
    (void)state;
    mh_lines lines = {0}, others = {0};
    mh_lines_append(&lines, &others);
    check_text(&lines, "");
    put_line(&others, (mh_reading){1, 0, -1}, (mh_reading){2, 0, -1});
    mh_lines_append(&lines, &others);
    mh_lines_append(&lines, &others);
    check_text(&lines, "{\"event\":\"wait\",\"t\":1,\"ns\":1,\"cpu\":0,\"batch\":3}\n"
                       "{\"event\":\"wait\",\"t\":1,\"ns\":1,\"cpu\":0,\"batch\":3}\n");
    mh_lines_free(&lines);
    mh_lines_free(&others);
}

static void they_are_due_after_a_while_or_when_they_are_many(void **state)
{
    (void)state;
    const uint64_t second = UINT64_C(1000000000);
    const mh_reading began = {0, 0, -1};
    mh_lines lines = {0};
    assert_true(mh_lines_due(&lines, second));
    assert_false(mh_lines_due(&lines, second + second / 20));
    for (int i = 0; i < 1000; i++)
        put_line(&lines, began, began);
    assert_true(mh_lines_due(&lines, second + second / 20));
    size_t bytes;
    (void)mh_lines_take_text(&lines, &bytes);
    assert_false(mh_lines_due(&lines, second + second / 20));
    assert_true(mh_lines_due(&lines, 2 * second));
    mh_lines_free(&lines);
}

static void a_forked_child_has_none_of_its_parents(void **state)
{
    (void)state;
    const mh_reading began = {0, 0, -1};
    mh_lines lines = {0};
    size_t bytes;
    put_line(&lines, began, began);
    size_t one = lines.used;
    pid_t child = fork();
    if (child == 0) {
        put_line(&lines, began, began);
        (void)mh_lines_take_text(&lines, &bytes);
        _exit(bytes == one ? 0 : 1);
    }
    assert_int_equal(child_code(child), 0);
    child = fork();
    if (child == 0) {
        (void)mh_lines_take_text(&lines, &bytes);
        _exit(bytes == 0 ? 0 : 1);
    }
    assert_int_equal(child_code(child), 0);
    (void)mh_lines_take_text(&lines, &bytes);
    assert_int_equal(bytes, one);
    mh_lines_free(&lines);
}

/* Lines come whole or not at all. */
static void write_many(void *argument)
{
    (void)argument;
    mh_lines lines = {0};
    size_t bytes;
    for (int i = 0; i < 200; i++)
        put_line(&lines, (mh_reading){1, 0, -1}, (mh_reading){2, 0, -1});
    const char *text = mh_lines_take_text(&lines, &bytes);
    static const char line[] = "{\"event\":\"wait\",\"t\":1,\"ns\":1,\"cpu\":0,\"batch\":3}\n";
    assert_int_equal(bytes % (sizeof line - 1), 0);
    for (size_t at = 0; at < bytes; at += sizeof line - 1)
        assert_memory_equal(text + at, line, sizeof line - 1);
    mh_lines_free(&lines);
}

static void without_memory_lines_are_dropped_whole(void **state)
{
    (void)state;
    each_allocation_fails(write_many, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_json_and_are_taken_once),
        cmocka_unit_test(numbers_are_whole),
        cmocka_unit_test(a_delay_is_no_more_than_the_time_off_the_cpus),
        cmocka_unit_test(lines_of_others_are_appended),
        cmocka_unit_test(they_are_due_after_a_while_or_when_they_are_many),
        cmocka_unit_test(a_forked_child_has_none_of_its_parents),
        cmocka_unit_test(without_memory_lines_are_dropped_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
