/* manifest_cells.h - a manifest's text, CSV or JSON lines, as cells with a type each
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_MANIFEST_CELLS_H
#define MH_FORMAT_MANIFEST_CELLS_H

#include <millhead/error.h>
#include <stdbool.h>

typedef enum mh_cell_kind {
    MH_CELL_EMPTY, /* nothing, or null */
    MH_CELL_WHOLE,
    MH_CELL_REAL,
    MH_CELL_LIST, /* of numbers, or of lists of numbers */
    MH_CELL_TEXT
} mh_cell_kind;

typedef struct mh_cell {
    uint64_t row, line; /* counted from 0, and from 1 */
    const char *column; /* its name; no NUL behind it */
    size_t column_bytes;
    uint32_t at;       /* its number in the row */
    mh_cell_kind kind; /* of CSV: what its text looks like */
    const char *text;  /* of a list JSON, else as it is meant */
    size_t length;
    int64_t whole;
    double real; /* of whole ones, too */
} mh_cell;

/* Anything but MH_OK ends the reading. */
typedef mh_status mh_cell_taker(void *context, const mh_cell *cell, mh_error *err);

/* Calls `take` with each cell in order. `name` is the manifest's, for errors: MH_ERR_CORRUPT with
 * its line, MH_ERR_NOMEM. Pure but for its memory. */
MH_MUST_CHECK mh_status mh_manifest_cells(const char *name, const char *text, size_t size,
                                          bool json_lines, mh_cell_taker *take, void *context,
                                          mh_error *err);

/* Calls `take` with each number of a list cell, and sets *dims to 1 or 2 (0: the list is empty) and
 * *inner to the length of the lists in it. False: it is not a list of numbers, or those in it
 * differ in length. take may be NULL. */
typedef void mh_number_taker(void *context, bool is_whole, int64_t whole, double real);
bool mh_cell_list(const char *text, size_t length, uint32_t *dims, uint64_t *outer, uint64_t *inner,
                  mh_number_taker *take, void *context);

#endif
