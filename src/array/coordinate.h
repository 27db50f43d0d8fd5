/* coordinate.h - a range of a coordinate's values as a range of indices
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ARRAY_COORDINATE_H
#define MH_ARRAY_COORDINATE_H

#include "array/window_text.h"

#include <stdbool.h>

/* The indices *begin to *end (not part of it) of the values from `low` to `high`, both part of it:
 * numbers, or dates (2001, 2001-02, 2001-02-03, 2001-02-03T04:05) for units of time, where the end
 * is the whole year, month, day or minute. An empty text is the coordinate's own end. `dim` is for
 * errors: MH_ERR_INVALID (not such a text; nothing in the range; values that do not rise or fall),
 * MH_ERR_UNSUPPORTED (units or a calendar that have no dates here). Pure. */
MH_MUST_CHECK mh_status mh_coordinate_range(const mh_coordinate *coordinate, const char *dim,
                                            const char *low, const char *high, uint64_t *begin,
                                            uint64_t *end, mh_error *err);

/* Whether units are of time ("hours since 1900-01-01", in a calendar of mh_coordinate); then a
 * value v is v * *seconds + *since seconds after 1970-01-01. Pure. */
bool mh_coordinate_units(const char *units, const char *calendar, double *seconds, double *since);

#endif
