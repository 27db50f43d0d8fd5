/* source.h - where bytes come from: one table of functions for files, URLs and what wraps them
 * SPDX-License-Identifier: Apache-2.0
 *
 * A dataset lists its objects once (mh_objects, immutable). A source reads them in one process,
 * with descriptors and threads of its own; it is opened by whoever reads and never crosses a fork.
 * While a dataset opens there are no objects yet: stat, get and list answer by name.
 */
#ifndef MH_SOURCE_SOURCE_H
#define MH_SOURCE_SOURCE_H

#include <millhead/error.h>
#include <stdbool.h>

#define MH_NAME_MOST 4096u /* bytes of an object's name, its end among them */
#define MH_SIZE_UNKNOWN UINT64_MAX

/* Something with bytes: a file, what is behind a URL. Its version changes when its bytes do. */
typedef struct mh_object {
    const char *name;
    uint64_t size;    /* MH_SIZE_UNKNOWN: nobody has looked */
    uint64_t version; /* of a file: from inode, date and size; 0: not known, whatever is there */
} mh_object;

/* The objects of a dataset: a list, or computed where there are too many to list. */
typedef struct mh_objects {
    uint32_t count;
    mh_object *list; /* NULL: `describe` */
    /* Fills *out; its name goes into `name`, which has MH_NAME_MOST bytes, or stays elsewhere as
     * long as the objects. Pure, any thread. */
    void (*describe)(const void *context, uint32_t number, mh_object *out, char *name);
    /* An object is not what `describe` says: whoever keeps the list may look again before it is
     * used next. Any thread. (optional) */
    void (*changed)(const void *context);
    const void *context;
} mh_objects;

/* `name` is room for MH_NAME_MOST bytes that outlives the result. */
static inline mh_object mh_object_at(const mh_objects *objects, uint32_t number, char *name)
{
    if (objects->list)
        return objects->list[number];
    mh_object object = {0};
    objects->describe(objects->context, number, &object, name);
    return object;
}

/* Bytes of an object, into memory that stays until the read is done. */
typedef struct mh_read {
    uint32_t object;
    int whole;       /* from its first byte to its last, however many there are up to `size` */
    uint64_t offset; /* 0 where it is whole */
    uint64_t size;
    uint8_t *into;
    void *tag; /* the caller's, for `done` */
    /* Gets the version of the object that answered, or stays where it is not known; NULL: nobody
     * asks. With size 0 only that is asked for. */
    uint64_t *version;
} mh_read;

/* A submitted read is over: err is NULL when its bytes are there, `got` of them. Comes exactly once
 * for each, on any I/O thread; must not block and not call the source. */
typedef void mh_read_done(void *context, void *tag, uint64_t got, const mh_error *err);

/* How to reach objects. The texts outlive what is opened with them. */
typedef struct mh_source_options {
    uint32_t in_flight; /* most reads at a time */
    const char
        *storage;      /* "key=...,secret=...,endpoint_url=...": credentials and places; or NULL */
    const char *cache; /* "DIR:50GB": where to keep what was read; or NULL */
    bool cache_check_each; /* ask whether its object has changed before each read of it */
    uint64_t stamp;        /* stands for the versions of what was read while the dataset opened */
} mh_source_options;

/* What a source has done so far; 0 where that does not apply. */
typedef struct mh_source_stats {
    uint64_t requests, retried, hedged, request_bytes;
    uint32_t in_flight_peak;
    uint64_t cache_hits, cache_misses, cache_hit_bytes, cache_written_bytes, cache_evicted_bytes;
    uint64_t cache_corrupt; /* entries that were not as they had been written, and were removed */
} mh_source_stats;

/* Called with each object that was found, in any order; anything but MH_OK ends the listing. */
typedef mh_status mh_source_each(void *context, const mh_object *object, mh_error *err);

typedef struct mh_source mh_source;

