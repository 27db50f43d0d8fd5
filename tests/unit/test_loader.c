/* test_loader.c - batches of the native pipeline: the same for any threads, ranks, memory, resumes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "arrays.h"

#include <millhead/loader.h>
#include <pthread.h>

#define SAMPLES 1000u
#define COLUMNS 7u

static mh_dataset *open_rows(const char *root)
{
    char first[256], second[256];
    mh_dataset *dataset = NULL;
    mh_error err = {0};
    (void)snprintf(first, sizeof first, "%s/x.npy", root);
    (void)snprintf(second, sizeof second, "%s/label.npy", root);
    write_rows(root, "x.npy", SAMPLES, COLUMNS, 1);
    write_rows(root, "label.npy", SAMPLES, 1, 2);
    const char *paths[] = {first, second};
    if (mh_dataset_open(&dataset, paths, 2, NULL, &err) != MH_OK)
        fail_msg("%s", err.message);
    return dataset;
}

static mh_loader *open_loader(mh_dataset *dataset, const mh_loader_options *options)
{
    mh_loader *loader = NULL;
    mh_error err = {0};
    if (mh_loader_open(&loader, dataset, options, &err) != MH_OK)
        fail_msg("%s", err.message);
    return loader;
}

/* Every value of the batch is the one its sample number says; fields come in order of name. */
static void check_batch(const mh_batch *batch)
{
    const mh_array *label = mh_batch_array(batch, 0), *x = mh_batch_array(batch, 1);
    assert_string_equal(label->name, "label");
    assert_string_equal(x->name, "x");
    assert_null(mh_batch_array(batch, 2));
    assert_int_equal(x->dims, 2);
    assert_int_equal(x->shape[0], mh_batch_samples(batch));
    assert_int_equal(x->shape[1], COLUMNS);
    for (uint64_t i = 0; i < mh_batch_samples(batch); i++) {
        uint64_t number = mh_batch_numbers(batch)[i];
        assert_int_equal(((uint32_t *)label->data)[i], cell(number, 0, 2));
        for (uint32_t c = 0; c < COLUMNS; c++)
            assert_int_equal(((uint32_t *)x->data)[i * COLUMNS + c], cell(number, c, 1));
    }
}

/* Appends an epoch's sample numbers at their positions in seen[]; batches of it. */
static uint64_t run_epoch(mh_loader *loader, uint64_t *seen)
{
    mh_batch *batch;
    mh_error err = {0};
    mh_status status;
    uint64_t batches = 0;
    while ((status = mh_loader_next(loader, &batch, &err)) == MH_OK) {
        check_batch(batch);
        for (uint64_t i = 0; i < mh_batch_samples(batch); i++)
            seen[mh_batch_positions(batch)[i] % SAMPLES] = mh_batch_numbers(batch)[i];
        mh_batch_unref(batch);
        batches++;
    }
    if (status != MH_END)
        fail_msg("%s", err.message);
    return batches;
}

static void threads_prefetch_and_memory_change_nothing(void **state)
{
    uint64_t expected[SAMPLES], seen[SAMPLES];
    static const struct {
        int threads;
        uint32_t prefetch;
        uint64_t memory;
        const char *simulate;
    } settings[] = {{0, 1, 0, NULL},          {1, 1, 0, NULL},
                    {2, 4, 0, NULL},          {8, 4, 0, NULL},
                    {2, 4, 4096, NULL},       {0, 4, 4096, NULL},
                    {0, 1, 0, "latency=1ms"}, {2, 2, 0, "latency=1ms,bandwidth=1MB/s"}};
    mh_dataset *dataset = open_rows(*state);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        mh_loader_options options;
        mh_loader_options_init(&options);
        options.batch_size = 32;
        options.shuffle = MH_SHUFFLE_ALL;
        options.seed = 7;
        options.threads = settings[i].threads;
        options.prefetch = settings[i].prefetch;
        options.memory_bytes = settings[i].memory;
        options.simulate = settings[i].simulate;
        options.in_flight = 64;
        mh_loader *loader = open_loader(dataset, &options);
        for (int epoch = 0; epoch < 2; epoch++) {
            memset(seen, 0xff, sizeof seen);
            assert_int_equal(run_epoch(loader, seen), 32);
            if (i == 0 && epoch == 0)
                memcpy(expected, seen, sizeof seen);
            assert_int_equal(memcmp(expected, seen, sizeof seen) == 0, epoch == 0);
        }
        mh_loader_close(loader);
    }
    mh_dataset_unref(dataset);
}

