/* test_replay.c - a run played again: against closed forms and a recurrence of its own
 * SPDX-License-Identifier: Apache-2.0
 */
#include "planted.h"
#include "unit.h"

static mh_replay_result played(const mh_facts *facts, const mh_replay_options *options)
{
    mh_replay_result result;
    mh_error err;
    assert_int_equal(mh_replay(&result, facts, options, &err), MH_OK);
    return result;
}

static mh_replay_options options_of(const mh_facts *facts)
{
    mh_replay_options options;
    mh_replay_options_init(&options, facts);
    return options;
}

static void assert_near(double value, double expected, double slack)
{
    if (value < expected - slack || value > expected + slack)
        fail_msg("%g is not within %g of %g", value, slack, expected);
}

static void free_facts(mh_facts *facts)
{
    free(planted_batches(facts));
}

static void set_fetch(mh_facts *facts, uint64_t cpu, uint64_t blocked)
{
    mh_batch_cost *batches = planted_batches(facts);
    for (size_t at = 0; at < facts->batch_count; at++) {
        batches[at].fetch = cpu + blocked;
        batches[at].fetch_cpu = cpu;
    }
}

static void without_workers_times_add_up(void **state)
{
    (void)state;
    mh_facts facts = planted_run(50, 0, 4, 10 * MS);
    set_fetch(&facts, 3 * MS, 4 * MS);
    facts.setup_ns = 5 * MS;
    mh_replay_options options = options_of(&facts);
    mh_replay_result result = played(&facts, &options);
    /* no wait of the first batch was measured, so none counts as start-up beyond the set-up */
    assert_int_equal(result.total_ns, 5 * MS + 50 * 17 * MS);
    assert_int_equal(result.wait_ns, 50 * 7 * MS);
    assert_int_equal(result.step_ns, 50 * 10 * MS);
    assert_int_equal(result.startup_ns, 5 * MS);
    options.fetch_cpu = 0;
    options.fetch_blocked = 0.5;
    assert_int_equal(played(&facts, &options).total_ns, 5 * MS + 50 * 12 * MS);
    free_facts(&facts);
}

/* W workers with latency L give W / L batches a second, or the consumer sets the pace. */
static void latency_is_shared_by_workers(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 32; workers *= 2) {
        mh_facts facts = planted_run(1000, workers, 2, 10 * MS);
        set_fetch(&facts, 0, 80 * MS);
        mh_replay_options options = options_of(&facts);
        double pace = 80.0 / workers > 10 ? 80.0 / workers : 10;
        assert_near((double)played(&facts, &options).total_ns / 1e6, 1000 * pace, 80 + 10);
        free_facts(&facts);
    }
}

/* Work on CPUs is done by as many workers as there are CPUs, however many there are. */
static void cpus_are_shared(void **state)
{
    (void)state;
    for (int cpus = 1; cpus <= 8; cpus *= 2) {
        for (int workers = 1; workers <= 16; workers *= 2) {
            mh_facts facts = planted_run(1000, workers, cpus, 1 * MS);
            set_fetch(&facts, 20 * MS, 0);
            mh_replay_options options = options_of(&facts);
            double pace = 20.0 / (workers < cpus ? workers : cpus);
            double slack = 20.0 * workers / cpus + 41;
            assert_near((double)played(&facts, &options).total_ns / 1e6, 1000 * pace, slack);
            free_facts(&facts);
        }
    }
}

static void the_consumer_needs_a_cpu_too(void **state)
{
    (void)state;
    mh_facts facts = planted_run(500, 2, 1, 6 * MS);
    set_fetch(&facts, 4 * MS, 0);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < facts.batch_count; at++)
        batches[at].step_cpu = batches[at].step;
    mh_replay_options options = options_of(&facts);
    assert_near((double)played(&facts, &options).total_ns / 1e6, 500 * 10, 30);
    options.cpus = 2;
    assert_near((double)played(&facts, &options).total_ns / 1e6, 500 * 6, 30);
    free_facts(&facts);
}

/* Four runs on two CPUs: each has half a CPU. */
static void ranks_share_the_cpus(void **state)
{
    (void)state;
    mh_facts facts = planted_run(500, 2, 2, 6 * MS);
    set_fetch(&facts, 4 * MS, 0);
    mh_replay_options options = options_of(&facts);
    assert_near((double)played(&facts, &options).total_ns / 1e6, 500 * 6, 30);
    options.ranks = 4;
    assert_near((double)played(&facts, &options).total_ns / 1e6, 500 * 8, 30);
    options.ranks = -1;
    assert_int_equal(mh_replay(&(mh_replay_result){0}, &facts, &options, NULL), MH_ERR_INVALID);
    free_facts(&facts);
}

