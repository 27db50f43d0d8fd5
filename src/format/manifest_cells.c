/* manifest_cells.c - a manifest's text as cells with a type each
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/manifest_cells.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "format/csv.h"

#include <math.h>
#include <string.h>

/* --- lists --- */

static void give(const mh_json_token *token, mh_number_taker *take, void *context)
{
    int64_t whole = 0;
    double real = 0;
    bool is_whole = mh_json_int64(token, &whole);
    (void)mh_json_double(token, &real);
    if (take)
        take(context, is_whole, whole, real);
}

/* The numbers up to the end of the list that has begun. False: something else is in it. */
static bool list_numbers(mh_json *json, uint64_t *count, mh_number_taker *take, void *context)
{
    mh_json_token token;
    for (*count = 0; mh_json_next(json, &token) == MH_JSON_NUMBER_VALUE; ++*count)
        give(&token, take, context);
    return token.kind == MH_JSON_ARRAY_END;
}

bool mh_cell_list(const char *text, size_t length, uint32_t *dims, uint64_t *outer, uint64_t *inner,
                  mh_number_taker *take, void *context)
{
    mh_json json;
    mh_json_token token;
    *dims = 0;
    *outer = *inner = 0;
    mh_json_init(&json, text, length);
    if (mh_json_next(&json, &token) != MH_JSON_ARRAY)
        return false;
    while (mh_json_next(&json, &token) != MH_JSON_ARRAY_END) {
        uint64_t count = 0;
        bool number = token.kind == MH_JSON_NUMBER_VALUE;
        uint32_t found = number ? 1 : 2;
        if (number)
            give(&token, take, context);
        else if (token.kind != MH_JSON_ARRAY || !list_numbers(&json, &count, take, context))
            return false;
        if ((*dims && *dims != found) || (*outer && *inner != count))
            return false;
        *dims = found;
        *inner = count;
        ++*outer;
    }
    return mh_json_only_blanks(text + json.at, length - json.at);
}

/* --- what a text looks like --- */

static void take_number(mh_cell *cell, const mh_json_token *token)
{
    cell->kind = mh_json_int64(token, &cell->whole) ? MH_CELL_WHOLE : MH_CELL_REAL;
    (void)mh_json_double(token, &cell->real);
}

static void classify(mh_cell *cell)
{
    mh_json json;
    mh_json_token token;
    uint32_t dims;
    uint64_t outer, inner;
    cell->kind = cell->length ? MH_CELL_TEXT : MH_CELL_EMPTY;
    mh_json_init(&json, cell->text, cell->length);
    if (!cell->length)
        return;
    if (cell->length == 3 &&
        (memcmp(cell->text, "nan", 3) == 0 || memcmp(cell->text, "NaN", 3) == 0)) {
        cell->kind = MH_CELL_REAL;
        cell->real = NAN;
    } else if (mh_json_next(&json, &token) == MH_JSON_NUMBER_VALUE &&
               mh_json_only_blanks(cell->text + json.at, cell->length - json.at)) {
        take_number(cell, &token);
    } else if (token.kind == MH_JSON_ARRAY &&
               mh_cell_list(cell->text, cell->length, &dims, &outer, &inner, NULL, NULL)) {
        cell->kind = MH_CELL_LIST;
    }
}

/* --- CSV --- */

typedef struct csv_reading {
    const char *name;
    mh_csv csv;
    mh_csv_cell *header; /* of each column */
    uint32_t columns;
    char *scratch; /* room for the longest cell */
    mh_cell_taker *take;
    void *context;
} csv_reading;

static mh_status fail_line(const char *name, uint64_t line, const char *problem, mh_error *err)
{
    return mh_fail(err, MH_ERR_CORRUPT, "%s line %llu: %s", name, (unsigned long long)line,
                   problem);
}

static mh_status read_csv_header(csv_reading *self, mh_error *err)
{
    mh_csv_cell cell;
    mh_csv_kind kind;
    do {
        kind = mh_csv_next(&self->csv, &cell);
        if (kind == MH_CSV_ERROR)
            return fail_line(self->name, self->csv.line, self->csv.problem, err);
        if (kind == MH_CSV_END)
            return mh_fail(err, MH_ERR_CORRUPT, "%s is empty", self->name);
        mh_csv_cell *grown = mh_realloc(self->header, self->columns + 1u, sizeof *self->header);
        if (!grown)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for %s", self->name);
        self->header = grown;
        self->header[self->columns++] = cell;
    } while (kind != MH_CSV_LAST_CELL);
    return MH_OK;
}

static mh_status take_csv_cell(csv_reading *self, uint64_t row, uint32_t at,
                               const mh_csv_cell *from, mh_error *err)
{
    mh_cell cell = {.row = row,
                    .line = from->line,
                    .column = self->header[at].text,
                    .column_bytes = self->header[at].length,
                    .at = at,
                    .text = from->text,
                    .length = from->length};
    if (from->doubled) {
        cell.length = mh_csv_text(from, self->scratch);
        cell.text = self->scratch;
    }
    classify(&cell);
    return self->take(self->context, &cell, err);
}