static void ranks_share_the_order_and_any_world_takes_up_the_rest(void **state)
{
    uint64_t alone[SAMPLES], together[SAMPLES];
    mh_dataset *dataset = open_rows(*state);
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.shuffle = MH_SHUFFLE_ALL;
    options.seed = 11;
    options.batch_size = 10;
    options.threads = 1;
    mh_loader *loader = open_loader(dataset, &options);
    (void)run_epoch(loader, alone);
    mh_loader_close(loader);
    for (uint64_t world = 1; world <= 8; world++) {
        uint64_t start = world * options.batch_size * 3; /* three steps of that world are done */
        memcpy(together, alone, start * sizeof *alone);
        memset(together + start, 0xff, (SAMPLES - start) * sizeof *alone);
        options.world = world % 3 + 1; /* and another one goes on */
        options.start = start;
        for (options.rank = 0; options.rank < options.world; options.rank++) {
            loader = open_loader(dataset, &options);
            (void)run_epoch(loader, together);
            mh_loader_close(loader);
        }
        assert_memory_equal(alone, together, sizeof alone);
    }
    mh_dataset_unref(dataset);
}

/* An epoch whose 32 batches all outlive the loader. Returns how many were copied out of slots. */
static uint64_t keep_all(const char *root, uint64_t memory_bytes)
{
    mh_batch *kept[32];
    mh_error err = {0};
    mh_dataset *dataset = open_rows(root);
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.batch_size = 32;
    options.threads = 2;
    options.memory_bytes = memory_bytes;
    mh_loader *loader = open_loader(dataset, &options);
    mh_dataset_unref(dataset);
    for (int i = 0; i < 32; i++)
        assert_int_equal(mh_loader_next(loader, &kept[i], &err), MH_OK);
    mh_loader_stats stats;
    mh_loader_stats_init(&stats);
    mh_loader_stats_read(loader, &stats);
    assert_int_equal(stats.samples, SAMPLES);
    mh_loader_close(loader);
    for (int i = 0; i < 32; i++) {
        check_batch(kept[i]);
        assert_int_equal(mh_batch_positions(kept[i])[0], i * 32);
        mh_batch_unref(kept[i]);
    }
    return stats.batches_copied_out;
}

static void batches_outlive_their_loader_and_are_never_overwritten(void **state)
{
    const uint64_t room_for_seven = 7 * 4096;
    assert_true(keep_all(*state, room_for_seven) > 20);
}

static void kept_batches_get_more_slots_while_memory_allows(void **state)
{
    assert_int_equal(keep_all(*state, 16 << 20), 0);
}

static void steps_are_counted_as_asked(void **state)
{
    uint64_t seen[SAMPLES];
    mh_dataset *dataset = open_rows(*state);
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.batch_size = 64;
    options.threads = 0;
    options.world = 3;
    options.rank = 2;
    mh_loader *loader = open_loader(dataset, &options);
    assert_int_equal(run_epoch(loader, seen), 6); /* ceil(334 / 64) */
    mh_loader_close(loader);
    options.drop_last = 1;
    loader = open_loader(dataset, &options);
    assert_int_equal(mh_loader_batches(loader), 5);
    assert_int_equal(run_epoch(loader, seen), 5);
    mh_loader_close(loader);
    options.limit_batches = 2;
    loader = open_loader(dataset, &options);
    assert_int_equal(run_epoch(loader, seen), 2);
    mh_loader_close(loader);
    mh_dataset_unref(dataset);
}

static void a_seek_drops_what_is_under_way(void **state)
{
    uint64_t first[SAMPLES], again[SAMPLES];
    mh_batch *batch;
    mh_error err = {0};
    mh_dataset *dataset = open_rows(*state);
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.batch_size = 16;
    options.shuffle = MH_SHUFFLE_TORCH;
    options.threads = 2;
    options.prefetch = 8;
    mh_loader *loader = open_loader(dataset, &options);
    (void)run_epoch(loader, first);
    for (uint64_t round = 0; round < 50; round++) {
        assert_int_equal(mh_loader_next(loader, &batch, &err), MH_OK);
        mh_batch_unref(batch);
        assert_int_equal(mh_loader_seek(loader, 0, round * 16, &err), MH_OK);
        uint64_t epoch, position;
        mh_loader_position(loader, &epoch, &position);
        assert_int_equal(epoch, 0);
        assert_int_equal(position, round * 16);
    }
    memcpy(again, first, sizeof again);
    memset(again + 49 * 16, 0, sizeof again - 49 * 16 * sizeof *again);
    (void)run_epoch(loader, again);
    assert_memory_equal(first, again, sizeof first);
    mh_loader_close(loader);
    mh_dataset_unref(dataset);
}

