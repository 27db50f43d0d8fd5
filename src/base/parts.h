/* parts.h - texts of parts with commas between them, and amounts with units
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_BASE_PARTS_H
#define MH_BASE_PARTS_H

#include <millhead/error.h>
#include <stdbool.h>

/* A unit and what it is worth; a list ends with a name of NULL. */
typedef struct mh_amount_unit {
    const char *name;
    double factor;
} mh_amount_unit;

extern const mh_amount_unit mh_times[];  /* s, ms, us: in ns */
extern const mh_amount_unit mh_shares[]; /* %, or none: from 0 to 1 */

/* A number that is not negative and one of the units, at most `most`; false: it is anything else.
 */
bool mh_amount_read(const char *text, const mh_amount_unit *units, double most, double *out);

/* Calls `take` with each part ("key=value"), which it may change, until one is not MH_OK. `what` is
 * for the error about a part that is too long: MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_parts_read(const char *text, const char *what,
                                      mh_status (*take)(void *context, char *part, mh_error *err),
                                      void *context, mh_error *err);

#endif
