/* test_verdict.c - planted causes of random strength are named, and nothing where there is none
 * SPDX-License-Identifier: Apache-2.0
 *
 * Plants are closed forms: costs per batch with some noise, waits by the recurrence of planted.h.
 * Nothing here simulates CPUs as the replay does: where they are shared, times are stretched.
 */
#include "plants.h"
#include <math.h>

/* Plants many times and compares name and gain; a failure prints what reproduces it. */
static void named_every_time(plant (*make)(uint64_t *seed), uint64_t seed)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t shown = seed;
        plant planted = make(&seed);
        mh_verdict verdict = judged(&planted.facts);
        const char *wrong = planted_wrong_with(&verdict);
        double off = planted.gain > 0 ? verdict.possible_gain / planted.gain : 1;
        if (wrong || verdict.cause != planted.cause || off < 0.75 || off > 1.33) {
            print_verdict(&verdict);
            fail_msg("seed %llu: %s planted, gain %g; %s", (unsigned long long)shown,
                     mh_cause_name(planted.cause), planted.gain, wrong ? wrong : "named wrongly");
        }
        free(planted_batches(&planted.facts));
    }
}

/* --- plants ---------------------------------------------------------------------------------- */

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
    double per_s = planted_between(seed, 5e6, 200e6), seconds = planted_between(seed, 60, 600);
    usage->wall_ns = usage->memory_ns = (uint64_t)(seconds * 1e9);
    usage->memory_first_bytes = planted_between(seed, 100e6, 700e6);
    usage->memory_last_bytes = usage->memory_first_bytes + per_s * seconds;
    usage->memory_per_s = per_s * planted_between(seed, 0.8, 1.1);
    usage->memory_share_up = planted_between(seed, 0.8, 1);
    usage->memory_even = planted_between(seed, 0.7, 1);
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

/* Latency and collating, one of them at least half as large again as the other. The smaller goes
 * first only where its fix wins more. */
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
        if (verdict.cause == second && verdict.others[0].gain * 1.05 < verdict.possible_gain)
            second = first;
        else if (verdict.cause != first)
            fail_msg("seed %llu: named wrongly", (unsigned long long)shown);
        if (!lists(&verdict, second) || planted_wrong_with(&verdict)) {
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
    usage->memory_even = 0.1;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_DEVICE);
    *usage = grown;
    usage->memory_share_up = 0.4;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_DEVICE);
    *usage = grown;
    usage->memory_last_bytes = usage->memory_first_bytes + 20e6;
    usage->memory_per_s = 20e6 / ((double)usage->wall_ns / 1e9);
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_DEVICE);
    *usage = grown;
    usage->memory_last_bytes = 0; /* the last look came when all was over */
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_MEMORY);
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
static int says(const mh_verdict *verdict, const char *part)
{
    for (size_t at = 0; at < verdict->evidence_count; at++)
        if (strstr(verdict->evidence[at], part))
            return 1;
    return 0;
}

/* Four times as fast by more workers, if the disk gave it. */
static void a_probed_disk_is_told_of_and_bounds_the_gain(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 1, 8, 5 * MS);
    uint64_t seed = 31;
    plant_costs(&facts, &seed, 1e6, 24e6, 1e5);
    for (size_t at = 0; at < 200; at++)
        planted_batches(&facts)[at].read_bytes = 1000000; /* some 40 MB/s */
    facts.usage.wall_ns = 5000 * MS;                      /* no disk was busy: latency */
    (void)planted_waits(&facts);
    mh_verdict blind = judged(&facts);
    assert_int_equal(blind.cause, MH_CAUSE_LATENCY);
    assert_true(blind.predicted_gain <= 1); /* nobody knows what the source takes at once */
    assert_true(blind.possible_gain > 3);
    assert_false(says(&blind, "probe"));

    facts.storage = (mh_storage){60e6, 8e6, 500e-6, 0};
    mh_verdict bound = judged(&facts);
    assert_true(says(&bound, "60 MB/s for one sequential reader, 8 MB/s in small random reads"));
    assert_true(says(&bound, "the probe measured 60 MB/s"));
    assert_true(bound.possible_gain > 1.2 && bound.possible_gain < 1.8);

    facts.storage.network = 1; /* several connections get more than one */
    mh_verdict far = judged(&facts);
    assert_true(says(&far, "60 MB/s for one sequential reader"));
    assert_true(fabs(far.possible_gain - blind.possible_gain) < 1e-9);

    facts.storage = (mh_storage){.sequential_per_s = 10e6}; /* less than the run read: no limit */
    assert_true(fabs(judged(&facts).possible_gain - blind.possible_gain) < 1e-9);
    free(planted_batches(&facts));
}

