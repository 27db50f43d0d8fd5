/* plan_chunks.c - millhead plan chunks: what a sample takes from a chunked array
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHERE "plan chunks"

enum { MOST_ROWS = 64, SHAPE_TEXT = 256 };

typedef struct chunk_row {
    uint64_t chunk[MH_PLAN_DIMENSIONS];
    mh_plan_chunks plan;
    char name[SHAPE_TEXT];
} chunk_row;

typedef struct chunks_request {
    uint64_t sample[MH_PLAN_DIMENSIONS];
    size_t dimensions;
    uint64_t item_bytes;
    const char *chunks; /* as given, or NULL */
    bool json;
    bool help;
} chunks_request;

typedef struct chunk_table {
    chunk_row rows[MOST_ROWS];
    size_t count;
} chunk_table;

void mh_plan_chunks_print_help(void)
{
    (void)printf(
        "usage: millhead plan chunks STORE --window SIZES [OPTIONS]\n"
        "       millhead plan chunks --sample SHAPE [--chunk SHAPES] [--itemsize N] [--json]\n"
        "\n"
        "%s"
        "\n"
        "Without a store:\n"
        "How many chunks of a chunked array (Zarr, HDF5) a sample touches, and how many\n"
        "bytes that reads: at least, where it lies on the grid, and at most, where it\n"
        "begins anywhere. Chunks are read whole.\n"
        "\n"
        "  --sample SHAPE  the sample's shape, like 64x64 or 24x3x128x128\n"
        "  --chunk SHAPES  shapes of chunks, like 8x8,16x16; one number stands for the same\n"
        "                  size in every dimension (default: 8,16,32,64,128,256,512,1024)\n"
        "  --itemsize N    bytes of one item (default 1)\n"
        "  --json          one JSON object: sample, itemsize, sample_bytes, rows (chunk,\n"
        "                  min_chunks, max_chunks, min_bytes, max_bytes)\n"
        "  --help          this text\n",
        mh_plan_store_help);
}

static int parse(chunks_request *request, int argc, char **argv)
{
    int item = 1;
    const char *sample = NULL;
    const mh_cli_option table[] = {
        {"--sample", MH_CLI_TEXT, &sample, 0},      {"--chunk", MH_CLI_TEXT, &request->chunks, 0},
        {"--itemsize", MH_CLI_COUNT, &item, 1},     {"--json", MH_CLI_FLAG, &request->json, 0},
        {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    int bad = mh_cli_read(table, sizeof table / sizeof *table, NULL, 0, argc, argv, WHERE);
    if (bad || request->help)
        return bad;
    request->item_bytes = (uint64_t)item;
    if (!sample)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "give one like --sample 64x64", "no sample given");
    return mh_cli_shape(request->sample, MH_PLAN_DIMENSIONS, &request->dimensions, sample,
                        "--sample", WHERE);
}

static void name_shape(char out[SHAPE_TEXT], const uint64_t *shape, size_t dimensions)
{
    size_t used = 0;
    for (size_t at = 0; at < dimensions && used < SHAPE_TEXT; at++)
        used +=
            (size_t)snprintf(out + used, SHAPE_TEXT - used, "%s%" PRIu64, at ? "x" : "", shape[at]);
}

/* One shape of the list into the table's next row. One that nobody asked for is left out where its
 * numbers get too large: in many dimensions the usual sizes are huge. */
static int add_row(chunk_table *table, const chunks_request *request, const char *text)
{
    chunk_row *row = &table->rows[table->count++];
    size_t given;
    mh_error err;
    int bad = mh_cli_shape(row->chunk, MH_PLAN_DIMENSIONS, &given, text, "--chunk", WHERE);
    if (bad)
        return bad;
    if (given == 1)
        while (given < request->dimensions)
            row->chunk[given++] = row->chunk[0];
    if (given != request->dimensions)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "give chunks of as many dimensions as the sample",
                           "chunk '%s' has %zu dimensions, the sample has %zu", text, given,
                           request->dimensions);
    name_shape(row->name, row->chunk, request->dimensions);
    if (mh_plan_chunks_make(&row->plan, request->sample, row->chunk, request->dimensions,
                            request->item_bytes, &err) == MH_OK)
        return MH_CLI_OK;
    if (!request->chunks && table->count > 1) {
        table->count--;
        return MH_CLI_OK;
    }
    return mh_cli_fail(MH_CLI_USAGE, WHERE, "give smaller shapes with --sample and --chunk",
                       "chunk %s: %s", row->name, err.message);
}

