/* data.h - what the verbs over data share: opening it, and saying what is wrong with it
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_DATA_H
#define MILLHEAD_CLI_DATA_H

#include "options.h"

/* What a command line says about the data itself. */
typedef struct mh_cli_data {
    const char *fields;         /* the value of --fields ("a,b"), or NULL: all */
    mh_dataset_options options; /* the texts */
} mh_cli_data;

/* Rows for a verb's table of options, and what its help says about them. */
#define MH_CLI_DATA_ROWS(data)                                                                     \
    {"--fields", MH_CLI_TEXT, &(data)->fields, 0},                                                 \
        {"--format", MH_CLI_TEXT, &(data)->options.format, 0},                                     \
        {"--pipeline", MH_CLI_TEXT, &(data)->options.pipeline, 0},                                 \
        {"--profile", MH_CLI_TEXT, &(data)->options.profile, 0},                                   \
        {"--window", MH_CLI_TEXT, &(data)->options.window, 0},                                     \
        {"--stride", MH_CLI_TEXT, &(data)->options.stride, 0},                                     \
        {"--select", MH_CLI_TEXT, &(data)->options.select, 0},                                     \
        {"--target", MH_CLI_TEXT, &(data)->options.target, 0},                                     \
        {"--join", MH_CLI_TEXT, &(data)->options.join, 0},                                         \
        {"--decode", MH_CLI_TEXT, &(data)->options.decode, 0},                                     \
        {"--index", MH_CLI_TEXT, &(data)->options.index, 0},                                       \
        {"--storage", MH_CLI_TEXT, &(data)->options.storage, 0},                                   \
        {"--cache", MH_CLI_TEXT, &(data)->options.cache, 0},                                       \
    {                                                                                              \
        "--cache-check", MH_CLI_TEXT, &(data)->options.cache_check, 0                              \
    }
extern const char mh_cli_data_help[];

/* All as if nothing was given. */
void mh_cli_data_init(mh_cli_data *data);

/* Opens the paths (ended by NULL). Returns an exit code, and has said what is wrong where that is
 * not MH_CLI_OK. */
int mh_cli_open_data(mh_dataset **out, const char *const *paths, const mh_cli_data *data,
                     const char *where);

/* The choices of a --shuffle [KIND], and what was chosen: MH_CLI_OK, with *out untouched where the
 * option was not given, or MH_CLI_USAGE with the reason said. */
extern const char *const mh_cli_shuffles[];
int mh_cli_take_shuffle(mh_shuffle *out, const mh_cli_maybe *given, const char *where);

/* What to do about data that cannot be read. */
const char *mh_cli_data_remedy(mh_status status, const mh_error *err);

/* "float32", as NumPy calls it; returns `out`. */
#define MH_CLI_DTYPE 16
const char *mh_cli_dtype(char out[MH_CLI_DTYPE], mh_dtype dtype);

#endif
