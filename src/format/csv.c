/* csv.c - a pull parser for CSV text
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/csv.h"

#include <string.h>

static const char byte_order_mark[3] = {'\xef', '\xbb', '\xbf'};

void mh_csv_init(mh_csv *csv, const char *data, size_t size)
{
    bool marked = size >= 3 && memcmp(data, byte_order_mark, sizeof byte_order_mark) == 0;
    *csv = (mh_csv){.data = data, .size = size, .at = marked ? 3 : 0, .line = 1};
}

/* Bytes of the line end here; 0: it is none. */
static size_t line_end(const mh_csv *csv)
{
    if (csv->at == csv->size)
        return 0;
    if (csv->data[csv->at] == '\n')
        return 1;
    return csv->data[csv->at] == '\r' && csv->size - csv->at > 1 && csv->data[csv->at + 1] == '\n'
               ? 2
               : 0;
}

static mh_csv_kind fail(mh_csv *csv, const char *problem)
{
    csv->problem = problem;
    return MH_CSV_ERROR;
}

/* Behind a cell: a comma, a line end or the end of the text. */
static mh_csv_kind close_cell(mh_csv *csv)
{
    size_t end = line_end(csv);
    csv->in_row = end == 0 && csv->at < csv->size;
    if (csv->in_row && csv->data[csv->at] != ',')
        return fail(csv, "a closing quote with text behind it");
    csv->at += csv->in_row ? 1 : end;
    csv->line += end > 0;
    return csv->in_row ? MH_CSV_CELL : MH_CSV_LAST_CELL;
}

static mh_csv_kind quoted(mh_csv *csv, mh_csv_cell *cell)
{
    size_t begin = ++csv->at;
    uint64_t lines = 0;
    for (; csv->at < csv->size; csv->at++) {
        lines += csv->data[csv->at] == '\n';
        if (csv->data[csv->at] != '"')
            continue;
        if (csv->at + 1 == csv->size || csv->data[csv->at + 1] != '"') {
            cell->text = csv->data + begin;
            cell->length = csv->at++ - begin;
            csv->line += lines;
            return close_cell(csv);
        }
        cell->doubled = true;
        csv->at++;
    }
    return fail(csv, "a quote that is not closed");
}

mh_csv_kind mh_csv_next(mh_csv *csv, mh_csv_cell *cell)
{
    if (csv->problem)
        return MH_CSV_ERROR;
    for (size_t end; !csv->in_row && (end = line_end(csv)) > 0; csv->line++)
        csv->at += end;
    if (csv->at == csv->size && !csv->in_row)
        return MH_CSV_END;
    *cell = (mh_csv_cell){.line = csv->line};
    if (csv->at < csv->size && csv->data[csv->at] == '"')
        return quoted(csv, cell);
    size_t begin = csv->at;
    while (csv->at < csv->size && csv->data[csv->at] != ',' && line_end(csv) == 0)
        csv->at++;
    cell->text = csv->data + begin;
    cell->length = csv->at - begin;
    return close_cell(csv);
}

size_t mh_csv_text(const mh_csv_cell *cell, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < cell->length; i++) {
        out[used++] = cell->text[i];
        if (cell->doubled && cell->text[i] == '"')
            i++; /* the other one */
    }
    return used;
}