static void few_batches_are_not_enough(void **state)
{
    (void)state;
    mh_facts facts = planted_run(21, 0, 4, 15 * MS);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_DEVICE);
    for (size_t count = 1; count <= 20; count++) {
        facts.batch_count = count;
        verdict = judged(&facts);
        assert_int_equal(verdict.cause, MH_CAUSE_UNCLEAR);
        assert_non_null(strstr(verdict.fix, "21 batches"));
    }
    free(planted_batches(&facts));
}

/* A program that crashes after four batches, with a start that took most of its time. */
static void a_crash_at_the_beginning_promises_nothing(void **state)
{
    (void)state;
    mh_facts facts = planted_run(4, 2, 4, 15 * MS);
    facts.setup_ns = 500 * MS;
    planted_batches(&facts)[0].wait = 900 * MS;
    planted_batches(&facts)[2].wait = 90 * MS;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_UNCLEAR);
    assert_true(verdict.predicted_gain <= 1 && verdict.other_count == 0);
    free(planted_batches(&facts));
}

/* Starting costs more than is waited for samples, but half of it wins less than cheaper samples. */
static void the_larger_gain_goes_first(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, 1, 1, 10 * MS);
    uint64_t seed = 27;
    plant_costs(&facts, &seed, 25e6, 0, 1e5);
    (void)planted_waits(&facts);
    facts.setup_ns = 1800 * MS; /* 1.5 s are waited for samples */
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_true(lists(&verdict, MH_CAUSE_STARTUP));
    assert_null(planted_wrong_with(&verdict));
    facts.setup_ns = 9000 * MS;
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_null(planted_wrong_with(&verdict));
    free(planted_batches(&facts));
}

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
    assert_non_null(strstr(verdict.warnings[0], "passing a batch to the loop"));
    assert_non_null(strstr(verdict.warnings[0], "millhead.torch.DataLoader"));
    (void)strcpy(facts.kind, "millhead"); /* which nobody needs to be told of */
    assert_null(strstr(judged(&facts).warnings[0], "millhead.torch.DataLoader"));
    (void)strcpy(facts.kind, "torch");
    for (size_t at = 0; at < 100; at++)
        planted_batches(&facts)[at].order = 1 * MS;
    assert_non_null(strstr(judged(&facts).warnings[0], "the sampler takes"));
    for (size_t at = 0; at < 100; at++) /* a sixth of the step is too much for a sampler */
        planted_batches(&facts)[at].transfer = planted_batches(&facts)[at].order = 5 * MS / 2;
    (void)planted_waits(&facts);
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
    assert_non_null(strstr(verdict.fix, "make the sampler cheaper"));
    for (size_t at = 0; at < 100; at++) {
        planted_batches(&facts)[at].transfer = 5 * MS;
        planted_batches(&facts)[at].order = 0;
    }
    (void)planted_waits(&facts);
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
    assert_int_equal(verdict.fix_settings.millhead, 1);
    for (size_t at = 0; at < 100; at++) /* the loop had no CPU: that is another matter */
        planted_batches(&facts)[at].wait_delay = 5 * MS;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_DEVICE);
    free(planted_batches(&facts));
}

