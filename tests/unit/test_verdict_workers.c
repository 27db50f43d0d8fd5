/* test_verdict_workers.c - verdicts on runs whose workers hold each other up, or differ
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plants.h"

#include <string.h>

/* Four workers that wait for 160 ms, a step of 20 ms. */
static mh_facts waiting_run(void)
{
    uint64_t seed = 3;
    mh_facts facts = planted_run(200, 4, 4, 20 * MS);
    plant_costs(&facts, &seed, 0.5e6, 160e6, 0.2e6);
    (void)planted_waits(&facts);
    facts.usage.wall_ns = 8000 * MS;
    return facts;
}

static int says(const mh_verdict *verdict, const char *text)
{
    for (size_t at = 0; at < verdict->evidence_count; at++)
        if (strstr(verdict->evidence[at], text))
            return 1;
    for (size_t at = 0; at < verdict->warning_count; at++)
        if (strstr(verdict->warnings[at], text))
            return 1;
    return 0;
}

static void more_workers_do_not_help_with_a_lock(void **state)
{
    (void)state;
    mh_facts facts = waiting_run();
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(verdict.fix_settings.workers > 4);
    assert_non_null(strstr(verdict.fix, "if the source answers as many requests at once"));
    facts.usage.workers_locked = 3; /* of four: one holds it */
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_int_equal(verdict.fix_settings.workers, -1);
    assert_true(verdict.fix_settings.cost == 0.5);
    assert_true(verdict.predicted_gain > 1.7 && verdict.predicted_gain < 2.05);
    assert_non_null(strstr(verdict.fix, "lock"));
    assert_true(says(&verdict, "3 of 4 are waiting for a lock"));
    free(planted_batches(&facts));
}

/* BLAS in each worker takes as many threads as there are CPUs: all want one at once. A helper that
 * computes while its worker sleeps makes no crowd. */
static void pools_in_workers_crowd(void **state)
{
    (void)state;
    uint64_t seed = 5;
    mh_facts facts = planted_run(200, 2, 2, 5 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    plant_costs(&facts, &seed, 20e6, 1e6, 0.2e6);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch += 30 * MS;
        batches[at].fetch_delay = 30 * MS;
        batches[at].fetch_helpers = 20 * MS;
    }
    (void)planted_waits(&facts);
    facts.usage.wall_ns = 8000 * MS;
    facts.usage.workers_cpus = facts.usage.loader_cpus = facts.usage.busy_cpus = 1.9;
    facts.usage.workers_delay = facts.usage.loader_delay = 3;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_OVERSUBSCRIBED);
    assert_true(verdict.predicted_gain == 1);
    assert_non_null(strstr(verdict.fix, "OMP_NUM_THREADS=1"));
    assert_null(strstr(verdict.fix, "num_workers=2 (now 2)"));
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch_cpu = 1 * MS;
        batches[at].fetch_delay = 0;
    }
    assert_int_equal(judged(&facts).cause, MH_CAUSE_CPU);
    free(batches);
}

/* Each of two workers reads all of a stream: that its part would do is the first thing to say. */
static void workers_may_repeat_a_stream(void **state)
{
    (void)state;
    uint64_t seed = 6;
    mh_facts facts = planted_run(200, 2, 2, 5 * MS);
    plant_costs(&facts, &seed, 40e6, 0, 0.2e6);
    (void)planted_waits(&facts);
    assert_null(strstr(judged(&facts).fix, "get_worker_info"));
    facts.iterable = 1;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_non_null(strstr(verdict.fix, "get_worker_info"));
    assert_true(verdict.fix_settings.workers == -1);
    free(planted_batches(&facts));
}

/* Of 32 workers half a one waits for it: it is not what the others are blocked by. */
static void a_lock_that_few_wait_for_is_no_limit(void **state)
{
    (void)state;
    mh_facts facts = waiting_run();
    facts.usage.workers_locked = 0.45;
    assert_true(judged(&facts).fix_settings.workers > 4);
    facts.usage.workers_locked = 0.9; /* of some 3.9 that are blocked */
    assert_true(judged(&facts).fix_settings.workers > 4);
    facts.usage.workers_locked = 1.1;
    assert_int_equal(judged(&facts).fix_settings.workers, -1);
    free(planted_batches(&facts));
}

