/* test_facts.c - verdicts on little, on much, on ranks, and on what no run has
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plants.h"
#include <math.h>

/* --- ranks ----------------------------------------------------------------------------------- */

static void make_ranks(mh_rank_cost ranks[4], uint64_t *seed, size_t slow, double excess,
                       int barriers)
{
    for (size_t at = 0; at < 4; at++) {
        double data = noisy(seed, 5e6) + (at == slow ? excess : 0);
        double work = 40e6, step = 45e6 + excess, steps = 100;
        ranks[at] = (mh_rank_cost){.rank = (uint32_t)at, .host = "node2", .steps = 100};
        ranks[at].data = (uint64_t)(data * steps);
        ranks[at].total = (uint64_t)(step * steps);
        /* without barriers the others' waiting hides in their backward */
        ranks[at].waiting = barriers ? (uint64_t)((step - data - work) * steps) : 0;
        ranks[at].own = ranks[at].total - ranks[at].waiting;
        ranks[at].forward = (uint64_t)(10e6 * steps);
        ranks[at].backward = ranks[at].own - ranks[at].data - ranks[at].forward;
    }
}

static void the_slow_rank_is_named(void **state)
{
    (void)state;
    uint64_t seed = 31;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t shown = seed;
        mh_rank_cost ranks[4];
        size_t slow = planted_next(&seed) % 4;
        double excess = planted_between(&seed, 4e6, 100e6);
        make_ranks(ranks, &seed, slow, excess, round % 2);
        mh_facts facts = {PLANTED_SIZES, .ranks = ranks, .rank_count = 4, .workers = -1};
        mh_verdict verdict = judged(&facts);
        char name[64];
        (void)snprintf(name, sizeof name, "rank %zu on node2 loads slowest", slow);
        double expected = (45e6 + excess) / 45e6;
        if (verdict.cause != MH_CAUSE_STRAGGLER || !strstr(verdict.evidence[0], name) ||
            fabs(verdict.predicted_gain / expected - 1) > 0.1 || planted_wrong_with(&verdict)) {
            print_verdict(&verdict);
            fail_msg("seed %llu: rank %zu is slow", (unsigned long long)shown, slow);
        }
    }
}

/* They never meet: one is slow, and nobody waits for it. */
static void ranks_that_train_independently_lose_nothing(void **state)
{
    (void)state;
    uint64_t seed = 5;
    mh_rank_cost ranks[4];
    make_ranks(ranks, &seed, 2, 30e6, 0);
    mh_facts facts = {PLANTED_SIZES, .ranks = ranks, .rank_count = 4, .workers = -1};
    assert_int_equal(judged(&facts).cause, MH_CAUSE_STRAGGLER);
    ranks[2].total += 100 * 30 * MS; /* what the others did not wait in their steps */
    ranks[2].own += 100 * 30 * MS;
    assert_int_not_equal(judged(&facts).cause, MH_CAUSE_STRAGGLER);
}

static void equal_ranks_have_no_straggler(void **state)
{
    (void)state;
    uint64_t seed = 32;
    for (int round = 0; round < ROUNDS; round++) {
        mh_rank_cost ranks[4];
        make_ranks(ranks, &seed, 4, 0, round % 2);
        plant planted = plant_control(&seed);
        planted.facts.ranks = ranks;
        planted.facts.rank_count = 4;
        assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_DEVICE);
        free(planted_batches(&planted.facts));
    }
}

/* --- little is known ------------------------------------------------------------------------- */

/* A log that has only wall times: 0 workers, samples one after the other. */
static void a_log_without_cpu_times(void **state)
{
    (void)state;
    mh_facts facts = planted_run(1500, 0, -1, 100 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 1500; at++) {
        batches[at].step_train = batches[at].step;
        batches[at].step_cpu = batches[at].fetch_cpu = batches[at].wait_cpu = MH_NOT_MEASURED;
        batches[at].collate = batches[at].collate_cpu = MH_NOT_MEASURED;
        batches[at].fetch = 1380 * MS;
        batches[at].wait = 1383 * MS;
    }
    facts.vantage = MH_VANTAGE_LOG;
    facts.setup_ns = 5570 * MS;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(verdict.fix_settings.workers >= 8);
    assert_true(verdict.possible_gain > 8 && verdict.possible_gain < 15);
    /* the same with workers that keep up, and a long set-up */
    facts.workers = 32;
    facts.prefetch = 3;
    facts.persistent = 1;
    facts.setup_ns = 208600 * MS;
    for (size_t at = 0; at < 1500; at++)
        batches[at].wait = 2 * MS;
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_true(verdict.predicted_gain > 1.3 && verdict.predicted_gain < 1.6);
    free(planted_batches(&facts));
}

