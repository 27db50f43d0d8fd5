/* plan_store.c - millhead plan chunks STORE: what its windows cost, and which chunks would be
 * better SPDX-License-Identifier: Apache-2.0
 */
#include "data.h"
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHERE "plan chunks"

const char mh_plan_store_help[] =
    "What windows over a store cost: chunks that a sample touches, reads and decoded bytes\n"
    "of an epoch in some order, and chunks of other shapes for the same windows. The\n"
    "figures are exact where the memory is enough, else at most. Only metadata is read.\n"
    "\n"
    "  --window SIZES     time=4,lat=64,lon=64\n"
    "  --stride STEPS, --select RANGES, --target OFFSETS, --fields NAMES, --decode HOW\n"
    "                     as for millhead read\n"
    "  --shuffle [KIND]   the order: blocks (default), true, torch or false\n"
    "  --memory SIZE      of the loader (default: a quarter of what is available)\n"
    "  --json             one JSON object: samples, shuffle, memory_bytes, useful_bytes,\n"
    "                     stored and rows (chunk, chunk_bytes, sample_chunks, sample_bytes,\n"
    "                     reads, decoded_bytes, unique_bytes, decoded_per_useful,\n"
    "                     memory_bytes), best: which of rows, or -1 for those stored\n";

typedef struct store_request {
    mh_cli_data about;
    mh_plan_store_options options;
    mh_cli_maybe shuffle;
    bool json, help;
} store_request;

enum { SHAPE_TEXT = 400 };

static const char *order_name(mh_shuffle shuffle)
{
    static const char *const names[MH_SHUFFLE_KINDS] = {[MH_SHUFFLE_NONE] = "false",
                                                        [MH_SHUFFLE_ALL] = "true",
                                                        [MH_SHUFFLE_TORCH] = "torch",
                                                        [MH_SHUFFLE_BLOCKS] = "blocks"};
    return names[shuffle];
}

/* Bytes decoded in an epoch for each byte that samples use. */
static double per_useful(const mh_plan_store *plan, const mh_store_chunks *row)
{
    const double useful = plan->useful_bytes * (double)plan->samples;
    return useful > 0 ? row->decoded_bytes / useful : 0;
}

/* As mh_plan_store_make compares them: a read stands for 128 KiB. */
static double weight(const mh_store_chunks *row)
{
    return row->decoded_bytes + row->reads * (128 << 10);
}

/* The best of the rows, or -1: no row is better than what is stored by more than a hundredth. */
static int best_row(const mh_plan_store *plan)
{
    if (plan->row_count == 0 || weight(&plan->rows[plan->best]) > 0.99 * weight(&plan->stored))
        return -1;
    return (int)plan->best;
}

/* --- JSON --- */

static void print_row_json(const mh_plan_store *plan, const mh_store_chunks *row)
{
    (void)printf("{\"chunk\": {");
    for (uint32_t dim = 0; dim < plan->dims; dim++) {
        (void)printf("%s", dim ? ", " : "");
        mh_cli_print_quoted(plan->names[dim]);
        (void)printf(": %" PRIu64, row->chunk[dim]);
    }
    (void)printf("}, \"chunk_bytes\": %.0f, \"sample_chunks\": %.6g, \"sample_bytes\": %.0f, "
                 "\"reads\": %.0f, \"decoded_bytes\": %.0f, \"unique_bytes\": %.0f, "
                 "\"decoded_per_useful\": %.6g, \"memory_bytes\": %.0f}",
                 row->chunk_bytes, row->sample_chunks, row->sample_bytes, row->reads,
                 row->decoded_bytes, row->unique_bytes, per_useful(plan, row), row->memory_bytes);
}

static void print_json(const mh_plan_store *plan, mh_shuffle shuffle)
{
    (void)printf("{\"samples\": %" PRIu64 ", \"shuffle\": \"%s\", \"memory_bytes\": %" PRIu64
                 ", \"useful_bytes\": %.0f, \"stored\": ",
                 plan->samples, order_name(shuffle), plan->memory_bytes, plan->useful_bytes);
    print_row_json(plan, &plan->stored);
    (void)printf(", \"rows\": [");
    for (size_t at = 0; at < plan->row_count; at++) {
        (void)printf("%s", at ? ", " : "");
        print_row_json(plan, &plan->rows[at]);
    }
    (void)printf("], \"best\": %d}\n", best_row(plan));
}

/* --- a table --- */

