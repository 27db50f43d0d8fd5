/* test_units.c - loaders of samples that are made of chunks: order, errors, seeks, a slow link
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include <millhead/loader.h>

static void assert_ok(mh_status status, const mh_error *err)
{
    if (status != MH_OK)
        fail_msg("%s", err->message);
}

static mh_dataset *open_data(const char *text)
{
    mh_dataset *data = NULL;
    mh_error err = {0};
    assert_ok(mh_dataset_open(&data, &text, 1, NULL, &err), &err);
    return data;
}

static mh_loader_options options_of(int threads)
{
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.batch_size = 8;
    options.shuffle = MH_SHUFFLE_ALL;
    options.threads = threads;
    return options;
}

static mh_loader *open_loader(mh_dataset *data, const mh_loader_options *options)
{
    mh_loader *loader = NULL;
    mh_error err = {0};
    assert_ok(mh_loader_open(&loader, data, options, &err), &err);
    return loader;
}

static uint64_t add_bytes(uint64_t sum, const void *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        sum = (sum ^ ((const uint8_t *)bytes)[i]) * UINT64_C(1099511628211);
    return sum;
}

/* A sum over all that an epoch delivers, in its order. */
static uint64_t sum_of_epoch(mh_loader *loader)
{
    uint64_t sum = 1;
    mh_batch *batch;
    mh_error err = {0};
    mh_status status;
    while ((status = mh_loader_next(loader, &batch, &err)) == MH_OK) {
        const mh_array *array;
        for (size_t at = 0; (array = mh_batch_array(batch, at)); at++) {
            sum = add_bytes(sum, array->data, array->bytes);
            if (array->offsets)
                sum = add_bytes(sum, array->offsets, (mh_batch_samples(batch) + 1) * 8);
        }
        mh_batch_unref(batch);
    }
    if (status != MH_END)
        fail_msg("%s", err.message);
    return sum;
}

static uint64_t sum_of(const char *text, const mh_loader_options *options)
{
    mh_dataset *data = open_data(text);
    mh_loader *loader = open_loader(data, options);
    uint64_t sum = sum_of_epoch(loader);
    sum = add_bytes(sum, &(uint64_t){sum_of_epoch(loader)}, 8);
    mh_loader_close(loader);
    mh_dataset_unref(data);
    return sum;
}

static const char *const kinds[] = {
    "synthetic:count=500,shape=40",
    "synthetic:count=500,shape=40,chunk=7,span=3",
    "synthetic:count=501,shape=5x8,dtype=int32,chunk=16,ragged",
    "synthetic:count=60,shape=5,ragged,broken=20%",
};

static void threads_and_memory_do_not_change_what_comes(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        mh_loader_options options = options_of(0);
        options.on_error = MH_ON_ERROR_REPLACE;
        uint64_t alone = sum_of(kinds[kind], &options);
        for (int threads = 1; threads <= 8; threads *= 2) {
            options.threads = threads;
            options.memory_bytes = threads == 2 ? 60000 : 0;
            options.simulate = threads == 4 ? "latency=1ms" : NULL;
            options.prefetch = (uint32_t)threads;
            assert_int_equal(sum_of(kinds[kind], &options), alone);
        }
    }
}

static void seeks_in_the_middle_go_on_where_they_should(void **state)
{
    (void)state;
    mh_dataset *data = open_data(kinds[1]);
    mh_loader_options options = options_of(2);
    options.simulate = "latency=2ms";
    mh_loader *loader = open_loader(data, &options);
    mh_error err;
    for (uint64_t step = 0; step < 20; step++) {
        mh_batch *batch = NULL;
        uint64_t position = step * 24;
        assert_ok(mh_loader_seek(loader, step % 3, position, &err), &err);
        assert_ok(mh_loader_next(loader, &batch, &err), &err);
        assert_int_equal(mh_batch_positions(batch)[0], position);
        for (uint64_t i = 0; i < mh_batch_samples(batch); i++)
            assert_int_equal(((int64_t *)mh_batch_array(batch, 0)->data)[i],
                             mh_batch_numbers(batch)[i]);
        mh_batch_unref(batch);
    }
    mh_loader_close(loader);
    mh_dataset_unref(data);
}

