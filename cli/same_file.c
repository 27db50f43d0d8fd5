/* same_file.c - whether a file to be written is what it would be made of
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool same_file(const char *one, const char *other)
{
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino && S_ISREG(a.st_mode);
}

/* What runs and benches are read from (docs/events.md). */
static bool is_of_a_run(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strncmp(name, "events.", 7) == 0 || strcmp(name, "run.json") == 0 ||
           strcmp(name, "bench.json") == 0;
}

bool mh_cli_is_source(const char *out, const char *run)
{
    char file[PATH_MAX], directory[PATH_MAX];
    if (!out || same_file(out, run))
        return out != NULL;
    if (!is_of_a_run(out) || !realpath(out, file) || !realpath(run, directory))
        return false;
    size_t length = strlen(directory);
    return strncmp(file, directory, length) == 0 && file[length] == '/';
}
