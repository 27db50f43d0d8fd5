/* source.h - where bytes come from: one table of functions for files, and later URLs and caches
 * SPDX-License-Identifier: Apache-2.0
 *
 * A dataset lists its objects once (mh_objects, immutable). A source reads them in one process,
 * with descriptors and threads of its own; it is opened by whoever reads and never crosses a fork.
 */
#ifndef MH_SOURCE_SOURCE_H
#define MH_SOURCE_SOURCE_H

#include <millhead/error.h>

/* Something with bytes: a file. Its version changes when its bytes do. */
typedef struct mh_object {
    char *name;
    uint64_t size;
    uint64_t version; /* of a file: from inode, date and size */
} mh_object;

typedef struct mh_objects {
    mh_object *list;
    uint32_t count;
} mh_objects;

/* `size` bytes of an object from `offset` on, into memory that stays until the read is done. */
typedef struct mh_read {
    uint32_t object;
    uint64_t offset;
    uint64_t size;
    uint8_t *into;
    void *tag; /* the caller's, for `done` */
} mh_read;

/* A submitted read is over: err is NULL when all its bytes are there. Comes exactly once for each,
 * on any I/O thread; must not block and not call the source. */
typedef void mh_read_done(void *context, void *tag, const mh_error *err);

typedef struct mh_source mh_source;

typedef struct mh_source_type {
    const char *name;
    /* The version and size of what has that name now. MH_ERR_NOT_FOUND, MH_ERR_IO. */
    mh_status (*stat)(mh_object *object, mh_error *err);
    /* `objects` stay the caller's and outlive the source. in_flight: most reads at a time. */
    mh_status (*open)(mh_source **out, const mh_objects *objects, uint32_t in_flight,
                      mh_error *err);
    /* Reads what is at hand without waiting; MH_AGAIN: submit it. (optional) */
    mh_status (*try_now)(mh_source *source, const mh_read *read, mh_error *err);
    /* Waits for the bytes. */
    mh_status (*read)(mh_source *source, const mh_read *read, mh_error *err);
    /* Accepts all or none, never blocks. MH_ERR_NOMEM, MH_ERR_CLOSED. */
    mh_status (*submit)(mh_source *source, const mh_read *reads, size_t count, mh_read_done *done,
                        void *context, mh_error *err);
    /* Reads that have not begun end with MH_ERR_CLOSED; waits for the others. */
    void (*close)(mh_source *source);
} mh_source_type;

/* First member of each implementation's struct. */
struct mh_source {
    const mh_source_type *type;
};

extern const mh_source_type mh_source_file;

/* Any thread, as all below but close. Errors name the object and the offset. A read beyond the end,
 * or of an object that is not as it was when it was listed, is MH_ERR_IO. */
static inline mh_status mh_source_try_now(mh_source *source, const mh_read *read, mh_error *err)
{
    return source->type->try_now ? source->type->try_now(source, read, err) : MH_AGAIN;
}

static inline mh_status mh_source_read(mh_source *source, const mh_read *read, mh_error *err)
{
    return source->type->read(source, read, err);
}

static inline mh_status mh_source_submit(mh_source *source, const mh_read *reads, size_t count,
                                         mh_read_done *done, void *context, mh_error *err)
{
    return source->type->submit(source, reads, count, done, context, err);
}

/* NULL allowed. After it no `done` comes. */
static inline void mh_source_close(mh_source *source)
{
    if (source)
        source->type->close(source);
}

#endif
