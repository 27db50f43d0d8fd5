/* test_verdict.c - planted causes of random strength are named, and nothing where there is none
 * SPDX-License-Identifier: Apache-2.0
 *
 * Plants are closed forms: costs per batch with some noise, waits by the recurrence of planted.h.
 * Nothing here simulates CPUs as the replay does: where they are shared, times are stretched.
 */
#include "planted.h"
#include "unit.h"
#include <math.h>

#define ROUNDS 200

typedef struct plant {
    mh_facts facts;
    mh_cause cause;
    double gain; /* of what the fix should win, where a closed form gives it; 0: not known */
} plant;

static uint64_t noisy(uint64_t *seed, double ns)
{
    return (uint64_t)(ns * planted_between(seed, 0.93, 1.07));
}

/* The costs of every batch, in ns, CPU and blocked apart; the consumer's step is blocked. */
static void plant_costs(mh_facts *facts, uint64_t *seed, double cpu, double blocked, double collate)
{
    mh_batch_cost *batches = planted_batches(facts);
    for (size_t at = 0; at < facts->batch_count; at++) {
        batches[at].fetch_cpu = noisy(seed, cpu);
        batches[at].fetch = batches[at].fetch_cpu + noisy(seed, blocked);
        batches[at].collate = batches[at].collate_cpu = noisy(seed, collate);
        batches[at].transfer = facts->workers ? noisy(seed, 100e3) : 0;
        batches[at].step = noisy(seed, (double)batches[at].step);
        batches[at].step_cpu = batches[at].step / 100;
    }
}

/* A healthy run to plant into: workers with time to spare. */
static mh_facts healthy(uint64_t *seed, double *step)
{
    *step = planted_between(seed, 5e6, 40e6);
    int cpus = 2 << planted_next(seed) % 3;
    int workers = 1 + (int)(planted_next(seed) % (uint64_t)cpus);
    return planted_run(100 + planted_next(seed) % 300, workers, cpus, (uint64_t)*step);
}

static mh_verdict judged(const mh_facts *facts)
{
    mh_verdict verdict;
    mh_error err = {0};
    if (mh_verdict_make(&verdict, facts, &err) != MH_OK)
        fail_msg("no verdict: %s", err.message);
    return verdict;
}

static void print_verdict(const mh_verdict *verdict)
{
    print_message("%s, gain %g\n", mh_cause_name(verdict->cause), verdict->predicted_gain);
    for (size_t at = 0; at < verdict->evidence_count; at++)
        print_message("  %s\n", verdict->evidence[at]);
    for (size_t at = 0; at < verdict->other_count; at++)
        print_message("  also %s %g\n", mh_cause_name(verdict->others[at].cause),
                      verdict->others[at].gain);
    for (size_t at = 0; at < verdict->warning_count; at++)
        print_message("  warning: %s\n", verdict->warnings[at]);
    print_message("  fix: %s\n", verdict->fix);
}

static int lists(const mh_verdict *verdict, mh_cause cause)
{
    for (size_t at = 0; at < verdict->other_count; at++) {
        if (verdict->others[at].cause == cause)
            return 1;
    }
    return 0;
}

/* Plants many times and compares name and gain; a failure prints what reproduces it. */
static void named_every_time(plant (*make)(uint64_t *seed), uint64_t seed)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t shown = seed;
        plant planted = make(&seed);
        mh_verdict verdict = judged(&planted.facts);
        const char *wrong = planted_wrong_with(&verdict);
        double off = planted.gain > 0 ? verdict.predicted_gain / planted.gain : 1;
        if (wrong || verdict.cause != planted.cause || off < 0.75 || off > 1.33) {
            print_verdict(&verdict);
            fail_msg("seed %llu: %s planted, gain %g; %s", (unsigned long long)shown,
                     mh_cause_name(planted.cause), planted.gain, wrong ? wrong : "named wrongly");
        }
        free(planted_batches(&planted.facts));
    }
}

/* --- plants ---------------------------------------------------------------------------------- */