static void workers_that_were_not_watched(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, 4, 4, 10 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 100; at++) {
        batches[at].wait = 12 * MS;
        batches[at].fetch = batches[at].collate = MH_NOT_MEASURED;
    }
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_UNCLEAR);
    assert_non_null(strstr(verdict.fix, "millhead.watch"));
    for (size_t at = 0; at < 100; at++)
        batches[at].wait = 10000;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    free(planted_batches(&facts));
}

/* Any iterable: its own wait tells what it does. */
static void an_iterable_tells_by_its_wait(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, -1, 4, 10 * MS);
    strcpy(facts.kind, "iterable");
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 100; at++) {
        batches[at].wait = 12 * MS;
        batches[at].fetch = batches[at].fetch_cpu = batches[at].collate = MH_NOT_MEASURED;
    }
    assert_int_equal(judged(&facts).cause, MH_CAUSE_LATENCY);
    for (size_t at = 0; at < 100; at++)
        batches[at].wait_cpu = 11 * MS;
    mh_cause cause = judged(&facts).cause;
    assert_true(cause == MH_CAUSE_CPU || cause == MH_CAUSE_PYTHON);
    free(planted_batches(&facts));
}

static void training_on_the_cpu_is_not_blamed(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, 1, 4, 30 * MS);
    uint64_t seed = 41;
    plant_costs(&facts, &seed, 2e6, 0, 1e5);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 100; at++)
        batches[at].step_cpu = batches[at].step;
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_DEVICE);
    int told = 0;
    for (size_t at = 0; at < verdict.evidence_count; at++)
        told |= strstr(verdict.evidence[at], "StepTimer") != NULL;
    assert_true(told);
    free(planted_batches(&facts));
}

/* A step that is blocked at times while other threads of the process work trains on them. */
static void training_on_many_threads_is_not_blamed(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, 1, 4, 30 * MS);
    uint64_t seed = 42;
    plant_costs(&facts, &seed, 2e6, 0, 1e5);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 100; at++)
        batches[at].step_cpu = batches[at].step * 3 / 4;
    (void)planted_waits(&facts);
    assert_int_equal(judged(&facts).cause, MH_CAUSE_MAIN);
    facts.usage.wall_ns = 3000 * MS;
    facts.usage.main_cpus = 2.6;
    facts.usage.loader_cpus = facts.usage.busy_cpus = 2.7;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    free(planted_batches(&facts));
}

/* Training on a CPU that others want too: what its steps waited is not told with every one of them,
 * and is no device all the same. */
static void waiting_for_a_cpu_that_no_event_tells_is_no_device(void **state)
{
    (void)state;
    mh_facts facts = planted_run(120, 2, 2, 28 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < facts.batch_count; at++) {
        batches[at].step_cpu = 20 * MS;
        batches[at].step_delay = 4 * MS;
        batches[at].wait = batches[at].wait_cpu = MS / 10;
        batches[at].fetch = batches[at].fetch_cpu = MS;
    }
    assert_int_equal(judged(&facts).cause, MH_CAUSE_MAIN);
    facts.usage.wall_ns = 3000 * MS;
    facts.usage.main_cpus = 0.72;
    facts.usage.loader_cpus = facts.usage.busy_cpus = 0.8;
    facts.usage.loader_delay = 0.15; /* as told */
    assert_int_equal(judged(&facts).cause, MH_CAUSE_MAIN);
    facts.usage.loader_delay = 0.3;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    facts.usage.workers_delay = 0.15; /* theirs, not its own */
    assert_int_equal(judged(&facts).cause, MH_CAUSE_MAIN);
    free(batches);
}

static mh_usage_sum seen_from_outside(double waits, double run, double disk, double blocked)
{
    return (mh_usage_sum){
        .wall_ns = 10000 * MS,
        .main_data = waits,
        .workers_run = run,
        .workers_disk = disk,
        .workers_blocked = blocked,
        .workers_idle = 1 - run - disk - blocked,
        .gpu_util = -1,
    };
}