static void a_file_cut_while_reading_is_an_error_in_its_place(void **state)
{
    char path[256];
    mh_batch *batch;
    mh_error err = {0};
    mh_dataset *dataset = open_rows(*state);
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.batch_size = 100;
    options.threads = 1;
    options.prefetch = 1;
    options.memory_bytes = 16 << 20; /* too little to read small batches far ahead */
    mh_loader *loader = open_loader(dataset, &options);
    assert_int_equal(mh_loader_next(loader, &batch, &err), MH_OK);
    mh_batch_unref(batch);
    (void)snprintf(path, sizeof path, "%s/x.npy", (const char *)*state);
    assert_int_equal(truncate(path, 128 + 500 * COLUMNS * 4), 0);
    int failed = 0, ended = 0;
    for (int i = 0; i < 10 && !ended; i++) {
        mh_status status = mh_loader_next(loader, &batch, &err);
        ended = status == MH_END;
        if (status == MH_OK) {
            check_batch(batch);
            mh_batch_unref(batch);
        } else if (!ended) {
            assert_int_equal(status, MH_ERR_IO);
            assert_non_null(strstr(err.message, "sample "));
            assert_non_null(strstr(err.message, "x.npy"));
            failed++;
        }
    }
    assert_true(ended);
    assert_int_equal(failed, 5); /* samples 500 to 999 */
    mh_loader_close(loader);
    mh_dataset_unref(dataset);
}

static void options_that_make_no_sense_are_refused(void **state)
{
    mh_dataset *dataset = open_rows(*state);
    for (int i = 0; i < 6; i++) {
        mh_loader *loader = NULL;
        mh_error err = {0};
        mh_loader_options options;
        mh_loader_options_init(&options);
        options.batch_size = i == 0 ? 0 : 10;
        options.rank = i == 1 ? 1 : 0;
        options.threads = i == 2 ? -2 : 1;
        options.memory_bytes = i == 3 ? 100 : 0;
        options.start = i == 4 ? SAMPLES + 1 : 0;
        options.struct_size = i == 5 ? 8 : options.struct_size;
        assert_int_equal(mh_loader_open(&loader, dataset, &options, &err),
                         i == 3 ? MH_ERR_NOMEM : MH_ERR_INVALID);
        assert_null(loader);
        assert_true(err.message[0]);
    }
    mh_dataset_unref(dataset);
}

static void a_child_leaves_its_parents_loader_alone(void **state)
{
    uint64_t seen[SAMPLES];
    mh_batch *batch;
    mh_error err = {0};
    mh_dataset *dataset = open_rows(*state);
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.batch_size = 10;
    options.threads = 2;
    mh_loader *loader = open_loader(dataset, &options);
    assert_int_equal(mh_loader_next(loader, &batch, &err), MH_OK);
    pid_t pid = fork();
    if (pid == 0) {
        mh_batch *other;
        check_batch(batch);
        int inert = mh_loader_next(loader, &other, &err) == MH_ERR_FORKED;
        mh_batch_unref(batch);
        mh_loader_close(loader);
        options.threads = 0;
        mh_loader *own = NULL; /* of a dataset that came by the fork */
        inert = inert && mh_loader_open(&own, dataset, &options, &err) == MH_OK &&
                mh_loader_next(own, &other, &err) == MH_OK;
        _exit(inert ? 0 : 1);
    }
    assert_int_equal(child_code(pid), 0);
    check_batch(batch);
    mh_batch_unref(batch);
    assert_int_equal(run_epoch(loader, seen), 99);
    mh_loader_close(loader);
    mh_dataset_unref(dataset);
}