static plant plant_control(uint64_t *seed)
{
    double step;
    plant planted = {.facts = healthy(seed, &step), .cause = MH_CAUSE_DEVICE, .gain = 1};
    double spare = step * planted.facts.workers * planted_between(seed, 0.05, 0.8);
    double cpu = planted_between(seed, 0, 1), collate = planted_between(seed, 0, 0.2);
    plant_costs(&planted.facts, seed, spare * cpu, spare * (1 - cpu - collate < 0 ? 0 : 1 - cpu),
                spare * collate / 2);
    planted.facts.setup_ns = (uint64_t)planted_between(seed, 0, 30e6);
    (void)planted_waits(&planted.facts);
    return planted;
}

/* A cause in the workers: `much` times what they could do in a step. */
static double too_much(const mh_facts *facts, uint64_t *seed, double step, double *much)
{
    *much = planted_between(seed, 1.25, 4);
    return *much * step * facts->workers;
}

static plant plant_decode(uint64_t *seed)
{
    double step, much;
    plant planted = {.facts = healthy(seed, &step), .cause = MH_CAUSE_CPU};
    double cost = too_much(&planted.facts, seed, step, &much);
    plant_costs(&planted.facts, seed, cost, cost * 0.05, step * 0.02);
    (void)planted_waits(&planted.facts);
    planted.facts.probes = 500;
    planted.facts.probes_native = 400;
    return planted;
}

/* As many workers as CPUs, Python or not: the machine is what limits. */
static plant plant_all_busy(uint64_t *seed)
{
    plant planted = plant_decode(seed);
    planted.facts.cpus = planted.facts.workers;
    planted.facts.probes_native = 0;
    planted.facts.usage.wall_ns = 10000 * MS;
    planted.facts.usage.loader_cpus = planted.facts.workers * 0.97;
    planted.facts.usage.busy_cpus = planted.facts.workers * 0.98;
    return planted;
}

static plant plant_latency(uint64_t *seed)
{
    double step, much;
    plant planted = {.facts = healthy(seed, &step), .cause = MH_CAUSE_LATENCY};
    double cost = too_much(&planted.facts, seed, step, &much);
    plant_costs(&planted.facts, seed, step * 0.05, cost, step * 0.02);
    double now = planted_waits(&planted.facts);
    /* with enough workers the consumer sets the pace; the first batch still takes its time */
    planted.gain = now / (step * 1.01 * (double)planted.facts.batch_count + cost);
    return planted;
}

static plant plant_disk(uint64_t *seed)
{
    plant planted = plant_latency(seed);
    mh_batch_cost *batches = planted_batches(&planted.facts);
    double per_s = planted_between(seed, 1e6, 2e9); /* a slow disk, a fast one */
    for (size_t at = 0; at < planted.facts.batch_count; at++)
        batches[at].read_bytes = (uint64_t)((double)batches[at].fetch / 1e9 * per_s);
    planted.facts.usage.wall_ns = 10000 * MS;
    planted.facts.usage.disk_busy = planted_between(seed, 0.6, 1);
    planted.cause = MH_CAUSE_DISK;
    planted.gain = 0;
    return planted;
}

static plant plant_python(uint64_t *seed)
{
    double step = planted_between(seed, 5e6, 40e6);
    int cpus = 2 << planted_next(seed) % 3;
    plant planted = {.facts = planted_run(150, 0, cpus, (uint64_t)step), .cause = MH_CAUSE_PYTHON};
    double cost = step * planted_between(seed, 0.15, 5);
    plant_costs(&planted.facts, seed, cost, 0, step * 0.01);
    double now = planted_waits(&planted.facts);
    double then = cost / cpus > step ? cost / cpus : step;
    planted.gain = now / (then * 150 + cost + 20e6 * cpus);
    return planted;
}

static plant plant_collate(uint64_t *seed)
{
    double step, much;
    plant planted = {.facts = healthy(seed, &step), .cause = MH_CAUSE_COLLATE};
    double cost = too_much(&planted.facts, seed, step, &much);
    plant_costs(&planted.facts, seed, cost * 0.15, cost * 0.1, cost);
    (void)planted_waits(&planted.facts);
    return planted;
}

