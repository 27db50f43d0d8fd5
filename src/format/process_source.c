/* process_source.c - a dataset's source for reads outside loaders: one for each process
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
    mh_status status = dataset->source->open(&reader->source, &dataset->objects, 1, err);
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
