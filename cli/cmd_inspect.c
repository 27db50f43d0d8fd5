/* cmd_inspect.c - millhead inspect: what data holds
 * SPDX-License-Identifier: Apache-2.0
 */
#include "data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHERE "inspect"

static void print_help(void)
{
    (void)printf(
        "usage: millhead inspect PATH... [OPTIONS]\n"
        "\n"
        "Shows what data holds: its format, how many samples, and their fields. Several\n"
        "paths are one dataset: .npy files are a field each, .npz files one for each array.\n"
        "Only headers are read.\n"
        "\n"
        "options:\n"
        "%s"
        "  --json             one JSON object: format, samples, fields (name, dtype, shape and\n"
        "                     bytes of a sample; of arrays dims, array, chunk and codec),\n"
        "                     files and their bytes, classes, index; of arrays amplification\n"
        "  --help             this text\n",
        mh_cli_data_help);
}

static void print_classes_json(const mh_dataset *data)
{
    const char *name;
    for (uint64_t at = 0; (name = mh_dataset_class(data, at)); at++) {
        (void)printf("%s", at ? ", " : ", \"classes\": [");
        mh_cli_print_quoted(name);
    }
    (void)printf("%s", mh_dataset_class(data, 0) ? "]" : "");
}

static void print_index_json(const mh_dataset *data)
{
    const char *state = NULL, *path = mh_dataset_index(data, &state);
    if (!state)
        return;
    (void)printf(", \"index\": {\"path\": ");
    if (path)
        mh_cli_print_quoted(path);
    else
        (void)printf("null");
    (void)printf(", \"state\": \"%s\"}", state);
}

/* How a field is stored, where it is in chunks; adds the array's bytes to *all. */
static void print_storage_json(const mh_dataset *data, size_t field, uint64_t *all)
{
    mh_field_storage storage;
    if (!mh_dataset_storage(data, field, &storage))
        return;
    (void)printf(", \"dims\": [");
    for (uint32_t dim = 0; dim < storage.dims; dim++) {
        (void)printf("%s", dim ? ", " : "");
        mh_cli_print_quoted(storage.dim_names[dim]);
    }
    (void)printf("], \"array\": [");
    for (uint32_t dim = 0; dim < storage.dims; dim++)
        (void)printf("%s%" PRIu64, dim ? ", " : "", storage.shape[dim]);
    (void)printf("], \"chunk\": [");
    for (uint32_t dim = 0; dim < storage.dims; dim++)
        (void)printf("%s%" PRIu64, dim ? ", " : "", storage.chunk[dim]);
    (void)printf("], \"codec\": ");
    mh_cli_print_quoted(storage.codec);
    *all += storage.bytes;
}

static void print_json(const mh_dataset *data)
{
    char dtype[MH_CLI_DTYPE];
    size_t count;
    uint64_t bytes, all = 0; /* of arrays in chunks */
    mh_dataset_cost cost;
    const mh_field *fields = mh_dataset_fields(data, &count);
    (void)printf("{\"format\": \"%s\", \"samples\": %" PRIu64 ", \"fields\": [",
                 mh_dataset_format(data), mh_dataset_count(data));
    for (size_t at = 0; at < count; at++) {
        (void)printf("%s{\"name\": ", at ? ", " : "");
        mh_cli_print_quoted(fields[at].name);
        (void)printf(", \"dtype\": \"%s\", \"shape\": [", mh_cli_dtype(dtype, fields[at].dtype));
        for (uint32_t dim = 0; dim < fields[at].dims; dim++)
            (void)printf("%s%" PRId64, dim ? ", " : "", fields[at].shape[dim]);
        (void)printf("], \"bytes\": %" PRIu64, fields[at].bytes);
        print_storage_json(data, at, &all);
        (void)printf("}");
    }
    uint64_t files = mh_dataset_files(data, &bytes);
    (void)printf("], \"files\": %" PRIu64 ", \"bytes\": %" PRIu64, files, all ? all : bytes);
    print_classes_json(data);
    print_index_json(data);
    if (mh_dataset_costs(data, &cost, NULL) == MH_OK)
        (void)printf(", \"amplification\": %.4g, \"unique_bytes\": %.0f, \"sample_bytes\": %.0f, "
                     "\"useful_bytes\": %.0f",
                     cost.amplification, cost.unique_bytes, cost.sample_bytes, cost.useful_bytes);
    (void)printf("}\n");
}

/* "224x224x3"; a dash for a single value. */
static void shape_text(char *out, size_t room, const mh_field *field)
{
    size_t used = (size_t)snprintf(out, room, "%s", field->dims ? "" : "-");
    for (uint32_t dim = 0; dim < field->dims && used < room; dim++)
        used += (size_t)snprintf(out + used, room - used, "%s%" PRId64, dim ? "x" : "",
                                 field->shape[dim]);
}

