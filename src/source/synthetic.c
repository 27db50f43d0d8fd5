/* synthetic.c - a source that computes what it gives
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/synthetic.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

typedef struct synthetic_source {
    mh_source base;
    const mh_objects *objects;
} synthetic_source;

uint64_t mh_synthetic_word(uint64_t seed, uint64_t at)
{
    uint64_t bits = seed + (at + 1) * UINT64_C(0x9E3779B97F4A7C15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94D049BB133111EB);
    return bits ^ (bits >> 31);
}

/* The version is the seed: all that the bytes depend on. */
static mh_status synthetic_stat(mh_object *object, const mh_source_options *options, mh_error *err)
{
    (void)options;
    unsigned long long seed, bytes;
    if (sscanf(object->name, "%llu:%llu", &seed, &bytes) != 2)
        return mh_fail(err, MH_ERR_INVALID, "'%s' is not SEED:BYTES", object->name);
    object->version = seed;
    object->size = bytes;
    return MH_OK;
}

static mh_status synthetic_read(mh_source *source, const mh_read *read, uint64_t *got,
                                mh_error *err)
{
    const mh_object *object = &((synthetic_source *)source)->objects->list[read->object];
    uint64_t done = 0;
    if (read->size > object->size || read->offset > object->size - read->size)
        return mh_fail(err, MH_ERR_IO, "%s ends at byte %llu", object->name,
                       (unsigned long long)object->size);
    while (done < read->size) {
        uint64_t byte = read->offset + done, inside = byte % sizeof(uint64_t);
        uint64_t word = mh_synthetic_word(object->version, byte / sizeof(uint64_t)) >> 8 * inside;
        uint64_t bytes = sizeof(uint64_t) - inside;
        bytes = bytes < read->size - done ? bytes : read->size - done;
        memcpy(read->into + done, &word, bytes);
        done += bytes;
    }
    *got = done;
    return MH_OK;
}

/* All is at hand at once: there is nobody to hand it to. */
static mh_status synthetic_submit(mh_source *source, const mh_read *reads, size_t count,
                                  mh_read_done *done, void *context, mh_error *err)
{
    for (size_t i = 0; i < count; i++) {
        mh_error failed;
        uint64_t got = 0;
        mh_status status = synthetic_read(source, &reads[i], &got, &failed);
        done(context, reads[i].tag, got, status == MH_OK ? NULL : &failed);
    }
    (void)err;
    return MH_OK;
}

static mh_status synthetic_open(mh_source **out, const mh_objects *objects,
                                const mh_source_options *options, mh_error *err)
{
    synthetic_source *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a source");
    (void)options;
    self->base.type = &mh_source_synthetic;
    self->objects = objects;
    *out = &self->base;
    return MH_OK;
}

static void synthetic_close(mh_source *source)
{
    mh_free(source);
}

const mh_source_type mh_source_synthetic = {
    .name = "synthetic",
    .what = "bytes that are computed",
    .stat = synthetic_stat,
    .open = synthetic_open,
    .try_now = synthetic_read,
    .read = synthetic_read,
    .submit = synthetic_submit,
    .close = synthetic_close,
};
