/* data.c - opening data for a verb, and saying what is wrong with it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "data.h"
#include "suggest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char mh_cli_data_help[] =
    "  --fields A,B       deliver only these fields\n"
    "  --format NAME      one of millhead list (default: found out from the data)\n"
    "  --pipeline STEPS   for pictures: \"image: decode | resize 224x224\" (millhead list);\n"
    "                     for arrays: \"t2m: normalize mean=280 std=20 | nan 0 | cast f16\"\n"
    "  --profile NAME     for pictures: exact (default), or fast, which decodes fewer pixels\n"
    "  --window SIZES     for arrays: size of a sample, as time=4,lat=64,lon=64\n"
    "  --stride STEPS     from window to window (default: the window)\n"
    "  --select RANGES    a part of the data: time=0:100 by index, lat=40..60 by coordinate\n"
    "  --target OFFSETS   add a second window at this distance: time=6\n"
    "  --join DIM         the dimension along which several stores are one\n"
    "  --decode HOW       for arrays: cf (default), or none for values as stored\n"
    "  --index FILE       where to keep the list of a folder's files; off: keep none\n"
    "  --storage OPTIONS  for URLs: key=...,secret=...,endpoint_url=..., any of them\n"
    "  --cache DIR:SIZE   keep data from URLs on a local disk\n"
    "  --cache-check each check before each read whether the object has changed\n";

void mh_cli_data_init(mh_cli_data *data)
{
    *data = (mh_cli_data){0};
    mh_dataset_options_init(&data->options);
}

const char *const mh_cli_shuffles[] = {"true", "false", "blocks", "torch", NULL};

int mh_cli_take_shuffle(mh_shuffle *out, const mh_cli_maybe *given, const char *where)
{
    static const mh_shuffle kinds[] = {MH_SHUFFLE_ALL, MH_SHUFFLE_NONE, MH_SHUFFLE_BLOCKS,
                                       MH_SHUFFLE_TORCH};
    if (!given->value)
        return MH_CLI_OK;
    size_t count = 0;
    for (; mh_cli_shuffles[count]; count++)
        if (strcmp(*given->value ? given->value : "true", mh_cli_shuffles[count]) == 0) {
            *out = kinds[count];
            return MH_CLI_OK;
        }
    return mh_cli_fail(MH_CLI_USAGE, where,
                       mh_cli_did_you_mean(given->value, mh_cli_shuffles, count,
                                           "give --shuffle alone, or blocks, torch, true or false"),
                       "--shuffle is '%s'", given->value);
}

const char *mh_cli_data_remedy(mh_status status, const mh_error *err)
{
    if (strstr(err->message, "://")) /* it says itself what to change */
        return "see docs/remote.md";
    switch (status) {
    case MH_ERR_INVALID:
        return "check the path and the options";
    case MH_ERR_NOT_FOUND:
        return "check the path";
    case MH_ERR_CORRUPT:
        return err->place.sample == MH_NOWHERE ? "write the file again, or give another"
                                               : "write the file again, or give --on-error skip";
    case MH_ERR_UNSUPPORTED:
        return "convert it to what millhead list names, with numbers of a plain type";
    case MH_ERR_NOMEM:
        return "free some memory";
    default:
        return "check that it can be read and stays as it is";
    }
}

const char *mh_cli_dtype(char out[MH_CLI_DTYPE], mh_dtype dtype)
{
    static const char *const names[] = {
        [0] = "int", [1] = "uint", [2] = "float", [4] = "bfloat", [5] = "complex", [6] = "bool",
    };
    bool known = dtype.code < sizeof names / sizeof *names && names[dtype.code];
    const char *name = known ? names[dtype.code] : "unknown";
    if (dtype.code == 6)
        (void)snprintf(out, MH_CLI_DTYPE, "%s", name);
    else
        (void)snprintf(out, MH_CLI_DTYPE, "%s%u", name, dtype.bits);
    return out;
}

/* Cuts `text` at its commas; names[] has a place for each. */
static size_t split_names(const char **names, char *text)
{
    size_t count = 0;
    for (char *comma; (comma = strchr(text, ',')) != NULL; text = comma + 1) {
        *comma = '\0';
        names[count++] = text;
    }
    names[count++] = text;
    return count;
}

static mh_status open_fields(mh_dataset **out, const char *const *paths, size_t count,
                             const mh_cli_data *data, mh_error *err)
{
    mh_dataset_options options = data->options;
    char *text = strdup(data->fields);
    const char **names = calloc(strlen(data->fields) + 1, sizeof *names);
    mh_status status = MH_ERR_NOMEM;
    (void)snprintf(err->message, sizeof err->message, "no memory for the names of fields");
    if (text && names) {
        options.field_count = split_names(names, text);
        options.fields = names;
        status = mh_dataset_open(out, paths, count, &options, err);
    }
    free(names);
    free(text);
    return status;
}

/* Whether it is the choice of fields that is wrong, and not the data. */
static bool opens_without_choice(const char *const *paths, size_t count, const mh_cli_data *data)
{
    mh_dataset *opened = NULL;
    mh_error err;
    bool opens = mh_dataset_open(&opened, paths, count, &data->options, &err) == MH_OK;
    mh_dataset_unref(opened);
    return opens;
}

int mh_cli_open_data(mh_dataset **out, const char *const *paths, const mh_cli_data *data,
                     const char *where)
{
    char todo[64];
    mh_error err;
    size_t count = 0;
    while (paths[count])
        count++;
    (void)snprintf(todo, sizeof todo, "see millhead %s --help", where);
    if (count == 0)
        return mh_cli_fail(MH_CLI_USAGE, where, todo, "no data given");
    mh_status status = data->fields ? open_fields(out, paths, count, data, &err)
                                    : mh_dataset_open(out, paths, count, &data->options, &err);
    if (status == MH_OK)
        return MH_CLI_OK;
    if (data->fields && status == MH_ERR_INVALID && opens_without_choice(paths, count, data))
        return mh_cli_fail(MH_CLI_USAGE, where, "give names of these in --fields", "%s",
                           err.message);
    return mh_cli_fail(MH_CLI_FAILED, where, mh_cli_data_remedy(status, &err), "%s", err.message);
}
