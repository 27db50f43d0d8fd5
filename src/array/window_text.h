/* window_text.h - which windows are wanted, as people write it
 * SPDX-License-Identifier: Apache-2.0
 *
 *     window  "time=4,lat=64,lon=64"   sizes; a dimension that is not named is taken whole
 *     stride  "time=1,lat=32"          from a window to the next; where not named, the window's
 * size select  "time=0:100,lat=-30..30" a range: by index (a colon, the end is not part of it), or
 * by coordinate (two dots, both ends are part of it) target  "time=+6"                a second
 * window, so many steps away from the first
 *
 * Pure: no allocation, no I/O.
 */
#ifndef MH_ARRAY_WINDOW_TEXT_H
#define MH_ARRAY_WINDOW_TEXT_H

#include <millhead/dataset.h>

/* Any may be NULL or empty: not given. */
typedef struct mh_window_texts {
    const char *window, *stride, *select, *target;
} mh_window_texts;

/* The values of a coordinate, which rise or fall from one end to the other. */
typedef struct mh_coordinate {
    const double *values; /* valid until the next call */
    uint64_t count;
    const char *calendar; /* NULL, "standard", "gregorian", "proleptic_gregorian"; others have no
                             dates here */
    const char *units; /* "hours since 1900-01-01": the range may then be given by dates; or NULL */
} mh_coordinate;

/* Reads the coordinate of a dimension: called for those that are selected by coordinate, and only
 * while windows are made. MH_ERR_NOT_FOUND: it has none. */
typedef mh_status mh_coordinate_lookup(void *context, const char *dim, mh_coordinate *out,
                                       mh_error *err);

/* One dimension, all that the texts say of it. In values along the array. */
typedef struct mh_window_dim {
    const char *name;
    uint64_t length;     /* of the array */
    uint64_t begin, end; /* selected */
    uint64_t window, stride;
    int64_t target; /* offset of the second window */
    uint64_t first; /* where the first window begins */
    uint64_t count; /* windows along it */
} mh_window_dim;

/* Fills what `texts` say into `dims`, whose names and lengths are set, and counts windows: those
 * that would cross the selection's end, or whose target would leave the array, are left out.
 * `has_target`: a target was given. Errors (MH_ERR_INVALID) name the part: an unknown dimension
 * (did you mean), a window larger than the array or the selection, a size of 0, a text that is none
 * of this. */
MH_MUST_CHECK mh_status mh_window_dims_read(mh_window_dim *dims, uint32_t count,
                                            const mh_window_texts *texts,
                                            mh_coordinate_lookup *lookup, void *context,
                                            int *out_has_target, mh_error *err);

#endif
