/* windows.h - samples that are windows over chunked arrays: which chunks a sample needs, and
 * placing SPDX-License-Identifier: Apache-2.0
 *
 *     mh_windows *windows;
 *     mh_windows_new(&windows, variables, count, &texts, lookup, context, &err)
 *     for each field: mh_windows_field(windows, i) says name, dtype, shape
 *     mh_windows_units_of(windows, sample, ids)      what to fetch and decode
 *     mh_windows_chunk(windows, id)                  which chunk of which variable that is
 *     mh_windows_place(windows, sample, &chunks, into)
 *
 * Samples are numbered row-major over the dimensions of all variables, in the order in which
 * variables name them. A variable that lacks a dimension is the same for all windows along it.
 * Immutable once made, but for mh_windows_seat_fields: any thread, no I/O, no allocation.
 */
#ifndef MH_ARRAY_WINDOWS_H
#define MH_ARRAY_WINDOWS_H

#include "array/variable.h"
#include "array/window_text.h"
#include "base/cells.h"

typedef struct mh_windows mh_windows;

/* `variables` are those that are wanted, the parts of one after each other; they and their texts
 * stay the caller's and must stay valid and unchanged as long as the windows. Dimensions of the
 * same name must have the same length. With a target each variable gives two fields. Free with
 * mh_windows_free. *out is untouched on failure. Errors: MH_ERR_INVALID (those of window_text.h;
 * lengths that differ), MH_ERR_UNSUPPORTED, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_windows_new(mh_windows **out, const mh_variable *variables, size_t count,
                                       const mh_window_texts *texts, mh_coordinate_lookup *lookup,
                                       void *context, mh_error *err);
void mh_windows_free(mh_windows *windows);

/* How many samples. */
uint64_t mh_windows_count(const mh_windows *windows);

/* The dimensions, with what the texts said of them. */
const mh_window_dim *mh_windows_dims(const mh_windows *windows, uint32_t *out_count);

/* The first value of a sample's window along each dimension: `_origin`. */
void mh_windows_origin(const mh_windows *windows, uint64_t sample, int64_t *out);

/* --- fields --- */

/* Dimensions with a window of 1 are kept: a field has as many as its variable. */
typedef struct mh_window_field {
    char *name; /* the variable's; of its target "target", or "target_NAME" if there are more */
    uint32_t variable; /* number in `variables`, of its first part */
    int target;
    mh_dtype dtype;
    uint32_t dims;
    int64_t shape[MH_DIMS_MOST];
    uint32_t seat; /* of mh_windows_seat_fields */
} mh_window_field;

/* Field number `at`; NULL beyond the last. First all windows, then all targets. */
const mh_window_field *mh_windows_field(const mh_windows *windows, size_t at);

/* The field in which place() writes to into[i] is number fields[i]. Not called: as they are
 * numbered. Fields that are not named are not placed. Before other threads use the windows. */
void mh_windows_seat_fields(mh_windows *windows, const uint32_t *fields, size_t count);

/* --- chunks --- */

/* Chunks of all variables, numbered: the chunks of the first variable in C order, then those of the
 * second, ... */
uint64_t mh_windows_unit_count(const mh_windows *windows);
/* Of one sample at most. */
uint32_t mh_windows_units_most(const mh_windows *windows);
/* Those that a sample needs, none twice; gives their number. */
uint32_t mh_windows_units_of(const mh_windows *windows, uint64_t sample, uint64_t *ids);

typedef struct mh_chunk {
    uint32_t variable;
    uint64_t number;           /* in C order among the variable's */
    uint64_t at[MH_DIMS_MOST]; /* along each dimension of the variable */
} mh_chunk;
mh_chunk mh_windows_chunk(const mh_windows *windows, uint64_t id);
uint64_t mh_windows_unit_id(const mh_windows *windows, uint32_t variable, uint64_t number);

/* Decoded chunks in the order of units_of: a pointer to the first one's pointer, and the bytes from
 * one pointer to the next, so that they may stand in larger structs. A pointer that is NULL stands
 * for a chunk that is missing: the fill value. */
typedef struct mh_chunks {
    const uint8_t *const *first;
    size_t step;
} mh_chunks;

/* Writes all fields of a sample. No alignment is needed. */
void mh_windows_place(const mh_windows *windows, uint64_t sample, const mh_chunks *chunks,
                      uint8_t *const *into);

#endif
