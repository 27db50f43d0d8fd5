/* format.h - what a format does: which bytes a sample is made of, and how they become its fields
 * SPDX-License-Identifier: Apache-2.0
 *
 * A format is one file that ends in one const table, and a line in the list of dataset.c. After
 * open everything is pure: any thread, no I/O, no allocation.
 */
#ifndef MH_FORMAT_FORMAT_H
#define MH_FORMAT_FORMAT_H

#include "base/cells.h"
#include "source/source.h"
#include <millhead/dataset.h>
#include <stdatomic.h>

/* Bytes of an object that are the bytes of one field of a sample, as they are. */
typedef struct mh_piece {
    uint32_t object;
    uint64_t offset;
} mh_piece;

/* Bytes of an object that samples are made of: a chunk, a compressed image. Several samples may
 * need the same one. */
typedef struct mh_unit {
    uint32_t object;
    uint64_t offset, size;  /* of a whole one: 0, and the most that can be right */
    uint64_t decoded_bytes; /* 0: samples are placed from the bytes as they were read */
    uint8_t whole;          /* the object from its first byte to its last */
    uint8_t may_be_missing; /* no such object: decode, or else place, gets no data */
} mh_unit;

/* Bytes of a unit. data is NULL where there is no such object. */
typedef struct mh_bytes {
    const uint8_t *data;
    uint64_t size;
} mh_bytes;

/* One sample to be placed. Whatever is random about it is drawn from seed, epoch and position. */
typedef struct mh_placing {
    uint64_t sample;
    uint64_t seed, epoch, position; /* all 0 outside loaders, but for the position: the sample */
    const mh_bytes *units;          /* each decoded, in the order of units_of */
    uint8_t *const *into;           /* for each of the dataset's fields */
    void *room;                     /* of room_new */
} mh_placing;

/* A path that some format has to be found for. */
typedef struct mh_candidate {
    const char *path;
    const mh_source_type *source;
    const mh_source_options *options;
    int directory;       /* not one object: a folder, a prefix */
    const uint8_t *head; /* its first bytes, of one that is an object */
    size_t head_size;
} mh_candidate;

/* What a format takes besides paths and fields: members of mh_dataset_options. */
enum {
    MH_TAKES_PIPELINE = 1, /* and profile */
    MH_TAKES_WINDOW = 2,   /* stride, select, target, decode */
    MH_TAKES_INDEX = 4,
    MH_TAKES_JOIN = 8
};

typedef struct mh_format {
    const char *name;
    const char *what;     /* one line for `millhead list` */
    const char *suffixes; /* ".npy" or several, with spaces between them */
    int takes;            /* MH_TAKES_... */
    /* Whether the path is of the format. The first in the list that says so gets it. */
    int (*probe)(const mh_candidate *candidate);
    /* Fills objects, fields (in any order) and count of a zeroed dataset, and of what follows them
     * what applies; its caller frees what is there on failure too. dataset->source is the paths',
     * and dataset->options stay as long as the dataset. */
    mh_status (*open)(mh_dataset *dataset, const char *const *paths, size_t count, mh_error *err);
    /* Comes once after open, when `fields` and `tags` are those that are wanted, in order of name:
     * for what depends on the choice, as by_units and what follows it may; (optional). */
    mh_status (*finish)(mh_dataset *dataset, mh_error *err);
    void (*close)(mh_dataset *dataset); /* frees dataset->own; (optional) */

    /* What one thread needs to decode and place, made once and used again: codecs' states, memory.
     * (optional: decode and place get NULL) */
    mh_status (*room_new)(const mh_dataset *dataset, void **out, mh_error *err);
    void (*room_free)(void *room); /* NULL allowed */

    /* --- where dataset->by_units is 0: fields lie in the objects as they are --- */

    /* Where a field of the sample lies; `tag` is what the format gave with the field. */
    mh_piece (*piece)(const mh_dataset *dataset, uint32_t tag, uint64_t sample);

    /* --- where it is 1: samples are made of units --- */

    /* The units of a sample, at most dataset->units_most, none twice. Gives their number. */
    uint32_t (*units_of)(const mh_dataset *dataset, uint64_t sample, uint64_t *ids);
    mh_unit (*unit)(const mh_dataset *dataset, uint64_t id);
    /* A unit's bytes into `out`, which has decoded_bytes; (optional where those are 0). */
    mh_status (*decode)(const mh_dataset *dataset, uint64_t id, mh_bytes bytes, uint8_t *out,
                        void *room, mh_error *err);
    /* Asks the CPU for the memory that `place` is going to read; `units` as for it (optional). */
    void (*warm)(const mh_dataset *dataset, uint64_t sample, const mh_bytes *units);
    /* Writes all fields of a sample; of a ragged one as many bytes as its shape says. */
    mh_status (*place)(const mh_dataset *dataset, const mh_placing *placing, mh_error *err);
    /* The shape of a ragged field of the sample; (optional where no field is ragged). */
    void (*measure)(const mh_dataset *dataset, uint32_t tag, uint64_t sample, int64_t *shape);

    /* --- for whoever looks at the dataset; (optional) --- */

    /* As mh_dataset_class and mh_dataset_index. */
    const char *(*class_name)(const mh_dataset *dataset, uint64_t at);
    const char *(*index_file)(const mh_dataset *dataset, const char **out_state);
    /* As mh_dataset_storage and mh_dataset_costs. */
    int (*storage)(const mh_dataset *dataset, uint32_t tag, mh_field_storage *out);
    mh_status (*costs)(const mh_dataset *dataset, mh_dataset_cost *out, mh_error *err);
    /* The windows that samples are; the dataset's. For mh_plan_store_make. */
    const struct mh_windows *(*windows)(const mh_dataset *dataset);
} mh_format;

