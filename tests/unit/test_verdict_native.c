/* test_verdict_native.c - loops over the native loader: the lower of two bounds is named
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include <millhead/diagnose.h>
#include <string.h>

#define BATCHES 100
#define MS UINT64_C(1000000)

/* A loop of batches of 10 samples whose step takes 10 ms: it would take 1000 samples a second. Its
 * disk was probed: 0 is not at all. */
static mh_verdict judged_on(uint64_t wait_ms, mh_native_sum native, double disk_per_s)
{
    mh_batch_cost batches[BATCHES];
    mh_facts facts;
    mh_verdict verdict;
    mh_error err = {0};
    mh_facts_init(&facts);
    for (size_t at = 0; at < BATCHES; at++)
        batches[at] = (mh_batch_cost){.wait = wait_ms * MS,
                                      .step = 10 * MS,
                                      .first = at == 0,
                                      .wait_cpu = MH_NOT_MEASURED,
                                      .step_train = MH_NOT_MEASURED,
                                      .step_cpu = MH_NOT_MEASURED,
                                      .fetch = MH_NOT_MEASURED,
                                      .fetch_cpu = MH_NOT_MEASURED,
                                      .collate = MH_NOT_MEASURED,
                                      .collate_cpu = MH_NOT_MEASURED,
                                      .worker = -1};
    facts.batches = batches;
    facts.batch_count = BATCHES;
    facts.batch_size = 10;
    facts.cpus = 8;
    facts.workers = native.threads;
    facts.epochs = 1;
    facts.native = native;
    facts.storage.sequential_per_s = disk_per_s;
    (void)strcpy(facts.kind, "native");
    mh_verdict_init(&verdict);
    if (mh_verdict_make(&verdict, &facts, &err) != MH_OK)
        fail_msg("%s", err.message);
    return verdict;
}

static mh_verdict judged(uint64_t wait_ms, mh_native_sum native)
{
    return judged_on(wait_ms, native, 0);
}

static mh_native_sum made(double cpu_ms, double latency_ms)
{
    return (mh_native_sum){.threads = 2,
                           .in_flight = 16,
                           .samples = 1000,
                           .cpu_ns = (uint64_t)(1000 * cpu_ms * 1e6),
                           .reads = 1000,
                           .latency_ns = (uint64_t)(1000 * latency_ms * 1e6)};
}

/* 2 threads / 4 ms: 500 samples a second, half of what is wanted. */
static void cpu_time_asks_for_threads(void **state)
{
    (void)state;
    mh_verdict verdict = judged(10, made(4, 1));
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_int_equal(verdict.fix_settings.threads, 5);
    assert_true(verdict.predicted_gain > 1.9 && verdict.predicted_gain <= 2);
    assert_non_null(strstr(verdict.fix, "threads=5"));
}

/* 16 in flight / 32 ms: 500 samples a second. */
static void latency_asks_for_reads_in_flight(void **state)
{
    (void)state;
    mh_verdict verdict = judged(10, made(0.01, 32));
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_int_equal(verdict.fix_settings.in_flight, 39);
    assert_true(verdict.predicted_gain > 1.9 && verdict.predicted_gain <= 2);
}

/* The CPUs would give 1000 a second; more requests than there may be are needed for as much. */
static void data_behind_a_url_asks_for_a_cache(void **state)
{
    (void)state;
    mh_native_sum native = made(0.01, 2000);
    native.in_flight = 1024;
    native.requests = 1000;
    mh_verdict verdict = judged(20, native);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_int_equal(verdict.fix_settings.cache, 1);
    assert_int_equal(verdict.fix_settings.in_flight, -1);
    assert_true(verdict.predicted_gain > 2.9 && verdict.predicted_gain <= 3);
    assert_non_null(strstr(verdict.fix, "cache=\"DIR:SIZE\""));
    assert_non_null(strstr(verdict.fix, "second epoch"));
    native.cache_misses = 1000; /* there is one: this was its first epoch */
    verdict = judged(20, native);
    assert_int_equal(verdict.fix_settings.cache, 0);
    assert_non_null(strstr(verdict.evidence[2], "the cache answered 0 of 1000 reads"));
    native = made(0.01, 32);
    native.requests = 1000; /* more in flight do as well, and take no disk */
    verdict = judged(10, native);
    assert_int_equal(verdict.fix_settings.in_flight, 39);
    assert_int_equal(verdict.fix_settings.cache, 0);
    assert_non_null(strstr(verdict.fix, "; cache="));
}

