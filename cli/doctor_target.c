/* doctor_target.c - what the words of `millhead doctor` name: a program, a run, a benchmark
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doctor_target.h"
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- programs --- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length > end_length && strcmp(text + length - end_length, end) == 0;
}

/* A file that may be executed and looks like it: on some disks everything may be. */
static bool is_executable(const char *path)
{
    char head[4] = "";
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || access(path, X_OK) != 0)
        return false;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return true; /* may be executed and not be read */
    size_t got = fread(head, 1, sizeof head, file);
    (void)fclose(file);
    return (got >= 2 && memcmp(head, "#!", 2) == 0) ||
           (got == 4 && memcmp(head, "\177ELF", 4) == 0);
}

/* Whether a shell would find this command in PATH. */
static bool in_path(const char *name)
{
    char file[PATH_MAX];
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":");
        if (snprintf(file, sizeof file, "%.*s/%s", (int)length, at, name) < (int)sizeof file &&
            is_executable(file))
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

static bool has_file(const char *directory, const char *name, const char *file)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s/%s", directory, name, file) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* Something to judge: a file, or a directory with a run or a benchmark. A directory `python/` that
 * holds neither does not stand in the way of the command. */
static bool is_recorded(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 &&
           (!S_ISDIR(about.st_mode) || has_file(path, ".", "events.jsonl") ||
            has_file(path, ".", "run.json") || has_file(path, ".", "bench.json"));
}

static bool is_program(const char *word)
{
    if (ends_with(word, ".py") || is_executable(word))
        return true;
    return !is_recorded(word) && !strchr(word, '/') && in_path(word);
}

static bool takes_value(const char *option)
{
    static const char *const options[] = {"-o", "--probe", "--pid", "--seconds"};
    for (size_t at = 0; at < sizeof options / sizeof *options; at++)
        if (strcmp(option, options[at]) == 0)
            return true;
    return false;
}

/* The index of the first word that is not an option of the doctor; 0: all are, or help is asked
 * for. */
static int first_word(int argc, char **argv)
{
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0)
            return 0;
        if (takes_value(argv[at]))
            at++;
        else if (*argv[at] != '-' || strcmp(argv[at], "--") == 0)
            return at;
    }
    return 0;
}

bool mh_doctor_has_program(int argc, char **argv)
{
    int at = first_word(argc, argv);
    return at && (strcmp(argv[at], "--") == 0 || is_program(argv[at]));
}

const char *mh_doctor_unknown(int argc, char **argv)
{
    int at = first_word(argc, argv);
    if (!at || at + 1 >= argc || takes_value(argv[at + 1]) || strcmp(argv[at + 1], "--json") == 0)
        return NULL;
    return access(argv[at], F_OK) == 0 ? NULL : argv[at];
}

/* --- directories of `millhead bench` --- */

bool mh_doctor_is_bench(const char *path)
{
    return has_file(path, ".", "bench.json") && !has_file(path, ".", "events.jsonl");
}

static int is_run(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int mh_doctor_list_runs(const char *path, bool json)
{
    struct dirent **names;
    const char *first = NULL;
    int count = scandir(path, &names, is_run, versionsort);
    if (count < 0)
        return mh_cli_fail(MH_CLI_FAILED, "doctor", "check its permissions", "cannot list %s: %s",
                           path, strerror(errno));
    (void)printf(json ? "{\"runs\": [" : "runs in %s:\n", path);
    for (int at = 0; at < count; at++) {
        if (!has_file(path, names[at]->d_name, "events.jsonl"))
            continue;
        if (json) {
            (void)printf("%s", first ? ", " : "");
            mh_cli_print_quoted(names[at]->d_name);
        } else {
            (void)printf("  %s\n", names[at]->d_name);
        }
        first = first ? first : names[at]->d_name;
    }
    if (json)
        (void)printf("]}\n");
    else if (first)
        (void)printf("\nwhat one of them waited for: millhead doctor %s/%s\n"
                     "all of them side by side:    millhead report %s -o report.html\n",
                     path, first, path);
    for (int at = 0; at < count; at++)
        free(names[at]);
    free(names);
    return MH_CLI_OK;
}