/* Who has millhead's loader is not told to take it. */
static void collate_advice_knows_the_loader(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 2, 2, 2 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].collate = batches[at].collate_cpu = 20 * MS;
        batches[at].wait = 8 * MS;
    }
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_COLLATE);
    assert_non_null(strstr(verdict.fix, "millhead.torch.DataLoader"));
    memcpy(facts.kind, "millhead", sizeof "millhead");
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_COLLATE);
    assert_null(strstr(verdict.fix, "millhead.torch.DataLoader"));
    free(batches);
}

/* Python code that keeps the interpreter delays the thread that passes batches on; what takes the
 * time is still the code. Passing on that itself sets the pace is another matter. */
static void passing_on_is_blamed_only_when_it_sets_the_pace(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 1, 4, 7 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].collate = batches[at].collate_cpu = 16 * MS;
        batches[at].wait = 10 * MS;
        batches[at].wait_cpu = 1 * MS;
        batches[at].transfer = 10 * MS;
    }
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_COLLATE);
    for (size_t at = 0; at < 200; at++) {
        batches[at].collate = batches[at].collate_cpu = 2 * MS;
        batches[at].wait = batches[at].transfer = 20 * MS;
    }
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
    free(planted_batches(&facts));
}

/* A busy machine: the step's thread waits for a CPU, which is no training. */
static void work_of_the_process_is_seen_on_a_busy_machine(void **state)
{
    (void)state;
    uint64_t seed = 31;
    plant planted = plant_main(&seed);
    mh_batch_cost *batches = planted_batches(&planted.facts);
    for (size_t at = 0; at < planted.facts.batch_count; at++) {
        batches[at].step_delay = 9 * batches[at].step;
        batches[at].step += batches[at].step_delay;
    }
    (void)planted_waits(&planted.facts);
    mh_verdict verdict = judged(&planted.facts);
    assert_true(verdict.stages.main > 0);
    /* on a CPU wherever it was not kept from one: it may be the training, which is said */
    for (size_t at = 0; at < planted.facts.batch_count; at++)
        batches[at].step_cpu = batches[at].step - batches[at].step_delay;
    verdict = judged(&planted.facts);
    int said = 0;
    for (size_t at = 0; at < verdict.evidence_count; at++)
        said |= strstr(verdict.evidence[at], "StepTimer tells them apart") != NULL;
    assert_true(said);
    free(planted_batches(&planted.facts));
}

static int warns(const mh_verdict *verdict, const char *text)
{
    for (size_t at = 0; at < verdict->warning_count; at++) {
        if (strstr(verdict->warnings[at], text))
            return 1;
    }
    return 0;
}

/* Threads of a worker's own decode for it; others on the machine keep them from a CPU. */
static void helpers_of_a_worker_are_no_latency(void **state)
{
    (void)state;
    uint64_t seed = 32;
    plant planted = plant_latency(&seed);
    mh_usage_sum *usage = &planted.facts.usage;
    int workers = planted.facts.workers;
    usage->wall_ns = 10000 * MS;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_LATENCY);
    usage->workers_cpus = 0.4 * workers;
    usage->workers_delay = 0.5 * workers;
    assert_int_equal(judged(&planted.facts).cause, MH_CAUSE_CPU);
    free(planted_batches(&planted.facts));
}

/* Threads of the loop's own process, where there are no workers; what its steps may have had them
 * for does not count. */
static void helpers_of_the_loop_are_no_latency(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 0, 2, 10 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch = batches[at].wait = 40 * MS;
        batches[at].fetch_cpu = 1 * MS;
        batches[at].step_cpu = 0;
    }
    facts.usage.wall_ns = 10000 * MS;
    assert_int_equal(judged(&facts).cause, MH_CAUSE_LATENCY);
    facts.usage.main_cpus = 0.6; /* 20 of 50 ms are 0.4: two CPUs, for as long as a step */
    assert_int_equal(judged(&facts).cause, MH_CAUSE_LATENCY);
    facts.usage.main_cpus = 1.4;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_in_range(verdict.fix_settings.workers, 1, 2);
    free(batches);
}

/* The same, where what they computed was measured batch by batch: it is computing, and more workers
 * win no more than there are CPUs for it. */
