/* manifest_table.h - a manifest as columns, each of one type
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_MANIFEST_TABLE_H
#define MH_FORMAT_MANIFEST_TABLE_H

#include "format/manifest_cells.h"

typedef struct mh_column {
    char *name;
    mh_cell_kind kind;   /* of all its cells; WHOLE becomes REAL, with NaN, where some are empty */
    uint64_t filled;     /* cells that are not empty */
    uint64_t text_bytes; /* of all texts, a NUL behind each */
    uint64_t number_count; /* in all lists */
    uint32_t dims;         /* of lists */
    uint64_t inner;        /* of lists of lists: numbers in each */
    bool whole_lists;      /* no list has a number with a fraction */
    uint64_t longest;      /* text, in bytes */
    uint64_t longest_list; /* by its first dimension */
    uint64_t first_line;   /* that says what it is */
    int64_t *whole;        /* WHOLE: of each row. LIST: of all, where whole_lists */
    double *real;          /* REAL, and LIST else */
    uint64_t *begin;       /* TEXT and LIST: of each row, and the end */
    char *texts;
} mh_column;

typedef struct mh_table {
    mh_column *columns;
    uint32_t column_count;
    uint64_t rows;
    uint32_t *lines; /* where each row begins */
} mh_table;

/* Reads all of it. A cell whose kind is not that of the others makes its column one of texts in
 * CSV, and is an error in JSON lines. Free it with mh_table_free, after a failure too. Errors name
 * manifest and line: MH_ERR_CORRUPT, MH_ERR_INVALID, MH_ERR_NOMEM. Pure but for its memory. */
MH_MUST_CHECK mh_status mh_table_read(mh_table *out, const char *name, const char *text,
                                      size_t size, bool json_lines, mh_error *err);
void mh_table_free(mh_table *table);

/* The column of that name; NULL. */
const mh_column *mh_table_column(const mh_table *table, const char *name);

/* A row's text, with a NUL behind it, and its bytes. */
static inline const char *mh_column_text(const mh_column *column, uint64_t row, uint64_t *bytes)
{
    *bytes = column->begin[row + 1] - column->begin[row];
    *bytes -= *bytes > 0; /* the NUL; a row without the column has none */
    return *bytes ? column->texts + column->begin[row] : "";
}

#endif