/* Batches with a broken sample among all of an epoch. */
static uint64_t failed_batches(mh_loader *loader, mh_status expected, uint64_t *samples)
{
    uint64_t failed = 0;
    mh_batch *batch;
    mh_error err = {0};
    mh_status status;
    *samples = 0;
    while ((status = mh_loader_next(loader, &batch, &err)) != MH_END) {
        if (status == MH_OK) {
            *samples += mh_batch_samples(batch);
            mh_batch_unref(batch);
            continue;
        }
        assert_int_equal(status, expected);
        assert_non_null(strstr(err.message, "sample "));
        failed++;
    }
    return failed;
}

static void a_broken_sample_fails_is_skipped_or_replaced(void **state)
{
    (void)state;
    mh_dataset *data = open_data("synthetic:count=400,shape=9,chunk=4,broken=3%,seed=2");
    for (int policy = 0; policy < MH_ON_ERROR_KINDS; policy++) {
        uint64_t samples;
        mh_loader_options options = options_of(2);
        options.on_error = (mh_on_error)policy;
        mh_loader *loader = open_loader(data, &options);
        uint64_t failed = failed_batches(loader, MH_ERR_CORRUPT, &samples);
        mh_loader_stats stats;
        mh_loader_stats_init(&stats);
        mh_loader_stats_read(loader, &stats);
        assert_true((policy == MH_ON_ERROR_RAISE) == (failed > 0));
        assert_true((policy == MH_ON_ERROR_SKIP) == (stats.skipped > 0));
        assert_true((policy == MH_ON_ERROR_REPLACE) == (stats.replaced > 0));
        if (policy == MH_ON_ERROR_REPLACE)
            assert_int_equal(samples, 400);
        mh_loader_close(loader);
    }
    mh_dataset_unref(data);
}

/* Threads that are ahead of the loop decode no more than a loop that does it all itself. */
static void threads_decode_no_more_than_a_loop_without_any(void **state)
{
    (void)state;
    uint64_t decoded[2];
    mh_dataset *data = open_data("synthetic:count=4000,shape=1000,chunk=8");
    for (int threads = 0; threads < 2; threads++) {
        mh_loader_stats stats;
        mh_loader_options options = options_of(2 * threads);
        options.memory_bytes = 2000000;
        mh_loader *loader = open_loader(data, &options);
        for (int epoch = 0; epoch < 4; epoch++)
            (void)sum_of_epoch(loader);
        mh_loader_stats_init(&stats);
        mh_loader_stats_read(loader, &stats);
        decoded[threads] = stats.units_decoded;
        mh_loader_close(loader);
    }
    assert_true(decoded[0] > 3000); /* of 500 units in 4 epochs */
    assert_true((double)decoded[1] < 1.05 * (double)decoded[0]);
    mh_dataset_unref(data);
}

static void a_failed_read_is_an_error_whatever_the_policy(void **state)
{
    (void)state;
    mh_dataset *data = open_data("synthetic:count=400,shape=9,chunk=4");
    for (int policy = 0; policy < MH_ON_ERROR_KINDS; policy++) {
        uint64_t samples;
        mh_loader_options options = options_of(2);
        options.on_error = (mh_on_error)policy;
        options.simulate = "errors=5%";
        mh_loader *loader = open_loader(data, &options);
        assert_true(failed_batches(loader, MH_ERR_IO, &samples) > 0);
        mh_loader_close(loader);
    }
    mh_dataset_unref(data);
}

static void too_little_memory_is_refused_with_both_figures(void **state)
{
    (void)state;
    mh_error err = {0};
    mh_loader *loader = NULL;
    mh_dataset *data = open_data("synthetic:count=400,shape=100000,chunk=4");
    mh_loader_options options = options_of(1);
    options.memory_bytes = 1000000;
    assert_int_equal(mh_loader_open(&loader, data, &options, &err), MH_ERR_NOMEM);
    assert_non_null(strstr(err.message, "memory allows only 1 MB"));
    mh_dataset_unref(data);
}

