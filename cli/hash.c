/* hash.c - XXH3-64 of batches and of samples
 * SPDX-License-Identifier: Apache-2.0
 */
#include "hash.h"

#include "data.h"
#include <mh_config.h>

#if MH_HAVE_XXHASH

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { ALIGNMENT = 64 }; /* of XXH3_state_t */

struct mh_hash {
    XXH3_state_t stream, sample;
    uint64_t samples;
};

bool mh_hash_built(void)
{
    return true;
}

mh_hash *mh_hash_new(void)
{
    mh_hash *hash = aligned_alloc(ALIGNMENT, sizeof *hash);
    if (!hash)
        return NULL;
    memset(hash, 0, sizeof *hash);
    (void)XXH3_64bits_reset(&hash->stream);
    return hash;
}

void mh_hash_free(mh_hash *hash)
{
    free(hash);
}

static void add_number(XXH3_state_t *state, uint64_t number)
{
    uint64_t little = htole64(number);
    (void)XXH3_64bits_update(state, &little, sizeof little);
}

static void add_numbers(XXH3_state_t *state, const int64_t *numbers, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        add_number(state, (uint64_t)numbers[i]);
}

static void add_name(XXH3_state_t *state, const mh_array *array)
{
    char dtype[MH_CLI_DTYPE];
    (void)mh_cli_dtype(dtype, array->dtype);
    (void)XXH3_64bits_update(state, array->name, strlen(array->name) + 1);
    (void)XXH3_64bits_update(state, dtype, strlen(dtype) + 1);
}

static void add_values(XXH3_state_t *state, const mh_array *array, uint64_t from, uint64_t bytes)
{
    if (bytes)
        (void)XXH3_64bits_update(state, (const char *)array->data + from, bytes);
}

/* A field of a batch. */
static void add_array(XXH3_state_t *state, const mh_array *array, uint64_t samples)
{
    add_name(state, array);
    if (array->offsets) {
        add_number(state, samples);
        add_numbers(state, array->shapes, samples * array->sample_dims);
        add_numbers(state, array->offsets, samples + 1);
    } else {
        add_number(state, array->dims);
        add_numbers(state, array->shape, array->dims);
    }
    add_values(state, array, 0, array->bytes);
}

/* A field of its sample number `at`. */
static void add_sample(XXH3_state_t *state, const mh_array *array, uint64_t samples, uint64_t at)
{
    uint64_t bytes = array->bytes / samples, from = at * bytes, item = array->dtype.bits / 8;
    const int64_t *shape = array->shape + 1;
    uint32_t dims = array->dims - 1;
    if (array->offsets) {
        dims = array->sample_dims;
        shape = array->shapes + at * dims;
        from = (uint64_t)array->offsets[at] * item;
        bytes = (uint64_t)array->offsets[at + 1] * item - from;
    }
    add_name(state, array);
    add_number(state, dims);
    add_numbers(state, shape, dims);
    add_values(state, array, from, bytes);
}

static uint64_t sample_hash(mh_hash *hash, const mh_batch *batch, uint64_t at)
{
    const mh_array *array;
    (void)XXH3_64bits_reset(&hash->sample);
    add_number(&hash->sample, mh_batch_positions(batch)[at]);
    for (size_t field = 0; (array = mh_batch_array(batch, field)); field++)
        add_sample(&hash->sample, array, mh_batch_samples(batch), at);
    return XXH3_64bits_digest(&hash->sample);
}

void mh_hash_add(mh_hash *hash, const mh_batch *batch)
{
    const mh_array *array;
    for (size_t field = 0; (array = mh_batch_array(batch, field)); field++)
        add_array(&hash->stream, array, mh_batch_samples(batch));
    for (uint64_t at = 0; at < mh_batch_samples(batch); at++)
        hash->samples += sample_hash(hash, batch, at);
}

uint64_t mh_hash_stream(const mh_hash *hash)
{
    return XXH3_64bits_digest(&hash->stream);
}

uint64_t mh_hash_samples(const mh_hash *hash)
{
    return hash->samples;
}

#else

bool mh_hash_built(void)
{
    return false;
}

mh_hash *mh_hash_new(void)
{
    return NULL;
}

void mh_hash_free(mh_hash *hash)
{
    (void)hash;
}

void mh_hash_add(mh_hash *hash, const mh_batch *batch)
{
    (void)hash;
    (void)batch;
}

uint64_t mh_hash_stream(const mh_hash *hash)
{
    (void)hash;
    return 0;
}

uint64_t mh_hash_samples(const mh_hash *hash)
{
    (void)hash;
    return 0;
}

#endif
