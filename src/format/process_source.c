/* process_source.c - what reads outside loaders need: a source for each process, a room to decode
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "format/format.h"

static mh_status open_reader(const mh_dataset *dataset, mh_process_source **out, mh_error *err)
{
    mh_process_source *reader = mh_calloc(1, sizeof *reader);
    if (!reader)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to open a dataset's files");
    reader->fork_generation = mh_fork_generation();
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    mh_status status =
        mh_source_open(&reader->source, dataset->source, &dataset->objects, &options, err);
    if (status != MH_OK) {
        mh_free(reader);
        return status;
    }
    *out = reader;
    return MH_OK;
}

static void free_reader(mh_process_source *reader)
{
    mh_source_close(reader->source);
    mh_free(reader);
}

mh_status mh_dataset_source(mh_dataset *dataset, mh_source **out, mh_error *err)
{
    mh_process_source *fresh = NULL;
    mh_process_source *reader = atomic_load_explicit(&dataset->reader, memory_order_acquire);
    while (!reader || reader->fork_generation != mh_fork_generation()) {
        if (!fresh)
            MH_TRY(open_reader(dataset, &fresh, err));
        /* A parent's is left as it is: its lock may be held by a thread that is not here. */
        if (atomic_compare_exchange_strong(&dataset->reader, &reader, fresh)) {
            reader = fresh;
            fresh = NULL;
        }
    }
    if (fresh) /* another thread was faster */
        free_reader(fresh);
    *out = reader->source;
    return MH_OK;
}

void mh_dataset_source_close(mh_dataset *dataset)
{
    mh_process_source *reader = atomic_load(&dataset->reader);
    if (reader && reader->fork_generation == mh_fork_generation())
        free_reader(reader);
}

mh_status mh_dataset_room(mh_dataset *dataset, void **out, mh_error *err)
{
    *out = NULL;
    if (!dataset->format->room_new)
        return MH_OK;
    *out = atomic_exchange(&dataset->spare_room, NULL);
    return *out ? MH_OK : dataset->format->room_new(dataset, out, err);
}

void mh_dataset_room_done(mh_dataset *dataset, void *room)
{
    void *none = NULL;
    if (room && !atomic_compare_exchange_strong(&dataset->spare_room, &none, room))
        dataset->format->room_free(room);
}