/* Eight workers compute, and one of them at times waits for another: twice as many compute more. */
static void a_lock_beside_much_work_is_no_limit(void **state)
{
    (void)state;
    uint64_t seed = 7;
    mh_facts facts = planted_run(200, 8, 32, 2 * MS);
    plant_costs(&facts, &seed, 60e6, 5e6, 0.2e6);
    (void)planted_waits(&facts);
    facts.usage.wall_ns = 2000 * MS;
    facts.usage.workers_locked = 0.6; /* all that is blocked */
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_true(verdict.fix_settings.workers > 8);
    facts.usage.workers_locked = 2.2;
    assert_int_equal(judged(&facts).fix_settings.workers, -1);
    free(planted_batches(&facts));
}

/* Who gets the lock keeps it for a batch: then one sample of each batch waits for all others. */
static void a_lock_makes_no_slow_samples(void **state)
{
    (void)state;
    mh_facts facts = waiting_run();
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < facts.batch_count; at++)
        batches[at].fetch_excess = 120 * MS;
    facts.samples_timed = 6400;
    facts.samples_slow = 200;
    facts.sample_median_ns = 5 * MS;
    facts.sample_max_ns = 125 * MS;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_TAIL);
    facts.usage.workers_locked = 3;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_LATENCY);
    free(batches);
}

static void one_slow_worker_is_to_be_made_like_the_others(void **state)
{
    (void)state;
    uint64_t seed = 4;
    mh_facts facts = planted_run(240, 3, 4, 15 * MS);
    plant_costs(&facts, &seed, 0.2e6, 8e6, 0.1e6);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 1; at < facts.batch_count; at += 3)
        batches[at].fetch += 64 * MS;
    double now = planted_waits(&facts), then = 15.3e6 * 240;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_non_null(strstr(verdict.fix, "worker 1"));
    assert_int_equal(verdict.fix_settings.workers, -1);
    assert_true(verdict.predicted_gain > 0.9 * now / then);
    assert_true(verdict.predicted_gain < 1.1 * now / then);
    free(batches);
}

/* A dataset that keeps its samples: those of the first epoch are slow, and no tail of the rest. */
static void a_first_epoch_that_fills_a_cache_is_no_tail(void **state)
{
    (void)state;
    uint64_t seed = 5;
    mh_facts facts = planted_run(200, 0, 2, 15 * MS);
    plant_costs(&facts, &seed, 10e3, 0, 10e3);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < facts.batch_count; at++) {
        batches[at].epoch = (uint32_t)(at / 50);
        batches[at].first = at % 50 == 0;
        batches[at].fetch += at < 50 ? 48 * MS : 0;
        batches[at].fetch_excess = at < 50 ? 48 * MS : 0;
    }
    (void)planted_waits(&facts);
    facts.epochs = 4;
    facts.samples_timed = 1600;
    facts.samples_slow = 400;
    facts.sample_median_ns = 1000;
    facts.sample_max_ns = 7 * MS;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(says(&verdict, "later epochs hit a warm cache"));
    for (size_t at = 0; at < facts.batch_count; at++) { /* the same in every fifth batch */
        batches[at].fetch_excess = at % 5 == 1 ? 48 * MS : 0;
        batches[at].fetch = 10000 + batches[at].fetch_excess;
    }
    (void)planted_waits(&facts);
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_TAIL);
    assert_false(says(&verdict, "later epochs hit a warm cache"));
    free(batches);
}

