/* synthetic.c - samples that are computed, in chunks like those of real data
 * SPDX-License-Identifier: Apache-2.0
 *
 * For measuring a loader without a disk, and for tests: everything that real chunks do, this does
 * on demand. Chunks of `chunk` samples are what is read; decoding one inverts its bits and burns
 * CPU time; some are broken. With chunk=1 a sample is decoded straight into its place. With span=s
 * a sample also needs the s - 1 chunks after its own, whose first rows are XORed into it.
 */
#include "format/synthetic.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/format.h"
#include "source/synthetic.h"
#include "sys/thread_clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LABEL, X }; /* tags */

/* Seeds of what is drawn beside the bytes. */
#define BROKEN_SALT UINT64_C(0x6272)
#define LENGTH_SALT UINT64_C(0x6C65)

typedef struct synthetic_data {
    mh_synthetic spec;
    uint64_t chunks;
    uint64_t row_bytes;
} synthetic_data;

static int synthetic_probe(const mh_candidate *candidate)
{
    (void)candidate;
    return 0; /* found by its prefix */
}

/* --- opening --- */

static mh_status add_fields(mh_dataset *dataset, mh_synthetic *spec, mh_error *err)
{
    mh_field label = {.dtype = {0, 64}};
    MH_TRY(mh_dataset_add_field(dataset, "label", LABEL, &label, err));
    return mh_dataset_add_field(dataset, "x", X, &spec->x, err);
}

static mh_status add_bytes(mh_dataset *dataset, const synthetic_data *own, mh_error *err)
{
    char name[64];
    uint32_t object;
    uint64_t chunk_bytes, bytes;
    if (__builtin_mul_overflow(own->row_bytes, own->spec.chunk, &chunk_bytes) ||
        __builtin_mul_overflow(chunk_bytes, own->chunks, &bytes) || chunk_bytes > SIZE_MAX / 4)
        return mh_fail(err, MH_ERR_INVALID, "synthetic data of that size is too large");
    dataset->by_units = 1;
    dataset->units_shared = own->spec.chunk > 1 || own->spec.span > 1;
    dataset->cells = mh_cells_of_runs(own->spec.count, own->spec.chunk);
    dataset->units_most = own->spec.span;
    dataset->unit_count = own->chunks;
    dataset->unit_bytes_most = own->spec.chunk > 1 ? 2 * chunk_bytes : chunk_bytes;
    (void)snprintf(name, sizeof name, "%" PRIu64 ":%" PRIu64, own->spec.seed, bytes);
    return mh_dataset_add_object(dataset, name, &object, err);
}

static mh_status synthetic_open(mh_dataset *dataset, const char *const *paths, size_t count,
                                mh_error *err)
{
    synthetic_data *own = mh_calloc(1, sizeof *own);
    if (!own)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a dataset");
    dataset->own = own;
    dataset->source = &mh_source_synthetic;
    if (count != 1)
        return mh_fail(err, MH_ERR_INVALID, "synthetic data cannot be combined with other paths");
    const char *text = paths[0];
    if (strncmp(text, MH_SYNTHETIC_PREFIX, strlen(MH_SYNTHETIC_PREFIX)) == 0)
        text += strlen(MH_SYNTHETIC_PREFIX);
    MH_TRY(mh_synthetic_parse(&own->spec, text, err));
    MH_TRY(add_fields(dataset, &own->spec, err));
    dataset->count = own->spec.count;
    own->row_bytes = own->spec.x.bytes;
    own->chunks = (own->spec.count + own->spec.chunk - 1) / own->spec.chunk;
    if (own->spec.span > own->chunks)
        own->spec.span = own->chunks ? (uint32_t)own->chunks : 1;
    return add_bytes(dataset, own, err);
}

static void synthetic_close(mh_dataset *dataset)
{
    mh_free(dataset->own);
}

/* --- units --- */

static uint32_t synthetic_units_of(const mh_dataset *dataset, uint64_t sample, uint64_t *ids)
{
    const synthetic_data *own = dataset->own;
    for (uint32_t i = 0; i < own->spec.span; i++)
        ids[i] = (sample / own->spec.chunk + i) % own->chunks;
    return own->spec.span;
}

