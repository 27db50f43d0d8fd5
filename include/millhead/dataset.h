/* dataset.h - data in a known format, as numbered samples with named fields
 * SPDX-License-Identifier: Apache-2.0
 *
 *     mh_dataset *data;
 *     const char *paths[] = {"images.npy", "labels.npy"};
 *     if (mh_dataset_open(&data, paths, 2, NULL, &err) != MH_OK) ...
 *     printf("%llu samples\n", (unsigned long long)mh_dataset_count(data));
 *
 * A dataset says what there is; a loader (loader.h) delivers it in batches.
 */
#ifndef MILLHEAD_DATASET_H
#define MILLHEAD_DATASET_H

#include <millhead/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MH_DIMS_MOST 16 /* dimensions of one sample */

/* DLPack's types: code 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool. */
typedef struct mh_dtype {
    uint8_t code;
    uint8_t bits;
} mh_dtype;

/* One field of every sample. */
typedef struct mh_field {
    const char *name;
    mh_dtype dtype;
    uint32_t dims;
    int ragged;                  /* samples have shapes of their own */
    int64_t shape[MH_DIMS_MOST]; /* of one sample, without the batch's dimension; the largest */
    uint64_t bytes;              /* of one sample; the largest */
} mh_field;

/* A format, source, codec of pictures or op that this library has. Static memory. */
typedef struct mh_kind {
    const char *name;
    const char *suffixes; /* of files: ".npy" or several, with spaces between them; "": none */
    const char *what;     /* one line */
} mh_kind;

/* Format or source number `at`, counted from 0: 1, or 0 beyond the last with *out untouched.
 * Any thread. */
MH_API int mh_format_list(size_t at, mh_kind *out);
MH_API int mh_source_list(size_t at, mh_kind *out);
/* The same for codecs, of chunks and of pictures; and for ops, whose `suffixes` are their
 * arguments.
 */
MH_API int mh_codec_list(size_t at, mh_kind *out);
MH_API int mh_op_list(size_t at, mh_kind *out);

/* Immutable after open. Any number of threads; forked children may go on using it. */
typedef struct mh_dataset mh_dataset;

typedef struct mh_dataset_options {
    size_t struct_size;
    const char *format;        /* NULL: found out from names and first bytes */
    const char *const *fields; /* names to deliver, in any order; NULL: all */
    size_t field_count;
    /* Texts as the command line takes them; NULL: not given. A format refuses what does not apply
     * to it. */
    const char *pipeline; /* of images: "decode | random_resized_crop 224 | flip" */
    const char *profile;  /* of images: "exact" or "fast" */
    const char *window;   /* of arrays: "time=4,lat=64,lon=64" */
    const char *stride;   /* from one window to the next; default: the window */
    const char *select;   /* ranges by index or coordinate: "time=0:100" */
    const char *target;   /* offset of a second window: "time=6" */
    const char *decode;   /* of arrays: "cf" (default) or "none" */
    const char *index;    /* file that keeps what opening found out */
    const char *storage;  /* of URLs: "key=...,secret=...,endpoint_url=..." */
    const char *cache;    /* of URLs: "DIR:50GB" keeps what was read */
    const char *join;     /* of several arrays' stores: the dimension along which they are one, in
                             the order of the paths; default: the first that varies */
    const char *cache_check; /* "open" (default): trust what is kept where nothing had changed when
                                the dataset was opened; "each": ask before each read */
} mh_dataset_options;

MH_API void mh_dataset_options_init_sized(mh_dataset_options *options, size_t size);
static inline void mh_dataset_options_init(mh_dataset_options *options)
{
    mh_dataset_options_init_sized(options, sizeof *options);
}

/* Opens `count` paths as one dataset: what several paths mean is the format's (npy: one field
 * or more each). Reads headers only. The caller owns one reference. options may be NULL. *out is
 * untouched on failure. Errors name the path: MH_ERR_NOT_FOUND, MH_ERR_CORRUPT, MH_ERR_UNSUPPORTED,
 * MH_ERR_INVALID (an unknown field, lengths that differ), MH_ERR_IO, MH_ERR_NOMEM. */
MH_API MH_MUST_CHECK mh_status mh_dataset_open(mh_dataset **out, const char *const *paths,
                                               size_t count, const mh_dataset_options *options,
                                               mh_error *err);

/* References: a loader holds its own. unref accepts NULL. Any thread. */
MH_API mh_dataset *mh_dataset_ref(mh_dataset *dataset);
MH_API void mh_dataset_unref(mh_dataset *dataset);

/* How many samples there are. */
MH_API uint64_t mh_dataset_count(const mh_dataset *dataset);

/* The fields in order of name; *out_count of them. Valid as long as the dataset. */
MH_API const mh_field *mh_dataset_fields(const mh_dataset *dataset, size_t *out_count);

/* The name of the format ("npy"), and the files: path and size of number `at`; NULL beyond the
 * last. Valid as long as the dataset. */
MH_API const char *mh_dataset_format(const mh_dataset *dataset);
MH_API const char *mh_dataset_file(const mh_dataset *dataset, size_t at, uint64_t *out_bytes);

/* How many files there are, and the bytes of all. Of datasets of very many files, which are not
 * listed, mh_dataset_file gives none. */
MH_API uint64_t mh_dataset_files(const mh_dataset *dataset, uint64_t *out_bytes);

/* The name of class number `at`, which samples with that `label` belong to; NULL beyond the last,
 * or where there are no classes. Valid as long as the dataset. */
MH_API const char *mh_dataset_class(const mh_dataset *dataset, uint64_t at);

/* The file that keeps what opening found out; NULL: none does. *out_state is "used" (as it was
 * found), "written" (new) or "not kept" (it cannot be written); static memory, untouched where the
 * format has no such file. */
MH_API const char *mh_dataset_index(const mh_dataset *dataset, const char **out_state);

/* How a field is stored, of formats that cut arrays into chunks. Texts are the dataset's. */
typedef struct mh_field_storage {
    uint32_t dims;
    const char *dim_names[MH_DIMS_MOST];
    uint64_t shape[MH_DIMS_MOST]; /* of the whole array */
    uint64_t chunk[MH_DIMS_MOST];
    const char *codec; /* "bytes, zstd" */
    uint64_t bytes;    /* of the whole array, decoded */
} mh_field_storage;

/* Of field number `field`: 1, or 0 where the format has no chunks, with *out untouched. */
MH_API int mh_dataset_storage(const mh_dataset *dataset, size_t field, mh_field_storage *out);

/* What samples made of chunks cost, in decoded bytes. */
typedef struct mh_dataset_cost {
    double unique_bytes;  /* of all chunks that samples need, each once */
    double decoded_bytes; /* in an epoch of shuffle="blocks" */
    double amplification; /* decoded / unique */
    double sample_bytes;  /* of the chunks of one sample alone, mean */
    double useful_bytes;  /* of a sample */
} mh_dataset_cost;

/* MH_ERR_UNSUPPORTED where the format has no chunks; MH_ERR_NOMEM. Any thread. */
MH_API MH_MUST_CHECK mh_status mh_dataset_costs(const mh_dataset *dataset, mh_dataset_cost *out,
                                                mh_error *err);

/* Changes when what the dataset holds does: names, sizes, dates, fields. For saved positions. */
MH_API uint64_t mh_dataset_fingerprint(const mh_dataset *dataset);

#ifdef __cplusplus
}
#endif
#endif
