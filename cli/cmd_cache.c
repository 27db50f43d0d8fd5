/* cmd_cache.c - millhead cache: what a cache keeps, and making room in it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHERE "cache"

static void print_help(void)
{
    (void)printf(
        "usage: millhead cache ls|stat|verify|prune|clear DIR [OPTIONS]\n"
        "\n"
        "Looks after the directory of cache=\"DIR:50GB\". Loaders may go on using it: data sets\n"
        "that are in use are not removed.\n"
        "\n"
        "  ls        the data sets in it: entries, bytes, name\n"
        "  stat      how much there is\n"
        "  verify    reads all entries and removes those that are corrupt\n"
        "  prune     removes the data sets opened longest ago until --limit holds\n"
        "  clear     removes all entries\n"
        "\n"
        "options:\n"
        "  --limit SIZE  of prune (default 0: all)\n"
        "  --json        one JSON object: entries, bytes, corrupt, removed, checked; with ls\n"
        "                spaces (name, entries, bytes)\n"
        "  --help        this text\n");
}

typedef struct listed {
    bool json;
    size_t count;
} listed;

static void print_space(void *argument, const char *name, uint64_t entries, uint64_t bytes)
{
    listed *list = argument;
    char size[MH_CLI_BYTES];
    if (!list->json) {
        (void)printf("%10" PRIu64 "  %10s  %s\n", entries, mh_cli_bytes(size, bytes), name);
        return;
    }
    (void)printf("%s{\"name\": ", list->count++ ? ", " : "");
    mh_cli_print_quoted(name);
    (void)printf(", \"entries\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", entries, bytes);
}

static const char *remedy(mh_status status)
{
    switch (status) {
    case MH_ERR_NOT_FOUND:
        return "give the DIR of cache=\"DIR:50GB\"";
    case MH_ERR_INVALID:
        return "give a cache of your own";
    default:
        return "check that you may write there";
    }
}

static void print_totals(const mh_cache_totals *totals, bool json)
{
    char size[MH_CLI_BYTES];
    uint64_t checked = totals->entries + totals->corrupt;
    if (json)
        (void)printf("\"entries\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"corrupt\": %" PRIu64
                     ", \"removed\": %" PRIu64 ", \"checked\": %" PRIu64 "}\n",
                     totals->entries, totals->bytes, totals->corrupt, totals->removed, checked);
    else
        (void)printf("%" PRIu64 " entries, %s; %" PRIu64 " removed, %" PRIu64 " of them corrupt\n",
                     totals->entries, mh_cli_bytes(size, totals->bytes), totals->removed,
                     totals->corrupt);
}

int mh_cmd_cache(int argc, char **argv)
{
    static const struct {
        const char *name;
        mh_cache_job job;
    } jobs[] = {{"ls", MH_CACHE_COUNT},
                {"stat", MH_CACHE_COUNT},
                {"verify", MH_CACHE_VERIFY},
                {"prune", MH_CACHE_PRUNE},
                {"clear", MH_CACHE_CLEAR}};
    const char *words[2] = {NULL, NULL};
    bool json = false, help = false;
    uint64_t limit = 0;
    const mh_cli_option table[] = {
        {"--limit", MH_CLI_SIZE, &limit, 0},
        {"--json", MH_CLI_FLAG, &json, 0},
        {"--help", MH_CLI_FLAG, &help, 0},
    };
    int code = mh_cli_read(table, sizeof table / sizeof *table, words, 2, argc, argv, WHERE);
    if (code != MH_CLI_OK)
        return code;
    if (help) {
        print_help();
        return MH_CLI_OK;
    }
    size_t at = 0, count = sizeof jobs / sizeof *jobs;
    while (at < count && words[0] && strcmp(jobs[at].name, words[0]) != 0)
        at++;
    if (!words[0] || at == count)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "see millhead cache --help",
                           "give one of ls, stat, verify, prune, clear");
    if (!words[1])
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "see millhead cache --help", "no DIR given");
    mh_cache_totals totals;
    mh_error err;
    listed list = {.json = json};
    bool ls = at == 0;
    mh_cache_totals_init(&totals);
    if (json)
        (void)printf(ls ? "{\"spaces\": [" : "{");
    mh_status status =
        mh_cache_tend(words[1], jobs[at].job, limit, ls ? print_space : NULL, &list, &totals, &err);
    if (status != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, remedy(status), "%s", err.message);
    if (json && ls)
        (void)printf("], ");
    print_totals(&totals, json);
    return MH_CLI_OK;
}
