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
    assert_false(has_evidence(&verdict, "without this cost"));
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
    assert_true(has_evidence(&verdict, "nothing came from storage"));
    assert_true(has_evidence(&verdict, "without this cost the run would take about"));
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
    assert_true(fabs(verdict.epoch_start_share - 0.51 / 6.5) < 1e-6);
    facts.other_ns = 2100 * MS;
    verdict = judged(&facts);
    assert_false(warns(&verdict, "pass between epochs"));
    assert_true(fabs(verdict.epoch_start_share - 0.51 / 6.6) < 1e-6);
    free(planted_batches(&facts));
}

/* next(iter(loader)) in every step: that is what to say, and not how long it waited after firsts.
 */
static void iterators_that_give_one_batch_are_named(void **state)
{
    (void)state;
    mh_facts facts = planted_run(60, 2, 4, 20 * MS);
    for (size_t at = 0; at < facts.batch_count; at++) {
        planted_batches(&facts)[at].fetch = planted_batches(&facts)[at].fetch_cpu = 2 * MS;
        planted_batches(&facts)[at].epoch = (uint32_t)at;
        planted_batches(&facts)[at].first = 1;
    }
    (void)planted_waits(&facts);
    facts.epochs = facts.batch_count;
    facts.setup_ns = 60 * 30 * MS;
    facts.persistent = 0;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_int_equal(verdict.fix_settings.persistent, 1);
    assert_non_null(strstr(verdict.fix, "next(iter(loader))"));
    assert_true(has_evidence(&verdict, "each of 60 iterators gave one batch"));
    assert_false(has_evidence(&verdict, "after the first batches"));
    free(planted_batches(&facts));
}

/* A loader made anew for every epoch: what the others' starts took is won by making it once. */
static void a_loader_that_is_made_anew_is_a_start_in_every_epoch(void **state)
{
    (void)state;
    mh_facts facts = planted_run(40, 2, 4, 20 * MS);
    for (size_t at = 0; at < facts.batch_count; at++)
        planted_batches(&facts)[at].fetch = planted_batches(&facts)[at].fetch_cpu = 2 * MS;
    double loop = planted_waits(&facts);
    facts.persistent = 0;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    facts.remade = 4;
    facts.remade_start_ns = 4 * 400 * MS;
    facts.remade_ns = 4 * (uint64_t)loop + facts.remade_start_ns;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_int_equal(verdict.fix_settings.persistent, -1); /* alone it wins nothing */
    assert_non_null(strstr(verdict.fix, "make the loader once"));
    double run = 5 * loop + 1600e6;
    assert_true(fabs(verdict.predicted_gain - run / (5 * loop)) < 0.02);
    assert_true(fabs(verdict.epoch_start_s - 1.6) < 0.1);
    facts.remade_start_ns = 4 * 20 * MS;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    free(planted_batches(&facts));
}

/* Half of the run lies between epochs, which no fix shortens: the promise is of the whole run. */
static void gains_are_of_the_whole_run(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 0, 2, 10 * MS);
    for (size_t at = 0; at < facts.batch_count; at++)
        planted_batches(&facts)[at].fetch = planted_batches(&facts)[at].fetch_cpu = 10 * MS;
    double loop = planted_waits(&facts);
    double gain = judged(&facts).predicted_gain;
    assert_true(gain > 1.9);
    facts.between_ns = (uint64_t)loop;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_PYTHON);
    assert_true(fabs(verdict.predicted_gain - 2 / (1 + 1 / gain)) < 0.01);
    facts.other_ns = (uint64_t)loop; /* another loop lies there */
    assert_true(fabs(judged(&facts).predicted_gain - verdict.predicted_gain) < 0.01);
    free(planted_batches(&facts));
}

/* A start that comes once and of which half is little is no cause, and is said; one that comes in
 * every epoch is, where workers may stay. */
static void a_little_start_is_a_cause_only_where_it_comes_again(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, 2, 4, 20 * MS);
    for (size_t at = 0; at < facts.batch_count; at++)
        planted_batches(&facts)[at].fetch = planted_batches(&facts)[at].fetch_cpu = 2 * MS;
    (void)planted_waits(&facts);
    facts.setup_ns = 300 * MS; /* of 2.3 s */
    facts.persistent = 0;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_DEVICE);
    assert_false(lists(&verdict, MH_CAUSE_STARTUP));
    assert_true(verdict.epoch_start_share > 0.1);
    facts.batch_count = 30; /* of 0.9 s half of it would be much, and it is short all the same */
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    facts.setup_ns = 600 * MS;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_STARTUP);
    facts.setup_ns = 300 * MS;
    facts.batch_count = 100;
    for (size_t at = 0; at < facts.batch_count; at++) {
        planted_batches(&facts)[at].epoch = (uint32_t)(at / 25);
        planted_batches(&facts)[at].first = at % 25 == 0;
    }
    facts.epochs = 4;
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_int_equal(verdict.fix_settings.persistent, 1);
    free(planted_batches(&facts));
}

/* A function that is known to be slow has its advice, where workers are the first one too. */
static void what_is_known_of_a_function_stands_beside_workers(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 0, 2, 10 * MS);
    for (size_t at = 0; at < facts.batch_count; at++)
        planted_batches(&facts)[at].fetch = planted_batches(&facts)[at].fetch_cpu = 20 * MS;
    (void)planted_waits(&facts);
    assert_null(strstr(judged(&facts).fix, "of a sample is"));
    facts.hot_count = 1;
    facts.hot[0] = (mh_hot){.stage = "fetch", .function = "zarr.core.sync.sync", .share = 0.8};
    mh_verdict verdict = judged(&facts);
    assert_non_null(strstr(verdict.fix, "num_workers="));
    assert_non_null(strstr(verdict.fix, "80 % of a sample is zarr.core.sync.sync"));
    assert_non_null(strstr(verdict.fix, "millhead.Loader(store, window=...)"));
    facts.hot[0] = (mh_hot){
        .stage = "fetch", .function = "pandas.core.indexing._iLocIndexer.get", .share = 0.8};
    assert_non_null(strstr(judged(&facts).fix, "frame.to_numpy() once"));
    facts.hot[0] = (mh_hot){.stage = "fetch",
                            .function = "torch.utils.data._utils.fetch._MapDatasetFetcher.fetch",
                            .share = 0.9};
    assert_non_null(strstr(judged(&facts).fix, "__getitems__"));
    facts.hot[0].share = 0.1;
    assert_null(strstr(judged(&facts).fix, "of a sample is"));
    free(planted_batches(&facts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_run_says_what_was_seen),
        cmocka_unit_test(the_first_workers_of_a_slow_source_promise_what_is_sure),
        cmocka_unit_test(other_loops_are_not_between_epochs),
        cmocka_unit_test(iterators_that_give_one_batch_are_named),
        cmocka_unit_test(a_loader_that_is_made_anew_is_a_start_in_every_epoch),
        cmocka_unit_test(gains_are_of_the_whole_run),
        cmocka_unit_test(a_little_start_is_a_cause_only_where_it_comes_again),
        cmocka_unit_test(what_is_known_of_a_function_stands_beside_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
