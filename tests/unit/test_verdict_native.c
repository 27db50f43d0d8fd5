/* test_verdict_native.c - loops over the native loader: the lower of two bounds is named
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include <millhead/diagnose.h>
#include <string.h>

#define BATCHES 100
#define MS UINT64_C(1000000)

/* A loop of batches of 10 samples whose step takes 10 ms: it would take 1000 samples a second. */
static mh_verdict judged(uint64_t wait_ms, mh_native_sum native)
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
    (void)strcpy(facts.kind, "native");
    mh_verdict_init(&verdict);
    if (mh_verdict_make(&verdict, &facts, &err) != MH_OK)
        fail_msg("%s", err.message);
    return verdict;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_time_asks_for_threads),
        cmocka_unit_test(latency_asks_for_reads_in_flight),
        cmocka_unit_test(a_gain_ends_at_the_other_bound),
        cmocka_unit_test(a_full_machine_needs_cheaper_samples),
        cmocka_unit_test(a_loop_that_does_not_wait_is_healthy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
