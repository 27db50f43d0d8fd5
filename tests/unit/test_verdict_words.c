/* test_verdict_words.c - what a verdict says beside its cause: of short runs, of other loops, of
 * what is possible SPDX-License-Identifier: Apache-2.0
 */
#include "plants.h"

static int warns(const mh_verdict *verdict, const char *text)
{
    for (size_t at = 0; at < verdict->warning_count; at++) {
        if (strstr(verdict->warnings[at], text))
            return 1;
    }
    return 0;
}

static int has_evidence(const mh_verdict *verdict, const char *text)
{
    for (size_t at = 0; at < verdict->evidence_count; at++)
        if (strstr(verdict->evidence[at], text))
            return 1;
    return 0;
}

/* 18 batches are too few for a verdict, and what they show is said. */
static void a_short_run_says_what_was_seen(void **state)
{
    (void)state;
    mh_facts facts = planted_run(19, 0, 2, 10 * MS);
    for (size_t at = 0; at < facts.batch_count; at++) {
        planted_batches(&facts)[at].fetch = 80 * MS;
        planted_batches(&facts)[at].fetch_cpu = 1 * MS;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_UNCLEAR);
    assert_true(has_evidence(&verdict, "so far it looks latency-bound, from 18 batches"));
    assert_true(has_evidence(&verdict, "fetching a batch takes 80 ms"));
    assert_false(has_evidence(&verdict, "without it"));
    assert_true(verdict.predicted_gain == 1);
    facts.batch_count = 3;
    verdict = judged(&facts);
    assert_false(has_evidence(&verdict, "so far"));
    free(planted_batches(&facts));
}

/* What a source that answers many at once would give is said; promised is what overlapping wins. */
static void the_first_workers_of_a_slow_source_promise_what_is_sure(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 0, 2, 10 * MS);
    for (size_t at = 0; at < facts.batch_count; at++) {
        planted_batches(&facts)[at].fetch = 80 * MS;
        planted_batches(&facts)[at].fetch_cpu = 1 * MS;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(verdict.predicted_gain < 1.2 && verdict.possible_gain > 5);
    if (!strstr(verdict.fix, "up to") || !strstr(verdict.fix, "if the source answers"))
        fail_msg("'%s' does not say what is possible", verdict.fix);
    free(planted_batches(&facts));
}

/* Loops of other loaders lie between the epochs of this one: they are not outside all loops. The
 * starts of epochs are counted. */
static void other_loops_are_not_between_epochs(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 0, 2, 10 * MS);
    for (size_t at = 0; at < facts.batch_count; at++)
        planted_batches(&facts)[at].fetch = planted_batches(&facts)[at].wait = 10 * MS;
    facts.setup_ns = 500 * MS;
    facts.between_ns = 2000 * MS;
    mh_verdict verdict = judged(&facts);
    assert_true(warns(&verdict, "pass between epochs"));
    assert_true(fabs(verdict.epoch_start_s - 0.51) < 1e-6);
    assert_true(fabs(verdict.epoch_start_share - 0.51 / 4.5) < 1e-6);
    facts.other_ns = 2100 * MS;
    verdict = judged(&facts);
    assert_false(warns(&verdict, "pass between epochs"));
    assert_true(fabs(verdict.epoch_start_share - 0.51 / 6.6) < 1e-6);
    free(planted_batches(&facts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_run_says_what_was_seen),
        cmocka_unit_test(the_first_workers_of_a_slow_source_promise_what_is_sure),
        cmocka_unit_test(other_loops_are_not_between_epochs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
