/* main.c - the command: picks the verb, and what the verbs share
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli.h"
#include "suggest.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct verb {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} verb;

static int cmd_help(int argc, char **argv);

/* The one list of verbs: it drives --help and the hint after an unknown one. */
static const verb verbs[] = {
    {"bench", "measure a dataset under several configurations, and recommend one", mh_cmd_python},
    {"cache", "look after a cache on disk: list, verify, prune, clear", mh_cmd_cache},
    {"doctor", "what a run waited for, and what to do about it", mh_cmd_doctor},
    {"explain", "what a verdict means, and what to do about it", mh_cmd_explain},
    {"export", "write a run as a trace for a viewer, or as a table", mh_cmd_export},
    {"help", "what a verb does and its options", cmd_help},
    {"inspect", "what data holds: format, samples, fields", mh_cmd_inspect},
    {"list", "the formats and sources that can be read", mh_cmd_list},
    {"plan", "how many workers, threads, chunks, and how much memory", mh_cmd_plan},
    {"probe", "how fast memory, page cache, storage and network are", mh_cmd_probe},
    {"read", "read an epoch of data: how fast, and its hash", mh_cmd_read},
    {"report", "draw runs as one page for a browser, or as pictures", mh_cmd_report},
    {"run", "run a Python program with millhead's loaders in place of torch's", mh_cmd_python},
    {"stage", "copy data to local disk, once per machine", mh_cmd_stage},
    {"synth", "make data to try things with, from a seed", mh_cmd_synth},
    {"tune", "find the loader's settings for a dataset and a train step", mh_cmd_python},
};

#define VERB_COUNT (sizeof verbs / sizeof *verbs)

