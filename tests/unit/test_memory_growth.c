/* test_memory_growth.c - a leak is named; a step, a plateau, a saw-tooth and new workers are not
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/run_reader.h"
#include "plants.h"

#define LOOKS 600
#define MB 1e6

typedef struct series {
    mh_memory_point points[LOOKS];
    size_t count;
} series;

/* A look a second; `level` says what all processes hold, in MB, and may change the set. */
static series looked_at(size_t seconds, double (*level)(size_t second, mh_memory_point *point))
{
    series made = {.count = seconds};
    uint64_t seed = 5;
    for (size_t at = 0; at < seconds; at++) {
        mh_memory_point *point = &made.points[at];
        *point = (mh_memory_point){.t = (double)at, .main_bytes = 300 * MB, .set = 1};
        point->bytes = level(at, point) * MB * planted_between(&seed, 0.999, 1.001);
    }
    return made;
}

/* A healthy run in which these looks were taken, in so many epochs. */
static mh_verdict judged_with(series made, uint64_t epochs)
{
    uint64_t seed = 6;
    plant planted = plant_control(&seed);
    mh_facts *facts = &planted.facts;
    facts->usage.memory_available_bytes = 4000 * MB;
    facts->usage.wall_ns = facts->run_ns = made.count * 1000 * MS;
    facts->epochs = epochs;
    mh_memory_growth(made.points, made.count, &facts->usage);
    mh_verdict verdict = judged(facts);
    free(planted_batches(facts));
    return verdict;
}

static mh_cause cause_of(series made, uint64_t epochs)
{
    return judged_with(made, epochs).cause;
}

static double leak(size_t second, mh_memory_point *point)
{
    (void)point;
    return 300 + 5 * (double)second;
}

static double slow_leak(size_t second, mh_memory_point *point)
{
    (void)point;
    return 300 + 0.5 * (double)second;
}

/* What a first epoch needs and the later ones have. */
static double step(size_t second, mh_memory_point *point)
{
    (void)point;
    return second < 30 ? 300 : 600;
}

/* As was seen: from 80 to 149 MB in each of two workers, in five seconds. */
static double plateau(size_t second, mh_memory_point *point)
{
    (void)point;
    return 300 + 2 * (80 + (second < 5 ? 13.8 * (double)second : 69));
}

static double slow_plateau(size_t second, mh_memory_point *point)
{
    (void)point;
    return 300 + 500 * (1 - exp(-(double)second / 20));
}

/* Kept until an epoch ends. */
static double saw_tooth(size_t second, mh_memory_point *point)
{
    (void)point;
    return 300 + 20 * (double)(second % 25);
}

/* Forked anew every 20 s, each time holding more in the end than at first, and more than before. */
static double new_workers(size_t second, mh_memory_point *point)
{
    point->set = 1 + second / 20;
    return 300 + 5 * (double)second + 10 * (double)(second % 20);
}

/* The same workers, and a training process that leaks. */
static double leak_beside_new_workers(size_t second, mh_memory_point *point)
{
    point->set = 1 + second / 20;
    point->main_bytes = (300 + 5 * (double)second) * MB;
    return 500 + 5 * (double)second + 10 * (double)(second % 20);
}

/* A program that is called every now and then, for a second. */
static double leak_with_visitors(size_t second, mh_memory_point *point)
{
    point->set = second % 7 == 3 ? 100 + second : 1;
    return 300 + 5 * (double)second + (second % 7 == 3 ? 400 : 0);
}

static void a_leak_is_named(void **state)
{
    (void)state;
    assert_int_equal(cause_of(looked_at(90, leak), 1), MH_CAUSE_MEMORY);
    assert_int_equal(cause_of(looked_at(600, leak), 5), MH_CAUSE_MEMORY);
    assert_int_equal(cause_of(looked_at(90, leak_with_visitors), 1), MH_CAUSE_MEMORY);
    assert_int_equal(cause_of(looked_at(120, leak_beside_new_workers), 6), MH_CAUSE_MEMORY);
}

static void a_leak_is_named_after_some_epochs(void **state)
{
    (void)state;
    assert_int_equal(cause_of(looked_at(20, leak), 4), MH_CAUSE_MEMORY);
    assert_int_equal(cause_of(looked_at(20, leak), 1), MH_CAUSE_DEVICE);
    assert_int_equal(cause_of(looked_at(20, leak), 2), MH_CAUSE_DEVICE);
    assert_int_equal(cause_of(looked_at(7, leak), 7), MH_CAUSE_DEVICE);
}

static void what_stops_is_no_leak(void **state)
{
    (void)state;
    static const size_t lengths[] = {8, 12, 30, 61, 90, 300};
    double (*const levels[])(size_t, mh_memory_point *) = {step, plateau, slow_plateau, saw_tooth,
                                                           new_workers};
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        for (size_t nth = 0; nth < sizeof levels / sizeof *levels; nth++) {
            for (uint64_t epochs = 1; epochs <= 6; epochs += 5) {
                /* short of its first 20 s nothing has stopped yet */
                if (epochs > 1 && lengths[at] <= 30 && nth > 1)
                    continue;
                mh_verdict verdict = judged_with(looked_at(lengths[at], levels[nth]), epochs);
                if (verdict.cause != MH_CAUSE_DEVICE || lists(&verdict, MH_CAUSE_MEMORY)) {
                    print_verdict(&verdict);
                    fail_msg("series %zu, %zu s", nth, lengths[at]);
                }
            }
        }
    }
}

static void growth_that_threatens_nobody_is_not_told_of(void **state)
{
    (void)state;
    uint64_t seed = 7;
    plant planted = plant_control(&seed);
    series made = looked_at(300, slow_leak);
    mh_usage_sum *usage = &planted.facts.usage;
    usage->wall_ns = 300000 * MS;
    mh_memory_growth(made.points, made.count, usage);
    usage->memory_available_bytes = 0.5 * MB * 3600; /* an hour */
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_MEMORY);
    usage->memory_available_bytes = 0.5 * MB * 3600 * 48;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_DEVICE);
    free(planted_batches(&planted.facts));
}

/* However soon memory is used up: a warning tells of it. */
static void a_wait_that_costs_something_goes_first(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 2, 4, 20 * MS);
    uint64_t seed = 8;
    plant_costs(&facts, &seed, 1e6, 45e6, 1e5);
    (void)planted_waits(&facts);
    series made = looked_at(90, leak);
    facts.usage.wall_ns = 90000 * MS;
    mh_memory_growth(made.points, made.count, &facts.usage);
    facts.usage.memory_available_bytes = 100 * MB; /* 20 s */
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(verdict.predicted_gain < 1.3);
    assert_true(lists(&verdict, MH_CAUSE_MEMORY));
    free(planted_batches(&facts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leak_is_named),
        cmocka_unit_test(a_leak_is_named_after_some_epochs),
        cmocka_unit_test(what_stops_is_no_leak),
        cmocka_unit_test(growth_that_threatens_nobody_is_not_told_of),
        cmocka_unit_test(a_wait_that_costs_something_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