/* "time=4 lat=64 lon=64"; names come from files and move no cursor. */
static void shape_text(char out[SHAPE_TEXT], const mh_plan_store *plan, const uint64_t *shape)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t dim = 0; dim < plan->dims && used < SHAPE_TEXT; dim++)
        used += (size_t)snprintf(out + used, SHAPE_TEXT - used, "%s%.40s=%" PRIu64, used ? " " : "",
                                 plan->names[dim], shape[dim]);
    for (char *at = out; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
}

static void print_row(const mh_plan_store *plan, const mh_store_chunks *row, const char *mark)
{
    char shape[SHAPE_TEXT], chunk[MH_CLI_BYTES], decoded[MH_CLI_BYTES], memory[MH_CLI_BYTES];
    shape_text(shape, plan, row->chunk);
    (void)printf("%-28s %9s %8.4g %10.4g %9s %9.3g %9s  %s\n", shape,
                 mh_cli_bytes(chunk, (uint64_t)row->chunk_bytes), row->sample_chunks, row->reads,
                 mh_cli_bytes(decoded, (uint64_t)row->decoded_bytes), per_useful(plan, row),
                 mh_cli_bytes(memory, (uint64_t)row->memory_bytes), mark);
}

static void print_table(const mh_plan_store *plan, mh_shuffle shuffle)
{
    char shape[SHAPE_TEXT], bytes[MH_CLI_BYTES], memory[MH_CLI_BYTES];
    const int best = best_row(plan);
    shape_text(shape, plan, plan->window);
    (void)printf("%" PRIu64 " windows of %s, %s each, shuffle %s, memory %s\n\n", plan->samples,
                 shape, mh_cli_bytes(bytes, (uint64_t)plan->useful_bytes), order_name(shuffle),
                 mh_cli_bytes(memory, plan->memory_bytes));
    (void)printf("%-28s %9s %8s %10s %9s %9s %9s\n", "", "bytes of", "chunks", "reads", "decoded",
                 "per byte", "memory");
    (void)printf("%-28s %9s %8s %10s %9s %9s %9s\n", "chunk", "a chunk", "a sample", "an epoch",
                 "an epoch", "used", "for that");
    print_row(plan, &plan->stored, "as stored");
    for (size_t at = 0; at < plan->row_count; at++)
        print_row(plan, &plan->rows[at], (int)at == best ? "best" : "");
    if (plan->stored.memory_bytes > (double)plan->memory_bytes)
        (void)printf("\nWith --memory %.0fMB each chunk of the store would be decoded %s.\n",
                     plan->stored.memory_bytes / 1e6 + 1,
                     shuffle == MH_SHUFFLE_BLOCKS ? "only as often as blocks need it" : "once");
    if (best < 0)
        (void)printf("\nNo other chunks are better for these windows.\n");
}

/* --- the verb --- */

int mh_plan_cmd_store(int argc, char **argv)
{
    store_request request = {.shuffle = {.choices = mh_cli_shuffles}};
    const mh_cli_option table[] = {
        MH_CLI_DATA_ROWS(&request.about),
        {"--shuffle", MH_CLI_MAYBE, &request.shuffle, 0},
        {"--memory", MH_CLI_SIZE, &request.options.memory_bytes, 1},
        {"--json", MH_CLI_FLAG, &request.json, 0},
        {"--help", MH_CLI_FLAG, &request.help, 0},
    };
    mh_dataset *data = NULL;
    mh_plan_store plan;
    mh_error err;
    const char **paths = calloc((size_t)argc + 1, sizeof *paths);
    if (!paths)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "free some memory", "out of memory");
    mh_cli_data_init(&request.about);
    mh_plan_store_options_init(&request.options);
    request.options.shuffle = MH_SHUFFLE_BLOCKS;
    int code =
        mh_cli_read(table, sizeof table / sizeof *table, paths, (size_t)argc, argc, argv, WHERE);
    if (code == MH_CLI_OK && request.help) {
        mh_plan_chunks_print_help();
        free(paths);
        return MH_CLI_OK;
    }
    if (code == MH_CLI_OK)
        code = mh_cli_take_shuffle(&request.options.shuffle, &request.shuffle, WHERE);
    if (code == MH_CLI_OK)
        code = mh_cli_open_data(&data, paths, &request.about, WHERE);
    if (code == MH_CLI_OK && mh_plan_store_make(&plan, data, &request.options, &err) != MH_OK)
        code = mh_cli_fail(MH_CLI_USAGE, WHERE, "give a store that is cut into chunks", "%s",
                           err.message);
    if (code == MH_CLI_OK)
        (request.json ? print_json : print_table)(&plan, request.options.shuffle);
    mh_dataset_unref(data);
    free(paths);
    return code;
}