static void measured_helpers_count_as_computing(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 2, 2, 5 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch = 40 * MS;
        batches[at].fetch_cpu = 1 * MS;
        batches[at].collate = 20 * MS;
    }
    (void)planted_waits(&facts);
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_LATENCY);
    assert_true(verdict.fix_settings.workers > 3);
    for (size_t at = 0; at < 200; at++)
        batches[at].fetch_helpers = 36 * MS;
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_CPU);
    assert_true(verdict.fix_settings.workers <= 3); /* 37 of 60 ms each: 2 CPUs are then busy */
    for (size_t at = 0; at < 200; at++) {           /* the same in collate_fn */
        batches[at].fetch = 2 * MS;
        batches[at].fetch_helpers = 0;
        batches[at].collate = 60 * MS;
        batches[at].collate_helpers = 58 * MS;
    }
    verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_COLLATE);
    assert_true(verdict.fix_settings.workers <= 2);
    free(batches);
}

/* Workers are idle, and the loop is in the sampler; or there are none, and it is there as well. */
static void a_slow_sampler_is_named(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers += 2) {
        mh_facts facts = planted_run(200, workers, 4, 20 * MS);
        mh_batch_cost *batches = planted_batches(&facts);
        for (size_t at = 0; at < 200; at++) {
            batches[at].fetch = batches[at].fetch_cpu = 1 * MS;
            batches[at].wait = 41 * MS;
            batches[at].wait_cpu = 1 * MS;
            batches[at].transfer = workers ? 41 * MS : 0;
            batches[at].order = workers ? 40 * MS : 0;
        }
        mh_verdict verdict = judged(&facts);
        assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
        assert_non_null(strstr(verdict.fix, "sampler"));
        assert_int_equal(verdict.fix_settings.millhead, -1);
        assert_int_equal(verdict.fix_settings.workers, -1);
        assert_true(fabs(verdict.predicted_gain - 61.0 / 41) < 0.05);
        facts.pin_memory = 1; /* who makes batches and pins them: it may have been that */
        verdict = judged(&facts);
        assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
        assert_int_equal(strstr(verdict.fix, "sampler") != NULL, workers > 0);
        free(batches);
    }
}

/* The same where what workers did is not known, as when they share batches. */
static void a_slow_sampler_is_named_without_the_workers_times(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 2, 4, 20 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch = MH_NOT_MEASURED;
        batches[at].wait = 41 * MS;
        batches[at].order = 40 * MS;
    }
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_MAIN);
    assert_non_null(strstr(verdict.fix, "sampler"));
    assert_true(fabs(verdict.predicted_gain - 61.0 / 41) < 0.05);
    free(batches);
}

/* What a worker makes of text it must pickle: where that takes longer than making it, nobody is
 * told to have workers; nor told otherwise of the same bytes in tensors. */
static void text_is_pickled_by_workers(void **state)
{
    (void)state;
    mh_facts facts = planted_run(200, 0, 4, 2 * MS);
    mh_batch_cost *batches = planted_batches(&facts);
    for (size_t at = 0; at < 200; at++) {
        batches[at].fetch = batches[at].fetch_cpu = 4 * MS;
        batches[at].wait = 4 * MS;
    }
    facts.batch_bytes = 16 << 20;
    assert_int_not_equal(judged(&facts).fix_settings.workers, -1);
    facts.batch_texts = 16 << 20;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.fix_settings.workers, -1);
    assert_true(says(&verdict, "pickle the 16.8 MB of text"));
    assert_non_null(strstr(verdict.fix, "instead of long strings"));
    for (size_t at = 0; at < 200; at++) /* so cheap that workers would not be advised anyhow */
        batches[at].fetch = batches[at].fetch_cpu = batches[at].wait = MS / 5;
    facts.batch_texts = 1000;
    verdict = judged(&facts);
    assert_null(strstr(verdict.fix, "strings"));
    free(batches);
}