/* Reads bring 250 a second; with more of them in flight the CPUs are the bound, at 400. */
static void a_gain_ends_at_the_other_bound(void **state)
{
    (void)state;
    mh_verdict verdict = judged(30, made(5, 64));
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(verdict.predicted_gain > 1.55 && verdict.predicted_gain < 1.65);
}

static void a_full_machine_needs_cheaper_samples(void **state)
{
    (void)state;
    mh_native_sum native = made(16, 0);
    native.threads = 8;
    mh_verdict verdict = judged(10, native);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_int_equal(verdict.fix_settings.threads, -1);
    assert_non_null(strstr(verdict.fix, "make samples cheaper"));
}

static void a_loop_that_does_not_wait_is_healthy(void **state)
{
    (void)state;
    assert_int_equal(judged(0, made(4, 32)).cause, MH_CAUSE_DEVICE);
}

/* 500 MB/s / 1 MB: 500 samples a second, whatever is in flight. */
static void a_probed_disk_is_a_bound(void **state)
{
    (void)state;
    mh_native_sum native = made(0.01, 20);
    native.bytes = native.samples * 1000000;
    mh_verdict verdict = judged_on(10, native, 500e6);
    assert_int_equal(verdict.cause, MH_CAUSE_DISK);
    assert_int_equal(verdict.fix_settings.in_flight, -1);
    assert_non_null(strstr(verdict.evidence[2], "at most 500 samples per second"));
    assert_int_equal(judged_on(10, native, 5e9).cause, MH_CAUSE_LATENCY);
}

/* Of 990 ms in which the loop waited for other batches than the first. */
static void the_waiting_is_shared_out(void **state)
{
    (void)state;
    mh_native_sum native = made(4, 1);
    native.wait_read_ns = 99 * MS;
    native.wait_decode_ns = 594 * MS;
    native.wait_place_ns = 198 * MS;
    mh_verdict verdict = judged(10, native);
    assert_float_equal(verdict.native.wait_read, 0.05, 1e-9);
    assert_float_equal(verdict.native.wait_decode, 0.3, 1e-9);
    assert_float_equal(verdict.native.wait_place, 0.1, 1e-9);
    assert_float_equal(verdict.stages.wait_other, 0.05, 1e-9);
    native.pin_ns = BATCHES * MS / 2;
    assert_float_equal(judged(10, native).native.wait_pin, 0.025, 1e-9);
    assert_float_equal(verdict.stages.train, 0.5, 1e-9);
}

/* Reads are the lower bound by a little, but what was waited for is decoding. */
static void the_waiting_says_which_bound_it_is(void **state)
{
    (void)state;
    mh_native_sum native = made(3, 26);
    assert_int_equal(judged(10, native).cause, MH_CAUSE_LATENCY);
    native.wait_decode_ns = 900 * MS;
    assert_int_equal(judged(10, native).cause, MH_CAUSE_CPU);
}

static void bursts_ask_for_prefetch(void **state)
{
    (void)state;
    mh_native_sum native = made(0.1, 1);
    native.wait_decode_ns = 900 * MS;
    mh_verdict verdict = judged(10, native);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_int_equal(verdict.fix_settings.threads, -1);
    assert_non_null(strstr(verdict.fix, "raise prefetch="));
}

static void a_slow_map_is_the_loops_own_work(void **state)
{
    (void)state;
    mh_native_sum native = made(0.1, 1);
    native.map_ns = BATCHES * 9 * MS;
    mh_verdict verdict = judged(10, native);
    assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
    assert_float_equal(verdict.native.wait_map, 0.45, 1e-9);
    assert_non_null(strstr(verdict.evidence[2], "map= takes 9 ms of each batch"));
    assert_true(verdict.predicted_gain > 1.28 && verdict.predicted_gain < 1.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_time_asks_for_threads),
        cmocka_unit_test(latency_asks_for_reads_in_flight),
        cmocka_unit_test(data_behind_a_url_asks_for_a_cache),
        cmocka_unit_test(a_gain_ends_at_the_other_bound),
        cmocka_unit_test(a_full_machine_needs_cheaper_samples),
        cmocka_unit_test(a_loop_that_does_not_wait_is_healthy),
        cmocka_unit_test(a_probed_disk_is_a_bound),
        cmocka_unit_test(the_waiting_is_shared_out),
        cmocka_unit_test(the_waiting_says_which_bound_it_is),
        cmocka_unit_test(bursts_ask_for_prefetch),
        cmocka_unit_test(a_slow_map_is_the_loops_own_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
