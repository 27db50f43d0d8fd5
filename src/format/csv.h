/* csv.h - a pull parser for CSV text, pure: no file, no allocation
 * SPDX-License-Identifier: Apache-2.0
 *
 * RFC 4180 with commas: cells may stand in quotes, where commas and line ends are text and a quote
 * is doubled. Lines end with LF or CRLF, the last one also with the text. Empty lines are passed
 * over; a byte order mark too.
 */
#ifndef MH_FORMAT_CSV_H
#define MH_FORMAT_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mh_csv_kind {
    MH_CSV_ERROR, /* csv.problem says what, csv.line where; stays so */
    MH_CSV_END,
    MH_CSV_CELL,
    MH_CSV_LAST_CELL, /* of its row */
} mh_csv_kind;

/* Points into the text that is parsed. */
typedef struct mh_csv_cell {
    const char *text;
    size_t length;
    uint64_t line; /* that it begins in, from 1 on */
    bool doubled;  /* holds doubled quotes: see mh_csv_text */
} mh_csv_cell;

/* Caller's memory; the fields are to be read only. */
typedef struct mh_csv {
    const char *data;
    size_t size, at;
    uint64_t line;
    const char *problem; /* NULL: none yet */
    bool in_row;         /* a comma came last: a cell follows, if only an empty one */
} mh_csv;

void mh_csv_init(mh_csv *csv, const char *data, size_t size);
mh_csv_kind mh_csv_next(mh_csv *csv, mh_csv_cell *cell);

/* The cell with its quotes single, into `out`, which has room for its length. Returns its bytes. */
size_t mh_csv_text(const mh_csv_cell *cell, char *out);

#endif