static plant plant_main(uint64_t *seed)
{
    plant planted = plant_control(seed);
    mh_batch_cost *batches = planted_batches(&planted.facts);
    double much = planted_between(seed, 0.15, 4);
    double step = 0;
    for (size_t at = 0; at < planted.facts.batch_count; at++) {
        uint64_t work = (uint64_t)((double)batches[at].step * much);
        batches[at].step += work;
        batches[at].step_cpu += work;
        step += (double)batches[at].step;
    }
    double now = planted_waits(&planted.facts);
    planted.cause = MH_CAUSE_MAIN;
    planted.gain = now / (now - step * much / (1 + much) / 2);
    return planted;
}

static plant plant_tail(uint64_t *seed)
{
    double step;
    plant planted = {.facts = healthy(seed, &step), .cause = MH_CAUSE_TAIL};
    mh_facts *facts = &planted.facts;
    facts->workers = facts->workers < 2 ? 2 : facts->workers;
    double making = step * facts->workers * planted_between(seed, 0.1, 0.4);
    plant_costs(facts, seed, making * 0.3, making * 0.7, step * 0.02);
    /* one sample of 8 in every 12th batch; more than the reserve holds */
    double slow = step * facts->workers * 2 * planted_between(seed, 2, 5);
    mh_batch_cost *batches = planted_batches(facts);
    for (size_t at = 5; at < facts->batch_count; at += 12) {
        batches[at].fetch += (uint64_t)slow;
        batches[at].fetch_excess = (uint64_t)slow;
        facts->samples_slow++;
    }
    facts->samples_timed = facts->batch_count * 8;
    facts->sample_median_ns = (uint64_t)(making / 8);
    (void)planted_waits(facts);
    return planted;
}

/* Many workers on few CPUs: the consumer's own CPU time is stretched, and starting takes long. */
static plant plant_crowd(uint64_t *seed)
{
    int cpus = 2, workers = 12 + (int)(planted_next(seed) % 20);
    double cpu = planted_between(seed, 20e6, 60e6), step = planted_between(seed, 5e6, 10e6);
    plant planted = {.facts = planted_run(200, workers, cpus, (uint64_t)step),
                     .cause = MH_CAUSE_OVERSUBSCRIBED};
    mh_batch_cost *batches = planted_batches(&planted.facts);
    double stretch = (double)workers / cpus;
    plant_costs(&planted.facts, seed, cpu, 0, 0);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch_delay = (uint64_t)((double)batches[at].fetch_cpu * (stretch - 1));
        batches[at].fetch += batches[at].fetch_delay;
        batches[at].step_cpu = (uint64_t)(step * 0.1);
    }
    planted.facts.setup_ns = (uint64_t)(workers * planted_between(seed, 40e6, 80e6));
    (void)planted_waits(&planted.facts);
    return planted;
}

static plant plant_startup(uint64_t *seed)
{
    plant planted = plant_control(seed);
    mh_facts *facts = &planted.facts;
    mh_batch_cost *batches = planted_batches(facts);
    size_t epochs = 2 + planted_next(seed) % 5, length = facts->batch_count / epochs;
    double much = planted_between(seed, 0.4, 3) * 1e7 * (double)length;
    for (size_t at = 0; at < facts->batch_count; at++) {
        size_t epoch = at / length < epochs ? at / length : epochs - 1;
        batches[at].epoch = (uint32_t)epoch;
        batches[at].step = 10 * MS;
        if (batches[at].fetch > 6 * MS)
            batches[at].fetch_cpu = batches[at].fetch = 6 * MS;
        if (batches[at].collate > 1 * MS)
            batches[at].collate_cpu = batches[at].collate = 1 * MS;
        batches[at].wait = 0;
        batches[at].first = at == 0 || epoch != batches[at - 1].epoch;
        if (batches[at].first)
            batches[at].wait = batches[at].fetch + batches[at].collate + (uint64_t)much;
    }
    facts->epochs = epochs;
    facts->persistent = 0;
    planted.cause = MH_CAUSE_STARTUP;
    double steady = 1e7 * (double)facts->batch_count, e = (double)epochs;
    planted.gain = (steady + much * e) / (steady + much);
    return planted;
}