/* Added to the tag of a field that is delivered only where its name is asked for. The format sees
 * its tags without it once the fields are chosen. */
#define MH_TAG_ON_REQUEST (UINT32_C(1) << 31)

/* A source and the process that it belongs to. */
typedef struct mh_process_source {
    mh_source *source;
    uint32_t fork_generation;
} mh_process_source;

struct mh_dataset {
    const mh_format *format;
    const mh_source_type *source;
    mh_dataset_options options; /* copies of the texts that were given; `fields` only in open */
    mh_objects objects;         /* those of a list are freed with the dataset */
    mh_field *fields;           /* in order of name once open; names are freed with the dataset */
    uint32_t *tags;             /* the format's number for each */
    size_t field_count;
    int fields_chosen; /* open has applied options.fields itself */
    uint64_t count;
    int by_units;                /* samples are made of units, else of pieces */
    int units_shared;            /* several samples need the same unit */
    uint32_t units_most;         /* of one sample */
    uint64_t unit_count;         /* in all */
    uint64_t unit_bytes_most;    /* of one unit, as read and decoded together */
    mh_cells cells;              /* samples that lie close together, for MH_SHUFFLE_BLOCKS; no dims:
                                    found from the units */
    uint32_t block_parts;        /* blocks in use at a time; 0: as many as usual */
    uint64_t fingerprint;        /* a format may begin it with what is in no object or field */
    uint64_t stamp;              /* of mh_source_rest, for caches */
    struct mh_kept_index *known; /* found while the format was looked for; NULL: none, or in use */
    void *own;                   /* the format's */
    _Atomic uint32_t refs;
    _Atomic(mh_process_source *) reader; /* of mh_dataset_source; NULL: nobody has asked */
    _Atomic(void *) spare_room;          /* of mh_dataset_room; NULL: in use, or not made */
};

/* Ended by NULL. */
extern const mh_format *const mh_formats[];
extern const mh_format mh_format_folder;
extern const mh_format mh_format_manifest;
extern const mh_format mh_format_npy;
extern const mh_format mh_format_synthetic;
extern const mh_format mh_format_tokens;
extern const mh_format mh_format_zarr;

/* How the dataset's source is to be opened. The texts are the dataset's. */
mh_source_options mh_dataset_source_options(const mh_dataset *dataset, uint32_t in_flight);

/* All bytes of an object that a dataset needs while it opens, and a 0 behind them; the caller frees
 * them with mh_free. MH_ERR_NOT_FOUND, MH_ERR_IO, MH_ERR_NOMEM; MH_ERR_CORRUPT: there are more than
 * `most`. */
MH_MUST_CHECK mh_status mh_dataset_get(const mh_dataset *dataset, const char *name, uint64_t most,
                                       uint8_t **out, uint64_t *size, mh_error *err);

/* Adds an object, as it is now; *out_number is its number. For formats while they open. */
MH_MUST_CHECK mh_status mh_dataset_add_object(mh_dataset *dataset, const char *name,
                                              uint32_t *out_number, mh_error *err);

/* Adds *field, whose dtype, dims and shape are set; copies the name and sets its bytes. `tag` is
 * for the format's `piece`. For formats while they open. MH_ERR_INVALID where another has the name.
 */
MH_MUST_CHECK mh_status mh_dataset_add_field(mh_dataset *dataset, const char *name, uint32_t tag,
                                             mh_field *field, mh_error *err);

/* The source for reads outside loaders: opened when it is first asked for, and again in a forked
 * child. It stays the dataset's. Any thread. */
MH_MUST_CHECK mh_status mh_dataset_source(mh_dataset *dataset, mh_source **out, mh_error *err);
void mh_dataset_source_close(mh_dataset *dataset);

/* A room of the format's for reads outside loaders: the one that is kept, or another while some
 * thread has it. Given back with mh_dataset_room_done. Any thread. */
MH_MUST_CHECK mh_status mh_dataset_room(mh_dataset *dataset, void **out, mh_error *err);
void mh_dataset_room_done(mh_dataset *dataset, void *room);

/* Where field number `field` of the sample lies. Pure, any thread. */
static inline mh_piece mh_dataset_piece(const mh_dataset *dataset, size_t field, uint64_t sample)
{
    return dataset->format->piece(dataset, dataset->tags[field], sample);
}

#endif
