/* test_run_reader.c - runs and logs read into facts
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include <math.h>
#include <millhead/millhead.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define HEADER "{\"event\":\"header\",\"t\":100,\"schema\":\"millhead-events\",\"version\":1}\n"

static mh_run *read_text(const char *root, const char *name, const char *text)
{
    char path[256];
    mh_run *run = NULL;
    mh_error err = {0};
    tree_write(root, name, text);
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    if (mh_run_read(&run, path, NULL, NULL, &err) != MH_OK)
        fail_msg("%s: %s", name, err.message);
    return run;
}

static mh_run *read_directory(const char *root)
{
    mh_run *run = NULL;
    mh_error err = {0};
    if (mh_run_read(&run, root, NULL, NULL, &err) != MH_OK)
        fail_msg("%s", err.message);
    return run;
}

/* --- our own events --- */

/* Two epochs of two batches by two workers; a sample of batch 1 is slow, which is its worker's
 * first and so no slow one. Out of order on purpose.
 */
static const char two_epochs[] = HEADER
    "{\"event\":\"loader\",\"t\":110,\"loader\":3,\"kind\":\"torch\",\"workers\":2,\"prefetch\":4,"
    "\"batch_size\":4,\"in_order\":true,\"persistent\":false,\"start\":\"fork\",\"cpus\":8}\n"
    "{\"event\":\"setup\",\"t\":120,\"ns\":1000,\"loader\":3,\"epoch\":0}\n"
    "{\"event\":\"fetch\",\"t\":1200,\"ns\":300,\"cpu\":100,\"delay\":50,\"loader\":3,\"epoch\":0,"
    "\"worker\":1,\"nth\":0,\"samples\":4,\"read\":77,\"probes\":5,\"native\":2}\n"
    "{\"event\":\"wait\",\"t\":1200,\"ns\":500,\"cpu\":10,\"delay\":1,\"loader\":3,\"epoch\":0,"
    "\"batch\":0,\"worker\":0,\"nth\":0,\"samples\":4}\n"
    "{\"event\":\"step\",\"t\":1700,\"ns\":2000,\"cpu\":1500,\"delay\":3,\"loader\":3,\"epoch\":0,"
    "\"batch\":0,\"train\":900}\n"
    "{\"event\":\"step\",\"t\":4000,\"ns\":2100,\"loader\":3,\"epoch\":0,\"batch\":1}\n"
    "{\"event\":\"wait\",\"t\":3700,\"ns\":300,\"loader\":3,\"epoch\":0,\"batch\":1,\"worker\":1,"
    "\"nth\":0,\"samples\":4}\n"
    "{\"event\":\"collate\",\"t\":3750,\"ns\":50,\"cpu\":40,\"delay\":5,\"loader\":3,\"epoch\":0,"
    "\"worker\":1,\"nth\":0}\n"
    "{\"event\":\"sample\",\"ns\":10,\"loader\":3,\"epoch\":0,\"worker\":1,\"nth\":0,\"index\":4}\n"
    "{\"event\":\"sample\",\"ns\":10,\"loader\":3,\"epoch\":0,\"worker\":1,\"nth\":0,\"index\":5}\n"
    "{\"event\":\"sample\",\"ns\":10,\"loader\":3,\"epoch\":0,\"worker\":1,\"nth\":0,\"index\":6}\n"
    "{\"event\":\"sample\",\"ns\":260,\"loader\":3,\"epoch\":0,\"worker\":1,\"nth\":0}\n"
    "{\"event\":\"setup\",\"t\":7000,\"ns\":600,\"loader\":3,\"epoch\":1}\n"
    "{\"event\":\"wait\",\"t\":7600,\"ns\":400,\"loader\":3,\"epoch\":1,\"batch\":0,\"worker\":0,"
    "\"nth\":0}\n"
    "{\"event\":\"wait\",\"t\":9000,\"ns\":100,\"loader\":3,\"epoch\":1,\"batch\":1,\"worker\":1,"
    "\"nth\":0}\n"
    "{\"event\":\"wait\",\"t\":9200,\"ns\":20,\"loader\":9,\"epoch\":0,\"batch\":0}\n"
    "{\"event\":\"collate\",\"t\":7100,\"ns\":100,\"loader\":3,\"epoch\":1,\"worker\":0,\"nth\":0}"
    "\n"
    "{\"event\":\"end\",\"t\":9500,\"ns\":9400}\n";