static void samples_are_read_by_number_without_a_loader(void **state)
{
    mh_batch *batch = NULL;
    mh_error err = {0};
    mh_dataset *dataset = open_rows(*state);
    const uint64_t numbers[] = {7, 999, 0, 7};
    assert_int_equal(mh_dataset_read(dataset, numbers, 4, &batch, &err), MH_OK);
    assert_int_equal(mh_batch_samples(batch), 4);
    assert_memory_equal(mh_batch_numbers(batch), numbers, sizeof numbers);
    check_batch(batch);
    pid_t pid = fork();
    if (pid == 0) {
        mh_batch *other = NULL;
        int read = mh_dataset_read(dataset, numbers + 1, 2, &other, &err) == MH_OK;
        check_batch(batch);
        if (read)
            check_batch(other);
        mh_batch_unref(other);
        mh_batch_unref(batch);
        mh_dataset_unref(dataset);
        _exit(read ? 0 : 1);
    }
    assert_int_equal(child_code(pid), 0);
    mh_batch_unref(batch);
    batch = NULL;
    assert_int_equal(mh_dataset_read(dataset, NULL, 0, &batch, &err), MH_OK);
    assert_int_equal(mh_batch_samples(batch), 0);
    mh_batch_unref(batch);
    batch = NULL;
    const uint64_t beyond = SAMPLES;
    assert_int_equal(mh_dataset_read(dataset, &beyond, 1, &batch, &err), MH_ERR_INVALID);
    assert_non_null(strstr(err.message, "1000"));
    assert_null(batch);
    mh_dataset_unref(dataset);
}

static void *read_everything(void *argument)
{
    mh_dataset *dataset = argument;
    for (uint64_t number = 0; number < SAMPLES; number++) {
        mh_batch *batch = NULL;
        mh_error err = {0};
        if (mh_dataset_read(dataset, &number, 1, &batch, &err) != MH_OK)
            return "failed";
        check_batch(batch);
        mh_batch_unref(batch);
    }
    return NULL;
}

static void threads_read_one_dataset_at_once(void **state)
{
    pthread_t threads[4];
    mh_dataset *dataset = open_rows(*state);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_everything, dataset), 0);
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    mh_dataset_unref(dataset);
}

static void a_limit_counts_the_steps_before_the_start(void **state)
{
    uint64_t seen[SAMPLES];
    mh_dataset *dataset = open_rows(*state);
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.batch_size = 10;
    options.threads = 0;
    options.limit_batches = 5;
    for (uint64_t done = 0; done <= 7; done++) {
        options.start = done * 10;
        mh_loader *loader = open_loader(dataset, &options);
        assert_int_equal(run_epoch(loader, seen), done < 5 ? 5 - done : 0);
        assert_int_equal(run_epoch(loader, seen), 5);
        mh_loader_close(loader);
    }
    mh_dataset_unref(dataset);
}

static void one_epoch(void *argument)
{
    mh_dataset *dataset = NULL;
    mh_loader *loader = NULL;
    mh_batch *batch;
    mh_error err = {0};
    const char *paths[] = {argument};
    mh_loader_options options;
    mh_loader_options_init(&options);
    options.batch_size = 300;
    options.threads = 0;
    if (mh_dataset_open(&dataset, paths, 1, NULL, &err) != MH_OK)
        return;
    if (mh_loader_open(&loader, dataset, &options, &err) == MH_OK)
        while (mh_loader_next(loader, &batch, &err) == MH_OK)
            mh_batch_unref(batch);
    mh_loader_close(loader);
    const uint64_t number = 3;
    if (mh_dataset_read(dataset, &number, 1, &batch, &err) == MH_OK)
        mh_batch_unref(batch);
    mh_dataset_unref(dataset);
}

static void every_allocation_may_fail(void **state)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/y.npy", (const char *)*state);
    write_rows(*state, "y.npy", SAMPLES, 3, 5);
    each_allocation_fails(one_epoch, path);
}

int main(void)
{
#define IN_A_TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)
    const struct CMUnitTest tests[] = {
        IN_A_TREE(threads_prefetch_and_memory_change_nothing),
        IN_A_TREE(ranks_share_the_order_and_any_world_takes_up_the_rest),
        IN_A_TREE(batches_outlive_their_loader_and_are_never_overwritten),
        IN_A_TREE(kept_batches_get_more_slots_while_memory_allows),
        IN_A_TREE(steps_are_counted_as_asked),
        IN_A_TREE(a_seek_drops_what_is_under_way),
        IN_A_TREE(a_file_cut_while_reading_is_an_error_in_its_place),
        IN_A_TREE(options_that_make_no_sense_are_refused),
        IN_A_TREE(a_child_leaves_its_parents_loader_alone),
        IN_A_TREE(samples_are_read_by_number_without_a_loader),
        IN_A_TREE(threads_read_one_dataset_at_once),
        IN_A_TREE(a_limit_counts_the_steps_before_the_start),
        IN_A_TREE(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