static void random_runs_follow_the_recurrence(void **state)
{
    (void)state;
    uint64_t seed = 20260101;
    for (int round = 0; round < 300; round++) {
        uint64_t shown = seed;
        size_t count = 1 + planted_next(&seed) % 200;
        mh_facts facts = planted_run(count, (int)(planted_next(&seed) % 9), 0, 0);
        facts.prefetch = 1 + (int)(planted_next(&seed) % 4);
        mh_batch_cost *batches = planted_batches(&facts);
        for (size_t at = 0; at < count; at++) {
            batches[at].step = planted_next(&seed) % (20 * MS);
            batches[at].fetch = planted_next(&seed) % (90 * MS);
            batches[at].fetch_cpu = batches[at].fetch / (1 + planted_next(&seed) % 4);
            batches[at].collate = planted_next(&seed) % (5 * MS);
            batches[at].collate_cpu = batches[at].collate;
            batches[at].transfer = facts.workers ? planted_next(&seed) % (3 * MS) : 0;
        }
        double expected = planted_waits(&facts);
        mh_replay_options options = options_of(&facts);
        double total = (double)played(&facts, &options).total_ns;
        if (total < expected - 1000 || total > expected + 1000)
            fail_msg("seed %llu: %g ns, the recurrence says %g", (unsigned long long)shown, total,
                     expected);
        free_facts(&facts);
    }
}

static void out_of_order_hides_one_slow_batch(void **state)
{
    (void)state;
    mh_facts facts = planted_run(400, 4, 4, 10 * MS);
    set_fetch(&facts, 0, 20 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 20; at < facts.batch_count; at += 50) {
        batches[at].fetch = 320 * MS;
        batches[at].fetch_excess = 300 * MS;
    }
    mh_replay_options options = options_of(&facts);
    double in_order = (double)played(&facts, &options).total_ns;
    options.in_order = 0;
    double as_ready = (double)played(&facts, &options).total_ns;
    options.clip_excess = 1;
    double clipped = (double)played(&facts, &options).total_ns;
    assert_near(clipped / 1e6, 4000, 60);
    assert_true(in_order > 1.3 * clipped);
    assert_true(as_ready < 1.05 * clipped);
    free_facts(&facts);
}

/* dispatch="sample": two workers make a batch in half the time, but for a slow sample in it. */
static void a_shared_batch_is_made_by_all_workers(void **state)
{
    (void)state;
    mh_facts facts = planted_run(1, 2, 4, 1 * MS);
    set_fetch(&facts, 0, 80 * MS);
    mh_replay_options options = options_of(&facts);
    assert_int_equal(played(&facts, &options).total_ns, 81 * MS);
    facts.by_sample = 1;
    assert_int_equal(played(&facts, &options).total_ns, 41 * MS);
    set_fetch(&facts, 0, 180 * MS);
    planted_batches(&facts)[0].fetch_excess = 100 * MS;
    facts.sample_max_ns = 110 * MS;
    assert_int_equal(played(&facts, &options).total_ns, 141 * MS);
    facts.sample_max_ns = 60 * MS; /* it were two, then */
    assert_int_equal(played(&facts, &options).total_ns, 91 * MS);
    options.clip_excess = 1;
    assert_int_equal(played(&facts, &options).total_ns, 41 * MS);
    set_fetch(&facts, 0, 1 * MS); /* less than a run is not shared */
    planted_batches(&facts)[0].fetch_excess = 0;
    assert_int_equal(played(&facts, &options).total_ns, 2 * MS);
    free_facts(&facts);
}

/* While one worker has a slow sample the other goes on, as far as there is room; out of order the
 * loop does as well. */
static void a_slow_sample_of_a_shared_batch_holds_up_the_window(void **state)
{
    (void)state;
    mh_facts facts = planted_run(40, 2, 4, 10 * MS);
    set_fetch(&facts, 0, 8 * MS);
    planted_batches(&facts)[20].fetch += 400 * MS;
    planted_batches(&facts)[20].fetch_excess = 400 * MS;
    facts.sample_max_ns = 401 * MS;
    facts.by_sample = 1;
    mh_replay_options options = options_of(&facts);
    double even = 40 * 10 + 4, held_up = (double)played(&facts, &options).total_ns / 1e6;
    assert_near(held_up, even + 400 - 3 * 10, 12); /* three more are on the way, or taken before */
    options.prefetch = 16;
    assert_near((double)played(&facts, &options).total_ns / 1e6, even + 400 - 19 * 10, 120);
    options.prefetch = 2;
    options.in_order = 0;
    assert_near((double)played(&facts, &options).total_ns / 1e6, held_up - 190, 30);
    options.in_order = 1;
    options.clip_excess = 1;
    assert_near((double)played(&facts, &options).total_ns / 1e6, even, 1);
    free_facts(&facts);
}