static void test_batches(void **state)
{
    mh_run *run = read_text(*state, "events.jsonl", two_epochs);
    const mh_facts *facts = mh_run_facts(run);
    const mh_batch_cost *batch = facts->batches;
    assert_int_equal(facts->batch_count, 4);
    assert_int_equal(facts->epochs, 2);
    assert_int_equal(facts->vantage, MH_VANTAGE_INSIDE);
    assert_string_equal(facts->kind, "torch");
    assert_string_equal(facts->start, "fork");
    assert_int_equal(facts->workers, 2);
    assert_int_equal(facts->prefetch, 4);
    assert_int_equal(facts->batch_size, 4);
    assert_int_equal(facts->in_order, 1);
    assert_int_equal(facts->persistent, 0);
    assert_int_equal(facts->pin_memory, -1);
    assert_int_equal(facts->cpus, 8);
    assert_int_equal(facts->setup_ns, 1600);
    assert_int_equal(facts->run_ns, 9500 - 100);
    assert_int_equal(facts->probes, 5);
    assert_int_equal(facts->probes_native, 2);

    assert_int_equal(batch[0].wait, 500);
    assert_int_equal(batch[0].wait_cpu, 10);
    assert_int_equal(batch[0].step, 2000);
    assert_int_equal(batch[0].step_train, 900);
    assert_int_equal(batch[0].step_cpu, 1500);
    assert_int_equal(batch[0].step_delay, 3);
    assert_true(batch[0].fetch == MH_NOT_MEASURED); /* worker 0 told nothing */

    assert_int_equal(batch[1].wait, 300);
    assert_int_equal(batch[1].step, 2100);
    assert_true(batch[1].step_cpu == MH_NOT_MEASURED && batch[1].step_train == MH_NOT_MEASURED);
    assert_int_equal(batch[1].worker, 1);
    assert_int_equal(batch[1].fetch, 300);
    assert_int_equal(batch[1].fetch_cpu, 100);
    assert_int_equal(batch[1].fetch_delay, 50);
    assert_int_equal(batch[1].read_bytes, 77);
    assert_int_equal(batch[1].collate, 50);
    assert_int_equal(batch[1].collate_cpu, 40);
    assert_int_equal(batch[1].collate_delay, 5);
    assert_int_equal(batch[1].transfer, 200); /* from 3800, when collate ended, to 4000 */
    assert_int_equal(batch[1].fetch_excess, 0);
    assert_int_equal(facts->sample_median_ns, 10);
    assert_int_equal(facts->samples_slow, 0);
    assert_int_equal(facts->samples_timed, 4);
    assert_int_equal(batch[2].transfer, 400); /* ready since 7200, asked for at 7600 */
    static const uint32_t firsts[] = {1, 0, 1, 0}, epochs[] = {0, 0, 1, 1};
    for (size_t at = 0; at < 4; at++) {
        assert_int_equal(batch[at].first, firsts[at]);
        assert_int_equal(batch[at].epoch, epochs[at]);
    }

    mh_wait_stats waits = mh_run_waits(run);
    assert_int_equal(waits.count, 3); /* not the first of the run */
    assert_true(fabs(waits.mean - 800e-9 / 3) < 1e-15 && waits.max == 400e-9 &&
                waits.p50 == 300e-9);
    assert_true(mh_run_setup_s(run) == 1500e-9);
    assert_int_equal(mh_run_bad_lines(run), 0);

    mh_verdict verdict;
    mh_verdict_init(&verdict);
    assert_int_equal(mh_run_judge(&verdict, run, NULL), MH_OK);
    assert_true(verdict.warning_count > 0);
    assert_non_null(strstr(verdict.warnings[verdict.warning_count - 1], "1 other took"));
    mh_run_close(run);
}

/* Workers that share batches: each has its samples' part of what they did. */
static void test_a_shared_batch_has_its_share(void **state)
{
    static const char text[] = HEADER
        "{\"event\":\"loader\",\"loader\":0,\"kind\":\"millhead\",\"workers\":2}\n"
        "{\"event\":\"fetch\",\"ns\":3000,\"cpu\":600,\"delay\":300,\"loader\":0,\"worker\":0,"
        "\"nth\":0,\"samples\":2,\"read\":90}\n"
        "{\"event\":\"fetch\",\"ns\":6000,\"cpu\":1200,\"delay\":600,\"loader\":0,\"worker\":1,"
        "\"nth\":0,\"samples\":7,\"read\":0}\n"
        "{\"event\":\"collate\",\"ns\":900,\"cpu\":450,\"loader\":0,\"worker\":1,\"nth\":0}\n"
        "{\"event\":\"order\",\"ns\":40,\"loader\":0,\"epoch\":0,\"batch\":1}\n"
        "{\"event\":\"wait\",\"t\":1,\"ns\":9,\"loader\":0,\"batch\":0,\"worker\":-1,"
        "\"samples\":6}\n"
        "{\"event\":\"wait\",\"t\":99,\"ns\":90,\"loader\":0,\"batch\":1,\"worker\":-1,"
        "\"samples\":3}\n";
    mh_run *run = read_text(*state, "shared.jsonl", text);
    const mh_batch_cost *batch = mh_run_facts(run)->batches;
    assert_int_equal(mh_run_facts(run)->batch_count, 2);
    assert_int_equal(batch[0].fetch, 6000);
    assert_int_equal(batch[1].fetch, 3000);
    assert_int_equal(batch[1].fetch_cpu, 600);
    assert_int_equal(batch[1].fetch_delay, 300);
    assert_int_equal(batch[1].read_bytes, 30);
    assert_int_equal(batch[1].collate, 300);
    assert_int_equal(batch[1].collate_cpu, 150);
    assert_int_equal(batch[1].transfer, 40);
    mh_run_close(run);
}

/* dispatch="sample": workers take runs of samples in the order of batches, so that the order in
 * which runs began tells whose they were. The events are in another. */
static const char by_sample[] = HEADER
    "{\"event\":\"loader\",\"loader\":0,\"kind\":\"millhead\",\"workers\":2,\"prefetch\":1,"
    "\"batch_size\":4,\"in_order\":true,\"dispatch\":\"sample\"}\n"
    "{\"event\":\"fetch\",\"t\":1020,\"ns\":40,\"cpu\":8,\"worker\":0,\"nth\":1,\"samples\":3}\n"
    "{\"event\":\"fetch\",\"t\":1000,\"ns\":10,\"cpu\":1,\"worker\":0,\"nth\":0,\"samples\":2}\n"
    "{\"event\":\"sample\",\"ns\":900,\"worker\":1,\"nth\":1}\n"
    "{\"event\":\"fetch\",\"t\":1030,\"ns\":903,\"cpu\":16,\"worker\":1,\"nth\":1,\"samples\":1}\n"
    "{\"event\":\"fetch\",\"t\":1001,\"ns\":20,\"cpu\":2,\"worker\":1,\"nth\":0,\"samples\":2}\n"
    "{\"event\":\"wait\",\"t\":900,\"ns\":200,\"batch\":0,\"worker\":-1,\"samples\":4}\n"
    "{\"event\":\"wait\",\"t\":1300,\"ns\":700,\"batch\":1,\"worker\":-1,\"samples\":4}\n";

