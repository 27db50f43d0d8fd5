/* options.c - reading a command line by a table of options
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "suggest.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_OPTIONS = 48,
    FIRST_VALUE = 256, /* above all characters: mh_cli_bad_option tells long options by it */
};

/* The next word is the value where it is a choice, or a mistyped one and not a file: the verb then
 * says what the choices are. */
static void read_maybe(mh_cli_maybe *maybe, int argc, char **argv)
{
    size_t count = 0;
    while (maybe->choices[count])
        count++;
    maybe->value = optarg ? optarg : "";
    if (optarg || optind >= argc || *argv[optind] == '-')
        return;
    const char *meant = mh_cli_closest(argv[optind], maybe->choices, count);
    if (meant && (strcmp(meant, argv[optind]) == 0 || access(argv[optind], F_OK) != 0))
        maybe->value = argv[optind++];
}

static int read_value(const mh_cli_option *option, int argc, char **argv, const char *where)
{
    switch (option->kind) {
    case MH_CLI_FLAG:
        *(bool *)option->place = true;
        return MH_CLI_OK;
    case MH_CLI_COUNT:
        return mh_cli_number(option->place, optarg, option->least, option->name, where);
    case MH_CLI_WHOLE:
        return mh_cli_whole(option->place, optarg, option->least, option->name, where);
    case MH_CLI_SIZE:
        return mh_cli_size(option->place, optarg, option->least, option->name, where);
    case MH_CLI_SECONDS:
        return mh_cli_seconds(option->place, optarg, option->name, where);
    case MH_CLI_TEXT:
        *(const char **)option->place = optarg;
        return MH_CLI_OK;
    case MH_CLI_MAYBE:
        read_maybe(option->place, argc, argv);
        return MH_CLI_OK;
    }
    return MH_CLI_USAGE;
}

static const mh_cli_option *option_of(const mh_cli_option *options, size_t count, const char *name)
{
    for (size_t at = 0; at < count; at++)
        if (strcmp(options[at].name, name) == 0)
            return &options[at];
    return NULL;
}

/* What getopt_long wants: long ones in a table, and letters in a text. */
typedef struct getopt_tables {
    struct option names[MOST_OPTIONS + 1];
    char letters[2 * MOST_OPTIONS + 3];
} getopt_tables;

static void fill_tables(getopt_tables *tables, const mh_cli_option *options, size_t count)
{
    struct option *name = tables->names;
    char *letter = tables->letters;
    *letter++ = ':'; /* a missing value is told apart */
    *letter++ = 'h';
    for (size_t at = 0; at < count && at < MOST_OPTIONS; at++) {
        bool flag = options[at].kind == MH_CLI_FLAG;
        bool maybe = options[at].kind == MH_CLI_MAYBE;
        if (options[at].name[1] == '-') {
            *name++ = (struct option){
                .name = options[at].name + strlen("--"),
                .has_arg = flag    ? no_argument
                           : maybe ? optional_argument
                                   : required_argument,
                .val = FIRST_VALUE + (int)at,
            };
        } else {
            *letter++ = options[at].name[1];
            if (!flag)
                *letter++ = ':';
        }
    }
}

/* The option that getopt_long answers with; NULL: none. */
static const mh_cli_option *answered(const mh_cli_option *options, size_t count, int answer)
{
    if (answer >= FIRST_VALUE)
        return &options[answer - FIRST_VALUE];
    const char letter[] = {'-', (char)answer, '\0'};
    return option_of(options, count, answer == 'h' ? "--help" : letter);
}

static int bad_option(int answer, char **argv, const char *where, const char *todo,
                      const mh_cli_option *options, size_t count)
{
    const char *names[MOST_OPTIONS];
    for (size_t at = 0; at < count && at < MOST_OPTIONS; at++)
        names[at] = options[at].name;
    return mh_cli_bad_option(answer, argv, where, todo, names, count);
}

static int read_words(const char **words, size_t most, int argc, char **argv, const char *where,
                      const char *todo)
{
    for (size_t at = 0; optind < argc; at++, optind++) {
        if (at == most)
            return mh_cli_fail(MH_CLI_USAGE, where, todo, "unexpected argument '%s'", argv[optind]);
        words[at] = argv[optind];
    }
    return MH_CLI_OK;
}

int mh_cli_read(const mh_cli_option *options, size_t count, const char **words, size_t most,
                int argc, char **argv, const char *where)
{
    getopt_tables tables = {0};
    const mh_cli_option *help = option_of(options, count, "--help");
    char todo[64];
    (void)snprintf(todo, sizeof todo, "see millhead %s --help", where);
    fill_tables(&tables, options, count);
    for (int answer;
         (answer = getopt_long(argc, argv, tables.letters, tables.names, NULL)) != -1;) {
        const mh_cli_option *option = answered(options, count, answer);
        if (!option)
            return bad_option(answer, argv, where, todo, options, count);
        int bad = read_value(option, argc, argv, where);
        if (bad || option == help)
            return bad;
    }
    return read_words(words, most, argc, argv, where, todo);
}