static plant plant_memory(uint64_t *seed)
{
    plant planted = plant_control(seed);
    mh_usage_sum *usage = &planted.facts.usage;
    double per_s = planted_between(seed, 5e6, 200e6), seconds = planted_between(seed, 8, 60);
    usage->wall_ns = (uint64_t)(seconds * 1e9);
    usage->memory_first_bytes = planted_between(seed, 100e6, 700e6);
    usage->memory_last_bytes = usage->memory_first_bytes + per_s * seconds;
    usage->memory_per_s = per_s * planted_between(seed, 0.8, 1.1);
    usage->memory_share_up = planted_between(seed, 0.8, 1);
    usage->memory_available_bytes = 4e9;
    planted.cause = MH_CAUSE_MEMORY;
    return planted;
}

/* Short epochs, quick starts, and a first batch that takes long in each. */
static void gaps_between_epochs_are_start_up(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 4, 8, 10 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch = 35 * MS;
        batches[at].epoch = (uint32_t)(at / 10);
        batches[at].first = at % 10 == 0;
        batches[at].wait = batches[at].first ? 35 * MS : 0;
    }
    facts.epochs = 20;
    facts.persistent = 1;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_non_null(strstr(verdict.fix, "prefetch_epoch"));
    assert_true(verdict.predicted_gain > 1.25 && verdict.predicted_gain < 1.4);
    free(planted_batches(&facts));
}

/* --- more than one --------------------------------------------------------------------------- */

/* Latency and collating, one of them at least half as large again as the other. */
static void the_larger_of_two_is_named(void **state)
{
    (void)state;
    uint64_t seed = 21;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t shown = seed;
        double step, much;
        mh_facts facts = healthy(&seed, &step);
        double large = too_much(&facts, &seed, step, &much);
        double small = large * planted_between(&seed, 0.3, 0.66);
        int collate_is_larger = (int)(planted_next(&seed) % 2);
        plant_costs(&facts, &seed, 0, collate_is_larger ? small : large,
                    collate_is_larger ? large : small);
        (void)planted_waits(&facts);
        mh_verdict verdict = judged(&facts);
        mh_cause first = collate_is_larger ? MH_CAUSE_COLLATE : MH_CAUSE_LATENCY;
        mh_cause second = collate_is_larger ? MH_CAUSE_LATENCY : MH_CAUSE_COLLATE;
        if (verdict.cause != first || !lists(&verdict, second) || planted_wrong_with(&verdict)) {
            print_verdict(&verdict);
            fail_msg("seed %llu", (unsigned long long)shown);
        }
        free(planted_batches(&facts));
    }
}

static void main_work_and_latency_are_both_seen(void **state)
{
    (void)state;
    mh_facts facts = planted_run(300, 2, 2, 10 * MS);
    uint64_t seed = 22;
    plant_costs(&facts, &seed, 1e6, 70e6, 1e5); /* 35 ms a batch against a step of 10 */
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 300; at++) {
        batches[at].step += 12 * MS;
        batches[at].step_cpu += 12 * MS;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    for (size_t at = 0; at < 300; at++) {
        batches[at].fetch -= 40 * MS; /* 15 ms a batch: now the own work is all that counts */
        batches[at].step += 20 * MS;
        batches[at].step_cpu += 20 * MS;
    }
    (void)planted_waits(&facts);
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
    free(planted_batches(&facts));
}