/* A decoder that waits a moment for storage: the idle CPU is what to use. */
static void a_little_reading_forbids_no_workers(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 1, 2, 15 * MS);
    for (size_t at = 0; at < facts.batch_count; at++) {
        mh_batch_cost *batch = &planted_batches(&facts)[at];
        batch->fetch = 48 * MS;
        batch->fetch_cpu = batch->fetch - 100000;
        batch->read_bytes = 150000;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_int_equal(verdict.fix_settings.workers, 2);
    assert_true(verdict.predicted_gain > 1.7);
    for (size_t at = 0; at < facts.batch_count; at++) {
        planted_batches(&facts)[at].fetch_cpu = 20 * MS;
        planted_batches(&facts)[at].read_bytes = 5000000;
    }
    assert_int_equal(judged(&facts).fix_settings.workers, -1);
    free(planted_batches(&facts));
}

/* Samples that are slow because other processes had the CPU: without workers such delay counts as
 * waking up where the steps have none, and is no slow sample either. */
static void samples_that_had_no_cpu_are_not_slow(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 0, 2, 10 * MS);
    for (size_t at = 0; at < facts.batch_count; at++) {
        mh_batch_cost *batch = &planted_batches(&facts)[at];
        batch->step_cpu = batch->fetch = batch->fetch_cpu = 1 * MS;
        if (at % 20 == 10) {
            batch->fetch_delay = batch->fetch_excess = 80 * MS;
            batch->fetch += batch->fetch_delay;
        }
    }
    (void)planted_waits(&facts);
    facts.samples_slow = 10;
    facts.samples_timed = 1600;
    facts.sample_median_ns = MS / 8;
    facts.sample_max_ns = 80 * MS;
    assert_int_not_equal(judged(&facts).cause, MH_CAUSE_TAIL);
    for (size_t at = 0; at < facts.batch_count; at++)
        planted_batches(&facts)[at].fetch_delay = 0;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_TAIL);
    free(planted_batches(&facts));
}

/* Workers that stay do not draw an epoch's order. */
static void a_slow_order_is_not_saved_by_workers_that_stay(void **state)
{
    (void)state;
    uint64_t seed = 6;
    mh_facts facts = planted_run(160, 2, 2, 15 * MS);
    plant_costs(&facts, &seed, 0.1e6, 1e6, 0.1e6);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < facts.batch_count; at++) {
        batches[at].epoch = (uint32_t)(at / 40);
        batches[at].first = at % 40 == 0;
    }
    (void)planted_waits(&facts);
    facts.epochs = 4;
    facts.persistent = 0;
    facts.setup_ns = 2000 * MS;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_int_equal(verdict.fix_settings.persistent, 1);
    facts.setup_order_ns = 1900 * MS;
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_int_equal(verdict.fix_settings.persistent, -1);
    assert_non_null(strstr(verdict.fix, "sampler"));
    assert_true(verdict.predicted_gain > 1.2 && verdict.predicted_gain < 1.35);
    assert_true(says(&verdict, "the sampler takes 1.9 s of that"));
    free(batches);
}

static void time_between_epochs_is_told(void **state)
{
    (void)state;
    mh_facts facts = waiting_run();
    mh_verdict verdict = judged(&facts);
    assert_false(says(&verdict, "outside the loop"));
    facts.between_ns = 5000 * MS;
    verdict = judged(&facts);
    assert_true(says(&verdict, "5 s pass between epochs, outside the loop"));
    free(planted_batches(&facts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_workers_do_not_help_with_a_lock),
        cmocka_unit_test(pools_in_workers_crowd),
        cmocka_unit_test(workers_may_repeat_a_stream),
        cmocka_unit_test(a_lock_that_few_wait_for_is_no_limit),
        cmocka_unit_test(a_lock_beside_much_work_is_no_limit),
        cmocka_unit_test(a_lock_makes_no_slow_samples),
        cmocka_unit_test(one_slow_worker_is_to_be_made_like_the_others),
        cmocka_unit_test(a_first_epoch_that_fills_a_cache_is_no_tail),
        cmocka_unit_test(a_slow_order_is_not_saved_by_workers_that_stay),
        cmocka_unit_test(time_between_epochs_is_told),
        cmocka_unit_test(samples_that_had_no_cpu_are_not_slow),
        cmocka_unit_test(a_little_reading_forbids_no_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
