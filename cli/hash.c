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

/* Name, type and shape; `skip` dimensions are left out. */
static void add_head(XXH3_state_t *state, const mh_array *array, uint32_t skip)
{
    char dtype[MH_CLI_DTYPE];
    (void)mh_cli_dtype(dtype, array->dtype);
    (void)XXH3_64bits_update(state, array->name, strlen(array->name) + 1);
    (void)XXH3_64bits_update(state, dtype, strlen(dtype) + 1);
    add_number(state, array->dims - skip);
    for (uint32_t dim = skip; dim < array->dims; dim++)
        add_number(state, (uint64_t)array->shape[dim]);
}

static uint64_t sample_hash(mh_hash *hash, const mh_batch *batch, uint64_t at, uint64_t position)
{
    const mh_array *array;
    (void)XXH3_64bits_reset(&hash->sample);
    add_number(&hash->sample, position);
    for (size_t field = 0; (array = mh_batch_array(batch, field)); field++) {
        uint64_t bytes = array->bytes / mh_batch_samples(batch);
        add_head(&hash->sample, array, 1);
        if (bytes)
            (void)XXH3_64bits_update(&hash->sample, (const char *)array->data + at * bytes, bytes);
    }
    return XXH3_64bits_digest(&hash->sample);
}

void mh_hash_add(mh_hash *hash, const mh_batch *batch, uint64_t world)
{
    const mh_array *array;
    for (size_t field = 0; (array = mh_batch_array(batch, field)); field++) {
        add_head(&hash->stream, array, 0);
        if (array->bytes)
            (void)XXH3_64bits_update(&hash->stream, array->data, array->bytes);
    }
    for (uint64_t at = 0; at < mh_batch_samples(batch); at++)
        hash->samples += sample_hash(hash, batch, at, mh_batch_position(batch) + at * world);
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

void mh_hash_add(mh_hash *hash, const mh_batch *batch, uint64_t world)
{
    (void)hash;
    (void)batch;
    (void)world;
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