typedef struct mh_source_type {
    const char *name;
    const char *schemes; /* of its URLs: "http https"; NULL: none */
    const char *what;    /* one line for `millhead list` */
    /* The version and size of what has that name now. MH_ERR_NOT_FOUND, MH_ERR_IO. */
    mh_status (*stat)(mh_object *object, const mh_source_options *options, mh_error *err);
    /* The first bytes of an object, `most` at most, into `into`. Waits. */
    mh_status (*get)(const char *name, const mh_source_options *options, uint64_t most,
                     uint8_t *into, uint64_t *got, mh_error *err);
    /* All objects whose names begin with the prefix; (optional) */
    mh_status (*list)(const char *prefix, const mh_source_options *options, mh_source_each *each,
                      void *context, mh_error *err);
    /* `objects` and the options' texts stay the caller's and outlive the source. */
    mh_status (*open)(mh_source **out, const mh_objects *objects, const mh_source_options *options,
                      mh_error *err);
    /* Reads what is at hand without waiting; MH_AGAIN: submit it. (optional) */
    mh_status (*try_now)(mh_source *source, const mh_read *read, uint64_t *got, mh_error *err);
    /* Waits for the bytes. */
    mh_status (*read)(mh_source *source, const mh_read *read, uint64_t *got, mh_error *err);
    /* Accepts all or none, never blocks. MH_ERR_NOMEM, MH_ERR_CLOSED. */
    mh_status (*submit)(mh_source *source, const mh_read *reads, size_t count, mh_read_done *done,
                        void *context, mh_error *err);
    /* What it has done; *out is zeroed. Any thread. (optional) */
    void (*stats)(mh_source *source, mh_source_stats *out);
    /* Reads that have not begun end with MH_ERR_CLOSED; waits for the others. */
    void (*close)(mh_source *source);
} mh_source_type;

/* First member of each implementation's struct. */
struct mh_source {
    const mh_source_type *type;
};

extern const mh_source_type mh_source_file;
extern const mh_source_type mh_source_http;
extern const mh_source_type mh_source_s3;

/* The sources that names may ask for by a scheme; ended by NULL. */
extern const mh_source_type *const mh_sources[];

/* The source of that path or URL. MH_ERR_UNSUPPORTED: no source has its scheme. */
MH_MUST_CHECK mh_status mh_source_of(const mh_source_type **out, const char *name, mh_error *err);

/* Opens a source of that type, behind a cache where the options ask for one; as its `open`. */
MH_MUST_CHECK mh_status mh_source_open(mh_source **out, const mh_source_type *type,
                                       const mh_objects *objects, const mh_source_options *options,
                                       mh_error *err);

/* Ends what stat, get and list keep for the next call: connections and their thread. Whoever called
 * them calls it when all is asked. Gives a number that stands for the versions of all objects that
 * were asked for since the last time. Any thread; a call of another thread makes them anew. */
uint64_t mh_source_rest(void);

/* Any thread, as all below but close. Errors name the object and the offset. A read beyond the end,
 * or of an object that is not as it was when it was listed, is MH_ERR_IO; a whole one that is
 * larger than the read MH_ERR_CORRUPT; one that is not there MH_ERR_NOT_FOUND. */
static inline mh_status mh_source_try_now(mh_source *source, const mh_read *read, uint64_t *got,
                                          mh_error *err)
{
    return source->type->try_now ? source->type->try_now(source, read, got, err) : MH_AGAIN;
}

static inline mh_status mh_source_read(mh_source *source, const mh_read *read, uint64_t *got,
                                       mh_error *err)
{
    return source->type->read(source, read, got, err);
}

static inline mh_status mh_source_submit(mh_source *source, const mh_read *reads, size_t count,
                                         mh_read_done *done, void *context, mh_error *err)
{
    return source->type->submit(source, reads, count, done, context, err);
}

static inline void mh_source_stats_read(mh_source *source, mh_source_stats *out)
{
    *out = (mh_source_stats){0};
    if (source->type->stats)
        source->type->stats(source, out);
}

/* NULL allowed. After it no `done` comes. */
static inline void mh_source_close(mh_source *source)
{
    if (source)
        source->type->close(source);
}

#endif