static mh_status read_csv_rows(csv_reading *self, mh_error *err)
{
    mh_csv_cell cell;
    mh_csv_kind kind;
    uint64_t row = 0;
    uint32_t at = 0;
    while ((kind = mh_csv_next(&self->csv, &cell)) > MH_CSV_END) {
        if (at < self->columns)
            MH_TRY(take_csv_cell(self, row, at, &cell, err));
        at++;
        if (kind == MH_CSV_CELL && at < UINT32_MAX)
            continue;
        if (at != self->columns)
            return mh_fail(err, MH_ERR_CORRUPT, "%s line %llu: %u cells, and the header has %u",
                           self->name, (unsigned long long)cell.line, at, self->columns);
        at = 0;
        row++;
    }
    if (kind == MH_CSV_ERROR)
        return fail_line(self->name, self->csv.line, self->csv.problem, err);
    return MH_OK;
}

static mh_status read_csv(const char *name, const char *text, size_t size, mh_cell_taker *take,
                          void *context, mh_error *err)
{
    csv_reading self = {
        .name = name, .scratch = mh_calloc(size + 1, 1), .take = take, .context = context};
    mh_csv_init(&self.csv, text, size);
    mh_status status = self.scratch ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for %s", name);
    if (status == MH_OK)
        status = read_csv_header(&self, err);
    if (status == MH_OK)
        status = read_csv_rows(&self, err);
    mh_free(self.scratch);
    mh_free(self.header);
    return status;
}

/* --- JSON lines --- */

/* The value that `token` begins; lists and objects as the JSON they are. */
static bool take_value(mh_json *json, mh_cell *cell, mh_json_token *token, char *scratch)
{
    uint32_t dims;
    uint64_t outer, inner;
    size_t begin = json->at - 1;
    cell->text = token->text;
    cell->length = token->length;
    switch (token->kind) {
    case MH_JSON_NULL:
        cell->kind = MH_CELL_EMPTY;
        return true;
    case MH_JSON_TRUE:
    case MH_JSON_FALSE:
        cell->kind = MH_CELL_WHOLE;
        cell->whole = token->kind == MH_JSON_TRUE;
        cell->real = (double)cell->whole;
        return true;
    case MH_JSON_NUMBER_VALUE:
        take_number(cell, token);
        return true;
    case MH_JSON_STRING:
        cell->kind = MH_CELL_TEXT;
        if (token->escaped) {
            cell->length = mh_json_text(token, scratch, token->length + 1);
            cell->text = scratch;
        }
        return true;
    default:
        if (!mh_json_skip(json, token))
            return false;
        cell->text = json->data + begin;
        cell->length = json->at - begin;
        cell->kind = mh_cell_list(cell->text, cell->length, &dims, &outer, &inner, NULL, NULL)
                         ? MH_CELL_LIST
                         : MH_CELL_TEXT;
        return true;
    }
}

static mh_status read_object(const char *name, const char *line_text, size_t size, mh_cell *cell,
                             char *scratch, mh_cell_taker *take, void *context, mh_error *err)
{
    mh_json json;
    mh_json_token token;
    mh_json_init(&json, line_text, size);
    if (mh_json_next(&json, &token) != MH_JSON_OBJECT)
        return fail_line(name, cell->line, json.problem ? json.problem : "not an object", err);
    for (cell->at = 0; mh_json_next(&json, &token) == MH_JSON_KEY; cell->at++) {
        cell->column = token.text;
        cell->column_bytes = token.length;
        if (token.escaped)
            return fail_line(name, cell->line, "a key with escapes", err);
        if (mh_json_next(&json, &token) == MH_JSON_ERROR ||
            !take_value(&json, cell, &token, scratch))
            break;
        MH_TRY(take(context, cell, err));
    }
    if (json.problem)
        return fail_line(name, cell->line, json.problem, err);
    if (!mh_json_only_blanks(line_text + json.at, size - json.at))
        return fail_line(name, cell->line, "text behind the object", err);
    return MH_OK;
}

static mh_status read_json_lines(const char *name, const char *text, size_t size,
                                 mh_cell_taker *take, void *context, mh_error *err)
{
    char *scratch = mh_calloc(size + 1, 1);
    mh_cell cell = {.line = 1};
    mh_status status = scratch ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for %s", name);
    for (size_t at = 0; at < size && status == MH_OK; cell.line++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;
        if (!mh_json_only_blanks(text + at, length)) {
            status = read_object(name, text + at, length, &cell, scratch, take, context, err);
            cell.row++;
        }
        at += length + 1;
    }
    mh_free(scratch);
    return status;
}

mh_status mh_manifest_cells(const char *name, const char *text, size_t size, bool json_lines,
                            mh_cell_taker *take, void *context, mh_error *err)
{
    return json_lines ? read_json_lines(name, text, size, take, context, err)
                      : read_csv(name, text, size, take, context, err);
}