static void seen_from_outside_workers_tell(void **state)
{
    (void)state;
    static const struct {
        double waits, run, disk, blocked;
        mh_cause cause;
    } rows[] = {
        {0.02, 0.2, 0, 0, MH_CAUSE_DEVICE},  {0.7, 0.95, 0, 0.05, MH_CAUSE_CPU},
        {0.7, 0.1, 0.8, 0.1, MH_CAUSE_DISK}, {0.7, 0.1, 0, 0.9, MH_CAUSE_LATENCY},
        {0.5, 0.05, 0, 0.05, MH_CAUSE_MAIN},
    };
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        mh_facts facts = {PLANTED_SIZES, .vantage = MH_VANTAGE_OUTSIDE, .workers = 2, .cpus = 4};
        facts.usage =
            seen_from_outside(rows[at].waits, rows[at].run, rows[at].disk, rows[at].blocked);
        mh_verdict verdict = judged(&facts);
        assert_int_equal(verdict.cause, rows[at].cause);
        assert_null(planted_wrong_with(&verdict));
        facts.usage.main_data = -1; /* could not be seen: the workers tell */
        mh_cause by_workers = rows[at].cause == MH_CAUSE_MAIN ? MH_CAUSE_DEVICE : rows[at].cause;
        assert_int_equal(judged(&facts).cause, by_workers);
        facts.workers = 0;
        assert_int_equal(judged(&facts).cause, MH_CAUSE_UNCLEAR);
    }
}

/* Two workers, one of which computes behind a lock while the other waits for it: no CPU would help.
 */
static void seen_from_outside_a_lock_promises_no_workers(void **state)
{
    (void)state;
    mh_facts facts = {PLANTED_SIZES, .vantage = MH_VANTAGE_OUTSIDE, .workers = 2, .cpus = 8};
    facts.usage = seen_from_outside(0.7, 0.5, 0, 0.5);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_int_equal(verdict.fix_settings.workers, 8);
    facts.usage.workers_locked = 0.9;
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_non_null(strstr(verdict.fix, "more workers gain nothing"));
    assert_true(verdict.fix_settings.cost == 0.5);
}

/* --- whatever the facts ---------------------------------------------------------------------- */

static uint64_t wild(uint64_t *seed)
{
    static const uint64_t values[] = {0,        1,          1000,           7 * MS,
                                      900 * MS, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX / 2};
    return values[planted_next(seed) % (sizeof values / sizeof *values)];
}

static int wild_setting(uint64_t *seed)
{
    static const int values[] = {-1, 0, 1, 2, 5, 64, 100000, INT32_MAX, INT32_MIN};
    return values[planted_next(seed) % (sizeof values / sizeof *values)];
}

static mh_facts wild_facts(uint64_t *seed)
{
    mh_facts facts = planted_run(1 + planted_next(seed) % 60, 0, 0, 0);
    for (size_t at = 0; at < facts.batch_count; at++) {
        mh_batch_cost *batch = &planted_batches(&facts)[at];
        uint64_t *times = &batch->wait;
        for (; times <= &batch->read_bytes; times++)
            *times = wild(seed);
        batch->first = planted_next(seed) % 8 == 0;
        batch->epoch = (uint32_t)(planted_next(seed) % 3);
    }
    int *settings = &facts.workers;
    for (; settings <= &facts.cpus; settings++)
        *settings = wild_setting(seed);
    facts.setup_ns = wild(seed);
    facts.probes = wild(seed);
    facts.probes_native = wild(seed);
    facts.samples_slow = wild(seed);
    facts.samples_timed = wild(seed);
    facts.usage.wall_ns = wild(seed);
    double *usage = &facts.usage.machine_cpus;
    for (; usage <= &facts.usage.workers_locked; usage++) {
        static const double values[] = {0, 0.5, 3, -1, 1e300, INFINITY, -INFINITY, NAN};
        *usage = values[planted_next(seed) % 8];
    }
    if (planted_next(seed) % 4 == 0)
        facts.kind[0] = '\0';
    return facts;
}

