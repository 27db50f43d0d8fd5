/* test_struct_size.c - programs and a library that know different versions of a struct
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/struct_size.h"

#include "plants.h"
#include <millhead/millhead.h>

/* One struct as three versions know it. */
typedef struct first {
    size_t struct_size;
    int64_t workers;
} first;
typedef struct second {
    first before;
    int64_t prefetch; /* 2 by default */
} second;
typedef struct third {
    second before;
    int64_t order;
} third;

#define LEAST MH_FIRST_SIZE(first, workers)

/* What a library of the second version understands. */
static mh_status reads(second *out, const void *given, mh_error *err)
{
    *out = (second){.before.workers = 1, .prefetch = 2};
    return mh_sized_read(out, sizeof *out, given, LEAST, "mh_thing", err);
}

static void what_an_older_program_lacks_has_its_default(void **state)
{
    (void)state;
    second found;
    first old = {sizeof old, 7};
    second same = {{sizeof same, 7}, 9};
    assert_int_equal(reads(&found, &old, NULL), MH_OK);
    assert_int_equal(found.before.struct_size, sizeof found);
    assert_int_equal(found.before.workers, 7);
    assert_int_equal(found.prefetch, 2);
    assert_int_equal(reads(&found, &same, NULL), MH_OK);
    assert_int_equal(found.prefetch, 9);
}

static void what_a_newer_program_sets_is_refused_when_it_is_not_known(void **state)
{
    (void)state;
    second found;
    mh_error err;
    third newer = {{{sizeof newer, 7}, 9}, 0};
    assert_int_equal(reads(&found, &newer, &err), MH_OK);
    assert_int_equal(found.prefetch, 9);
    newer.order = 1;
    assert_int_equal(reads(&found, &newer, &err), MH_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "mh_thing has a field set"));
}

static void a_size_that_nobody_set_is_refused(void **state)
{
    (void)state;
    const size_t sizes[] = {0, sizeof(size_t), LEAST - 1, (size_t)1 << 40, SIZE_MAX};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        second found;
        first given = {sizes[at], 7};
        mh_error err;
        assert_int_equal(reads(&found, &given, &err), MH_ERR_INVALID);
        assert_non_null(strstr(err.message, "call mh_thing_init"));
    }
}

static void nothing_is_written_behind_what_the_program_has(void **state)
{
    (void)state;
    const second ours = {.before.workers = 7, .prefetch = 9};
    third place;
    memset(&place, 0x55, sizeof place);
    mh_sized_write(&place, sizeof(first), &ours, sizeof ours);
    assert_int_equal(place.before.before.struct_size, sizeof(first));
    assert_int_equal(place.before.before.workers, 7);
    assert_int_equal(place.before.prefetch, 0x5555555555555555);
    mh_sized_write(&place, sizeof place, &ours, sizeof ours);
    assert_int_equal(place.before.before.struct_size, sizeof place);
    assert_int_equal(place.before.prefetch, 9);
    assert_int_equal(place.order, 0);
    memset(&place, 0x55, sizeof place);
    mh_sized_write(&place, 3, &ours, sizeof ours);
    assert_int_equal(place.before.before.struct_size, 0x5555555555555555);
}

/* --- the structs of the API --- */

typedef struct later_batch {
    mh_batch_cost cost;
    uint64_t more;
} later_batch;

typedef struct later_rank {
    mh_rank_cost cost;
    uint64_t more;
} later_rank;

typedef struct later_verdict {
    mh_verdict verdict;
    uint64_t more;
} later_verdict;

static later_batch *later_batches(const mh_facts *facts)
{
    later_batch *later = calloc(facts->batch_count, sizeof *later);
    assert_non_null(later);
    for (size_t at = 0; at < facts->batch_count; at++)
        later[at] = (later_batch){*mh_facts_batch(facts, at), 77};
    return later;
}

static void batches_and_ranks_may_be_larger_than_ours(void **state)
{
    (void)state;
    uint64_t seed = 5;
    plant planted = plant_control(&seed);
    mh_facts facts = planted.facts;
    mh_rank_cost ranks[2] = {{.rank = 0, .steps = 100, .own = 100 * MS, .total = 300 * MS},
                             {.rank = 1, .steps = 100, .own = 300 * MS, .total = 300 * MS}};
    later_rank later_ranks[2] = {{ranks[0], 77}, {ranks[1], 77}};
    later_batch *later = later_batches(&facts);
    facts.ranks = ranks;
    facts.rank_count = 2;
    mh_verdict before = judged(&facts);
    facts.batches = &later->cost;
    facts.batch_stride = sizeof *later;
    facts.ranks = &later_ranks->cost;
    facts.rank_stride = sizeof *later_ranks;
    assert_int_equal(mh_facts_batch(&facts, 3)->step, later[3].cost.step);
    assert_int_equal(mh_facts_rank(&facts, 1)->own, 300 * MS);
    mh_verdict after = judged(&facts);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(before.cause, MH_CAUSE_STRAGGLER); /* the ranks were read */
    free(later);
    free(planted_batches(&planted.facts));
}