static void a_loader_closes_in_the_middle_of_everything(void **state)
{
    (void)state;
    for (int at = 0; at < 60; at++) {
        mh_dataset *data = open_data(kinds[(size_t)at % 4]);
        mh_loader_options options = options_of(at % 3);
        options.on_error = MH_ON_ERROR_SKIP;
        options.simulate = at % 2 ? "latency=1ms" : NULL;
        mh_loader *loader = open_loader(data, &options);
        for (int taken = 0; taken < at % 5; taken++) {
            mh_batch *batch = NULL;
            mh_error err;
            assert_ok(mh_loader_next(loader, &batch, &err), &err);
            mh_batch_unref(batch);
        }
        mh_loader_close(loader);
        mh_dataset_unref(data);
    }
}

/* Opens, reads and closes; every allocation may be the one that fails. */
static int read_some(void *unused)
{
    (void)unused;
    const char *text = kinds[2];
    mh_dataset *data = NULL;
    mh_loader *loader = NULL;
    mh_error err;
    mh_loader_options options = options_of(0);
    mh_status status = mh_dataset_open(&data, &text, 1, NULL, &err);
    if (status == MH_OK)
        status = mh_loader_open(&loader, data, &options, &err);
    for (int i = 0; status == MH_OK && i < 3; i++) {
        mh_batch *batch = NULL;
        status = mh_loader_next(loader, &batch, &err);
        mh_batch_unref(batch);
    }
    mh_loader_close(loader);
    mh_dataset_unref(data);
    return status == MH_OK;
}

static void no_memory_is_an_error_and_nothing_leaks(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    int done = 0;
    for (uint64_t nth = 1; !done && nth < 10000; nth++) {
        (void)mh_alloc_fail_at(nth, 0);
        done = read_some(NULL) && mh_alloc_fail_at(0, 0) < nth;
        (void)mh_alloc_fail_at(0, 0);
        assert_int_equal(mh_alloc_live(), live);
    }
}

/* Allocations of one epoch, after two others; of several the fewest: where threads get further
 * ahead than they ever were, it takes more memory. */
static uint64_t allocations_of_epoch(const char *text, const char *link)
{
    mh_dataset *data = open_data(text);
    mh_loader_options options = options_of(2);
    options.simulate = link;
    options.memory_bytes = 400000;
    mh_loader *loader = open_loader(data, &options);
    uint64_t made = UINT64_MAX;
    (void)sum_of_epoch(loader);
    (void)sum_of_epoch(loader);
    for (int epoch = 0; epoch < 5; epoch++) {
        (void)mh_alloc_fail_at(0, 0);
        (void)sum_of_epoch(loader);
        uint64_t one = mh_alloc_fail_at(0, 0);
        made = one < made ? one : made;
    }
    mh_loader_close(loader);
    mh_dataset_unref(data);
    return made;
}

static void samples_allocate_nothing(void **state)
{
    (void)state;
    const uint64_t batches = 100; /* each is an allocation; an epoch's order is another */
    assert_in_range(allocations_of_epoch("synthetic:count=800,shape=500,chunk=4", NULL), 1,
                    batches + 30);
    assert_in_range(allocations_of_epoch("synthetic:count=800,shape=500", "latency=100us"), 1,
                    batches + 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_memory_do_not_change_what_comes),
        cmocka_unit_test(seeks_in_the_middle_go_on_where_they_should),
        cmocka_unit_test(a_broken_sample_fails_is_skipped_or_replaced),
        cmocka_unit_test(threads_decode_no_more_than_a_loop_without_any),
        cmocka_unit_test(a_failed_read_is_an_error_whatever_the_policy),
        cmocka_unit_test(too_little_memory_is_refused_with_both_figures),
        cmocka_unit_test(a_loader_closes_in_the_middle_of_everything),
        cmocka_unit_test(samples_allocate_nothing),
        cmocka_unit_test(no_memory_is_an_error_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
