/* read_batches.c - an epoch of files in shuffled batches, read by threads of the library
 * SPDX-License-Identifier: Apache-2.0
 *
 *     read_batches BATCH_SIZE SEED FILE...
 *
 * Each file is what millhead.open() takes: a .npy array becomes a field named after the file.
 */
#include <inttypes.h>
#include <millhead/millhead.h>
#include <stdio.h>
#include <stdlib.h>

/* Every call that can fail takes an mh_error last and writes one line for people into it. */
static int complain(const mh_error *err)
{
    (void)fprintf(stderr, "read_batches: %s\n", err->message);
    return EXIT_FAILURE;
}

/* A dataset knows names, types and shapes after it has read the headers. */
static void print_fields(const mh_dataset *data)
{
    size_t count;
    const mh_field *fields = mh_dataset_fields(data, &count);
    (void)printf("%" PRIu64 " samples of %s\n", mh_dataset_count(data), mh_dataset_format(data));
    for (size_t i = 0; i < count; i++)
        (void)printf("field %s: %" PRIu64 " bytes a sample\n", fields[i].name, fields[i].bytes);
}

/* A batch is ours until unref: its arrays may be changed, and the loader goes on meanwhile. */
static void use(mh_batch *batch, uint64_t *samples, uint64_t *sum)
{
    const mh_array *array;
    for (size_t field = 0; (array = mh_batch_array(batch, field)) != NULL; field++)
        for (uint64_t at = 0; at < array->bytes; at++)
            *sum += ((const uint8_t *)array->data)[at];
    *samples += mh_batch_samples(batch);
    mh_batch_unref(batch);
}

static int read_epoch(mh_loader *loader)
{
    mh_batch *batch;
    mh_error err;
    mh_status status;
    uint64_t batches = 0, samples = 0, sum = 0;
    while ((status = mh_loader_next(loader, &batch, &err)) == MH_OK) {
        if (batches++ == 0)
            (void)printf("first sample: %" PRIu64 "\n", mh_batch_numbers(batch)[0]);
        use(batch, &samples, &sum);
    }
    if (status != MH_END) /* the end of an epoch is no error */
        return complain(&err);
    (void)printf("%" PRIu64 " batches, %" PRIu64 " samples, sum of bytes %" PRIu64 "\n", batches,
                 samples, sum);
    return EXIT_SUCCESS;
}

/* The loader has its own reference of the dataset, and batches outlive both. */
static int read_all(mh_dataset *data, uint64_t batch_size, uint64_t seed)
{
    mh_loader_options options;
    mh_loader *loader;
    mh_error err;
    mh_loader_options_init(&options); /* first of all: it sets the defaults and the size */
    options.batch_size = batch_size;
    options.shuffle = MH_SHUFFLE_ALL;
    options.seed = seed;
    if (mh_loader_open(&loader, data, &options, &err) != MH_OK)
        return complain(&err);
    int code = read_epoch(loader);
    mh_loader_close(loader);
    return code;
}

int main(int argc, char **argv)
{
    mh_dataset *data;
    mh_error err;
    if (argc < 4) {
        (void)fprintf(stderr, "usage: read_batches BATCH_SIZE SEED FILE...\n");
        return 2;
    }
    if (mh_dataset_open(&data, (const char *const *)argv + 3, (size_t)argc - 3, NULL, &err) !=
        MH_OK)
        return complain(&err);
    print_fields(data);
    int code = read_all(data, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
    mh_dataset_unref(data);
    return code;
}
