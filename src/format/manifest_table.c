/* manifest_table.c - a manifest as columns, each of one type
 * SPDX-License-Identifier: Apache-2.0
 *
 * The text is read twice: first to learn which columns there are, of which type and how large, then
 * to fill them.
 */
#include "format/manifest_table.h"

#include "base/alloc.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

#define COLUMNS_MOST 4096u
#define ROWS_MOST (UINT64_C(1) << 31)

typedef struct table_reading {
    mh_table *table;
    const char *name;
    bool json_lines;
    mh_column *column; /* whose list is being filled */
    uint64_t used;     /* numbers of it */
} table_reading;

/* --- columns --- */

static bool is_named(const mh_column *column, const char *name, size_t bytes)
{
    return strlen(column->name) == bytes && memcmp(column->name, name, bytes) == 0;
}

const mh_column *mh_table_column(const mh_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->column_count; i++)
        if (strcmp(table->columns[i].name, name) == 0)
            return &table->columns[i];
    return NULL;
}

/* NULL: there is none yet. Rows mostly have their columns in the same order. */
static mh_column *find(mh_table *table, const mh_cell *cell)
{
    if (cell->at < table->column_count &&
        is_named(&table->columns[cell->at], cell->column, cell->column_bytes))
        return &table->columns[cell->at];
    for (uint32_t i = 0; i < table->column_count; i++)
        if (is_named(&table->columns[i], cell->column, cell->column_bytes))
            return &table->columns[i];
    return NULL;
}

static mh_status fail_memory(const char *name, mh_error *err)
{
    return mh_fail(err, MH_ERR_NOMEM, "no memory for the columns of %s", name);
}

static mh_status add_column(table_reading *self, const mh_cell *cell, mh_column **out,
                            mh_error *err)
{
    mh_table *table = self->table;
    if (cell->column_bytes == 0 || memchr(cell->column, '\0', cell->column_bytes))
        return mh_fail(err, MH_ERR_CORRUPT, "%s line %llu: a column without a name", self->name,
                       (unsigned long long)cell->line);
    if (table->column_count == COLUMNS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s has more than %u columns", self->name,
                       COLUMNS_MOST);
    char *name = mh_calloc(cell->column_bytes + 1, 1);
    mh_column *grown = mh_realloc(table->columns, table->column_count + 1u, sizeof *grown);
    if (grown)
        table->columns = grown;
    if (!grown || !name) {
        mh_free(name);
        return fail_memory(self->name, err);
    }
    memcpy(name, cell->column, cell->column_bytes);
    *out = &grown[table->column_count++];
    **out = (mh_column){.name = name, .whole_lists = true};
    return MH_OK;
}

/* --- first: what is there --- */

static void count_number(void *context, bool is_whole, int64_t whole, double real)
{
    mh_column *column = context;
    (void)whole;
    (void)real;
    column->whole_lists &= is_whole;
    column->number_count++;
}

/* False: lists of other dimensions were there before. */
static bool count_list(mh_column *column, const mh_cell *cell)
{
    uint32_t dims;
    uint64_t outer, inner;
    (void)mh_cell_list(cell->text, cell->length, &dims, &outer, &inner, count_number, column);
    if (outer > column->longest_list)
        column->longest_list = outer;
    if (dims && !column->dims) {
        column->dims = dims;
        column->inner = inner;
    }
    return !dims || (column->dims == dims && column->inner == inner);
}

static mh_cell_kind merged(mh_cell_kind a, mh_cell_kind b)
{
    if (a == MH_CELL_EMPTY || a == b)
        return b;
    if (b == MH_CELL_EMPTY)
        return a;
    if ((a == MH_CELL_WHOLE && b == MH_CELL_REAL) || (a == MH_CELL_REAL && b == MH_CELL_WHOLE))
        return MH_CELL_REAL;
    return MH_CELL_TEXT;
}

static const char *kind_name(mh_cell_kind kind)
{
    static const char *const names[] = {[MH_CELL_EMPTY] = "nothing",
                                        [MH_CELL_WHOLE] = "a number",
                                        [MH_CELL_REAL] = "a number",
                                        [MH_CELL_LIST] = "a list",
                                        [MH_CELL_TEXT] = "a text"};
    return names[kind];
}