static void growing_memory_is_listed_beside_a_loss(void **state)
{
    (void)state;
    uint64_t seed = 23;
    plant grown = plant_memory(&seed), slow = plant_latency(&seed);
    slow.facts.usage = grown.facts.usage;
    mh_verdict verdict = judged(&slow.facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(lists(&verdict, MH_CAUSE_MEMORY));
    int warned = 0;
    for (size_t at = 0; at < verdict.warning_count; at++)
        warned |= strstr(verdict.warnings[at], "memory grows") != NULL;
    assert_true(warned);
    free(planted_batches(&grown.facts));
    free(planted_batches(&slow.facts));
}

/* A cache that filled early is no leak, nor is memory that comes and goes. */
static void a_plateau_is_no_growth(void **state)
{
    (void)state;
    uint64_t seed = 24;
    plant planted = plant_memory(&seed);
    mh_usage_sum *usage = &planted.facts.usage, grown = *usage;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_MEMORY);
    usage->memory_per_s *= 0.1;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_DEVICE);
    *usage = grown;
    usage->memory_share_up = 0.4;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_DEVICE);
    *usage = grown;
    usage->memory_last_bytes = usage->memory_first_bytes + 20e6;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_DEVICE);
    free(planted_batches(&planted.facts));
}

/* A fast disk: copying what it gives takes as long as waiting for it. */
static void the_cpu_time_of_reading_is_the_disks(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, 1, 4, 5 * MS);
    uint64_t seed = 25;
    plant_costs(&facts, &seed, 8e6, 6e6, 1e5);
    for (size_t at = 0; at < 100; at++)
        planted_batches(&facts)[at].read_bytes = 16777216;
    (void)planted_waits(&facts);
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DISK);
    for (size_t at = 0; at < 100; at++)
        planted_batches(&facts)[at].read_bytes =
            4096 * 50; /* little: decoding is what takes time */
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_true(lists(&verdict, MH_CAUSE_DISK));
    free(planted_batches(&facts));
}

/* torch's own millisecond is no cause; five are. */
static void handing_over_counts_when_it_is_much(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, 2, 4, 15 * MS);
    uint64_t seed = 26;
    plant_costs(&facts, &seed, 1e6, 1e6, 1e5);
    for (size_t at = 0; at < 100; at++)
        planted_batches(&facts)[at].transfer = 1 * MS;
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_DEVICE);
    assert_non_null(strstr(verdict.warnings[0], "handing a batch over"));
    for (size_t at = 0; at < 100; at++)
        planted_batches(&facts)[at].transfer = 5 * MS;
    (void)planted_waits(&facts);
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
    assert_int_equal(verdict.fix_settings.millhead, 1);
    for (size_t at = 0; at < 100; at++) /* the loop had no CPU: that is another matter */
        planted_batches(&facts)[at].wait_delay = 5 * MS;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    free(planted_batches(&facts));
}

/* Threads of other processes stretch all that is done on a CPU; a replay finds how many. */
static void others_on_the_machine_are_counted(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 1, 2, 5 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch_cpu = 10 * MS;
        batches[at].fetch_delay = 15 * MS; /* 1 of ours and 4 of theirs on 2 CPUs */
        batches[at].fetch = 25 * MS;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_true(verdict.replay_off < 0.05);
    /* half the CPU time halves the waiting for a CPU too: 12.5 ms a batch in place of 25 */
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    mh_replay_options options;
    mh_replay_result result;
    mh_replay_options_init(&options, &facts);
    options.others = 4;
    assert_int_equal(mh_replay(&result, &facts, &options, NULL), MH_OK);
    assert_true(fabs((double)result.total_ns / (200 * 25e6) - 1) < 0.02);
    assert_true(fabs((double)result.delay_ns / (200 * 15e6) - 1) < 0.02);
    free(planted_batches(&facts));
}

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
        mh_facts facts = {.ranks = ranks, .rank_count = 4, .workers = -1};
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
    assert_true(verdict.predicted_gain > 8 && verdict.predicted_gain < 15);
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
        mh_facts facts = {.vantage = MH_VANTAGE_OUTSIDE, .workers = 2, .cpus = 4};
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
    for (; usage <= &facts.usage.workers_blocked; usage++) {
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
        warned |= strstr(verdict.warnings[at], "saw-tooth") &&
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
    mh_facts facts = {.batch_count = 3};
    mh_verdict verdict;
    mh_error err;
    assert_int_equal(mh_verdict_make(NULL, &facts, &err), MH_ERR_INVALID);
    assert_int_equal(mh_verdict_make(&verdict, NULL, &err), MH_ERR_INVALID);
    assert_int_equal(mh_verdict_make(&verdict, &facts, &err), MH_ERR_INVALID);
    facts.batch_count = 0;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_UNCLEAR);
}