static int fill_table(chunk_table *table, const chunks_request *request)
{
    const char *rest = request->chunks ? request->chunks : "8,16,32,64,128,256,512,1024";
    for (;;) {
        char text[SHAPE_TEXT];
        size_t length = strcspn(rest, ",");
        if (table->count == MOST_ROWS || length >= sizeof text)
            return mh_cli_fail(MH_CLI_USAGE, WHERE, "ask in several calls",
                               "more than %d chunks, or one of more than %d characters", MOST_ROWS,
                               SHAPE_TEXT - 1);
        memcpy(text, rest, length);
        text[length] = '\0';
        int bad = add_row(table, request, text);
        if (bad || !rest[length])
            return bad;
        rest += length + 1;
    }
}

/* Below 2^64, as a row has at least as many. */
static uint64_t sample_bytes(const chunks_request *request)
{
    uint64_t bytes = request->item_bytes;
    for (size_t at = 0; at < request->dimensions; at++)
        bytes *= request->sample[at];
    return bytes;
}

static void print_json(const chunk_table *table, const chunks_request *request, const char *sample)
{
    (void)printf("{\"sample\": \"%s\", \"itemsize\": %" PRIu64 ", \"sample_bytes\": %" PRIu64
                 ", \"rows\": [",
                 sample, request->item_bytes, sample_bytes(request));
    for (size_t at = 0; at < table->count; at++) {
        const mh_plan_chunks *plan = &table->rows[at].plan;
        (void)printf("%s{\"chunk\": \"%s\", \"min_chunks\": %" PRIu64 ", \"max_chunks\": %" PRIu64
                     ", \"min_bytes\": %" PRIu64 ", \"max_bytes\": %" PRIu64 "}",
                     at ? ", " : "", table->rows[at].name, plan->min_chunks, plan->max_chunks,
                     plan->min_bytes, plan->max_bytes);
    }
    (void)printf("]}\n");
}

static void print_table(const chunk_table *table, const chunks_request *request, const char *sample)
{
    uint64_t own = sample_bytes(request);
    int width = (int)strlen("chunk");
    for (size_t at = 0; at < table->count; at++)
        if ((int)strlen(table->rows[at].name) > width)
            width = (int)strlen(table->rows[at].name);
    (void)printf("A sample of %s, %" PRIu64 " byte%s, from an array of chunks:\n\n", sample, own,
                 own == 1 ? "" : "s");
    (void)printf("%-*s %21s  %25s %10s\n", width, "", "chunks touched", "bytes read", "of");
    (void)printf("%-*s %10s %10s  %12s %12s %10s\n", width, "chunk", "least", "most", "least",
                 "most", "it needed");
    for (size_t at = 0; at < table->count; at++) {
        const mh_plan_chunks *plan = &table->rows[at].plan;
        (void)printf("%-*s %10" PRIu64 " %10" PRIu64 "  %12" PRIu64 " %12" PRIu64 " %9.3g%%\n",
                     width, table->rows[at].name, plan->min_chunks, plan->max_chunks,
                     plan->min_bytes, plan->max_bytes,
                     100.0 * (double)own / (double)plan->max_bytes);
    }
    (void)printf("\nSmall chunks read few bytes in many requests, large ones the other way round;\n"
                 "the last column is the least share of what is read that the sample uses.\n");
}

/* Whether the call is about a store: there are words, and no option of the other form. */
static bool names_store(int argc, char **argv)
{
    static const char *const own[] = {"--sample", "--chunk", "--itemsize"};
    bool words = false;
    for (int at = 1; at < argc; at++) {
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (strncmp(argv[at], own[k], strlen(own[k])) == 0)
                return false;
        words = words || *argv[at] != '-';
    }
    return words;
}

int mh_plan_cmd_chunks(int argc, char **argv)
{
    if (names_store(argc, argv))
        return mh_plan_cmd_store(argc, argv);

    chunks_request request = {0};
    chunk_table table = {0};
    char sample[SHAPE_TEXT];
    int bad = parse(&request, argc, argv);
    if (bad)
        return bad;
    if (request.help) {
        mh_plan_chunks_print_help();
        return MH_CLI_OK;
    }
    bad = fill_table(&table, &request);
    if (bad)
        return bad;
    name_shape(sample, request.sample, request.dimensions);
    if (request.json)
        print_json(&table, &request, sample);
    else
        print_table(&table, &request, sample);
    return MH_CLI_OK;
}