static mh_status look(void *context, const mh_cell *cell, mh_error *err)
{
    table_reading *self = context;
    mh_column *column = find(self->table, cell);
    if (!column)
        MH_TRY(add_column(self, cell, &column, err));
    if (cell->row >= ROWS_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s has too many rows", self->name);
    self->table->rows = cell->row + 1;
    mh_cell_kind kind = merged(column->kind, cell->kind);
    bool fits = kind != MH_CELL_TEXT || column->kind == MH_CELL_EMPTY || column->kind == cell->kind;
    if (cell->kind == MH_CELL_LIST && kind == MH_CELL_LIST && !count_list(column, cell)) {
        kind = MH_CELL_TEXT;
        if (self->json_lines)
            return mh_fail(err, MH_ERR_INVALID,
                           "%s line %llu: a list in '%s' has other dimensions than in line %llu",
                           self->name, (unsigned long long)cell->line, column->name,
                           (unsigned long long)column->first_line);
    }
    if (!fits && self->json_lines && cell->kind != MH_CELL_EMPTY)
        return mh_fail(err, MH_ERR_INVALID, "%s line %llu: '%s' is %s, and %s in line %llu",
                       self->name, (unsigned long long)cell->line, column->name,
                       kind_name(cell->kind), kind_name(column->kind),
                       (unsigned long long)column->first_line);
    if (column->kind == MH_CELL_EMPTY && cell->kind != MH_CELL_EMPTY)
        column->first_line = cell->line;
    column->kind = kind;
    column->filled += cell->kind != MH_CELL_EMPTY;
    column->text_bytes += cell->length + 1;
    if (cell->length > column->longest)
        column->longest = cell->length;
    return MH_OK;
}

/* --- then: filling --- */

static mh_status make_room(mh_table *table, const char *name, mh_error *err)
{
    bool made = (table->lines = mh_calloc(table->rows + 1, sizeof *table->lines)) != NULL;
    for (uint32_t i = 0; made && i < table->column_count; i++) {
        mh_column *column = &table->columns[i];
        bool list = column->kind == MH_CELL_LIST;
        uint64_t numbers = (list ? column->number_count : table->rows) + 1;
        if (column->kind == MH_CELL_EMPTY ||
            (column->kind == MH_CELL_WHOLE && column->filled < table->rows))
            column->kind = MH_CELL_REAL;
        if (list && !column->dims)
            column->dims = 1; /* all are empty */
        if (column->kind == MH_CELL_TEXT)
            made = (column->texts = mh_calloc(column->text_bytes + 1, 1)) != NULL;
        else if (column->kind == MH_CELL_WHOLE || (list && column->whole_lists))
            made = (column->whole = mh_calloc(numbers, sizeof *column->whole)) != NULL;
        else
            made = (column->real = mh_calloc(numbers, sizeof *column->real)) != NULL;
        if (made && (list || column->kind == MH_CELL_TEXT))
            made = (column->begin = mh_calloc(table->rows + 1, sizeof *column->begin)) != NULL;
        for (uint64_t row = 0; made && column->kind == MH_CELL_REAL && row < table->rows; row++)
            column->real[row] = NAN; /* those that come are written over it */
        column->filled = 0;          /* from here on: rows whose `begin` is set */
    }
    return made ? MH_OK : fail_memory(name, err);
}

/* The begin of rows up to `row`, which do not have the column, is the end of what is there. */
static void fill_begins(mh_column *column, uint64_t row)
{
    while (column->filled < row) {
        column->begin[column->filled + 1] = column->begin[column->filled];
        column->filled++;
    }
}

static void put_number(void *context, bool is_whole, int64_t whole, double real)
{
    table_reading *self = context;
    (void)is_whole;
    if (self->column->whole)
        self->column->whole[self->used++] = whole;
    else
        self->column->real[self->used++] = real;
}

static void put_list(table_reading *self, mh_column *column, const mh_cell *cell)
{
    uint32_t dims;
    uint64_t outer, inner;
    self->column = column;
    self->used = column->begin[cell->row];
    if (cell->kind == MH_CELL_LIST)
        (void)mh_cell_list(cell->text, cell->length, &dims, &outer, &inner, put_number, self);
    column->begin[cell->row + 1] = self->used;
}

static mh_status fill(void *context, const mh_cell *cell, mh_error *err)
{
    table_reading *self = context;
    mh_column *column = find(self->table, cell);
    bool ragged = column->begin != NULL;
    if (ragged && column->filled > cell->row) /* JSON allows it, and nobody knows which is meant */
        return mh_fail(err, MH_ERR_CORRUPT, "%s line %llu: '%s' occurs twice", self->name,
                       (unsigned long long)cell->line, column->name);
    self->table->lines[cell->row] = cell->line < UINT32_MAX ? (uint32_t)cell->line : UINT32_MAX;
    if (ragged)
        fill_begins(column, cell->row);
    if (column->kind == MH_CELL_WHOLE)
        column->whole[cell->row] = cell->whole;
    else if (column->kind == MH_CELL_REAL && cell->kind != MH_CELL_EMPTY)
        column->real[cell->row] = cell->real;
    else if (column->kind == MH_CELL_LIST)
        put_list(self, column, cell);
    else if (column->kind == MH_CELL_TEXT) {
        if (cell->length)
            memcpy(column->texts + column->begin[cell->row], cell->text, cell->length);
        column->begin[cell->row + 1] = column->begin[cell->row] + cell->length + 1;
    }
    if (ragged)
        column->filled = cell->row + 1;
    return MH_OK;
}

mh_status mh_table_read(mh_table *out, const char *name, const char *text, size_t size,
                        bool json_lines, mh_error *err)
{
    table_reading self = {.table = out, .name = name, .json_lines = json_lines};
    *out = (mh_table){0};
    MH_TRY(mh_manifest_cells(name, text, size, json_lines, look, &self, err));
    MH_TRY(make_room(out, name, err));
    MH_TRY(mh_manifest_cells(name, text, size, json_lines, fill, &self, err));
    for (uint32_t i = 0; i < out->column_count; i++)
        if (out->columns[i].begin)
            fill_begins(&out->columns[i], out->rows);
    return MH_OK;
}

void mh_table_free(mh_table *table)
{
    for (uint32_t i = 0; i < table->column_count; i++) {
        mh_column *column = &table->columns[i];
        mh_free(column->name);
        mh_free(column->whole);
        mh_free(column->real);
        mh_free(column->begin);
        mh_free(column->texts);
    }
    mh_free(table->columns);
    mh_free(table->lines);
}