static void judge_or_no_memory(void *argument)
{
    mh_verdict verdict;
    mh_status status = mh_verdict_make(&verdict, argument, NULL);
    assert_true(status == MH_OK || status == MH_ERR_NOMEM);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    uint64_t seed = 61;
    plant planted = plant_tail(&seed);
    each_allocation_fails(judge_or_no_memory, &planted.facts);
    free(planted_batches(&planted.facts));
}

static void control(void **state)
{
    (void)state;
    named_every_time(plant_control, 1);
}

static void decode(void **state)
{
    (void)state;
    named_every_time(plant_decode, 2);
}

static void all_busy(void **state)
{
    (void)state;
    named_every_time(plant_all_busy, 3);
}

static void latency(void **state)
{
    (void)state;
    named_every_time(plant_latency, 4);
}

static void disk(void **state)
{
    (void)state;
    named_every_time(plant_disk, 5);
}

static void python(void **state)
{
    (void)state;
    named_every_time(plant_python, 6);
}

static void collate(void **state)
{
    (void)state;
    named_every_time(plant_collate, 7);
}

static void main_work(void **state)
{
    (void)state;
    named_every_time(plant_main, 8);
}

static void tail(void **state)
{
    (void)state;
    named_every_time(plant_tail, 9);
}

static void crowd(void **state)
{
    (void)state;
    named_every_time(plant_crowd, 10);
}

static void startup(void **state)
{
    (void)state;
    named_every_time(plant_startup, 11);
}

static void memory(void **state)
{
    (void)state;
    named_every_time(plant_memory, 12);
}

static void causes_have_names(void **state)
{
    (void)state;
    assert_string_equal(mh_cause_name(MH_CAUSE_CPU), "cpu-bound");
    assert_string_equal(mh_cause_name(MH_CAUSE_UNCLEAR), "unclear");
    assert_string_equal(mh_cause_name((mh_cause)1000), "unclear");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causes_have_names),
        cmocka_unit_test(control),
        cmocka_unit_test(decode),
        cmocka_unit_test(all_busy),
        cmocka_unit_test(latency),
        cmocka_unit_test(disk),
        cmocka_unit_test(python),
        cmocka_unit_test(collate),
        cmocka_unit_test(main_work),
        cmocka_unit_test(tail),
        cmocka_unit_test(crowd),
        cmocka_unit_test(startup),
        cmocka_unit_test(memory),
        cmocka_unit_test(gaps_between_epochs_are_start_up),
        cmocka_unit_test(the_larger_of_two_is_named),
        cmocka_unit_test(main_work_and_latency_are_both_seen),
        cmocka_unit_test(growing_memory_is_listed_beside_a_loss),
        cmocka_unit_test(a_plateau_is_no_growth),
        cmocka_unit_test(the_cpu_time_of_reading_is_the_disks),
        cmocka_unit_test(handing_over_counts_when_it_is_much),
        cmocka_unit_test(others_on_the_machine_are_counted),
        cmocka_unit_test(the_slow_rank_is_named),
        cmocka_unit_test(equal_ranks_have_no_straggler),
        cmocka_unit_test(a_log_without_cpu_times),
        cmocka_unit_test(workers_that_were_not_watched),
        cmocka_unit_test(an_iterable_tells_by_its_wait),
        cmocka_unit_test(training_on_the_cpu_is_not_blamed),
        cmocka_unit_test(seen_from_outside_workers_tell),
        cmocka_unit_test(wild_facts_give_a_sane_verdict),
        cmocka_unit_test(one_batch_is_too_short),
        cmocka_unit_test(bursts_are_a_saw_tooth),
        cmocka_unit_test(a_very_long_run_is_judged_by_a_part),
        cmocka_unit_test(nothing_is_asked_of_nothing),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