static void test_a_shared_batch_has_its_runs(void **state)
{
    char text[2 * sizeof by_sample];
    mh_run *run = read_text(*state, "runs.jsonl", by_sample);
    const mh_batch_cost *batch = mh_run_facts(run)->batches;
    assert_int_equal(mh_run_facts(run)->by_sample, 1);
    assert_int_equal(batch[0].fetch, 30);
    assert_int_equal(batch[0].fetch_cpu, 3);
    assert_int_equal(batch[0].fetch_excess, 0);
    assert_int_equal(batch[1].fetch, 943);
    assert_int_equal(batch[1].fetch_cpu, 24);
    assert_true(batch[1].fetch_excess > 850);
    mh_run_close(run);
    /* more samples than can have been on their way: their places are not known */
    (void)snprintf(text, sizeof text,
                   "%s{\"event\":\"fetch\",\"t\":1040,\"ns\":27,\"worker\":1,\"nth\":2,"
                   "\"samples\":9}\n",
                   by_sample);
    run = read_text(*state, "twice.jsonl", text);
    batch = mh_run_facts(run)->batches;
    assert_int_equal(batch[0].fetch, batch[1].fetch);
    mh_run_close(run);
}

static void test_short_samples_count_for_the_median(void **state)
{
    /* 100 samples of which two are long enough for events: the median is that of the others */
    mh_run *run = read_text(
        *state, "log",
        HEADER
        "{\"event\":\"fetch\",\"ns\":2009800,\"loader\":0,\"worker\":0,\"nth\":1,\"samples\":100}\n"
        "{\"event\":\"sample\",\"ns\":1000000,\"loader\":0,\"worker\":0,\"nth\":1}\n"
        "{\"event\":\"sample\",\"ns\":1000000,\"loader\":0,\"worker\":0,\"nth\":1}\n"
        "{\"event\":\"wait\",\"t\":5,\"ns\":1,\"loader\":0,\"worker\":0,\"nth\":1}\n");
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->sample_median_ns, 100);
    assert_int_equal(facts->samples_timed, 100);
    assert_int_equal(facts->samples_slow, 2);
    assert_int_equal(facts->batches[0].fetch_excess, 2 * (1000000 - 100));
    assert_int_equal(facts->sample_max_ns, 1000000);
    mh_run_close(run);
}

static void test_without_workers_the_loop_fetches(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"wait\",\"t\":1000,\"ns\":500,\"epoch\":0,\"batch\":0,\"worker\":-1,\"nth\":0}"
        "\n"
        "{\"event\":\"fetch\",\"t\":1000,\"ns\":400,\"epoch\":0,\"worker\":-1,\"nth\":0}\n"
        "{\"event\":\"collate\",\"t\":1400,\"ns\":60,\"epoch\":0,\"worker\":-1,\"nth\":0}\n");
    const mh_batch_cost *batch = mh_run_facts(run)->batches;
    assert_int_equal(batch->worker, -1);
    assert_int_equal(batch->fetch, 400);
    assert_true(batch->fetch_cpu == MH_NOT_MEASURED);
    assert_int_equal(batch->transfer, 40);
    mh_run_close(run);
}

static void test_equal_numbers_are_other_batches(void **state)
{
    mh_run *run =
        read_text(*state, "log",
                  "{\"event\":\"wait\",\"t\":1,\"ns\":5}\n{\"event\":\"step\",\"ns\":6}\n"
                  "{\"event\":\"wait\",\"t\":20,\"ns\":7}\n{\"event\":\"step\",\"ns\":8}\n");
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->batch_count, 2);
    assert_int_equal(facts->batches[0].step, 6);
    assert_int_equal(facts->batches[1].wait, 7);
    assert_int_equal(facts->batches[1].step, 8);
    mh_run_close(run);
}

static void test_a_timer_alone_gives_batches(void **state)
{
    mh_run *run =
        read_text(*state, "log",
                  "{\"event\":\"phase\",\"t\":10,\"ns\":5,\"name\":\"data\",\"step\":0}\n"
                  "{\"event\":\"phase\",\"t\":15,\"ns\":3,\"name\":\"forward\",\"step\":0}\n"
                  "{\"event\":\"phase\",\"t\":18,\"ns\":4,\"name\":\"backward\",\"step\":0}\n"
                  "{\"event\":\"phase\",\"t\":22,\"ns\":9,\"name\":\"data\",\"step\":1}\n");
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->batch_count, 2);
    assert_int_equal(facts->batches[0].wait, 5);
    assert_int_equal(facts->batches[0].step, 7);
    assert_int_equal(facts->batches[1].wait, 9);
    mh_run_close(run);
}

/* --- processes and machine --- */

#define S(n) #n "000000000"
#define LOOK(pid, role, t, cpu, pss)                                                               \
    "{\"event\":\"usage\",\"t\":" S(t) ",\"pid\":" #pid ",\"role\":\"" role "\",\"cpu\":" S(       \
        cpu) ",\"delay\":" S(cpu) ",\"pss\":" #pss ",\"state\":\"D\"}\n"
#define SYSTEM(t, busy)                                                                            \
    "{\"event\":\"system\",\"t\":" S(t) ",\"cpus\":8,\"busy\":" S(busy) ",\"iowait\":" S(          \
        t) ",\"disk_busy\":0,\"disk_read\":" S(t) ",\"net_read\":0,\"available\":5000}\n"

#define LOCKED(pid, role, t, cpu, lock)                                                            \
    "{\"event\":\"usage\",\"t\":" S(t) ",\"pid\":" #pid ",\"role\":\"" role "\",\"cpu\":" #cpu     \
                                       ",\"lock\":" #lock "}\n"
/* A pool's process that has nothing to do. */
#define IDLE(t) LOCKED(9, "worker", t, 70, 1)

