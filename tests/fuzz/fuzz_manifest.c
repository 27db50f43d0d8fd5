/* fuzz_manifest.c - fuzz target: tables of CSV and JSON lines, whatever the bytes, hold together
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first byte chooses: J is for JSON lines.
 */
#include "format/manifest_table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static void check_column(const mh_column *column, uint64_t rows)
{
    uint64_t sum = 0;
    require(column->name && *column->name);
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t bytes = 0;
        if (column->begin)
            require(column->begin[row] <= column->begin[row + 1]);
        if (column->kind == MH_CELL_TEXT) {
            const char *text = mh_column_text(column, row, &bytes);
            require(bytes <= column->longest && strlen(text) <= bytes);
        } else if (column->kind == MH_CELL_LIST) {
            uint64_t numbers = column->begin[row + 1] - column->begin[row];
            require(column->dims == 1 || column->dims == 2);
            require(column->dims == 1 || column->inner == 0 || numbers % column->inner == 0);
            for (uint64_t i = column->begin[row]; i < column->begin[row + 1]; i++)
                sum += column->whole ? (uint64_t)column->whole[i] : (column->real[i] > 0);
        } else {
            sum += column->whole ? (uint64_t)column->whole[row] : (column->real[row] > 0);
        }
    }
    (void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_table table;
    mh_error err = {0};
    if (size == 0)
        return 0;
    mh_status status =
        mh_table_read(&table, "m", (const char *)data + 1, size - 1, data[0] == 'J', &err);
    if (status != MH_OK)
        require(err.message[0] != '\0');
    for (uint32_t i = 0; status == MH_OK && i < table.column_count; i++)
        check_column(&table.columns[i], table.rows);
    mh_table_free(&table);
    return 0;
}