/* Nothing is said of workers where there are none. */
static void a_slow_beginning_without_workers_has_its_own_advice(void **state)
{
    (void)state;
    mh_facts facts = planted_run(100, 0, 4, 10 * MS);
    facts.setup_ns = 2000 * MS;
    mh_verdict verdict = judged(&facts);
    assert_int_equal(verdict.cause, MH_CAUSE_STARTUP);
    assert_null(strstr(verdict.fix, "workers"));
    assert_non_null(strstr(verdict.fix, "__len__"));
    free(planted_batches(&facts));
}

/* What only waits wants no CPU: more workers help, and no warning says that they do not. */
static void waiting_is_helped_by_workers_on_a_full_machine(void **state)
{
    (void)state;
    uint64_t seed = 33;
    plant planted = plant_latency(&seed), collating = plant_collate(&seed);
    planted.facts.usage.wall_ns = 10000 * MS;
    planted.facts.usage.busy_cpus = planted.facts.cpus;
    mh_verdict verdict = judged(&planted.facts);
    assert_true(verdict.fix_settings.workers > planted.facts.workers);
    assert_true(warns(&verdict, "CPUs are busy"));
    assert_false(warns(&verdict, "more workers gain nothing"));

    mh_batch_cost *batches = planted_batches(&collating.facts);
    for (size_t at = 0; at < collating.facts.batch_count; at++)
        batches[at].collate_cpu = 0;
    collating.facts.usage.wall_ns = 10000 * MS;
    collating.facts.usage.busy_cpus = collating.facts.cpus;
    verdict = judged(&collating.facts);
    assert_int_equal(verdict.cause, MH_CAUSE_COLLATE);
    assert_true(verdict.fix_settings.workers > collating.facts.workers);
    free(planted_batches(&planted.facts));
    free(batches);
}

static void one_slow_worker_is_told_of(void **state)
{
    (void)state;
    uint64_t seed = 34;
    plant planted = plant_latency(&seed);
    planted.facts.workers = 3;
    mh_batch_cost *batches = planted_batches(&planted.facts);
    for (size_t at = 0; at < planted.facts.batch_count; at++)
        batches[at].worker = (int)(at % 3);
    (void)planted_waits(&planted.facts);
    mh_verdict verdict = judged(&planted.facts);
    assert_false(warns(&verdict, "its part of the data"));
    batches[33].fetch *= 100; /* one slow batch makes no slow worker */
    (void)planted_waits(&planted.facts);
    verdict = judged(&planted.facts);
    assert_false(warns(&verdict, "its part of the data"));
    batches[33].fetch /= 100;
    for (size_t at = 1; at < planted.facts.batch_count; at += 3)
        batches[at].fetch *= 5;
    (void)planted_waits(&planted.facts);
    verdict = judged(&planted.facts);
    assert_true(warns(&verdict, "worker 1 takes"));
    free(batches);
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
        cmocka_unit_test(a_probed_disk_is_told_of_and_bounds_the_gain),
        cmocka_unit_test(few_batches_are_not_enough),
        cmocka_unit_test(a_crash_at_the_beginning_promises_nothing),
        cmocka_unit_test(the_larger_gain_goes_first),
        cmocka_unit_test(handing_over_counts_when_it_is_much),
        cmocka_unit_test(passing_on_is_blamed_only_when_it_sets_the_pace),
        cmocka_unit_test(work_of_the_process_is_seen_on_a_busy_machine),
        cmocka_unit_test(helpers_of_a_worker_are_no_latency),
        cmocka_unit_test(helpers_of_the_loop_are_no_latency),
        cmocka_unit_test(measured_helpers_count_as_computing),
        cmocka_unit_test(collate_advice_knows_the_loader),
        cmocka_unit_test(a_slow_sampler_is_named),
        cmocka_unit_test(a_slow_sampler_is_named_without_the_workers_times),
        cmocka_unit_test(text_is_pickled_by_workers),
        cmocka_unit_test(a_slow_beginning_without_workers_has_its_own_advice),
        cmocka_unit_test(waiting_is_helped_by_workers_on_a_full_machine),
        cmocka_unit_test(one_slow_worker_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