/* Workers that wait for a lock at a time; of processes that do not, the template of workers say. */
static void test_locks_are_counted(void **state)
{
    static const char begin[] = "{\"event\":\"wait\",\"t\":1" S(0) ",\"ns\":0}\n";
    static const char rounds[] = LOCKED(1, "main", 11, 1, 1) LOCKED(2, "worker", 11, 1, 0.5)
        LOCKED(3, "worker", 11, 1, 1) LOCKED(4, "worker", 11, 1, 0) IDLE(11)
            LOCKED(1, "main", 12, 2, 0) LOCKED(2, "worker", 12, 2, 1)
                LOCKED(3, "worker", 12, 2, 0.5) LOCKED(4, "worker", 12, 2, 7) IDLE(12);
    static const char third[] = LOCKED(1, "main", 13, 2, 0) LOCKED(2, "worker", 13, 3, 1)
        LOCKED(5, "worker", 13, 1, 0.5) IDLE(13); /* 5: a worker of the next epoch */
    char text[4000];
    (void)snprintf(text, sizeof text, "%s%s", begin, rounds);
    mh_run *run = read_text(*state, "few", text);
    assert_true(mh_run_facts(run)->usage.workers_locked == 0); /* two rounds tell nothing */
    mh_run_close(run);
    (void)snprintf(text, sizeof text, "%s%s%s", begin, rounds, third);
    run = read_text(*state, "log", text);
    assert_true(fabs(mh_run_facts(run)->usage.workers_locked - 1.5) < 1e-6);
    mh_run_close(run);
}

#define ONCE(loader, workers, t)                                                                   \
    "{\"event\":\"loader\",\"t\":1,\"loader\":" #loader                                            \
    ",\"kind\":\"torch\",\"workers\":" #workers "}\n{\"event\":\"setup\",\"t\":" #t                \
    ",\"ns\":5,\"loader\":" #loader ",\"epoch\":0}\n"                                              \
    "{\"event\":\"wait\",\"t\":" #t ",\"ns\":10,\"loader\":" #loader ",\"epoch\":0,\"batch\":0}\n"

static int warns_of_loaders_alike(const mh_run *run)
{
    mh_verdict verdict;
    mh_verdict_init(&verdict);
    mh_error err = {0};
    assert_int_equal(mh_run_judge(&verdict, run, &err), MH_OK);
    for (size_t at = 0; at < verdict.warning_count; at++)
        if (strstr(verdict.warnings[at], "2 loaders look alike and were iterated once each"))
            return 1;
    return 0;
}

static void test_a_loader_made_anew_is_told(void **state)
{
    mh_run *run = read_text(*state, "log", ONCE(0, 2, 100) ONCE(1, 2, 200) ONCE(2, 4, 300));
    assert_true(warns_of_loaders_alike(run));
    mh_run_close(run);
    run = read_text(*state, "other", ONCE(0, 2, 100) ONCE(1, 3, 200) ONCE(2, 4, 300));
    assert_false(warns_of_loaders_alike(run));
    mh_run_close(run);
    run = read_text(*state, "twice", ONCE(0, 2, 100) ONCE(0, 2, 200) ONCE(1, 2, 300));
    assert_false(warns_of_loaders_alike(run)); /* training and validation */
    mh_run_close(run);
    run = read_text(*state, "fewer",
                    ONCE(0, 2, 100) "{\"event\":\"wait\",\"t\":120,\"ns\":10,\"loader\":0,"
                                    "\"epoch\":0,\"batch\":1}\n" ONCE(1, 2, 300));
    assert_false(warns_of_loaders_alike(run)); /* the same, of one epoch */
    mh_run_close(run);
}

/* What the sampler took while iterators were made, and what passed between two epochs. */
static void test_set_up_and_what_is_between(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"loader\",\"t\":1,\"loader\":0,\"kind\":\"torch\",\"workers\":2}\n"
        "{\"event\":\"setup\",\"t\":100,\"ns\":50,\"loader\":0,\"epoch\":0,\"order\":30}\n"
        "{\"event\":\"wait\",\"t\":150,\"ns\":10,\"loader\":0,\"epoch\":0,\"batch\":0}\n"
        "{\"event\":\"step\",\"t\":160,\"ns\":40,\"loader\":0,\"epoch\":0,\"batch\":0}\n"
        "{\"event\":\"epoch\",\"t\":100,\"ns\":110,\"loader\":0,\"epoch\":0}\n"
        "{\"event\":\"setup\",\"t\":1000,\"ns\":50,\"loader\":0,\"epoch\":1,\"order\":20}\n"
        "{\"event\":\"wait\",\"t\":1050,\"ns\":10,\"loader\":0,\"epoch\":1,\"batch\":0}\n");
    const mh_facts *facts = mh_run_facts(run);
    assert_true(facts->setup_ns == 100 && facts->setup_order_ns == 50);
    assert_true(facts->between_ns == 790);
    mh_run_close(run);
}

/* Rows that are gathered in one go have no collate: what is left of the wait is taking over. */
static void test_a_batch_without_collate_is_taken_over(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"loader\",\"t\":1,\"loader\":0,\"kind\":\"millhead\",\"workers\":1}\n"
        "{\"event\":\"fetch\",\"t\":100,\"ns\":60,\"cpu\":60,\"loader\":0,\"epoch\":0,\"worker\":0,"
        "\"nth\":0,\"samples\":4}\n"
        "{\"event\":\"order\",\"t\":145,\"ns\":40,\"loader\":0,\"epoch\":0,\"batch\":0}\n"
        "{\"event\":\"wait\",\"t\":140,\"ns\":70,\"loader\":0,\"epoch\":0,\"batch\":0,\"worker\":0,"
        "\"nth\":0}\n");
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->batches[0].transfer, 210 - 160);
    assert_int_equal(facts->batches[0].order, 40);
    mh_run_close(run);
}

/* it = iter(loader), with the one before left early: that is gone only when the new one is there.
 */
static void test_an_iterator_that_is_replaced_ends_late(void **state)
{
    mh_run *run =
        read_text(*state, "log",
                  "{\"event\":\"loader\",\"t\":1,\"loader\":0,\"kind\":\"torch\",\"workers\":2}\n"
                  "{\"event\":\"setup\",\"t\":100,\"ns\":50,\"loader\":0,\"epoch\":0}\n"
                  "{\"event\":\"wait\",\"t\":150,\"ns\":10,\"loader\":0,\"epoch\":0,\"batch\":0}\n"
                  "{\"event\":\"setup\",\"t\":1000,\"ns\":50,\"loader\":0,\"epoch\":1}\n"
                  "{\"event\":\"epoch\",\"t\":100,\"ns\":880,\"loader\":0,\"epoch\":0}\n"
                  "{\"event\":\"setup\",\"t\":2000,\"ns\":50,\"loader\":0,\"epoch\":2}\n"
                  "{\"event\":\"epoch\",\"t\":1000,\"ns\":970,\"loader\":0,\"epoch\":1}\n");
    assert_int_equal(mh_run_facts(run)->between_ns, 20 + 30);
    mh_run_close(run);
}

