/* test_residency.c - units in memory: nothing stalls, and what goes is the best choice
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include "base/alloc.h"
#include "pipeline/residency.h"

#include <string.h>

static void assert_ok(mh_status status, const mh_error *err)
{
    if (status != MH_OK)
        fail_msg("%s", err->message);
}

/* A plan that is worked off step by step, in an order drawn from a seed. */
typedef struct plan {
    mh_dataset *data;
    mh_residency *residency;
    mh_sample *samples;
    mh_use *uses;
    uint64_t *numbers;
    uint64_t count, planned, over;
    mh_resident *in_work[64];
    size_t in_work_count;
    uint64_t random;
    uint64_t soon, ahead; /* of a fetch */
} plan;

static uint64_t draw(plan *p, uint64_t below)
{
    p->random = p->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (p->random >> 33) % below;
}

/* Samples are found again by what they wait for; nothing is kept here. */
static void ready(void *context, mh_sample *sample)
{
    (void)context;
    assert_int_equal(sample->waiting, 0);
}

static void plan_open(plan *p, const char *text, uint64_t count, uint64_t budget)
{
    mh_error err = {0};
    assert_ok(mh_dataset_open(&p->data, &text, 1, NULL, &err), &err);
    p->count = count;
    p->samples = mh_calloc(count, sizeof *p->samples);
    p->uses = mh_calloc(count * p->data->units_most, sizeof *p->uses);
    p->numbers = mh_calloc(count, sizeof *p->numbers);
    uint64_t least = mh_residency_least(p->data);
    assert_ok(mh_residency_open(&p->residency, p->data, budget ? budget : least, ready, p, &err),
              &err);
    for (uint64_t i = 0; i < count; i++) {
        p->samples[i].uses = p->uses + i * p->data->units_most;
        p->numbers[i] = draw(p, p->data->count);
    }
}

static void plan_close(plan *p)
{
    mh_residency_close(p->residency);
    mh_free(p->samples);
    mh_free(p->uses);
    mh_free(p->numbers);
    mh_dataset_unref(p->data);
}

static void plan_one(plan *p)
{
    mh_error err;
    mh_sample *sample = &p->samples[p->planned];
    sample->position = p->planned;
    assert_ok(mh_residency_plan(p->residency, sample, p->numbers[p->planned++], &err), &err);
}

static uint64_t head(const plan *p)
{
    uint64_t at = 0;
    while (at < p->planned && p->samples[at].over)
        at++;
    return at;
}

static bool fetch(plan *p)
{
    const mh_reach reach = {
        .head = head(p), .soon = head(p) + p->soon, .ahead = draw(p, 2) ? p->ahead : 0};
    mh_resident *unit = p->in_work_count < 64 ? mh_residency_fetch(p->residency, &reach) : NULL;
    if (unit)
        p->in_work[p->in_work_count++] = unit;
    return unit != NULL;
}

/* One step further with a unit that is fetched or decoded; now and then it fails. */
static bool work(plan *p)
{
    if (!p->in_work_count)
        return false;
    size_t at = draw(p, p->in_work_count);
    mh_resident *unit = p->in_work[at];
    if (draw(p, 50) == 0) {
        mh_error err = {.code = MH_ERR_IO};
        mh_residency_failed(p->residency, unit, &err);
    } else if (unit->state == MH_UNIT_DECODING)
        mh_residency_decoded(p->residency, unit);
    else if (mh_residency_fetched(p->residency, unit))
        return true;
    p->in_work[at] = p->in_work[--p->in_work_count];
    return true;
}

static bool place(plan *p)
{
    uint64_t from = draw(p, p->planned);
    for (uint64_t k = 0; k < p->planned; k++) {
        mh_sample *sample = &p->samples[(from + k) % p->planned];
        if (sample->over || sample->waiting)
            continue;
        mh_residency_pin(p->residency, sample);
        for (uint32_t u = 0; u < sample->use_count; u++) {
            const mh_resident *unit = sample->uses[u].unit;
            assert_true(unit->state == MH_UNIT_FAILED || mh_resident_bytes(unit).data);
        }
        mh_residency_finish(p->residency, sample);
        sample->over = true;
        p->over++;
        return true;
    }
    return false;
}