static void replays_and_plans_read_larger_batches_too(void **state)
{
    (void)state;
    uint64_t seed = 6;
    plant planted = plant_control(&seed);
    mh_facts facts = planted.facts;
    later_batch *later = later_batches(&facts);
    mh_replay_options options;
    mh_replay_result before, after;
    mh_plan_whatif_options what;
    mh_plan_whatif plan, again;
    mh_replay_options_init(&options, &facts);
    mh_plan_whatif_options_init(&what);
    assert_int_equal(mh_replay(&before, &facts, &options, NULL), MH_OK);
    assert_int_equal(mh_plan_whatif_make(&plan, &facts, &what, NULL), MH_OK);
    facts.batches = &later->cost;
    facts.batch_stride = sizeof *later;
    assert_int_equal(mh_replay(&after, &facts, &options, NULL), MH_OK);
    assert_int_equal(mh_plan_whatif_make(&again, &facts, &what, NULL), MH_OK);
    assert_int_equal(before.total_ns, after.total_ns);
    assert_int_equal(plan.needed.workers, again.needed.workers);
    assert_float_equal(plan.needed.samples_per_s, again.needed.samples_per_s, 0);
    free(later);
    free(planted_batches(&planted.facts));
}

static void a_larger_verdict_is_filled_as_far_as_it_is_known(void **state)
{
    (void)state;
    uint64_t seed = 7;
    plant planted = plant_control(&seed);
    later_verdict later = {.more = 77};
    mh_verdict_init_sized(&later.verdict, sizeof later);
    assert_int_equal(later.more, 0);
    later.more = 77;
    assert_int_equal(mh_verdict_make(&later.verdict, &planted.facts, NULL), MH_OK);
    assert_int_equal(later.verdict.cause, planted.cause);
    assert_int_equal(later.verdict.struct_size, sizeof later);
    assert_int_equal(later.more, 0);
    free(planted_batches(&planted.facts));
}

static void refuses(mh_status status, const mh_error *err, const char *part)
{
    assert_int_equal(status, MH_ERR_INVALID);
    if (!strstr(err->message, part))
        fail_msg("'%s' is not in: %s", part, err->message);
}

static void structs_that_were_not_initialised_are_refused_by_name(void **state)
{
    (void)state;
    mh_facts facts, none = {0};
    mh_verdict verdict = {.predicted_gain = 7}, good;
    mh_replay_options options = {0};
    mh_replay_result result;
    mh_wait_stats waits = {0};
    mh_error err;
    char *text = NULL;
    mh_facts_init(&facts);
    mh_verdict_init(&good);
    refuses(mh_verdict_make(&verdict, &facts, &err), &err, "mh_verdict_init");
    assert_float_equal(verdict.predicted_gain, 7, 0);
    refuses(mh_verdict_make(&good, &none, &err), &err, "mh_facts_init");
    refuses(mh_replay(&result, &facts, &options, &err), &err, "mh_replay_options_init");
    mh_replay_options_init(&options, &none);
    refuses(mh_replay(&result, &none, &options, &err), &err, "mh_facts_init");
    refuses(mh_diagnosis_json(&text, &verdict, &facts, &waits, 0, 0, &err), &err,
            "mh_verdict_init");
    refuses(mh_diagnosis_json(&text, &good, &none, &waits, 0, 0, &err), &err, "mh_facts_init");
    mh_batch_cost batch = {.step = MS};
    facts.batches = &batch;
    facts.batch_count = 1;
    facts.batch_stride = 0;
    refuses(mh_verdict_make(&good, &facts, &err), &err, "batch_stride of mh_facts is 0");
    assert_null(text);
}

static void judge_or_no_memory(void *argument)
{
    mh_verdict verdict;
    mh_verdict_init(&verdict);
    mh_status status = mh_verdict_make(&verdict, argument, NULL);
    assert_true(status == MH_OK || status == MH_ERR_NOMEM);
}

static void no_memory_for_copies_is_an_error(void **state)
{
    (void)state;
    uint64_t seed = 8;
    plant planted = plant_control(&seed);
    later_batch *later = later_batches(&planted.facts);
    mh_facts facts = planted.facts;
    facts.batches = &later->cost;
    facts.batch_stride = sizeof *later;
    each_allocation_fails(judge_or_no_memory, &facts);
    free(later);
    free(planted_batches(&planted.facts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_older_program_lacks_has_its_default),
        cmocka_unit_test(what_a_newer_program_sets_is_refused_when_it_is_not_known),
        cmocka_unit_test(a_size_that_nobody_set_is_refused),
        cmocka_unit_test(nothing_is_written_behind_what_the_program_has),
        cmocka_unit_test(batches_and_ranks_may_be_larger_than_ours),
        cmocka_unit_test(replays_and_plans_read_larger_batches_too),
        cmocka_unit_test(a_larger_verdict_is_filled_as_far_as_it_is_known),
        cmocka_unit_test(structs_that_were_not_initialised_are_refused_by_name),
        cmocka_unit_test(no_memory_for_copies_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