static void test_usage(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"wait\",\"t\":1" S(0) ",\"ns\":0}\n" /* the steady part begins at 10 s */
        LOOK(1, "main", 5, 50, 900000) SYSTEM(5, 500) LOOK(1, "main", 10, 60, 1000)
            LOOK(2, "worker", 10, 10, 100) SYSTEM(10, 600) LOOK(1, "main", 12, 61, 1020)
                LOOK(2, "worker", 12, 12, 100) SYSTEM(12, 606) LOOK(1, "main", 14, 62, 1040)
                    LOOK(2, "worker", 14, 14, 100) SYSTEM(14, 612) LOOK(1, "main", 16, 63, 5000)
                        LOOK(2, "worker", 16, 16, 100) SYSTEM(16, 618) LOOK(1, "main", 18, 64, 1080)
                            LOOK(2, "worker", 18, 18, 100)
                                SYSTEM(18, 624) "{\"event\":\"gpu\",\"t\":1,\"util\":0.5}\n{"
                                                "\"event\":\"gpu\",\"t\":2,\"util\":0.7}\n");
    const mh_usage_sum *usage = &mh_run_facts(run)->usage;
    assert_true(usage->wall_ns == UINT64_C(8000000000));
    assert_true(fabs(usage->machine_cpus - 8) < 1e-9 && fabs(usage->busy_cpus - 3) < 1e-9);
    assert_true(fabs(usage->iowait_cpus - 1) < 1e-9 && fabs(usage->disk_read_per_s - 1e9) < 1);
    assert_true(fabs(usage->main_cpus - 0.5) < 1e-9 && fabs(usage->workers_cpus - 1) < 1e-9);
    assert_true(fabs(usage->loader_cpus - 1.5) < 1e-9 && fabs(usage->loader_delay - 1.5) < 1e-9);
    assert_true(usage->memory_first_bytes == 1100 && usage->memory_last_bytes == 1180);
    assert_true(fabs(usage->memory_per_s - 10) < 1e-6); /* one odd point does not move it */
    assert_true(fabs(usage->memory_share_up - 0.75) < 1e-9);
    assert_true(usage->memory_ns == UINT64_C(8000000000));
    assert_true(fabs(usage->workers_delay - 1) < 1e-9);
    assert_true(usage->memory_available_bytes == 5000);
    assert_true(fabs(usage->gpu_util - 0.6) < 1e-9);
    assert_true(usage->main_disk == 1 && usage->workers_disk == 1);
    mh_run_close(run);
}

/* All looks of a short run are of one round, milliseconds apart: nothing was seen of its pace. */
static void test_one_round_of_looks_is_no_pace(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"wait\",\"t\":1" S(0) ",\"ns\":0}\n" LOOK(1, "main", 9, 1, 1000)
            LOOK(2, "worker", 9, 1, 1000)
                LOOK(1, "main", 10, 2,
                     1000) "{\"event\":\"usage\",\"t\":10001000000,\"pid\":2,\"role\":\"worker\","
                           "\"cpu\":9000000000,\"delay\":9000000000,\"rss\":1}\n" SYSTEM(10, 10));
    const mh_usage_sum *usage = &mh_run_facts(run)->usage;
    assert_true(usage->loader_cpus == 0 && usage->workers_cpus == 0 && usage->wall_ns == 0);
    mh_run_close(run);
}

/* A process that takes its time to end, its memory already free. */
static void test_looks_after_the_end_do_not_count(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"wait\",\"t\":1" S(
            0) ",\"ns\":0}\n"
               "{\"event\":\"step\",\"t\":1" S(0) ",\"ns\":" S(6) "}\n" LOOK(1, "main", 10, 1, 1000)
                   SYSTEM(10, 10) LOOK(1, "main", 12, 3, 3000) SYSTEM(12, 20)
                       LOOK(1, "main", 14, 5, 5000) SYSTEM(14, 30) LOOK(1, "main", 18, 5, 100)
                           SYSTEM(18, 31) LOOK(1, "main", 20, 5, 100) SYSTEM(20, 32));
    const mh_usage_sum *usage = &mh_run_facts(run)->usage;
    assert_true(fabs(usage->memory_per_s - 1000) < 1e-6 && fabs(usage->memory_share_up - 1) < 1e-9);
    assert_true(fabs(usage->main_cpus - 1) < 1e-9 && fabs(usage->busy_cpus - 5) < 1e-9);
    mh_run_close(run);
}

#define MAPPED(t, rss, pss, file)                                                                  \
    "{\"event\":\"usage\",\"t\":" S(t) ",\"pid\":1,\"role\":\"main\",\"cpu\":" S(                  \
        t) ",\"rss\":" #rss ",\"rss_file\":" #file pss ",\"pss_file\":" #file "}\n"

/* A mapped array of which more is read, with one look that did not walk through memory. */
static void test_pages_of_files_are_no_growth(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"wait\",\"t\":1" S(0) ",\"ns\":0}\n" MAPPED(10, 9000, ",\"pss\":8000", 1000)
            MAPPED(12, 12000, "", 4000) MAPPED(14, 15000, ",\"pss\":14000", 7000)
                MAPPED(16, 18500, ",\"pss\":17500", 10000));
    const mh_usage_sum *usage = &mh_run_facts(run)->usage;
    assert_true(usage->memory_first_bytes == 7000 && usage->memory_last_bytes == 7500);
    assert_true(usage->memory_per_s < 100);
    mh_run_close(run);
}