static mh_unit synthetic_unit(const mh_dataset *dataset, uint64_t id)
{
    const synthetic_data *own = dataset->own;
    uint64_t bytes = own->row_bytes * own->spec.chunk;
    return (mh_unit){
        .offset = id * bytes, .size = bytes, .decoded_bytes = own->spec.chunk > 1 ? bytes : 0};
}

static void burn(uint64_t ns)
{
    if (!ns)
        return;
    for (uint64_t until = mh_thread_cpu_ns() + ns; mh_thread_cpu_ns() < until;)
        continue;
}

static mh_status check(const synthetic_data *own, uint64_t chunk, mh_error *err)
{
    uint64_t drawn = mh_synthetic_word(own->spec.seed ^ BROKEN_SALT, chunk);
    if ((double)(drawn >> 11) * 0x1p-53 >= own->spec.broken)
        return MH_OK;
    return mh_fail(err, MH_ERR_CORRUPT, "chunk %llu of the synthetic data is broken, as asked",
                   (unsigned long long)chunk);
}

static mh_status synthetic_decode(const mh_dataset *dataset, uint64_t id, mh_bytes bytes,
                                  uint8_t *out, void *room, mh_error *err)
{
    (void)room;
    const synthetic_data *own = dataset->own;
    uint64_t size = own->row_bytes * own->spec.chunk;
    burn(own->spec.burn_ns);
    MH_TRY(check(own, id, err));
    for (uint64_t i = 0; i < size; i++)
        out[i] = (uint8_t)~bytes.data[i];
    return MH_OK;
}

/* --- samples --- */

static void synthetic_measure(const mh_dataset *dataset, uint32_t tag, uint64_t sample,
                              int64_t *shape)
{
    const mh_synthetic *spec = &((const synthetic_data *)dataset->own)->spec;
    uint64_t drawn = mh_synthetic_word(spec->seed ^ LENGTH_SALT, sample);
    (void)tag; /* only x is ragged */
    memcpy(shape, spec->x.shape, spec->x.dims * sizeof *shape);
    shape[0] = 1 + (int64_t)(drawn % (uint64_t)spec->x.shape[0]);
}

static uint64_t x_bytes(const mh_dataset *dataset, uint64_t sample)
{
    const synthetic_data *own = dataset->own;
    int64_t shape[MH_DIMS_MOST];
    if (!own->spec.x.ragged)
        return own->row_bytes;
    synthetic_measure(dataset, X, sample, shape);
    return own->row_bytes / (uint64_t)own->spec.x.shape[0] * (uint64_t)shape[0];
}

static void place_x(const mh_dataset *dataset, const mh_placing *placing, uint8_t *into)
{
    const synthetic_data *own = dataset->own;
    const uint64_t bytes = x_bytes(dataset, placing->sample);
    const uint8_t inverted = own->spec.chunk > 1 ? 0 : 0xFF; /* not decoded yet */
    const uint8_t *row =
        placing->units[0].data + placing->sample % own->spec.chunk * own->row_bytes;
    for (uint64_t i = 0; i < bytes; i++)
        into[i] = row[i] ^ inverted;
    for (uint32_t u = 1; u < own->spec.span; u++)
        for (uint64_t i = 0; i < bytes; i++)
            into[i] ^= placing->units[u].data[i] ^ inverted;
}

static mh_status synthetic_place(const mh_dataset *dataset, const mh_placing *placing,
                                 mh_error *err)
{
    const synthetic_data *own = dataset->own;
    for (uint32_t u = 0; own->spec.chunk == 1 && u < own->spec.span; u++) {
        burn(own->spec.burn_ns);
        MH_TRY(check(own, (placing->sample + u) % own->chunks, err));
    }
    for (size_t field = 0; field < dataset->field_count; field++) {
        int64_t label = (int64_t)placing->sample;
        if (dataset->tags[field] == X)
            place_x(dataset, placing, placing->into[field]);
        else
            memcpy(placing->into[field], &label, sizeof label);
    }
    return MH_OK;
}

const mh_format mh_format_synthetic = {
    .name = "synthetic",
    .what = "computed samples, to measure with: synthetic:count=1000,shape=16x16,chunk=8",
    .suffixes = "",
    .probe = synthetic_probe,
    .open = synthetic_open,
    .close = synthetic_close,
    .units_of = synthetic_units_of,
    .unit = synthetic_unit,
    .decode = synthetic_decode,
    .place = synthetic_place,
    .measure = synthetic_measure,
};
