/* test_hot_code.c - where the time of a stage goes, from events to shares and advice
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "diagnose/judging.h"
#include "diagnose/run_reader.h"
#include "plants.h"
#include <stdio.h>
#include <string.h>

static mh_status take(void *argument, const mh_log_event *event, mh_error *err)
{
    return mh_hots_event(argument, event) ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory");
}

static void read_events(mh_hots *hots, const char *text)
{
    mh_log *log;
    mh_error err;
    assert_int_equal(mh_log_open(&log, take, hots, &err), MH_OK);
    assert_int_equal(mh_log_feed(log, text, strlen(text), &err), MH_OK);
    assert_int_equal(mh_log_finish(log, &err), MH_OK);
    mh_log_close(log);
}

#define HOT(stage, name, place, ns, more)                                                          \
    "{\"event\":\"hot\",\"t\":1,\"loader\":0,\"worker\":0,\"stage\":\"" stage                      \
    "\",\"name\":\"" name "\",\"place\":\"" place "\",\"ns\":" #ns more "}\n"

static void functions_have_their_share_and_the_line_that_most_led_there(void **state)
{
    (void)state;
    mh_hots hots = {0};
    mh_facts facts;
    mh_facts_init(&facts);
    read_events(&hots, HOT("fetch", "PIL.ImageFile.load", "a.py:3", 200000000, "")
                           HOT("fetch", "PIL.ImageFile.load", "a.py:9", 400000000, "")
                               HOT("fetch", "numpy.stack", "a.py:4", 400000000, "")
                                   HOT("collate", "pad", "a.py:20", 500000000, ""));
    mh_hots_facts(&hots, 0, &facts);
    assert_int_equal(facts.hot_count, 3);
    const mh_hot *first = mh_hot_next(&facts, "fetch", NULL);
    assert_string_equal(first->function, "PIL.ImageFile.load");
    assert_string_equal(first->place, "a.py:9");
    assert_true(fabs(first->share - 0.6) < 1e-9);
    assert_string_equal(mh_hot_next(&facts, "fetch", first)->function, "numpy.stack");
    assert_true(fabs(mh_hot_next(&facts, "collate", NULL)->share - 1) < 1e-9);
    assert_null(mh_hot_next(&facts, "loop", NULL));
    assert_non_null(strstr(mh_recipe_for(first), "draft"));
    mh_hots_deinit(&hots);
}

/* Another loader's, and a stage that was hardly looked at, are no answer. */
static void too_little_is_not_told(void **state)
{
    (void)state;
    mh_hots hots = {0};
    mh_facts facts;
    mh_facts_init(&facts);
    read_events(&hots, HOT("fetch", "f", "a.py:3", 1000000, ""));
    mh_hots_facts(&hots, 0, &facts);
    assert_int_equal(facts.hot_count, 0);
    read_events(&hots, HOT("fetch", "f", "a.py:3", 900000000, ""));
    mh_hots_facts(&hots, 7, &facts);
    assert_int_equal(facts.hot_count, 0);
    mh_hots_deinit(&hots);
}

static void requests_and_rival_threads_of_the_loop_are_counted(void **state)
{
    (void)state;
    mh_hots hots = {0};
    mh_facts facts;
    mh_facts_init(&facts);
    read_events(&hots, HOT("loop", "requests.post", "a.py:3", 300000000, ",\"io\":true")
                           HOT("train", "backward", "a.py:4", 700000000, "")
                               HOT("thread", "plot", "", 600000000, ""));
    mh_hots_facts(&hots, 0, &facts);
    assert_true(fabs(facts.loop_io - 0.3) < 1e-9);
    assert_true(fabs(facts.rival - 0.6) < 1e-9);
    assert_string_equal(facts.rival_name, "plot");
    assert_null(mh_hot_next(&facts, "thread", NULL)); /* no stage of the loop */
    mh_hots_deinit(&hots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_have_their_share_and_the_line_that_most_led_there),
        cmocka_unit_test(too_little_is_not_told),
        cmocka_unit_test(requests_and_rival_threads_of_the_loop_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