/* The library that is loaded in the end, or the buffer that is made then, is no leak. */
static void test_one_jump_is_no_growth(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"wait\",\"t\":1" S(0) ",\"ns\":0}\n" LOOK(1, "main", 10, 1, 268000000)
            LOOK(1, "main", 12, 2, 268000100) LOOK(1, "main", 14, 3, 268260000)
                LOOK(1, "main", 16, 4, 400000000));
    const mh_usage_sum *usage = &mh_run_facts(run)->usage;
    assert_true(usage->memory_per_s > 1e6 && usage->memory_ns == UINT64_C(6000000000));
    assert_true(usage->memory_share_up < 0.5);
    mh_run_close(run);
}

/* --- ranks --- */

static void test_ranks_meet_in_the_step(void **state)
{
    tree_write(*state, "events.jsonl",
               "{\"event\":\"header\",\"rank\":0,\"host\":\"a\"}\n"
               "{\"event\":\"wait\",\"t\":1,\"ns\":10}\n{\"event\":\"step\",\"ns\":90}\n");
    tree_write(*state, "events.rank1.jsonl",
               "{\"event\":\"header\",\"rank\":1,\"host\":\"b\"}\n"
               "{\"event\":\"wait\",\"t\":1,\"ns\":60}\n{\"event\":\"step\",\"ns\":40}\n");
    tree_write(*state, "events.rank2.jsonl", "{\"event\":\"header\",\"rank\":2}\n");
    tree_write(*state, "events.rankx.jsonl", "not ours");
    mh_run *run = read_directory(*state);
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->batch_count, 1);
    assert_int_equal(facts->batches[0].wait, 10);
    assert_int_equal(facts->rank_count, 2);
    assert_string_equal(facts->ranks[1].host, "b");
    assert_int_equal(facts->ranks[0].own, 50); /* its step is 50 longer than the other's: waiting */
    assert_int_equal(facts->ranks[0].waiting, 50);
    assert_int_equal(facts->ranks[1].own, 100);
    assert_int_equal(facts->ranks[1].data, 60);
    assert_int_equal(facts->ranks[1].waiting, 0);
    assert_int_equal(facts->ranks[1].steps, 1);
    mh_run_close(run);
}

static void test_a_ranks_first_batch_is_start_up(void **state)
{
    tree_write(*state, "events.jsonl",
               "{\"event\":\"wait\",\"t\":1,\"ns\":1000}\n{\"event\":\"step\",\"ns\":40}\n"
               "{\"event\":\"wait\",\"t\":9,\"ns\":10,\"batch\":1}\n");
    tree_write(*state, "events.rank1.jsonl",
               "{\"event\":\"phase\",\"name\":\"data\",\"step\":0,\"ns\":500}\n"
               "{\"event\":\"phase\",\"name\":\"forward\",\"step\":0,\"ns\":30}\n"
               "{\"event\":\"phase\",\"name\":\"data\",\"step\":1,\"ns\":7}\n");
    mh_run *run = read_directory(*state);
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->rank_count, 2);
    assert_int_equal(facts->ranks[0].data, 10);
    assert_int_equal(facts->ranks[0].total, 50);
    assert_int_equal(facts->ranks[1].data, 7);
    assert_int_equal(facts->ranks[1].total, 37);
    assert_int_equal(facts->ranks[1].steps, 2);
    mh_run_close(run);
}

#define PHASE(name, ns) "{\"event\":\"phase\",\"name\":\"" name "\",\"step\":7,\"ns\":" #ns "}\n"

static void test_ranks_with_barriers(void **state)
{
    tree_write(*state, "events.jsonl",
               PHASE("data", 10) PHASE("waiting", 50) PHASE("forward", 5) PHASE("backward", 9));
    tree_write(*state, "events.rank1.jsonl",
               PHASE("data", 60) PHASE("waiting", 0) PHASE("forward", 5) PHASE("backward", 8));
    mh_run *run = read_directory(*state);
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->rank_count, 2);
    assert_int_equal(facts->ranks[0].own, 24);
    assert_int_equal(facts->ranks[0].waiting, 50);
    assert_int_equal(facts->ranks[1].rank, 1);
    assert_int_equal(facts->ranks[1].own, 73);
    assert_int_equal(facts->ranks[1].data, 60);
    assert_int_equal(facts->ranks[1].steps, 1);
    mh_run_close(run);
}

/* --- Earthmover's --- */

#define TRAIN(edge, b, t) "{\"event\":\"training " edge "\",\"batch\":" #b ",\"time\":" #t "}\n"
#define GOT(pid, t)                                                                                \
    "{\"event\":\"get-batch end\",\"pid\":" #pid ",\"time\":" #t ",\"duration\":1}\n"

static void test_earthmover(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"run start\",\"time\":100,\"locals\":{\"num_workers\":2,\"batch_size\":2}}\n"
        "{\"event\":\"setup end\",\"time\":108,\"duration\":7.5}\n"
        "{\"event\":\"epoch start\",\"time\":110}\n" TRAIN("end", 0, 113)
            TRAIN("start", 0, 112) /* out of order */
        GOT(7, 111) GOT(8, 111) GOT(7, 112) GOT(8, 113) TRAIN("start", 1, 113.5) TRAIN(
            "end", 1, 114.5) "{\"event\":\"epoch start\",\"time\":115}\n" TRAIN("start", 0, 117.5)
            TRAIN("end", 0, 118) "{\"event\":\"run end\",\"time\":120}\n");
    const mh_facts *facts = mh_run_facts(run);
    mh_wait_stats waits = mh_run_waits(run);
    assert_int_equal(facts->vantage, MH_VANTAGE_LOG);
    assert_string_equal(facts->kind, "earthmover");
    assert_int_equal(facts->workers, 2);
    assert_int_equal(facts->prefetch, 2); /* torch's default */
    assert_int_equal(facts->batch_count, 3);
    assert_int_equal(facts->epochs, 2);
    assert_int_equal(waits.count, 2);
    assert_true(fabs(waits.mean - 1.75) < 1e-6 && fabs(waits.max - 3) < 1e-6);
    assert_true(fabs(mh_run_setup_s(run) - 7.5) < 1e-6);
    assert_true(facts->run_ns == UINT64_C(20000000000));
    assert_true(facts->batches[0].wait == UINT64_C(2000000000)); /* since the epoch's start */
    assert_true(facts->batches[0].step == UINT64_C(1000000000));
    assert_true(facts->batches[0].fetch == UINT64_C(2000000000));
    assert_true(facts->batches[1].fetch == UINT64_C(2000000000));
    assert_true(facts->batches[2].fetch == MH_NOT_MEASURED);
    assert_true(facts->batches[0].fetch_cpu == MH_NOT_MEASURED);
    assert_int_equal(facts->batches[2].first, 1);
    assert_int_equal(facts->batches[2].epoch, 1);
    mh_run_close(run);
}