static void wild_facts_give_a_sane_verdict(void **state)
{
    (void)state;
    uint64_t seed = 51;
    for (int round = 0; round < 3000; round++) {
        uint64_t shown = seed;
        mh_facts facts = wild_facts(&seed);
        mh_batch_cost *batches = planted_batches(&facts);
        mh_rank_cost ranks[3] = {{.steps = wild(&seed), .own = wild(&seed), .total = wild(&seed)},
                                 {.steps = 1, .own = wild(&seed), .data = wild(&seed)},
                                 {.waiting = wild(&seed)}};
        facts.ranks = ranks;
        facts.rank_count = planted_next(&seed) % 4;
        if (planted_next(&seed) % 8 == 0)
            facts.batch_count = 0;
        mh_verdict verdict = judged(&facts);
        const char *wrong = planted_wrong_with(&verdict);
        if (wrong) {
            print_verdict(&verdict);
            fail_msg("seed %llu: %s", (unsigned long long)shown, wrong);
        }
        free(batches);
    }
}

static void one_batch_is_too_short(void **state)
{
    (void)state;
    mh_facts facts = planted_run(1, 2, 2, 10 * MS);
    mh_verdict verdict = judged(&facts);
    assert_null(planted_wrong_with(&verdict));
    assert_true(verdict.warning_count >= 1);
    assert_non_null(strstr(verdict.warnings[0], "short"));
    free(planted_batches(&facts));
}

static void bursts_are_a_saw_tooth(void **state)
{
    (void)state;
    mh_facts facts = planted_run(400, 4, 8, 10 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 400; at++)
        batches[at].fetch = 160 * MS; /* all four workers finish at once, every four batches */
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    int warned = 0;
    for (size_t at = 0; at < verdict.warning_count; at++)
        warned |= strstr(verdict.warnings[at], "works and idles in turn") &&
                  strstr(verdict.warnings[at], "every 4 batches");
    assert_true(warned);
    free(planted_batches(&facts));
}

static void a_very_long_run_is_judged_by_a_part(void **state)
{
    (void)state;
    mh_facts facts = planted_run(400000, 4, 8, 1 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < facts.batch_count; at++)
        batches[at].fetch = 8 * MS;
    (void)planted_waits(&facts);
    facts.setup_ns = 30000 * MS; /* a lot for the part, little for the whole */
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_false(lists(&verdict, MH_CAUSE_STARTUP));
    assert_true(verdict.replay_off < 0.01);
    free(planted_batches(&facts));
}

static void nothing_is_asked_of_nothing(void **state)
{
    (void)state;
    mh_facts facts = {PLANTED_SIZES, .batch_count = 3};
    mh_verdict verdict;
    mh_error err;
    mh_verdict_init(&verdict);
    assert_int_equal(mh_verdict_make(NULL, &facts, &err), MH_ERR_INVALID);
    assert_int_equal(mh_verdict_make(&verdict, NULL, &err), MH_ERR_INVALID);
    assert_int_equal(mh_verdict_make(&verdict, &facts, &err), MH_ERR_INVALID);
    facts.batch_count = 0;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_UNCLEAR);
}

static void judge_or_no_memory(void *argument)
{
    mh_verdict verdict;
    mh_verdict_init(&verdict);
    mh_status status = mh_verdict_make(&verdict, argument, NULL);
    assert_true(status == MH_OK || status == MH_ERR_NOMEM);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    uint64_t seed = 61;
    plant planted = plant_control(&seed);
    each_allocation_fails(judge_or_no_memory, &planted.facts);
    free(planted_batches(&planted.facts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slow_rank_is_named),
        cmocka_unit_test(ranks_that_train_independently_lose_nothing),
        cmocka_unit_test(equal_ranks_have_no_straggler),
        cmocka_unit_test(a_log_without_cpu_times),
        cmocka_unit_test(workers_that_were_not_watched),
        cmocka_unit_test(an_iterable_tells_by_its_wait),
        cmocka_unit_test(training_on_the_cpu_is_not_blamed),
        cmocka_unit_test(training_on_many_threads_is_not_blamed),
        cmocka_unit_test(waiting_for_a_cpu_that_no_event_tells_is_no_device),
        cmocka_unit_test(seen_from_outside_workers_tell),
        cmocka_unit_test(seen_from_outside_a_lock_promises_no_workers),
        cmocka_unit_test(wild_facts_give_a_sane_verdict),
        cmocka_unit_test(one_batch_is_too_short),
        cmocka_unit_test(bursts_are_a_saw_tooth),
        cmocka_unit_test(a_very_long_run_is_judged_by_a_part),
        cmocka_unit_test(nothing_is_asked_of_nothing),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
