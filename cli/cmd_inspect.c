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
        "What data holds: its format, how many samples, and the fields of each. Several\n"
        "paths are one dataset: .npy files are a field each, .npz files one for each array.\n"
        "Only headers are read.\n"
        "\n"
        "options:\n"
        "%s"
        "  --json             one JSON object: format, samples, fields (name, dtype, shape and\n"
        "                     bytes of a sample), files and their\n"
        "                     bytes, classes, index\n"
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

static void print_json(const mh_dataset *data)
{
    char dtype[MH_CLI_DTYPE];
    size_t count;
    uint64_t bytes;
    const mh_field *fields = mh_dataset_fields(data, &count);
    (void)printf("{\"format\": \"%s\", \"samples\": %" PRIu64 ", \"fields\": [",
                 mh_dataset_format(data), mh_dataset_count(data));
    for (size_t at = 0; at < count; at++) {
        (void)printf("%s{\"name\": ", at ? ", " : "");
        mh_cli_print_quoted(fields[at].name);
        (void)printf(", \"dtype\": \"%s\", \"shape\": [", mh_cli_dtype(dtype, fields[at].dtype));
        for (uint32_t dim = 0; dim < fields[at].dims; dim++)
            (void)printf("%s%" PRId64, dim ? ", " : "", fields[at].shape[dim]);
        (void)printf("], \"bytes\": %" PRIu64 "}", fields[at].bytes);
    }
    uint64_t files = mh_dataset_files(data, &bytes);
    (void)printf("], \"files\": %" PRIu64 ", \"bytes\": %" PRIu64, files, bytes);
    print_classes_json(data);
    print_index_json(data);
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
    (void)printf("%s: %" PRIu64 " samples in %" PRIu64 " file%s, %s", mh_dataset_format(data),
                 mh_dataset_count(data), files, files == 1 ? "" : "s", mh_cli_bytes(bytes, all));
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
    else if (code == MH_CLI_OK)
        print_table(data);
    mh_dataset_unref(data);
    free(paths);
    return code;
}