int mh_cli_fail(int code, const char *where, const char *todo, const char *format, ...)
{
    char what[512], line[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    (void)snprintf(line, sizeof line, "millhead: %s (%s): %s", what, where, todo);
    /* Arguments are quoted in messages; a message stays one line and moves no cursor. */
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    (void)fprintf(stderr, "%s\n", line);
    return code;
}

int mh_cli_bad_option(int answer, char *const *argv, const char *where, const char *todo,
                      const char *const *names, size_t count)
{
    const char *given = argv[optind - 1];
    if (answer == ':')
        return mh_cli_fail(MH_CLI_USAGE, where, todo, "option '%s' needs a value", given);
    if (optopt > 255)
        return mh_cli_fail(MH_CLI_USAGE, where, todo, "option '%s' takes no value", given);
    if (optopt)
        return mh_cli_fail(MH_CLI_USAGE, where, todo, "unknown option '-%c'", optopt);
    return mh_cli_fail(MH_CLI_USAGE, where, mh_cli_did_you_mean(given, names, count, todo),
                       "unknown option '%s'", given);
}

const char *mh_cli_run_remedy(mh_status status)
{
    switch (status) {
    case MH_ERR_NOT_FOUND:
        return "give the directory of a run, an events file, a log or a program to run";
    case MH_ERR_UNSUPPORTED:
        return "use the millhead that wrote it, or a later one";
    case MH_ERR_CORRUPT:
        return "see docs/events.md for what is read";
    case MH_ERR_NOMEM:
        return "free some memory";
    default:
        return "check that it can be read or written";
    }
}

int mh_cli_number(int *out, const char *text, int least, const char *option, const char *where)
{
    char todo[64], *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    /* The first character too: strtol would skip blanks and take a plus sign. */
    if (errno || *end || *text < '0' || *text > '9' || value < least || value > MH_PLAN_MOST) {
        (void)snprintf(todo, sizeof todo, "give a whole number from %d to %d", least, MH_PLAN_MOST);
        return mh_cli_fail(MH_CLI_USAGE, where, todo, "%s is '%s'", option, text);
    }
    *out = (int)value;
    return MH_CLI_OK;
}

static void print_help(void)
{
    (void)printf("usage: millhead VERB [OPTIONS]\n"
                 "\n"
                 "Data loading for training: plan it, run it, see where it waits.\n"
                 "\n"
                 "verbs:\n");
    for (size_t at = 0; at < VERB_COUNT; at++)
        (void)printf("  %-10s %s\n", verbs[at].name, verbs[at].summary);
    (void)printf("\n"
                 "options:\n"
                 "  --help     this text; millhead help VERB for a verb's own\n"
                 "  --version  the version\n"
                 "\n"
                 "exit codes: 0 done, 1 the data or the run failed, 2 usage or configuration\n");
}

/* "known verbs: a, b; see millhead --help". */
static const char *verb_hint(void)
{
    static char hint[256];
    size_t used = (size_t)snprintf(hint, sizeof hint, "known verbs:");
    for (size_t at = 0; at < VERB_COUNT && used < sizeof hint; at++)
        used += (size_t)snprintf(hint + used, sizeof hint - used, "%s %s", at ? "," : "",
                                 verbs[at].name);
    if (used < sizeof hint)
        (void)snprintf(hint + used, sizeof hint - used, "; see millhead --help");
    return hint;
}

static int run_verb(int argc, char **argv)
{
    for (size_t at = 0; at < VERB_COUNT; at++) {
        if (strcmp(argv[0], verbs[at].name) == 0) {
            optind = 0; /* glibc: start afresh on the verb's own arguments */
            return verbs[at].run(argc, argv);
        }
    }
    const char *names[VERB_COUNT];
    for (size_t at = 0; at < VERB_COUNT; at++)
        names[at] = verbs[at].name;
    return mh_cli_fail(MH_CLI_USAGE, "command line",
                       mh_cli_did_you_mean(argv[0], names, VERB_COUNT, verb_hint()),
                       "unknown verb '%s'", argv[0]);
}

/* `millhead help VERB` is `millhead VERB --help`; a subject of `plan` may follow. */
static int cmd_help(int argc, char **argv)
{
    static char flag[] = "--help";
    if (argc == 1) {
        print_help();
        return MH_CLI_OK;
    }
    if (*argv[1] == '-') {
        (void)printf("usage: millhead help [VERB [SUBJECT]]\n"
                     "\n"
                     "Shows what a verb does and its options, as its --help does.\n"
                     "\n"
                     "options:\n"
                     "  --help  this text\n");
        return MH_CLI_OK;
    }
    if (argc > 3)
        return mh_cli_fail(MH_CLI_USAGE, "help", "say millhead help VERB",
                           "unexpected argument '%s'", argv[3]);
    char *words[] = {argv[1], argc == 3 ? argv[2] : flag, argc == 3 ? flag : NULL, NULL};
    return run_verb(argc, words);
}

static int run(int argc, char **argv)
{
    enum { HELP = 256, VERSION };
    static const struct option options[] = {
        {"help", no_argument, NULL, HELP},
        {"version", no_argument, NULL, VERSION},
        {0},
    };
    static const char *const names[] = {"--help", "--version"};
    int answer = getopt_long(argc, argv, "+:h", options, NULL); /* + stops at the verb */
    switch (answer) {
    case HELP:
    case 'h':
        print_help();
        return MH_CLI_OK;
    case VERSION:
        (void)printf("millhead %s\n", mh_version());
        return MH_CLI_OK;
    case -1:
        break;
    default:
        return mh_cli_bad_option(answer, argv, "command line", "see millhead --help", names,
                                 sizeof names / sizeof *names);
    }
    if (optind >= argc)
        return mh_cli_fail(MH_CLI_USAGE, "command line", verb_hint(), "no verb given");
    return run_verb(argc - optind, argv + optind);
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);
    /* Output is buffered: a full disk or a closed descriptor shows only here. */
    int failed = ferror(stdout);
    if ((fclose(stdout) != 0 || failed) && code == MH_CLI_OK)
        return mh_cli_fail(MH_CLI_FAILED, "standard output", "check where the output goes",
                           "cannot write the result: %s", errno ? strerror(errno) : "write failed");
    return code;
}