static void work_off(plan *p)
{
    while (p->over < p->count) {
        uint64_t kind = draw(p, 4);
        if (kind == 0 && p->planned < p->count)
            plan_one(p);
        else if (kind == 1)
            (void)fetch(p);
        else if (kind == 2)
            (void)work(p);
        else if (p->planned)
            (void)place(p);
        if (p->planned && !p->in_work_count && head(p) < p->planned && p->samples[head(p)].waiting)
            assert_true(fetch(p)); /* the head never waits for memory that nobody gives back */
    }
}

static void random_schedules_never_stall_at_the_least_budget(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100000; seed++) {
        char text[96];
        plan p = {.random = seed};
        (void)snprintf(text, sizeof text, "synthetic:count=%d,shape=%d,chunk=%d,span=%d",
                       1 + (int)draw(&p, 40), 1 + (int)draw(&p, 300), 1 + (int)draw(&p, 6),
                       1 + (int)draw(&p, 4));
        plan_open(&p, text, 1 + draw(&p, 24), 0);
        p.soon = draw(&p, 8);
        p.ahead = draw(&p, 8);
        work_off(&p);
        plan_close(&p);
    }
}

/* --- against the best there is --- */

/* How often a unit must be fetched with room for `room` of them, where all uses are known. */
static uint64_t belady(const plan *p, uint64_t chunk, uint64_t room)
{
    uint64_t here[256], count = 0, fetched = 0;
    for (uint64_t i = 0; i < p->count; i++) {
        uint64_t wanted = p->numbers[i] / chunk, farthest = 0, victim = 0;
        bool found = false;
        for (uint64_t k = 0; k < count; k++)
            found = found || here[k] == wanted;
        if (found)
            continue;
        fetched++;
        if (count < room) {
            here[count++] = wanted;
            continue;
        }
        for (uint64_t k = 0; k < count; k++) {
            uint64_t next = i;
            while (next < p->count && p->numbers[next] / chunk != here[k])
                next++;
            if (next >= farthest) {
                farthest = next;
                victim = k;
            }
        }
        here[victim] = wanted;
    }
    return fetched;
}

/* Fetches a unit, and all is over that was in work. False: there is none to fetch. */
static bool fetch_one(plan *p)
{
    bool taken = fetch(p);
    while (p->in_work_count) {
        mh_resident *got = p->in_work[--p->in_work_count];
        (void)mh_residency_fetched(p->residency, got);
        mh_residency_decoded(p->residency, got);
    }
    return taken;
}

/* Also where threads fetch whatever they may, as soon as they may. */
static void what_goes_is_the_best_choice(void **state)
{
    (void)state;
    const uint64_t chunk = 4, unit = 4096, room = 100;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        bool eager = seed % 2;
        plan p = {.random = seed, .soon = 8, .ahead = 4};
        mh_residency_counts counts;
        plan_open(&p, "synthetic:count=1200,shape=1024,chunk=4", 2000, room * unit);
        while (p.planned < p.count)
            plan_one(&p);
        for (uint64_t at = 0; at < p.count; at++) {
            while (p.samples[at].waiting)
                assert_true(fetch_one(&p));
            while (eager && fetch_one(&p))
                ;
            mh_residency_pin(p.residency, &p.samples[at]);
            mh_residency_finish(p.residency, &p.samples[at]);
            p.samples[at].over = true;
        }
        mh_residency_counts_read(p.residency, &counts);
        uint64_t best = belady(&p, chunk, room);
        assert_true(counts.fetched >= best);
        assert_true((double)counts.fetched <= 1.05 * (double)best);
        assert_true(counts.bytes_peak <= room * unit);
        plan_close(&p);
    }
}

static void one_that_no_memory_is_left_for_is_not_planned(void **state)
{
    (void)state;
    mh_error err;
    plan p = {.random = 1};
    plan_open(&p, "synthetic:count=100,shape=8,chunk=2,span=3", 1, 0);
    p.samples[0].position = 0;
    (void)mh_alloc_fail_at(1, 1);
    mh_status status = mh_residency_plan(p.residency, &p.samples[0], 5, &err);
    (void)mh_alloc_fail_at(0, 0);
    assert_int_equal(status, MH_ERR_NOMEM);
    assert_int_equal(p.samples[0].use_count, 0);
    assert_ok(mh_residency_plan(p.residency, &p.samples[0], 5, &err), &err);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules_never_stall_at_the_least_budget),
        cmocka_unit_test(what_goes_is_the_best_choice),
        cmocka_unit_test(one_that_no_memory_is_left_for_is_not_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