/* Without workers what lies between two steps is a batch: one with a line too few or too many is
 * not known, and those after it still are. */
static void test_earthmover_without_workers(void **state)
{
    mh_run *run = read_text(
        *state, "log",
        "{\"event\":\"run start\",\"time\":100,\"locals\":{\"num_workers\":0,\"batch_size\":2}}\n"
        "{\"event\":\"epoch start\",\"time\":100}\n" GOT(7, 101) GOT(7, 102) TRAIN("start", 0, 103)
            TRAIN("end", 0, 104) GOT(7, 105) /* one is lost */
        TRAIN("start", 1, 107) TRAIN("end", 1, 108) GOT(7, 109) GOT(7, 110) GOT(7, 111)
            TRAIN("start", 2, 112) TRAIN("end", 2, 113) GOT(7, 114) GOT(7, 115)
                TRAIN("start", 3, 116) TRAIN("end", 3, 117)
                    GOT(7, 130) "{\"event\":\"run end\",\"time\":131}\n");
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->batch_count, 4);
    assert_true(facts->batches[0].fetch == UINT64_C(2000000000));
    assert_true(facts->batches[1].fetch == MH_NOT_MEASURED && facts->batches[1].samples == 1);
    assert_true(facts->batches[2].fetch == MH_NOT_MEASURED && facts->batches[2].samples == 3);
    assert_true(facts->batches[3].fetch == UINT64_C(2000000000));
    /* From the last sample to the step the process collates: no time of the sampler's. */
    assert_true(facts->batches[3].collate == UINT64_C(1000000000));
    assert_true(facts->batches[1].collate == MH_NOT_MEASURED);
    mh_run_close(run);
}

static void test_earthmover_with_holes(void **state)
{
    static const struct {
        const char *text;
        uint64_t waits;
        double mean, setup;
        size_t batches;
    } cases[] = {
        /* no start of the run, no epochs, set-up without duration */
        {"{\"event\":\"setup start\",\"time\":1}\n{\"event\":\"setup end\",\"time\":3}\n" TRAIN(
             "start", 0, 10) TRAIN("end", 0, 11) TRAIN("start", 1, 13) TRAIN("end", 1, 14),
         1, 2, 2, 2},
        /* cut in a step */
        {TRAIN("start", 0, 10) TRAIN("end", 0, 11) TRAIN("start", 1, 13) "{\"event\":\"trai", 1, 2,
         0, 2},
        /* an end is missing: the next wait is not known */
        {TRAIN("start", 0, 10) TRAIN("start", 1, 13) TRAIN("end", 1, 14) TRAIN("start", 2, 15), 1,
         1, 0, 3},
        /* a start is missing, but the end tells how long */
        {TRAIN("start", 0, 10)
             TRAIN("end", 0, 11) "{\"event\":\"training end\",\"time\":15,\"duration\":1}\n",
         1, 3, 0, 2},
        /* two runs in one log */
        {"{\"event\":\"run start\",\"time\":1}\n" TRAIN("start", 0, 10)
             TRAIN("end", 0, 11) "{\"event\":\"run start\",\"time\":50}\n" TRAIN("start", 0, 60)
                 TRAIN("end", 0, 61) TRAIN("start", 1, 62),
         1, 1, 0, 3},
        /* steps that take no time */
        {TRAIN("start", 0, 10) TRAIN("end", 0, 10) TRAIN("start", 1, 10) TRAIN("end", 1, 10), 1, 0,
         0, 2},
    };
    for (size_t at = 0; at < COUNT(cases); at++) {
        mh_run *run = read_text(*state, "log", cases[at].text);
        mh_wait_stats waits = mh_run_waits(run);
        if (waits.count != cases[at].waits || fabs(waits.mean - cases[at].mean) > 1e-6 ||
            fabs(mh_run_setup_s(run) - cases[at].setup) > 1e-6 ||
            mh_run_facts(run)->batch_count != cases[at].batches)
            fail_msg("case %zu: %u waits, mean %f, set-up %f", at, (unsigned)waits.count,
                     waits.mean, mh_run_setup_s(run));
        mh_run_close(run);
    }
}

static void test_earthmover_settings_are_guessed(void **state)
{
    static const struct {
        const char *text;
        int workers, batch_size;
        uint64_t fetch_s;
    } cases[] = {
        /* two samples between two steps, in the loop's own process */
        {GOT(5, 2) GOT(5, 3) TRAIN("start", 0, 3) TRAIN("end", 0, 4) GOT(5, 5) GOT(5, 6)
             TRAIN("start", 1, 6) TRAIN("end", 1, 7),
         0, 2, 2},
        /* while training goes on */
        {GOT(5, 2) GOT(5, 3) TRAIN("start", 0, 3) TRAIN("end", 0, 6) GOT(5, 4) GOT(5, 5)
             TRAIN("start", 1, 6) TRAIN("end", 1, 7),
         1, 4, 4},
        {GOT(5, 2) GOT(6, 2) GOT(5, 3) GOT(6, 3) GOT(7, 3) GOT(7, 4) GOT(7, 5) GOT(7, 6)
             TRAIN("start", 0, 4) TRAIN("end", 0, 6),
         3, 2, 2},
        {TRAIN("start", 0, 4) TRAIN("end", 0, 6), -1, -1, 0},
    };
    for (size_t at = 0; at < COUNT(cases); at++) {
        mh_run *run = read_text(*state, "log", cases[at].text);
        const mh_facts *facts = mh_run_facts(run);
        assert_int_equal(facts->workers, cases[at].workers);
        assert_int_equal(facts->batch_size, cases[at].batch_size);
        if (cases[at].fetch_s)
            assert_int_equal(facts->batches[0].fetch, cases[at].fetch_s * 1000000000);
        else
            assert_true(facts->batches[0].fetch == MH_NOT_MEASURED);
        mh_run_close(run);
    }
}