/* Names come from files: they move no cursor. */
static void name_text(char *out, size_t room, const char *name)
{
    if (out != name)
        (void)snprintf(out, room, "%s", name);
    for (; *out; out++)
        if ((unsigned char)*out < 0x20 || *out == 0x7f)
            *out = '?';
}

static void print_table(const mh_dataset *data)
{
    char bytes[MH_CLI_BYTES], dtype[MH_CLI_DTYPE], shape[MH_DIMS_MOST * 21], name[256];
    size_t count;
    uint64_t all, files = mh_dataset_files(data, &all), classes = 0;
    const mh_field *fields = mh_dataset_fields(data, &count);
    while (mh_dataset_class(data, classes))
        classes++;
    (void)printf("%s: %" PRIu64 " samples", mh_dataset_format(data), mh_dataset_count(data));
    if (files && all)
        (void)printf(" in %" PRIu64 " file%s, %s", files, files == 1 ? "" : "s",
                     mh_cli_bytes(bytes, all));
    if (classes)
        (void)printf(", %" PRIu64 " classes", classes);
    (void)printf("\n\n");
    (void)printf("%-20s %-10s %-20s %10s\n", "field", "dtype", "shape of a sample", "bytes");
    for (size_t at = 0; at < count; at++) {
        name_text(name, sizeof name, fields[at].name);
        shape_text(shape, sizeof shape, &fields[at]);
        (void)printf("%-20s %-10s %-20s %10" PRIu64 "\n", name,
                     mh_cli_dtype(dtype, fields[at].dtype), shape, fields[at].bytes);
    }
}

/* The arrays that fields are cut from, and what that costs. */
static void print_arrays(const mh_dataset *data)
{
    char shape[MH_DIMS_MOST * 80], chunk[MH_DIMS_MOST * 21], name[256], bytes[MH_CLI_BYTES];
    size_t count;
    mh_field_storage storage;
    mh_dataset_cost cost;
    const mh_field *fields = mh_dataset_fields(data, &count);
    if (mh_dataset_costs(data, &cost, NULL) != MH_OK)
        return;
    (void)printf("\n%-20s %-32s %-16s %10s  %s\n", "array", "dimensions", "chunk", "bytes",
                 "codec");
    for (size_t at = 0; at < count && mh_dataset_storage(data, at, &storage); at++) {
        size_t used = 0, chunk_used = 0;
        shape[0] = chunk[0] = '\0';
        for (uint32_t dim = 0; dim < storage.dims && used < sizeof shape; dim++) {
            used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%.40s=%" PRIu64,
                                     dim ? " " : "", storage.dim_names[dim], storage.shape[dim]);
            chunk_used += (size_t)snprintf(chunk + chunk_used, sizeof chunk - chunk_used,
                                           "%s%" PRIu64, dim ? "x" : "", storage.chunk[dim]);
        }
        name_text(name, sizeof name, fields[at].name);
        name_text(shape, sizeof shape, shape);
        (void)printf("%-20s %-32s %-16s %10s  %s\n", name, shape, chunk,
                     mh_cli_bytes(bytes, storage.bytes), storage.codec);
    }
    if (cost.useful_bytes > 0)
        (void)printf(
            "\na sample alone decodes %.3gx its bytes; with --shuffle blocks each chunk is decoded "
            "%.3gx per epoch\n",
            cost.sample_bytes / cost.useful_bytes, cost.amplification);
}

int mh_cmd_inspect(int argc, char **argv)
{
    bool json = false, help = false;
    mh_cli_data about;
    const mh_cli_option table[] = {
        MH_CLI_DATA_ROWS(&about),
        {"--json", MH_CLI_FLAG, &json, 0},
        {"--help", MH_CLI_FLAG, &help, 0},
    };
    mh_dataset *data = NULL;
    const char **paths = calloc((size_t)argc + 1, sizeof *paths);
    if (!paths)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "free some memory", "out of memory");
    mh_cli_data_init(&about);
    int code =
        mh_cli_read(table, sizeof table / sizeof *table, paths, (size_t)argc, argc, argv, WHERE);
    if (code == MH_CLI_OK && !help)
        code = mh_cli_open_data(&data, paths, &about, WHERE);
    if (code == MH_CLI_OK && help)
        print_help();
    else if (code == MH_CLI_OK && json)
        print_json(data);
    else if (code == MH_CLI_OK) {
        print_table(data);
        print_arrays(data);
    }
    mh_dataset_unref(data);
    free(paths);
    return code;
}