static void startup_comes_once_an_epoch(void **state)
{
    (void)state;
    mh_facts facts = planted_run(90, 2, 4, 10 * MS);
    set_fetch(&facts, 0, 5 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 90; at++) {
        batches[at].epoch = (uint32_t)(at / 30);
        batches[at].first = at % 30 == 0;
        batches[at].wait = batches[at].first ? 405 * MS : 0; /* 400 to start, 5 to fetch */
    }
    facts.setup_ns = 3 * 100 * MS;
    mh_replay_options options = options_of(&facts);
    mh_replay_result result = played(&facts, &options);
    assert_int_equal(result.startup_ns, 3 * 500 * MS);
    assert_int_equal(result.total_ns, 3 * (500 + 5 + 300) * MS);
    assert_int_equal(result.gap_ns, 2 * 5 * MS);
    options.free_startup = 1;
    assert_int_equal(played(&facts, &options).startup_ns, 500 * MS);
    options.startup = 0.5;
    assert_int_equal(played(&facts, &options).startup_ns, 250 * MS);
    options.workers = 4; /* twice as many to start; when they run does not depend on how many */
    assert_int_equal(played(&facts, &options).startup_ns, 300 * MS);
    free_facts(&facts);
}

static void training_stays_when_main_work_goes(void **state)
{
    (void)state;
    mh_facts facts = planted_run(40, 0, 2, 30 * MS);
    set_fetch(&facts, 0, 0);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 40; at++) {
        batches[at].step_train = 10 * MS;
        batches[at].step_cpu = 15 * MS;
    }
    mh_replay_options options = options_of(&facts);
    options.step_main = 0;
    assert_int_equal(played(&facts, &options).total_ns, 40 * 10 * MS);
    for (size_t at = 0; at < 40; at++)
        batches[at].step_train = MH_NOT_MEASURED; /* then what it did on a CPU is its own work */
    assert_int_equal(played(&facts, &options).total_ns, 40 * 15 * MS);
    for (size_t at = 0; at < 40; at++)
        batches[at].step_cpu = 29 * MS; /* this may be the training */
    assert_int_equal(played(&facts, &options).total_ns, 40 * 30 * MS);
    free_facts(&facts);
}

static void waits_nobody_explains_stay(void **state)
{
    (void)state;
    mh_facts facts = planted_run(40, 4, 2, 30 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 40; at++) {
        batches[at].fetch = batches[at].collate = batches[at].transfer = MH_NOT_MEASURED;
        batches[at].wait = 20 * MS;
    }
    mh_replay_options options = options_of(&facts);
    options.fetch_cpu = options.fetch_blocked = options.transfer = 0;
    assert_int_equal(played(&facts, &options).total_ns, 40 * 50 * MS);
    free_facts(&facts);
}

static void absurd_times_stay_finite(void **state)
{
    (void)state;
    mh_facts facts = planted_run(20000, 3, 2, UINT64_MAX - 1);
    set_fetch(&facts, UINT64_MAX - 1, 0);
    mh_replay_options options = options_of(&facts);
    assert_true(played(&facts, &options).total_ns <= UINT64_C(10000000000000000000));
    free_facts(&facts);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    mh_facts facts = planted_run(3, 1, 2, MS);
    mh_replay_result result = {.total_ns = 7};
    mh_error err;
    for (int way = 0; way < 7; way++) {
        mh_replay_options options = options_of(&facts);
        mh_facts none = facts;
        options.workers = way == 0 ? -1 : way == 1 ? 1 << 20 : 1;
        options.prefetch = way == 2 ? 0 : 1;
        options.collate = way == 3 ? -1 : 1;
        options.fetch_cpu = way == 4 ? 0.0 / (double)(way - 4) : 1; /* not a number */
        options.struct_size -= way == 5;
        none.batch_count = way == 6 ? 0 : none.batch_count;
        assert_int_equal(mh_replay(&result, &none, &options, &err), MH_ERR_INVALID);
        assert_true(err.message[0]);
    }
    assert_int_equal(mh_replay(NULL, &facts, NULL, NULL), MH_ERR_INVALID);
    assert_int_equal(result.total_ns, 7);
    free_facts(&facts);
}

static void replay_or_no_memory(void *argument)
{
    const mh_facts *facts = argument;
    mh_replay_options options = options_of(facts);
    mh_replay_result result;
    mh_status status = mh_replay(&result, facts, &options, NULL);
    assert_true(status == MH_OK || status == MH_ERR_NOMEM);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    mh_facts facts = planted_run(9, 2, 2, MS);
    each_allocation_fails(replay_or_no_memory, &facts);
    free_facts(&facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_workers_times_add_up),
        cmocka_unit_test(latency_is_shared_by_workers),
        cmocka_unit_test(cpus_are_shared),
        cmocka_unit_test(the_consumer_needs_a_cpu_too),
        cmocka_unit_test(ranks_share_the_cpus),
        cmocka_unit_test(random_runs_follow_the_recurrence),
        cmocka_unit_test(out_of_order_hides_one_slow_batch),
        cmocka_unit_test(a_shared_batch_is_made_by_all_workers),
        cmocka_unit_test(a_slow_sample_of_a_shared_batch_holds_up_the_window),
        cmocka_unit_test(startup_comes_once_an_epoch),
        cmocka_unit_test(training_stays_when_main_work_goes),
        cmocka_unit_test(waits_nobody_explains_stay),
        cmocka_unit_test(absurd_times_stay_finite),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