/* --- what cannot be read --- */

static void test_refusals(void **state)
{
    static const struct {
        const char *text; /* NULL: a directory without events */
        mh_status status;
        const char *said;
    } cases[] = {
        {NULL, MH_ERR_NOT_FOUND, "no events.jsonl in the directory"},
        {"", MH_ERR_CORRUPT, "is empty"},
        {"\n", MH_ERR_CORRUPT, "holds no event: 1 line, 1 of them no JSON object"},
        {"{\"a\": 1}\n[]\n", MH_ERR_CORRUPT, "holds no event: 2 lines, 1 of them"},
        {HEADER, MH_ERR_CORRUPT, "has no batch: 1 events of other kinds"},
        {"{\"event\":\"run start\",\"time\":1}\n", MH_ERR_CORRUPT, "has no batch"},
        {"{\"event\":\"header\",\"version\":7}\n", MH_ERR_UNSUPPORTED,
         "line 1: events of version 7"},
    };
    char path[256];
    for (size_t at = 0; at < COUNT(cases); at++) {
        mh_run *run = NULL;
        mh_error err;
        if (cases[at].text)
            tree_write(*state, "x/events.jsonl", cases[at].text);
        (void)snprintf(path, sizeof path, "%s%s", (const char *)*state, cases[at].text ? "/x" : "");
        assert_int_equal(mh_run_read(&run, path, NULL, NULL, &err), cases[at].status);
        assert_null(run);
        if (!strstr(err.message, cases[at].said))
            fail_msg("'%s' is not in: %s", cases[at].said, err.message);
    }
    mh_run *run = NULL;
    assert_int_equal(mh_run_read(&run, "/nonexistent/run", NULL, NULL, NULL), MH_ERR_NOT_FOUND);
    assert_int_equal(mh_run_read(&run, NULL, NULL, NULL, NULL), MH_ERR_INVALID);
}

static void read_without_memory(void *path)
{
    mh_run *run = NULL;
    mh_error err;
    mh_status status = mh_run_read(&run, path, NULL, NULL, &err);
    assert_true(status == MH_OK || status == MH_ERR_NOMEM);
    mh_run_close(run);
}

static void test_no_memory(void **state)
{
    char path[256];
    tree_write(*state, "events.jsonl", two_epochs);
    tree_write(*state, "events.rank1.jsonl", two_epochs);
    each_allocation_fails(read_without_memory, *state);
    tree_write(*state, "log", TRAIN("start", 0, 10) TRAIN("end", 0, 11) GOT(3, 9));
    (void)snprintf(path, sizeof path, "%s/log", (const char *)*state);
    each_allocation_fails(read_without_memory, path);
}

/* More records than fit into the first index, in an order that is not theirs. */
static void test_many_batches_find_their_work(void **state)
{
    enum { BATCHES = 5000 };
    char path[256];
    (void)snprintf(path, sizeof path, "%s/events.jsonl", (const char *)*state);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int at = BATCHES - 1; at >= 0; at--)
        (void)fprintf(file,
                      "{\"event\":\"fetch\",\"ns\":%d,\"worker\":%d,\"nth\":%d,\"epoch\":%d}\n",
                      at + 1, at % 3, at % 999 / 3, at / 999);
    for (int at = 0; at < BATCHES; at++)
        (void)fprintf(file,
                      "{\"event\":\"wait\",\"t\":%d,\"ns\":1,\"batch\":%d,\"worker\":%d,\"nth\":%d,"
                      "\"epoch\":%d}\n",
                      at, at % 999, at % 3, at % 999 / 3, at / 999);
    assert_int_equal(fclose(file), 0);
    mh_run *run = read_directory(*state);
    const mh_facts *facts = mh_run_facts(run);
    assert_int_equal(facts->batch_count, BATCHES);
    for (size_t at = 0; at < BATCHES; at++)
        assert_int_equal(facts->batches[at].fetch, at + 1);
    mh_run_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)
        WITH_TREE(test_batches),
        WITH_TREE(test_a_shared_batch_has_its_share),
        WITH_TREE(test_a_shared_batch_has_its_runs),
        WITH_TREE(test_short_samples_count_for_the_median),
        WITH_TREE(test_without_workers_the_loop_fetches),
        WITH_TREE(test_equal_numbers_are_other_batches),
        WITH_TREE(test_a_timer_alone_gives_batches),
        WITH_TREE(test_locks_are_counted),
        WITH_TREE(test_set_up_and_what_is_between),
        WITH_TREE(test_an_iterator_that_is_replaced_ends_late),
        WITH_TREE(test_a_loader_made_anew_is_told),
        WITH_TREE(test_usage),
        WITH_TREE(test_one_round_of_looks_is_no_pace),
        WITH_TREE(test_looks_after_the_end_do_not_count),
        WITH_TREE(test_a_batch_without_collate_is_taken_over),
        WITH_TREE(test_pages_of_files_are_no_growth),
        WITH_TREE(test_one_jump_is_no_growth),
        WITH_TREE(test_ranks_meet_in_the_step),
        WITH_TREE(test_ranks_with_barriers),
        WITH_TREE(test_a_ranks_first_batch_is_start_up),
        WITH_TREE(test_earthmover),
        WITH_TREE(test_earthmover_without_workers),
        WITH_TREE(test_earthmover_with_holes),
        WITH_TREE(test_earthmover_settings_are_guessed),
        WITH_TREE(test_refusals),
        WITH_TREE(test_no_memory),
        WITH_TREE(test_many_batches_find_their_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
